"""A page of text that stands far away from the next, and what a published model makes of it (notebook 08).

Two pages are read: FIRST tokens, and SECOND more behind a gap. Only distances count in a model with rotary
positions, so a page is moved by moving its keys, and nothing is read again. What takes long is shipped, made
by helpers/data/make_language_model.py.
"""

import json
from functools import cache
from importlib.resources import as_file, files
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from helpers import arguments
from helpers.context_extension import (
    RotaryScaling,
    ntk_aware,
    ntk_by_parts,
    position_interpolation,
    unscaled,
    yarn,
)
from helpers.key_cache import Cache, moved, without
from helpers.language_model import Read, forward, losses
from helpers.model_file import Model

HEAD_DIM, BASE, CONTEXT = 64, 100_000.0, 8192
PAIRS = HEAD_DIM // 2
FIRST, SECOND = 256, 128
GAPS = (0, 500, 1000, 2000, 4000, 6000, 7600, 12_000, 16_000, 24_000, 32_000)
FAR = 16_000
FACTORS = (2, 4, 8, 16, 32)
COPY_GAPS = (0, 4000, 8000, 16_000, 32_000, 64_000)
PAGES = {"a novel": 0, "this course": 8}


def scaled(name: str, *numbers: float) -> RotaryScaling:
    """Return how the model's pairs turn.

    name: "as trained"; a method and its factor, as ("by parts", 8), "interpolation", "ntk" or "yarn"; or
    "slowed", the first and the last pair, and by what they are divided. Raises ValueError for another name.
    """
    name = arguments.choice(
        "name", name, ("as trained", "slowed", "interpolation", "ntk", "by parts", "yarn")
    )
    of = {"base": BASE, "trained_length": CONTEXT}
    if name == "as trained":
        return unscaled(HEAD_DIM, BASE)
    if name == "slowed":
        first, last, factor = numbers
        inv_freq = unscaled(HEAD_DIM, BASE).inv_freq
        inv_freq[int(first) : int(last) + 1] /= factor
        return RotaryScaling(inv_freq, 1.0)
    if name == "interpolation":
        return position_interpolation(HEAD_DIM, base=BASE, factor=numbers[0])
    if name == "ntk":
        return ntk_aware(HEAD_DIM, base=BASE, factor=numbers[0])
    return (ntk_by_parts if name == "by parts" else yarn)(HEAD_DIM, **of, factor=numbers[0])


def turns() -> np.ndarray:
    """Return how often each pair turns in the model's context, (PAIRS,)."""
    return unscaled(HEAD_DIM, BASE).inv_freq * CONTEXT / (2 * np.pi)


class Condition(NamedTuple):
    """How the first page stands when the second is read.

    gap: by how many positions it is further away. scaling: the arguments of `scaled`. pairs: those in which
    it is further away; empty, all. sink: token 0 is "far" with its page, stands "near", right before the
    second page, or is "absent"; with "token 1" or "token 100" that one stands near, and token 0 far. copy:
    the second page repeats the first from its beginning.
    """

    gap: int = 0
    scaling: tuple = ("as trained",)
    pairs: tuple = ()
    sink: str = "far"
    copy: bool = False

    def name(self) -> str:
        """Return the name under which results are stored."""
        pairs = f"{self.pairs[0]}-{self.pairs[-1]}" if self.pairs else "all"
        way = " ".join(map(str, self.scaling))
        return f"{'copy' if self.copy else 'text'}/{self.gap}/{way}/{pairs}/{self.sink}"


# The ways that the panel shows: what turns, and where token 0 stands.
WAYS = {
    "as trained": Condition(),
    "pairs 22–31 slowed, token 0 near": Condition(scaling=("slowed", 22, 31, 2.1), sink="near"),
    "by parts, factor 8": Condition(scaling=("by parts", 8)),
    "by parts, factor 16": Condition(scaling=("by parts", 16)),
}
PANEL_GAPS = (0, 1000, 2000, 4000, 7600, 16_000, 32_000)


def stand(page: Cache, condition: Condition) -> Cache:
    """Return the first page as a condition has it, for a second page that begins at position FIRST."""
    if condition.gap:
        page = moved(page, by=-condition.gap, pairs=condition.pairs or slice(None))
    near = {"near": 0, "token 1": 1, "token 100": 100}
    if condition.sink in near:
        page = moved(page, near[condition.sink], to=FIRST - 1)
    return without(page, [0]) if condition.sink == "absent" else page


def read(model: Model, page: Cache, tokens: ArrayLike, condition: Condition, **options: Any) -> Read:
    """Read a second page's tokens, (n,), after the first as a condition has it; options as for forward."""
    where = FIRST + np.arange(len(tokens))
    kept, turning = stand(page, condition), scaled(*condition.scaling)
    return forward(model, tokens, where, cache=kept, scaling=turning, last=1, keep=False, **options)


def second_losses(model: Model, page: Cache, tokens: ArrayLike, condition: Condition) -> np.ndarray:
    """Return the losses of a second page, (n - 1,): all but its first token, which page one must guess."""
    return losses(model, read(model, page, tokens, condition).states[:-1], tokens[1:])


# --- What is shipped ---


@cache
def _stored() -> dict[str, np.ndarray]:
    with (
        as_file(files("helpers") / "data" / "language_model.npz") as path,
        np.load(path, allow_pickle=False) as stored,
    ):
        return {key: stored[key] for key in stored.files}


def about() -> dict[str, Any]:
    """Return the versions behind the shipped results."""
    return json.loads(str(_stored()["about"]))


def stored(name: str) -> np.ndarray:
    """Return shipped results by name, as in helpers/data/make_language_model.py; KeyError for others."""
    if name not in _stored():
        raise KeyError(f"name must be one of {sorted(_stored())}, but got {name!r}")
    return _stored()[name]


def measured(*fields: Any, **more: Any) -> np.ndarray:
    """Return the mean loss of the second page under Condition(*fields, **more), (12,), one a passage."""
    return stored(Condition(*fields, **more).name())


def changed(*fields: Any, **more: Any) -> np.ndarray:
    """Return by how much the first page changes that loss, (12,): below 0 it helps."""
    return measured(*fields, **more) - stored("nothing")


def shown(page: str, gap: int, way: str) -> tuple[np.ndarray, str]:
    """Return what the panel shows of a page in PAGES: losses of a repeated page, (SECOND - 1,), and text."""
    name = f"{PAGES[page]}/{gap}/{way}"
    return stored(f"by token/{name}").astype(float), str(stored(f"writes/{name}"))


def frequencies(way: str) -> np.ndarray:
    """Return the frequencies of one of WAYS, radians per position (PAIRS,)."""
    return scaled(*WAYS[way].scaling).inv_freq
