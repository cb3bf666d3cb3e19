"""Train what reads text to recall strings as well: a stage of `make sweep`, after make_race.py.

recall.npz holds, for each of helpers.race.lines(), one row for each of TRIES: "rate", "steps" and "seed";
"home", "recall", "right key" and "control" of helpers.recall.of_recall; and of text "choosing" and "all" in
bins of 8 positions, (64,). It takes about a quarter of an hour on two cores; what was trained before is found
again in the cache.
"""

import json
import sys
from pathlib import Path

import numpy as np

from helpers import cache, race
from helpers.schemes import SCHEMES
from helpers.training import sweep

# The same for every line: rate, steps and seed.
TRIES = ((1e-2, 3000, 0),)


def main(folder: Path) -> None:
    """Train what is missing, and write the file into folder."""
    settings = {
        (name, place): one.settings(task="recall", recall_rate=rate, recall_steps=steps, seed=seed)
        for name, one in race.lines().items()
        for place, (rate, steps, seed) in enumerate(TRIES)
    }
    runs = dict(zip(settings, sweep(list(settings.values())), strict=True))
    stored: dict[str, np.ndarray] = {}
    for name in race.lines():
        tried = [runs[name, place] for place in range(len(TRIES))]
        for place, what in enumerate(("rate", "steps", "seed")):
            stored[f"{name}/{what}"] = np.array([one[place] for one in TRIES])
        for score in ("home", "recall", "right key", "control", "choosing"):
            stored[f"{name}/{score}"] = np.stack([run.scores[score] for run in tried])
        stored[f"{name}/all"] = np.stack([run.scores["all"].mean(axis=0) for run in tried])
    about = {
        "code": {scheme: cache.code_version(scheme, more=cache.RECALL) for scheme in SCHEMES},
        "versions": {"python": sys.version.split()[0], "numpy": np.__version__},
    }
    stored["about"] = np.array(json.dumps(about, sort_keys=True))
    cache.ship(folder / "recall.npz", stored)


if __name__ == "__main__":
    main(Path(__file__).parent)
