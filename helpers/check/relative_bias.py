"""Exercises of notebook 05."""

import numpy as np

from helpers.check.exercises import Exercise
from helpers.relative_bias import alibi_slopes, t5_buckets

NOTEBOOK = "05"

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
    lambda: [(8, 5.0, 30), (8, 5.0, 1000), (4, 1.0, 40), (8, 0.5, 3)],
    {
        "heads count from 1 here.": lambda n_heads, advantage, distance: [
            head - 1 for head in _heads(n_heads, advantage, distance)
        ],
        "these are the heads where it *loses*: the bias takes slope × distance away from it.": (
            lambda n_heads, advantage, distance: [
                head for head in range(1, n_heads + 1) if head not in _heads(n_heads, advantage, distance)
            ]
        ),
    },
)
