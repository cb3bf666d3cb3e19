"""What `make sweep` measured and the course ships (notebooks 03, 06 and 07).

Made by the scripts in helpers/data; arrays have one row for each seed. Losses are means over BIN positions.
"""

import json
from functools import cache
from importlib.resources import as_file, files
from typing import Any

import numpy as np

from helpers import arguments, race
from helpers.measures import BIN
from helpers.text import LENGTH, REACH
from helpers.training import Run

LOSSES = ("all", "window", "sharpened")


@cache
def _stored(name: str) -> dict[str, np.ndarray]:
    with as_file(files("helpers") / "data" / name) as path, np.load(path, allow_pickle=False) as stored:
        return {key: stored[key] for key in stored.files}


def about(name: str = "race.npz") -> dict[str, Any]:
    """Return the settings, versions and code behind a shipped file."""
    return json.loads(str(_stored(name)["about"]))


def measured(group: str, name: str) -> np.ndarray:
    """Return what was measured on a group of runs, one row for each seed.

    group: a name in helpers.race.groups() or checks(). name: as in helpers.measures.of_text; "all", "window"
    and "sharpened" are (n_seeds, REACH // BIN).
    Raises KeyError, naming what there is, for what was not measured.
    """
    values = _found(group, name)
    return values.mean(axis=1) if name in LOSSES and values.ndim == 3 else values


def by_block(group: str, name: str = "all") -> np.ndarray:
    """Return losses of a group of five seeds by blocks of text, (n_seeds, 8, REACH // BIN)."""
    return _found(group, name)


def _found(group: str, name: str) -> np.ndarray:
    key = f"{group}/{name}"
    if key in (first := _stored("race.npz")):
        return first[key]
    if key in (others := _stored("checks.npz")):
        return others[key]
    known = sorted({*first, *others} - {"about"})
    raise KeyError(f"group and name must be one of {known}, but got {key!r}")


def recalled(line: str, name: str) -> np.ndarray:
    """Return what was measured on recall, one row for each try.

    line: a name in helpers.race.lines(). name: as in helpers/data/make_recall.py.
    Raises KeyError, naming what there is, for what was not measured.
    """
    stored, key = _stored("recall.npz"), f"{line}/{name}"
    if key not in stored:
        raise KeyError(f"line and name must be one of {sorted(set(stored) - {'about'})}, but got {key!r}")
    return stored[key]


def loss_at(group: str, length: int, name: str = "all") -> np.ndarray:
    """Return the mean loss in nats of texts of this length, a multiple of 8, (n_seeds,)."""
    return measured(group, name)[:, : _bins("length", length)].mean(axis=1)


def loss_between(group: str, first: int, end: int, name: str = "all") -> np.ndarray:
    """Return the mean loss at positions from first up to, but not including, end, (n_seeds,).

    Raises ValueError unless both are multiples of 8, and 0 <= first < end <= REACH.
    """
    last = _bins("end", end)
    start = _bins("first", first, at_least=0)
    if start >= last:
        raise ValueError(f"first must be below end = {end}, but got {first}")
    return measured(group, name)[:, start:last].mean(axis=1)


def at_end(group: str, name: str = "all") -> np.ndarray:
    """Return the mean loss at positions 448 to 511, (n_seeds,)."""
    return loss_between(group, 448, 512, name)


def lost(group: str, length: int, name: str = "all") -> np.ndarray:
    """Return by how much texts of this length have a higher mean loss than trained ones, (n_seeds,)."""
    return loss_at(group, length, name) - loss_at(group, LENGTH)


def _bins(name: str, positions: int, at_least: int = BIN) -> int:
    positions = arguments.whole_number(name, positions, at_least=at_least)
    if positions % BIN or positions > REACH:
        raise ValueError(f"{name} must be a multiple of {BIN} up to {REACH}, but got {positions}")
    return positions // BIN


@cache
def rope_models(name: str = "rope, usual") -> list[Run]:
    """Return the five RoPE models of a group that the course ships: "rope, usual" or "rope, base 1000".

    Raises ValueError for another name.
    """
    name = arguments.choice("name", name, ("rope, usual", "rope, base 1000"))
    stored = _stored("rope_models.npz")
    runs = []
    for settings in race.groups()[name]:
        start = f"{name}/{settings.seed}/"
        mine = {key.removeprefix(start): array for key, array in stored.items() if key.startswith(start)}
        weights = {key: array.astype(np.float32) for key, array in mine.items()}
        scores = {score: measured(name, score)[settings.seed] for score in ("choosing", *LOSSES, "start")}
        runs.append(Run(settings, weights, np.zeros(0), scores))
    return runs


def about_stretched() -> dict[str, Any]:
    """Return the factors, bases, seeds, versions and code of what was measured on stretched models."""
    return about("context_extension.npz")


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
    end = _bins("length", length)
    first = 0 if last is None else end - _bins("last", last)
    if first < 0:
        raise ValueError(f"last must be at most length = {length}, but got {last}")
    return stretched(name)[:, *index, first:end].mean(axis=1)


def tuned(method: str, last: int = 64) -> np.ndarray:
    """Return the mean loss at the end of 512 after fine-tuning at each of three rates, (n_seeds, n_rates).

    method: one of helpers.stretching.FINE_TUNED. last: of how many characters, a multiple of 8.
    The rates are about("tuning_rates.npz")["rates"]. Raises KeyError, naming what there is, for another.
    """
    stored = _stored("tuning_rates.npz")
    if method not in stored or method == "about":
        raise KeyError(f"method must be one of {sorted(set(stored) - {'about'})}, but got {method!r}")
    return stored[method][..., -_bins("last", last) :].mean(axis=-1)
