"""Try settings for every scheme and choose: the first stage of `make sweep`. Writes grid.npz into its folder.

grid.npz holds, for each scheme, one row for each run: "rate", "knob", "seed"; "choosing", the loss by which
settings are chosen; "all" and "window", losses in bins of 8 positions, (64,); and "start". It takes about
twenty minutes on two cores; what was trained before is found again in the cache.
"""

import json
import sys
from pathlib import Path

import numpy as np

from helpers import cache, race
from helpers.schemes import SCHEMES
from helpers.training import sweep


def main(folder: Path) -> None:
    """Train what is missing, and write the file into folder."""
    runs = {}  # by try and seed

    def train(tries: list[tuple[race.Try, int]]) -> None:
        runs.update(zip(tries, sweep([one.settings(seed=seed) for one, seed in tries]), strict=True))

    def losses(scheme: str, seeds: tuple[int, ...]) -> dict[race.Try, float]:
        mine = {one for one, _ in runs if one.scheme == scheme and all((one, seed) in runs for seed in seeds)}
        return {one: float(np.mean([runs[one, seed].scores["choosing"] for seed in seeds])) for one in mine}

    train([(one, 0) for scheme in SCHEMES for one in race.grid(scheme)])
    for _ in range(race.ROUNDS):
        train([(one, 0) for scheme in SCHEMES for one in race.beyond_the_edge(losses(scheme, (0,)))])
    train([(one, 1) for scheme in SCHEMES for one in race.best(losses(scheme, (0,)), 3)])

    stored = {}
    for scheme in SCHEMES:
        mine = sorted((one, seed) for one, seed in runs if one.scheme == scheme)
        stored[f"{scheme}/rate"] = np.array([one.rate for one, _ in mine])
        stored[f"{scheme}/knob"] = np.array([one.knob for one, _ in mine])
        stored[f"{scheme}/seed"] = np.array([seed for _, seed in mine])
        for name in ("choosing", "all", "window", "start"):
            each = [runs[key].scores[name] for key in mine]
            stored[f"{scheme}/{name}"] = np.stack(
                [one.mean(axis=0) if one.ndim == 2 else one for one in each]
            )
    about = {
        "code": {scheme: cache.code_version(scheme) for scheme in SCHEMES},
        "chosen": {scheme: race.best(losses(scheme, (0, 1)))[0][1:] for scheme in SCHEMES},
        "versions": {"python": sys.version.split()[0], "numpy": np.__version__},
    }
    stored["about"] = np.array(json.dumps(about, sort_keys=True))
    cache.ship(folder / "grid.npz", stored)


if __name__ == "__main__":
    main(Path(__file__).parent)
