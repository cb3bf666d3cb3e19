"""Exercises of notebook 02."""

import numpy as np

from helpers.check.exercises import Exercise
from helpers.sinusoidal import offset_share, shift_matrix, sinusoidal_encoding

NOTEBOOK = "02"


def _columns(positions: np.ndarray, exponents: np.ndarray, base: float) -> np.ndarray:
    """Sines in even columns, cosines in odd ones, of positions / base^exponents."""
    angles = np.asarray(positions)[:, None] * base**-exponents
    return np.where(np.arange(len(exponents)) % 2 == 0, np.sin(angles), np.cos(angles))


def _table(positions: np.ndarray, d_model: int, base: float) -> np.ndarray:
    return sinusoidal_encoding(positions, d_model, base)


wave_table = Exercise(
    "wave_table",
    NOTEBOOK,
    "the table without a loop",
    _table,
    lambda: [(np.array([0, 1, 2]), 4, 100.0), (np.array([7, 3]), 6, 10_000.0), (np.arange(20), 8, 50.0)],
    {
        "the exponent is 2i/d with i the number of the *pair*: columns 0 and 1 share it. Yours uses the "
        "number of the column.": lambda positions, d_model, base: _columns(
            positions, np.arange(d_model) / d_model, base
        ),
        "the exponent grows twice as fast as it should: 2j/d with j the column, instead of 2i/d with i the "
        "pair.": lambda positions, d_model, base: _columns(positions, 2 * np.arange(d_model) / d_model, base),
        "the position is multiplied by base^(2i/d); it has to be divided.": lambda positions, d_model, base: (
            _columns(positions, -(np.arange(d_model) // 2) * 2 / d_model, base)
        ),
        "the exponent grows half as fast as it should: 2i/d with i the number of the pair, not i/d.": (
            lambda positions, d_model, base: _columns(positions, np.arange(d_model) // 2 / d_model, base)
        ),
        "the exponent is 2i/d, not 2i/(d − 2): that is tensor2tensor's.": lambda positions, d_model, base: (
            _columns(positions, np.arange(d_model) // 2 * 2 / (d_model - 2), base)
        ),
        "`base` is not used: other values than 10,000 are asked for.": lambda positions, d_model, base: (
            _table(positions, d_model, 10_000)
        ),
        "this is right for the positions 0, 1, 2, …: use the numbers in `positions`.": (
            lambda positions, d_model, base: _table(np.arange(len(positions)), d_model, base)
        ),
        "every position is one too large: they count from 0, whose row is 0, 1, 0, 1, …": (
            lambda positions, d_model, base: _table(positions + 1, d_model, base)
        ),
        "all sines come first, then all cosines: here they alternate, pair by pair.": (
            lambda positions, d_model, base: sinusoidal_encoding(positions, d_model, base, "concatenated")
        ),
        "sine and cosine have changed places: sines go into the even columns.": (
            lambda positions, d_model, base: (
                _table(positions, d_model, base)
                .reshape(len(positions), -1, 2)[:, :, ::-1]
                .reshape(len(positions), -1)
            )
        ),
    },
)

undo_shift = Exercise(
    "undo_shift",
    NOTEBOOK,
    "the shift back",
    lambda matrix: matrix.T,
    lambda: [(shift_matrix(5, 4),), (shift_matrix(2, 8, 100.0),), (shift_matrix(-3, 6),)],
    {
        "a minus sign turns every pair by half a circle more, not back.": lambda matrix: -matrix,
        "this inverts each number by itself; the inverse of a matrix is another thing.": lambda matrix: (
            1 / matrix
        ),
        "this is the shift itself. How do you undo a rotation?": lambda matrix: matrix,
    },
)


def _judge(matrix: np.ndarray, offset: int, d_model: int) -> str:
    if matrix.shape != (d_model, d_model):
        return f"  W must have the shape {(d_model, d_model)}, but yours has {matrix.shape}"
    matrix = matrix / max(np.abs(matrix).max(), 1e-300)  # its size does not matter, and may be any
    table = sinusoidal_encoding(60, d_model)
    scores = table @ matrix @ table.T
    queries = np.arange(max(0, -offset), min(60, 60 - offset))
    if np.ptp(scores, axis=1).max() < 1e-9 * max(np.abs(scores).max(), 1e-300):
        return "  every key gets the same score"
    found = scores[queries].argmax(axis=1) - queries
    wrong = queries[found != offset]
    if len(wrong):
        query = wrong[np.abs(wrong - 30).argmin()]  # in the middle, with room on both sides
        best = scores[query].argmax() - query
        return f"  of 60 keys, the query at {query} scores highest at offset {best}, not at {offset}"
    if offset_share(scores) < 1 - 1e-6:
        return "  the score does not depend on the offset alone"
    return ""


look_ahead = Exercise(
    "look_ahead",
    NOTEBOOK,
    "a W that finds an offset",
    lambda offset, d_model: shift_matrix(offset, d_model).T,
    lambda: [(3, 64), (-7, 64), (10, 32)],
    {
        "it looks the other way. (M e_p) · e_r is e_p^T M^T e_r.": shift_matrix,
        "the identity finds the row most like the query's own: itself.": lambda offset, d_model: np.eye(
            d_model
        ),
    },
    judge=_judge,
)
