"""Exercises of notebook 05."""

import numpy as np

from helpers.check.exercises import Exercise
from helpers.relative_bias import alibi_slopes, t5_buckets

NOTEBOOK = "05"


def _with_extra(n_heads: int, chosen: slice) -> np.ndarray:
    """The slopes of a power of two, then chosen ones of twice as many."""
    power = 2 ** int(np.log2(n_heads))
    return np.concatenate([alibi_slopes(power), alibi_slopes(2 * power)[chosen][: n_heads - power]])


head_slopes = Exercise(
    "head_slopes",
    NOTEBOOK,
    "slopes for any number of heads",
    lambda n_heads: alibi_slopes(n_heads),
    lambda: [(8,), (12,), (3,), (1,), (6,)],
    {
        "right for powers of two only. For 12 heads, take the slopes of 8, then every other slope of 16.": (
            lambda n_heads: 2 ** (-8 * np.arange(1, n_heads + 1) / n_heads)
        ),
        "the slopes of twice as many are right, but take every other of them, from the first one on.": (
            lambda n_heads: _with_extra(n_heads, slice(None))
        ),
        "every other slope of twice as many, but beginning with the first of them, not the second.": (
            lambda n_heads: _with_extra(n_heads, slice(1, None, 2))
        ),
        "the exponent is negative: slopes are below 1.": lambda n_heads: 1 / alibi_slopes(n_heads),
        "slopes are positive: it is the bias that has the minus sign.": lambda n_heads: (
            -alibi_slopes(n_heads)
        ),
        "heads count from 1: the first slope is 2^(−8/H), not 1.": lambda n_heads: (
            2 ** (-8 * np.arange(n_heads) / n_heads)
        ),
        "all slopes are right but for their order: the extra ones come last, unsorted.": lambda n_heads: (
            np.sort(alibi_slopes(n_heads))[::-1]
        ),
    },
)


def _bucket(distances: np.ndarray, n_buckets: int, max_distance: int) -> np.ndarray:
    return t5_buckets(-distances, n_buckets, max_distance, bidirectional=False)


def _bucket_by(distances: np.ndarray, n_buckets: int, logarithm: float) -> np.ndarray:
    """The formula, capped, with another logarithm under the fraction."""
    exact = n_buckets // 2
    far = exact + np.log(np.maximum(distances, 1) / exact) / logarithm * (n_buckets - exact)
    return np.where(distances < exact, distances, np.minimum(np.floor(far + 1e-9), n_buckets - 1))


def _raw(distances: np.ndarray, n_buckets: int, max_distance: int) -> np.ndarray:
    """The formula before it is made whole."""
    exact = n_buckets // 2
    far = np.log(np.maximum(distances, 1) / exact) / np.log(max_distance / exact) * (n_buckets - exact)
    return np.where(distances < exact, distances, exact + far)


bucket = Exercise(
    "bucket",
    NOTEBOOK,
    "the bucket function",
    _bucket,
    lambda: [
        (np.arange(40), 8, 32),
        (np.array([0, 15, 16, 17, 100, 112, 113, 128, 500]), 32, 128),
        (np.array([3, 63, 200]), 16, 64),
    ],
    {
        "from max_distance on, the formula leaves the table: cap it at the last bucket, n_buckets − 1.": (
            lambda distances, n_buckets, max_distance: np.floor(
                _raw(distances, n_buckets, max_distance) + 1e-9
            )
        ),
        "round down, not to the nearest: a bucket begins where the formula reaches its number.": (
            lambda distances, n_buckets, max_distance: np.minimum(
                np.rint(_raw(distances, n_buckets, max_distance)), n_buckets - 1
            )
        ),
        "buckets are whole numbers: round down.": lambda distances, n_buckets, max_distance: np.minimum(
            _raw(distances, n_buckets, max_distance), n_buckets - 1
        ),
        "n_buckets buckets have the numbers 0 to n_buckets − 1: cap at that.": (
            lambda distances, n_buckets, max_distance: np.minimum(
                np.floor(_raw(distances, n_buckets, max_distance) + 1e-9), n_buckets
            )
        ),
        "the far buckets begin at E, the number of exact ones: add it.": (
            lambda distances, n_buckets, max_distance: np.where(
                distances < n_buckets // 2,
                distances,
                _bucket(distances, n_buckets, max_distance) - n_buckets // 2,
            )
        ),
        "from E on, B − E buckets are left to be shared, not B.": (
            lambda distances, n_buckets, max_distance: np.where(
                distances < n_buckets // 2,
                distances,
                np.minimum(
                    np.floor(2 * _raw(distances, n_buckets, max_distance) - n_buckets // 2 + 1e-9),
                    n_buckets - 1,
                ),
            )
        ),
        "the logarithm of max_distance has to be that of max_distance / E, as for the distance.": (
            lambda distances, n_buckets, max_distance: _bucket_by(distances, n_buckets, np.log(max_distance))
        ),
        "these are the distances: no bucket has been asked for.": lambda distances, *_: distances,
        "all in bucket 0: in `t5_buckets` a key before its query has a negative offset.": (
            lambda distances, *_: 0 * distances
        ),
        "only the first half of the buckets is exact; from there on they grow with the logarithm.": (
            lambda distances, n_buckets, max_distance: np.minimum(distances, n_buckets - 1)
        ),
    },
)


def _heads(n_heads: int, advantage: float, distance: int) -> list[int]:
    return [head for head, slope in enumerate(alibi_slopes(n_heads), start=1) if slope * distance < advantage]


needle_wins = Exercise(
    "needle_wins",
    NOTEBOOK,
    "when the needle wins",
    _heads,
    lambda: [(8, 5.0, 30), (8, 5.0, 1000), (4, 1.0, 40), (8, 5.0, 10), (12, 0.5, 3), (4, 0.1, 200)],
    {
        "heads count from 1 here.": lambda n_heads, advantage, distance: [
            head - 1 for head in _heads(n_heads, advantage, distance)
        ],
        "in a draw nobody wins: the advantage must be larger than slope × distance.": (
            lambda n_heads, advantage, distance: _heads(n_heads, advantage * (1 + 1e-12), distance)
        ),
        "for 12 heads the slopes are not 2^(−8h/12): `alibi_slopes` knows them.": (
            lambda n_heads, advantage, distance: [
                head for head in range(1, n_heads + 1) if 2 ** (-8 * head / n_heads) * distance < advantage
            ]
        ),
        "these are True and False, head by head: the numbers of the heads are wanted.": (
            lambda n_heads, advantage, distance: alibi_slopes(n_heads) * distance < advantage
        ),
        "return the numbers of the heads as a list.": lambda n_heads, advantage, distance: set(
            _heads(n_heads, advantage, distance)
        ),
        "these are the heads where it *loses*: the bias takes slope × distance away from it.": (
            lambda n_heads, advantage, distance: [
                head for head in range(1, n_heads + 1) if head not in _heads(n_heads, advantage, distance)
            ]
        ),
    },
)
