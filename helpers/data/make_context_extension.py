"""Measure every way to stretch the five RoPE models, and fine-tune some: a stage of `make sweep`.

context_extension.npz holds losses (n_seeds, ..., 64) in bins of 8 positions: "METHOD/as it is", for each of
FACTORS; "METHOD/fine-tuned" at 8 times, with the loss of each step; "one pair" and "from this pair on", each
pair (or all from it on) interpolated 4 times; "one pair stopped"; "base", for each of BASES; "window", 64
keys; and "stale and fresh", (n_seeds, 2, 5), of helpers.stretching. "base 1000/..." is the same of the models
with base 1,000, as far as pairs go. It takes about a quarter of an hour on two cores and needs
rope_models.npz.
"""

import json
import sys
from itertools import product
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from helpers import cache, processes, results, stretching
from helpers.context_extension import unscaled
from helpers.stretching import FACTORS, FINE_TUNED, HEAD_DIM, METHODS, PAIRS

SEEDS = range(5)
GROUPS = {"rope, usual": "", "rope, base 1000": "base 1000/"}
BASES = (1e3, 3e3, 1e4, 3e4, 1e5, 3e5, 1e6)


def measure(seed: int) -> dict[str, np.ndarray]:
    """Return all that is measured on one model without training it."""
    run = results.rope_models()[seed]

    def losses(scaling: stretching.RotaryScaling) -> np.ndarray:
        return stretching.losses(stretching.stretched(run, scaling))

    with threadpool_limits(1, user_api="blas"):
        found = {f"{m}/as it is": np.stack([losses(METHODS[m](f)) for f in FACTORS]) for m in METHODS}
        found["base"] = np.stack([losses(unscaled(HEAD_DIM, base)) for base in BASES])
        found["stale and fresh"] = stretching.stale_and_fresh(run)
    return found


def measure_pairs(group: str, seed: int) -> dict[str, np.ndarray]:
    """Return what is measured on the pairs of one model."""
    run = results.rope_models(group)[seed]
    base = run.decoder().scheme.base
    changes = {
        "one pair": [([pair], 4) for pair in range(PAIRS)],
        "from this pair on": [([*range(pair, PAIRS)], 4) for pair in range(PAIRS)],
        "one pair stopped": [([pair], np.inf) for pair in range(PAIRS)],
    }
    with threadpool_limits(1, user_api="blas"):
        found = {"window": stretching.losses(run.decoder(), window=64)}
        found["as trained"] = stretching.losses(run.decoder())
        for name, settings in changes.items():
            models = [stretching.stretched(run, stretching.change_pairs(*one, base)) for one in settings]
            found[name] = np.stack([stretching.losses(model) for model in models])
    return found


def main(folder: Path) -> None:
    """Measure and fine-tune what is missing, and write the file into folder."""
    grid = list(product(FINE_TUNED, SEEDS))
    pool = processes.local_processes(len(grid))
    each = pool.map(measure, SEEDS)
    pairs = {group: pool.map(measure_pairs, [group] * 5, SEEDS) for group in GROUPS}
    tuned = dict(zip(grid, pool.map(stretching.fine_tune, *zip(*grid, strict=True)), strict=True))
    each = list(each)
    stored = {name: np.stack([one[name] for one in each]) for name in each[0]}
    for group, prefix in GROUPS.items():
        of_group = list(pairs[group])
        stored |= {prefix + name: np.stack([one[name] for one in of_group]) for name in of_group[0]}
    for method in FINE_TUNED:
        stored[f"{method}/fine-tuned"] = np.stack([tuned[method, seed].losses for seed in SEEDS])
        stored[f"{method}/steps"] = np.stack([tuned[method, seed].steps for seed in SEEDS])
    pool.shutdown()
    about = {
        "code": stretching.code_version(),
        "factors": FACTORS,
        "bases": BASES,
        "seeds": list(SEEDS),
        "versions": {"python": sys.version.split()[0], "numpy": np.__version__},
    }
    stored = {name: array.astype(np.float32) for name, array in stored.items()}
    stored["about"] = np.array(json.dumps(about, sort_keys=True))
    cache.ship(folder / "context_extension.npz", stored)


if __name__ == "__main__":
    main(Path(__file__).parent)
