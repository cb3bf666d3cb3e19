"""Exercises of notebook 01."""

import numpy as np

from helpers.check.exercises import Exercise

NOTEBOOK = "01"


def _matrix(order: list[int]) -> np.ndarray:
    return np.eye(len(order))[order]


permutation_matrix = Exercise(
    "permutation_matrix",
    NOTEBOOK,
    "the matrix of an order",
    _matrix,
    lambda: [([2, 0, 1],), ([1, 2, 3, 0],), ([3, 0, 4, 1, 2],)],
    {
        "this is the transpose, which undoes the order. Row i has its 1 in column order[i].": lambda order: (
            np.eye(len(order))[:, order]
        ),
        "this is the identity, which leaves every order alone. Where does `order` come in?": lambda order: (
            np.eye(len(order))
        ),
    },
)


def _weights(scores: np.ndarray, extra: int = 0) -> np.ndarray:
    return _softmax(np.where(_seen(scores, extra), scores, -np.inf))


def _softmax(scores: np.ndarray) -> np.ndarray:
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def _seen(scores: np.ndarray, extra: int = 0) -> np.ndarray:
    """Which keys the last tokens see: those up to their own, and so many more."""
    n_queries, n_keys = scores.shape
    return np.tri(n_queries, n_keys, n_keys - n_queries + extra, dtype=bool)


def _over_all(scores: np.ndarray) -> np.ndarray:
    return _softmax(np.where(_seen(scores), scores, -np.inf).reshape(1, -1)).reshape(scores.shape)


def _scores(*shapes: tuple[int, int]) -> list[tuple[np.ndarray]]:
    rng = np.random.default_rng(17)
    return [(rng.normal(size=shape).round(2),) for shape in shapes]


masked_weights = Exercise(
    "masked_weights",
    NOTEBOOK,
    "weights behind a mask",
    lambda scores: _weights(scores),
    lambda: _scores((3, 3), (2, 5), (5, 5)),
    {
        "the mask comes after the softmax, so the rows no longer sum to 1. Hide the scores (with -inf) "
        "before it.": lambda scores: _softmax(scores) * _seen(scores),
        "with fewer queries than keys, the queries are the *last* tokens: the last one sees all keys.": (
            lambda scores: _weights(scores, len(scores) - scores.shape[1])
        ),
        "a query sees itself, too: the diagonal is not hidden.": lambda scores: _weights(scores, -1),
        "one key too many: a query must not see the key right after it.": lambda scores: _weights(scores, 1),
        "the mask is upside down: it hides the past and shows the future.": lambda scores: _softmax(
            np.where(_seen(scores), -np.inf, scores)
        ),
        "a hidden score of 0 still gets a weight, since exp(0) is 1. Hide with -np.inf.": lambda scores: (
            _softmax(scores * _seen(scores))
        ),
        "the weights of each query sum to 1; yours do so all together.": _over_all,
        "these are still scores: the softmax of each row makes weights of them.": lambda scores: np.where(
            _seen(scores), scores, -np.inf
        ),
        "nothing is hidden: a query must not see the keys that come after it.": _softmax,
        "the weights of a *query* sum to 1: take the softmax along rows, not down columns.": lambda scores: (
            _softmax(np.where(_seen(scores), scores, -1e30).T).T
        ),
    },
)


def _weight(share: float, next_share: float) -> float:
    """The weight of the start token against one word, from its shares at two places in a row."""
    return 1 / (1 / next_share - 1 / share)


place_from_shares = Exercise(
    "place_from_shares",
    NOTEBOOK,
    "the place from a start token's shares",
    lambda share, next_share: _weight(share, next_share) * (1 / share - 1),
    lambda: [(a / (a + p), a / (a + p + 1)) for a, p in ((1.0, 3), (3.0, 27), (0.5, 100))],
    {
        "this is the place of `next_share`, one too many.": lambda share, next_share: (
            _weight(share, next_share) * (1 / next_share - 1)
        ),
        "this is a, the weight of the start token: one step to go, to p.": _weight,
        "this is p + a: the start token itself is counted, too.": lambda share, next_share: (
            _weight(share, next_share) / share
        ),
        "this takes a for 1. How large it is, the two shares say together.": lambda share, next_share: (
            1 / share - 1
        ),
        "the sign: the next share is the smaller one, so its inverse is the larger one.": (
            lambda share, next_share: -_weight(share, next_share) * (1 / share - 1)
        ),
    },
    # The difference of two nearly equal inverses costs single precision two digits.
    tolerance=(1e-4, 1e-4),
)
