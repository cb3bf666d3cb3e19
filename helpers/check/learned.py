"""Exercises of notebook 03."""

import numpy as np

from helpers.check.exercises import Exercise

NOTEBOOK = "03"


def _ids(mask: np.ndarray) -> np.ndarray:
    return np.where(mask == 1, np.cumsum(mask, axis=-1) - 1, 0)


count_real = Exercise(
    "count_real",
    NOTEBOOK,
    "positions under padding",
    _ids,
    lambda: [
        (np.array([[0, 0, 1, 1, 1]]),),
        (np.array([[0, 1, 1, 0, 1], [1, 1, 1, 1, 1]]),),
        (np.array([[0, 0, 0]]),),
    ],
    {
        "padding gets the filler 0, not −1.": lambda mask: np.where(
            mask == 1, np.cumsum(mask, axis=-1) - 1, -1
        ),
        "padding may stand anywhere, also between tokens, and gets the filler 0 there, too.": lambda mask: (
            np.maximum(np.cumsum(mask, axis=-1) - 1, 0)
        ),
        "count along each text (axis 1), not from text to text.": lambda mask: np.where(
            mask == 1, np.cumsum(mask, axis=0) - 1, 0
        ),
        "each text begins anew at 0: count along its own row.": lambda mask: np.where(
            mask == 1, np.cumsum(mask).reshape(mask.shape) - 1, 0
        ),
        "the padding is counted, too: the first real token must be at position 0.": lambda mask: (
            np.arange(mask.shape[-1]) * mask
        ),
        "these count the padding too: the first real token must be at position 0.": lambda mask: (
            np.broadcast_to(np.arange(mask.shape[-1]), mask.shape)
        ),
        "this is a running count: take 1 off, since positions begin at 0, and give padding the filler 0.": (
            lambda mask: np.cumsum(mask, axis=-1)
        ),
        "one too many: the first real token is number 1 of a running count, but at position 0.": (
            lambda mask: np.cumsum(mask, axis=-1) * mask
        ),
        "padding in front got −1, which NumPy reads as the *last* row. Give it the filler 0.": lambda mask: (
            np.cumsum(mask, axis=-1) - 1
        ),
    },
)


def _gradient(positions: np.ndarray, d_out: np.ndarray, n_rows: int) -> np.ndarray:
    result = np.zeros((n_rows, d_out.shape[1]))
    np.add.at(result, positions, d_out)
    return result


def _last_only(positions: np.ndarray, d_out: np.ndarray, n_rows: int) -> np.ndarray:
    result = np.zeros((n_rows, d_out.shape[1]))
    result[positions] += d_out
    return result


def _mean(positions: np.ndarray, d_out: np.ndarray, n_rows: int) -> np.ndarray:
    counts = np.bincount(positions, minlength=n_rows)[:, None]
    return _gradient(positions, d_out, n_rows) / np.maximum(counts, 1)


def _gradient_inputs() -> list[tuple]:
    rng = np.random.default_rng(23)
    texts = (np.array([0, 1, 1]), np.array([2, 0, 2, 2, 4]), np.array([3]))
    return [(positions, rng.normal(size=(len(positions), 2)).round(2), 6) for positions in texts]


table_gradient = Exercise(
    "table_gradient",
    NOTEBOOK,
    "the gradient of a table",
    _gradient,
    _gradient_inputs,
    {
        "a row that is used twice gets both gradients; `=` or `+=` with an index list keeps only the last "
        "one. "
        "Use np.add.at or a loop.": _last_only,
        "a row that is used twice gets the sum of both gradients, not their mean.": _mean,
    },
)


def _safe(r2_by_period: dict[int, list[float]], limit: float) -> int:
    safe = 1
    for gap, values in enumerate(zip(*r2_by_period.values(), strict=True), start=2):
        if min(values) < limit:
            break
        safe = gap
    return safe


def _last_safe(r2_by_period: dict[int, list[float]], limit: float) -> int:
    good = [min(values) >= limit for values in zip(*r2_by_period.values(), strict=True)]
    return max([gap for gap, holds in enumerate(good, start=2) if holds], default=1)


def _counted_from_0(r2_by_period: dict[int, list[float]], limit: float) -> int:
    safe = _safe(r2_by_period, limit)
    return safe - 2 if safe > 1 else 1


def _mean_safe(r2_by_period: dict[int, list[float]], limit: float) -> int:
    means = [float(np.mean(values)) for values in zip(*r2_by_period.values(), strict=True)]
    return _safe({0: means}, limit)


safe_gap = Exercise(
    "safe_gap",
    NOTEBOOK,
    "the safe gap of a real table",
    _safe,
    lambda: [
        ({6: [0.9, 0.8, 0.75, 0.2], 17: [0.9, 0.4, 0.9, 0.9]}, 0.7),
        ({6: [0.8, 0.3, 0.75, 0.2], 17: [0.9, 0.9, 0.9, 0.9]}, 0.7),
        ({6: [0.7, 0.6], 17: [0.9, 0.8]}, 0.7),
        ({6: [0.9, 0.9], 17: [0.8, 0.9]}, 0.7),
        ({6: [0.6, 0.55, 0.4], 17: [0.9, 0.9, 0.9]}, 0.5),
        ({6: [0.95, 0.85], 17: [0.99, 0.98]}, 0.9),
        ({17: [0.99, 0.95, 0.8, 0.6], 53: [1.0, 0.99, 0.98, 0.97]}, 0.7),
        ({6: [0.5, 0.2, 0.1, 0.0], 159: [1.0, 1.0, 1.0, 1.0]}, 0.6),
    ],
    {
        "a circle can look well again at a larger gap, by aliasing: stop at the first gap that fails.": (
            _last_safe
        ),
        "the mean lets good circles hide a bad one: every circle must keep the limit.": _mean_safe,
        "this is the place in the list; the list begins with gap 2.": lambda r2_by_period, limit: (
            _safe(r2_by_period, limit) - 2
        ),
        "the lists begin with gap 2, and yours counts from 0: enumerate(…, start=2).": _counted_from_0,
        "`limit` is not used: other limits than 0.7 are asked for.": lambda r2_by_period, limit: _safe(
            r2_by_period, 0.7
        ),
        "a value of exactly `limit` still holds.": lambda r2_by_period, limit: _safe(
            r2_by_period, limit + 1e-9
        ),
        "the circle of the shortest period is not always the first to fail: ask all of them.": (
            lambda r2_by_period, limit: _safe({0: r2_by_period[min(r2_by_period)]}, limit)
        ),
        "*every* circle must keep the limit, not only the best one.": lambda r2_by_period, limit: _safe(
            {0: [max(values) for values in zip(*r2_by_period.values(), strict=True)]}, limit
        ),
        "this is the first gap that fails; asked is the last one before it.": lambda r2_by_period, limit: (
            _safe(r2_by_period, limit) + 1
        ),
        "if not even gap 2 holds, the answer is 1: no stretching at all.": lambda r2_by_period, limit: max(
            _safe(r2_by_period, limit), 2
        ),
    },
)
