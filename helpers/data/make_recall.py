"""Train what reads text to recall strings as well: a stage of `make sweep`, after make_race.py.

recall.npz holds for each of helpers.race.lines() a row for each of TRIES that it needed: "rate", "steps" and
"seed"; "home", "recall", "right key" and "control" of helpers.recall.of_recall; and of text "choosing" and
"all" in bins of 8 positions, (64,). "stretched/METHOD" is what "recall" is, (3, 10), of three models of the
usual RoPE that were trained as the one that learned the task, stretched eight times by a method of
helpers.stretching.METHODS without training; "stretched/home" is their "home". It takes about an hour on two
cores; what was trained before is found again in the cache.
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from helpers import cache, race, stretching
from helpers.context_extension import RotaryScaling
from helpers.recall import DISTANCES, LEARNED, recall
from helpers.schemes import SCHEMES
from helpers.text import REACH
from helpers.training import Run, sweep

# The same for every line, in this order, until it has learned the task: rate, steps and seed.
TRIES = ((1e-2, 3000, 0), (3e-3, 6000, 0), (1e-2, 6000, 0))


def main(folder: Path) -> None:
    """Train what is missing, and write the file into folder."""
    lines, runs = race.lines(), {name: [] for name in race.lines()}
    for rate, steps, seed in TRIES:
        more = {"task": "recall", "recall_rate": rate, "recall_steps": steps, "seed": seed}
        waiting = [name for name in lines if not any(map(learned, runs[name]))]
        for name, run in zip(waiting, sweep([lines[name].settings(**more) for name in waiting]), strict=True):
            runs[name].append(run)
    stored: dict[str, np.ndarray] = {}
    for name, tried in runs.items():
        for place, what in enumerate(("rate", "steps", "seed")):
            stored[f"{name}/{what}"] = np.array([one[place] for one in TRIES[: len(tried)]])
        for score in ("home", "recall", "right key", "control", "choosing"):
            stored[f"{name}/{score}"] = np.stack([run.scores[score] for run in tried])
        stored[f"{name}/all"] = np.stack([run.scores["all"].mean(axis=0) for run in tried])
    learner = runs["rope, usual"][-1].settings
    models = sweep([replace(learner, seed=seed) for seed in range(3)])
    stored["stretched/home"] = np.stack([run.scores["home"] for run in models])
    for method, scaled in stretching.METHODS.items():
        stored[f"stretched/{method}"] = np.stack([reach(run, scaled(8)) for run in models])
    about = {
        "code": {scheme: cache.code_version(scheme, more=cache.RECALL) for scheme in SCHEMES},
        "versions": {"python": sys.version.split()[0], "numpy": np.__version__},
    }
    stored["about"] = np.array(json.dumps(about, sort_keys=True))
    cache.ship(folder / "recall.npz", stored)


def reach(run: Run, scaling: RotaryScaling) -> np.ndarray:
    """Return the share of letters that a model recalls with other angles, by DISTANCES, (10,)."""
    model = stretching.stretched(run, scaling)
    return np.array([recall(model, distance, REACH)[0] for distance in DISTANCES])


def learned(run: Run) -> bool:
    """Return whether a model has learned the task at the trained distances, well enough to be judged."""
    return float(run.scores["home"].mean()) >= LEARNED


if __name__ == "__main__":
    main(Path(__file__).parent)
