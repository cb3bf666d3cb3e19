"""Train every scheme at its best: the second stage of `make sweep`, after make_grid.py.

race.npz holds, for each group of runs (helpers.race.groups), one row for each seed: "choosing", "start",
losses "all", "window" and "sharpened" in bins of 8 positions, (8, 64) by blocks of text for the groups of
five seeds and (64,) for others; for the learned table its rows after some steps; and for two seeds of each
group of five "far", (2, 3): the loss of the last 64 of 512, 1,024 and 2,048 characters with all keys and with
64.
rope_models.npz holds the weights of the RoPE models that notebook 07 stretches, live_models.npz those that
notebook 06 trains, as float16. It takes about a quarter of an hour on two cores; what was trained before is
found again in the cache.
"""

import json
import sys
from dataclasses import asdict
from itertools import product
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from helpers import cache, measures, processes, race
from helpers.schemes import SCHEMES
from helpers.training import LENGTH, Run, Settings, sweep

FAR = (512, 1024, 2048)


def far(run: Run) -> np.ndarray:
    """Return the loss at the end of longer texts, with all keys and with as many as in training, (2, 3)."""
    with threadpool_limits(1, user_api="blas"):
        each = [measures.last_losses(run.decoder(), n, window) for window, n in product((None, LENGTH), FAR)]
    return np.array(each, np.float32).reshape(2, -1)


def weights(runs: list[Run], name: str) -> dict[str, np.ndarray]:
    """Return the weights of some runs, as float16, under names that begin with the group and the seed."""
    return {
        f"{name}/{run.settings.seed}/{key}": array.astype(np.float16)
        for run in runs
        for key, array in run.parameters.items()
    }


def gathered(groups: dict[str, list[Settings]]) -> tuple[dict[str, np.ndarray], dict[Settings, Run]]:
    """Return what all runs of these groups scored, by group and score, and the runs."""
    settings = list(dict.fromkeys(one for group in groups.values() for one in group))
    runs = dict(zip(settings, sweep(settings), strict=True))
    stored: dict[str, np.ndarray] = {}
    for name, group in groups.items():
        of_group = [runs[one] for one in group]
        for score in of_group[0].scores:
            each = np.stack([run.scores[score] for run in of_group])
            table = "after" in score
            if each.ndim == 3 and len(group) < 5 and not table:
                each = each.mean(axis=1)
            if not table or name == "learned":
                stored[f"{name}/{score}"] = each.astype(np.float16 if table else np.float32)
    about = {
        "code": {scheme: cache.code_version(scheme) for scheme in SCHEMES},
        "settings": {name: asdict(group[0]) for name, group in groups.items()},
        "versions": {"python": sys.version.split()[0], "numpy": np.__version__},
    }
    stored["about"] = np.array(json.dumps(about, sort_keys=True))
    return stored, runs


def main(folder: Path) -> None:
    """Train what is missing, and write the three files into folder."""
    groups = race.groups()
    stored, runs = gathered(groups)
    fives = [name for name, group in groups.items() if len(group) == 5]
    pool = processes.local_processes(2)
    looks = list(pool.map(far, [runs[groups[name][seed]] for name in fives for seed in range(2)]))
    pool.shutdown()
    stored |= {f"{name}/far": np.stack(looks[2 * i : 2 * i + 2]) for i, name in enumerate(fives)}
    cache.ship(folder / "race.npz", stored)
    ropes = {name: [runs[one] for one in groups[name]] for name in ("rope, usual", "rope, base 1000")}
    shipped = [weights(of_group, name) for name, of_group in ropes.items()]
    cache.ship(folder / "rope_models.npz", {key: array for each in shipped for key, array in each.items()})
    live = zip(SCHEMES, sweep(race.trained_here()), strict=True)
    shipped = [weights([run], scheme) for scheme, run in live]
    cache.ship(folder / "live_models.npz", {key: array for each in shipped for key, array in each.items()})


if __name__ == "__main__":
    main(Path(__file__).parent)
