"""What `make sweep` measured over five seeds and the course ships (notebooks 06 and 07).

Made by helpers/data/make_results.py and make_context_extension.py; arrays have one row for each seed.
"""

import json
from functools import cache
from importlib.resources import as_file, files
from typing import Any

import numpy as np

from helpers.training import LENGTH, Run, Settings


@cache
def _stored(name: str) -> dict[str, np.ndarray]:
    with as_file(files("helpers") / "data" / name) as path, np.load(path, allow_pickle=False) as stored:
        return {key: stored[key] for key in stored.files}


def about() -> dict[str, Any]:
    """Return the settings, seeds, versions and code of the shipped results."""
    return json.loads(str(_stored("extrapolation.npz")["about"]))


def measured(scheme: str, name: str) -> np.ndarray:
    """Return what was measured for a scheme, one row for each seed; names as in helpers.training.evaluate.

    Raises KeyError, naming what there is, for a scheme or name that was not measured.
    """
    stored = _stored("extrapolation.npz")
    key = f"{scheme}/{name}"
    if key not in stored:
        raise KeyError(f"scheme and name must be one of {sorted(set(stored) - {'about'})}, but got {key!r}")
    return stored[key]


def loss_at(scheme: str, length: int, name: str = "all") -> np.ndarray:
    """Return the mean loss in nats of texts of this length, (n_seeds,), from the losses by position."""
    return measured(scheme, name)[:, :length].mean(axis=1)


def lost(scheme: str, length: int, name: str = "all") -> np.ndarray:
    """Return how many nats a text of this length costs more than one of the trained length, (n_seeds,)."""
    return loss_at(scheme, length, name) - loss_at(scheme, LENGTH)


def rope_models() -> list[Run]:
    """Return the five RoPE models of the sweep, trained on text at length 64."""
    stored = _stored("rope_models.npz")
    runs = []
    for seed in about()["seeds"]:
        start = f"{seed}/"
        weights = {
            key.removeprefix(start): a.astype(np.float32)
            for key, a in stored.items()
            if key.startswith(start)
        }
        scores = {name: measured("rope", name)[seed] for name in ("all", "window", "sharpened", "start")}
        runs.append(Run(Settings("rope", seed), weights, measured("rope", "text training")[seed], scores))
    return runs


def about_stretched() -> dict[str, Any]:
    """Return the factors, bases, seeds, versions and code of what was measured on stretched models."""
    return json.loads(str(_stored("context_extension.npz")["about"]))


def stretched(name: str) -> np.ndarray:
    """Return what was measured on stretched RoPE models, one row for each seed.

    Names and shapes stand in helpers/data/make_context_extension.py; losses are in bins of 8 positions.
    Raises KeyError, naming what there is, for anything else.
    """
    stored = _stored("context_extension.npz")
    if name not in stored or name == "about":
        raise KeyError(f"name must be one of {sorted(set(stored) - {'about'})}, but got {name!r}")
    return stored[name]


def stretched_loss(name: str, length: int, *index: int, last: int | None = None) -> np.ndarray:
    """Return the mean loss of texts of this length, (n_seeds,), or of their last characters only.

    index: which factor, pair or base. last: how many characters, a multiple of 8.
    """
    losses = stretched(name)[:, *index]
    first = 0 if last is None else (length - last) // 8
    return losses[:, first : length // 8].mean(axis=1)
