"""Fine-tune stretched models at other learning rates: a stage of `make sweep`, after context_extension.

tuning_rates.npz holds for each of helpers.stretching.FINE_TUNED the losses after fine-tuning at 8 times the
length, (n_seeds, n_rates, 64) in bins of 8 positions, and "about". It takes about eight minutes on two cores.
"""

import json
import sys
from itertools import product
from pathlib import Path

import numpy as np

from helpers import cache, processes, stretching
from helpers.stretching import FINE_TUNED, TUNING_RATE

SEEDS, RATES = range(2), (1e-3, TUNING_RATE, 1e-2)


def losses(method: str, seed: int, rate: float) -> np.ndarray:
    """Return the losses of one model, (64,)."""
    return stretching.fine_tune(method, seed, rate=rate).losses


def main(folder: Path) -> None:
    """Fine-tune what is missing, and write the file into folder."""
    grid = list(product(FINE_TUNED, SEEDS, RATES))
    with processes.local_processes(len(grid)) as pool:
        found = np.array([*pool.map(losses, *zip(*grid, strict=True))], np.float32)
    found = found.reshape(len(FINE_TUNED), len(SEEDS), len(RATES), -1)
    about = {
        "code": stretching.code_version(),
        "rates": RATES,
        "seeds": list(SEEDS),
        "versions": {"python": sys.version.split()[0], "numpy": np.__version__},
    }
    stored = dict(zip(FINE_TUNED, found, strict=True))
    cache.ship(folder / "tuning_rates.npz", stored | {"about": np.array(json.dumps(about, sort_keys=True))})


if __name__ == "__main__":
    main(Path(__file__).parent)
