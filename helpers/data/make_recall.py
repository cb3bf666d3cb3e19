"""Train what reads text to recall strings as well: a stage of `make sweep`, after make_race.py.

recall.npz holds, for each of helpers.race.lines(), one row for each try: "rate", "steps" and "seed"; "home",
"recall", "right key" and "control" of helpers.recall.of_recall; and of text "choosing" and "all" in bins of 8
positions, (64,). Every line has three tries: two rates for 3,000 steps, and the better rate once more, with
another seed where it has learned the task (over nine tenths at home), else with 6,000 steps. It takes about
forty minutes on two cores; what was trained before is found again in the cache.
"""

import json
import sys
from pathlib import Path

import numpy as np

from helpers import cache, race
from helpers.schemes import SCHEMES
from helpers.training import Run, Settings, sweep

RATES = (3e-3, 1e-2)
STEPS = 3000


def once_more(name: str, tried: list[Run]) -> Settings:
    """Return the third try of a line."""
    best = max(tried, key=lambda run: run.scores["home"].mean())
    learned = best.scores["home"].mean() > 0.9
    more = {"seed": 1, "recall_steps": STEPS} if learned else {"seed": 0, "recall_steps": 2 * STEPS}
    return race.lines()[name].settings(task="recall", recall_rate=best.settings.recall_rate, **more)


def main(folder: Path) -> None:
    """Train what is missing, and write the file into folder."""
    lines = race.lines()
    first = {
        (name, rate): one.settings(task="recall", recall_steps=STEPS, recall_rate=rate)
        for name, one in lines.items()
        for rate in RATES
    }
    runs = dict(zip(first, sweep(list(first.values())), strict=True))
    groups = {name: [runs[name, rate] for rate in RATES] for name in lines}
    third = sweep([once_more(name, tried) for name, tried in groups.items()])
    stored: dict[str, np.ndarray] = {}
    for (name, tried), last in zip(groups.items(), third, strict=True):
        every = [*tried, last]
        stored[f"{name}/rate"] = np.array([run.settings.recall_rate for run in every])
        stored[f"{name}/steps"] = np.array([run.settings.recall_steps for run in every])
        stored[f"{name}/seed"] = np.array([run.settings.seed for run in every])
        for score in ("home", "recall", "right key", "control", "choosing"):
            stored[f"{name}/{score}"] = np.stack([run.scores[score] for run in every])
        stored[f"{name}/all"] = np.stack([run.scores["all"].mean(axis=0) for run in every])
    about = {
        "code": {scheme: cache.code_version(scheme, more=cache.RECALL) for scheme in SCHEMES},
        "versions": {"python": sys.version.split()[0], "numpy": np.__version__},
    }
    stored["about"] = np.array(json.dumps(about, sort_keys=True))
    cache.ship(folder / "recall.npz", stored)


if __name__ == "__main__":
    main(Path(__file__).parent)
