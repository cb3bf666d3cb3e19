"""Exercises of notebook 04."""

from collections.abc import Callable

import numpy as np

from helpers.check.exercises import Exercise
from helpers.rope import inverse_frequencies, rotate

NOTEBOOK = "04"


def _inputs() -> list[tuple]:
    rng = np.random.default_rng(31)
    first = (np.array([[1.0, 0.0, 0.0, 0.0]]), np.array([1]), 10_000.0)
    return [first] + [
        (rng.normal(size=(n, d)).round(2), positions, base)
        for n, d, positions, base in ((3, 4, np.arange(3), 100.0), (2, 8, np.array([40, 7]), 10_000.0))
    ]


def _interleaved(x: np.ndarray, positions: np.ndarray, base: float) -> np.ndarray:
    return rotate(x, positions, base=base)


def _mixed(x: np.ndarray, positions: np.ndarray, base: float) -> np.ndarray:
    """Halves rotated with angles that are repeated pair by pair."""
    half = x.shape[-1] // 2
    angles = np.repeat(positions[:, None] * inverse_frequencies(x.shape[-1], base), 2, axis=-1)
    turned = np.concatenate([-x[..., half:], x[..., :half]], axis=-1)
    return x * np.cos(angles) + turned * np.sin(angles)


def _pairwise(u_turned: Callable, v_turned: Callable, exponent: Callable | None = None) -> Callable:
    """Return a rotation in which the formulas of u and v, or the exponent, are one's own."""

    def turn(x: np.ndarray, positions: np.ndarray, base: float) -> np.ndarray:
        d = x.shape[-1]
        pairs = np.arange(d // 2)
        angles = positions[:, None] * float(base) ** (exponent(pairs, d) if exponent else -2 * pairs / d)
        u, v, turned = x[:, 0::2], x[:, 1::2], np.zeros(x.shape)
        turned[:, 0::2] = u_turned(u, v, np.cos(angles), np.sin(angles))
        turned[:, 1::2] = v_turned(u, v, np.cos(angles), np.sin(angles))
        return turned

    return turn


def _first(u: np.ndarray, v: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    return u * cos - v * sin


def _second(u: np.ndarray, v: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    return u * sin + v * cos


turn_pairs = Exercise(
    "turn_pairs",
    NOTEBOOK,
    "rotate, neighbours paired",
    _interleaved,
    _inputs,
    {
        "this is the half layout: it pairs feature i with i + d/2. Here neighbours are pairs, 2i with "
        "2i + 1.": lambda x, positions, base: rotate(x, positions, base=base, layout="half"),
        "two layouts are mixed: the angles go pair by pair, the features by halves. Lengths are not "
        "kept.": _mixed,
        "it turns the other way. (u, v) becomes (u cos − v sin, u sin + v cos).": lambda x, positions, base: (
            rotate(x, -positions, base=base)
        ),
        "one sign: the first of a pair becomes u cos − v sin.": _pairwise(
            lambda u, v, cos, sin: u * cos + v * sin, _second
        ),
        "one sign: the second of a pair becomes u sin + v cos.": _pairwise(
            _first, lambda u, v, cos, sin: v * cos - u * sin
        ),
        "the second line uses a u that the first has already overwritten: keep the old one.": _pairwise(
            _first, lambda u, v, cos, sin: _first(u, v, cos, sin) * sin + v * cos
        ),
        "the exponent is −2i/d with i the number of the pair, not −i/d.": _pairwise(
            _first, _second, lambda pairs, d: -pairs / d
        ),
        "the exponent is negative: later pairs turn more slowly.": _pairwise(
            _first, _second, lambda pairs, d: 2 * pairs / d
        ),
        "`base` is not used: other values than 10,000 are asked for.": lambda x, positions, base: rotate(
            x, positions
        ),
        "row r turns by positions[r], not by r.": lambda x, positions, base: rotate(
            x, np.arange(len(x)), base=base
        ),
        "the pairs are right, but the results are put by halves: they belong where they came from.": (
            lambda x, positions, base: np.concatenate(
                [rotate(x, positions, base=base)[:, 0::2], rotate(x, positions, base=base)[:, 1::2]], axis=1
            )
        ),
    },
)

next_positions = Exercise(
    "next_positions",
    NOTEBOOK,
    "positions when decoding with a cache",
    lambda n_cached, n_new: np.arange(n_cached, n_cached + n_new),
    lambda: [(5, 1), (0, 3), (100, 4)],
    {
        "counting starts again at 0: each new token would stand where the first one stood.": (
            lambda n_cached, n_new: np.arange(n_new)
        ),
        "one too far: with 5 tokens in the cache, positions 0 to 4 are taken, and the next is 5.": (
            lambda n_cached, n_new: np.arange(n_cached, n_cached + n_new) + 1
        ),
        "one too few: position n_cached − 1 is taken by the last token of the cache.": (
            lambda n_cached, n_new: np.arange(n_cached, n_cached + n_new) - 1
        ),
        "the tokens of the cache have their positions already: return those of the new ones only.": (
            lambda n_cached, n_new: np.arange(n_cached + n_new)
        ),
        "np.arange(start, stop) takes the end, not the number: it is n_cached + n_new.": (
            lambda n_cached, n_new: np.arange(n_cached, n_new)
        ),
    },
)


def _judge(k: np.ndarray, q: np.ndarray, distance: int) -> str:
    if k.shape != q.shape:
        return f"  the key must have the shape {q.shape}, but yours has {k.shape}"
    if not np.abs(k).max() > 0:
        return "  the key is zero"
    k = k / np.abs(k).max()
    # A query at 1000, the key at 1000 - distance.
    keys = rotate(np.tile(k, (1001, 1)), 1000 - np.arange(1001))
    scores = keys @ rotate(q[None], [1000])[0]
    best = int(scores.argmax())
    if best != distance:
        return f"  its score is highest at distance {best}, not at {distance}"
    if scores[best] < (1 - 1e-6) * np.linalg.norm(k) * np.linalg.norm(q):
        return "  it is strongest there, but not as strong as a key of its length can be"
    return ""


def _vectors() -> list[tuple]:
    rng = np.random.default_rng(37)
    return [(rng.normal(size=64), distance) for distance in (100, 7, 640)]


key_for_distance = Exercise(
    "key_for_distance",
    NOTEBOOK,
    "a key that is strongest at a distance",
    lambda q, distance: rotate(q[None], [distance])[0],
    _vectors,
    {
        "turned the wrong way: the key stands *before* the query, so it has to be turned ahead.": (
            lambda q, distance: rotate(q[None], [-distance])[0]
        ),
        "a key like the query is strongest at distance 0.": lambda q, distance: q,
    },
    judge=_judge,
)
