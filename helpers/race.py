"""The fair race of notebook 06: which settings were tried for each scheme, and which were chosen.

Every scheme gets the same tries: three rates, and three values of the one knob that is its own. What lies at
the edge is tried further out. The best three get a second seed, and the lowest mean loss at the trained
length, on a text that serves no other purpose, is chosen. What happens past that length decides nothing.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cache
from importlib.resources import as_file, files
from typing import Any, NamedTuple

import numpy as np

from helpers.schemes import SCHEMES, spec
from helpers.training import LENGTH, REACH, Settings

RATES = (5e-3, 1e-2, 2e-2)
FURTHER = 10**0.5  # by how much at most the next value lies beyond an edge
ROUNDS = 2  # how often an edge is followed
_FIELDS = {field.name for field in fields(Settings)}


class Try(NamedTuple):
    """What is tried: a scheme's name, the learning rate, and the value of the scheme's own knob."""

    scheme: str
    rate: float
    knob: float

    def settings(self, **more: object) -> Settings:
        """Return the settings of a run; more: other fields of Settings."""
        name = SCHEMES[self.scheme].facts.knob
        if name in _FIELDS:
            return Settings(self.scheme, learning_rate=self.rate, **{name: self.knob}, **more)
        return Settings(spec(self.scheme, **{name: self.knob}), learning_rate=self.rate, **more)


def grid(scheme: str) -> list[Try]:
    """Return the nine first tries of a scheme."""
    return [Try(scheme, rate, knob) for knob in SCHEMES[scheme].facts.tried for rate in RATES]


def beyond_the_edge(losses: Mapping[Try, float]) -> list[Try]:
    """Return what to try next for one scheme: further out wherever its best try lies at an edge."""
    best = min(losses, key=losses.get)
    more = [best._replace(rate=one) for one in _next(best.rate, sorted({each.rate for each in losses}))]
    more += [best._replace(knob=one) for one in _next(best.knob, sorted({each.knob for each in losses}))]
    return [one for one in more if one not in losses]


def _next(value: float, values: Sequence[float]) -> Iterator[float]:
    if len(values) > 1 and value == values[-1]:
        yield _round(value * min(FURTHER, value / values[-2] if values[-2] else FURTHER))
    if len(values) > 1 and value == values[0] and value > 0:
        yield _round(value / min(FURTHER, values[1] / value))


def _round(value: float) -> float:
    return float(f"{value:.2g}")


def best(losses: Mapping[Try, float], count: int = 1) -> list[Try]:
    """Return the tries with the lowest losses, the best first."""
    return sorted(losses, key=losses.get)[:count]


# --- What was chosen, and what was trained at its best ---


@cache
def _stored() -> dict[str, np.ndarray]:
    with as_file(files("helpers") / "data" / "grid.npz") as path, np.load(path, allow_pickle=False) as stored:
        return {key: stored[key] for key in stored.files}


def about() -> dict[str, Any]:
    """Return the code, the choice and the versions behind the shipped tries."""
    return json.loads(str(_stored()["about"]))


def tried(scheme: str, name: str) -> np.ndarray:
    """Return what was measured for each try of a scheme; names as in helpers/data/make_grid.py.

    Raises KeyError, naming what there is, for anything else.
    """
    key = f"{scheme}/{name}"
    if key not in _stored():
        raise KeyError(
            f"scheme and name must be one of {sorted(set(_stored()) - {'about'})}, but got {key!r}"
        )
    return _stored()[key]


def tries(scheme: str) -> list[Try]:
    """Return what was tried for a scheme, in the order of tried; a try with two seeds comes twice."""
    pairs = zip(tried(scheme, "rate"), tried(scheme, "knob"), strict=True)
    return [Try(scheme, float(rate), float(knob)) for rate, knob in pairs]


def raced() -> list[str]:
    """Return the schemes whose settings were chosen; one that has just joined waits for `make sweep`."""
    return [scheme for scheme in SCHEMES if scheme in about()["chosen"]]


def chosen(scheme: str) -> Try:
    """Return the settings that had the lowest loss at the trained length, on the text to choose by."""
    return Try(scheme, *about()["chosen"][scheme])


def usual(scheme: str) -> Try:
    """Return the best try with the knob at its usual value, the one of the paper."""
    knob = SCHEMES[scheme].facts.usual
    losses = zip(tries(scheme), tried(scheme, "choosing"), tried(scheme, "seed"), strict=True)
    return best({one: float(loss) for one, loss, seed in losses if one.knob == knob and seed == 0})[0]


def trained_here(seed: int = 5) -> list[Settings]:
    """Return the settings of the seven models that notebook 06 trains."""
    return [chosen(scheme).settings(seed=seed) for scheme in SCHEMES]


# Schemes whose usual form is shown beside the chosen one, since its far end differs.
USUAL = ("rope", "alibi")


def lines() -> dict[str, Try]:
    """Return what is compared: each scheme as chosen, and some in their usual form as "SCHEME, usual"."""
    found = {}
    for scheme in raced():
        found[scheme] = chosen(scheme)
        if scheme in USUAL:
            found[f"{scheme}, usual"] = usual(scheme)
    return found


def groups() -> dict[str, list[Settings]]:
    """Return what is trained at its best, by name, with the seeds of each group.

    The names of lines(), and RoPE with base 1000: five seeds. "SCHEME, untuned": two, as the course first had
    it, at rate 3e-3 with the usual knob. Further: larger bases of RoPE, LAYERS that differ, random starts.
    """
    five, two, three = range(5), range(2), range(3)
    found = {name: [one.settings(seed=seed) for seed in five] for name, one in lines().items()}
    rate = usual("rope").rate
    for base, seeds in ((1_000, five), (100_000, two), (1_000_000, two)):
        found[f"rope, base {base}"] = [Try("rope", rate, base).settings(seed=seed) for seed in seeds]
    for scheme in raced():
        first = Try(scheme, 3e-3, SCHEMES[scheme].facts.usual)
        found[f"{scheme}, untuned"] = [first.settings(seed=seed) for seed in two]
    for name, schemes in LAYERS.items():
        found[name] = [Settings(schemes, seed=seed, learning_rate=rate) for seed in three]
    starts = chosen("sinusoidal")
    found["sinusoidal, random starts"] = [starts.settings(seed=s, random_start=REACH - LENGTH) for s in two]
    return found


# What a conclusion must survive, beside another seed: other fields of Settings.
CHECKS = {
    "longer": {"steps": 1800},
    "novels": {"text": "novels"},
    "length 128": {"length": 128, "batch": 16},
    "wide heads": {"n_heads": 2},
}
CHECK_SEEDS = 2


def checks() -> dict[str, list[Settings]]:
    """Return every line under each of CHECKS, as "LINE, CHECK"."""
    return {
        f"{name}, {check}": [one.settings(seed=seed, **more) for seed in range(CHECK_SEEDS)]
        for check, more in CHECKS.items()
        for name, one in lines().items()
    }


# Layers that differ, as some open models have them: a window with RoPE below a full layer without positions,
# or below a full layer with a larger base; and the same window below a full layer like it.
LAYERS = {
    "window, then none": (spec("rope", window=32), spec("none")),
    "window, then a large base": (spec("rope", window=32), spec("rope", base=1_000_000)),
    "window, then rope": (spec("rope", window=32), spec("rope")),
}
