"""A learned table: one trained vector a position, and nothing beyond its last row (notebook 03, door 1).

Sources: Gehring et al. 2017, arXiv:1705.03122; Devlin et al. 2018 (BERT), arXiv:1810.04805.
"""

from functools import cache
from importlib.resources import as_file, files

import numpy as np
from numpy.typing import ArrayLike

from helpers import arguments


class PositionOutOfRange(IndexError, ValueError):
    """A position was asked for that the table has no row for."""


class LearnedTable:
    """A look-up table with a ceiling: rows (n_rows, d_model), one a position from 0."""

    def __init__(self, rows: ArrayLike) -> None:
        self.rows = arguments.real_array("rows", rows, ndim=2).copy()
        self.rows.flags.writeable = False
        self.n_rows, self.d_model = self.rows.shape

    def lookup(self, positions: ArrayLike) -> np.ndarray:
        """Return the rows of integer positions of any shape: positions.shape + (d_model,).

        Raises PositionOutOfRange below 0 (where NumPy would silently count from the end) and from n_rows on.
        """
        positions = arguments.int_array("positions", positions)
        outside = (positions < 0) | (positions >= self.n_rows)
        if outside.any():
            raise PositionOutOfRange(
                f"positions must be from 0 to {self.n_rows - 1}, since this table has {self.n_rows} rows, "
                f"but got {positions[outside].flat[0]}"
            )
        return self.rows[positions]


def repeat_last_row(table: LearnedTable, positions: ArrayLike) -> np.ndarray:
    """Look positions up, and give every position beyond the table its last row: the usual work-around.

    positions: integers of at least 0, any shape. Returns positions.shape + (d_model,).
    """
    if not isinstance(table, LearnedTable):
        raise TypeError(f"table must be a LearnedTable, but got {type(table).__name__}")
    positions = arguments.int_array("positions", positions)
    return table.lookup(np.minimum(positions, table.n_rows - 1))


@cache
def minilm_table() -> np.ndarray:
    """Return the real position table of all-MiniLM-L6-v2, float32 (512, 384), read-only.

    Origin and licence (Apache-2.0): helpers/data/README.md. It is stored rounded to float16.
    """
    with as_file(files("helpers") / "data" / "minilm_positions.npy") as path:
        table = np.load(path, allow_pickle=False).astype(np.float32)
    table.flags.writeable = False
    return table


def position_ids(attention_mask: ArrayLike, *, offset: int = 0, padded: int = 0) -> np.ndarray:
    """Number the real tokens of each row from offset on, however the row is padded: int, the mask's shape.

    attention_mask: (..., n), 1 (or True) for a real token and 0 for padding.
    offset: the first real token's position (2 for RoBERTa and OPT, which reserve rows 0 and 1).
    padded: what padding gets. Its row is looked up too, so it must exist; the mask hides it.
    """
    offset = arguments.whole_number("offset", offset)
    padded = arguments.whole_number("padded", padded)
    mask = np.asarray(attention_mask)
    if mask.dtype.kind != "b":
        mask = arguments.int_array("attention_mask", attention_mask)
        if not np.isin(mask, (0, 1)).all():
            wrong = mask[~np.isin(mask, (0, 1))].flat[0]
            raise ValueError(f"attention_mask must hold only 0 and 1, but it holds {wrong}")
    if mask.ndim == 0:
        raise ValueError(f"attention_mask must have at least 1 dimension, but got {attention_mask!r}")
    real = mask.astype(np.int64)
    return np.where(real == 1, real.cumsum(axis=-1) - 1 + offset, padded)


def principal_coordinates(rows: ArrayLike, n_components: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows (n, d) in their main directions, (n, n_components), and all variances, (min(n, d),).

    The mean row is taken away first. Raises ValueError for more components than there are.
    """
    rows = arguments.real_array("rows", rows, ndim=2).astype(np.float64)
    n_components = arguments.whole_number("n_components", n_components, at_least=1)
    if n_components > min(rows.shape):
        raise ValueError(f"n_components must be at most {min(rows.shape)}, but got {n_components}")
    left, sizes, _ = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
    return left[:, :n_components] * sizes[:n_components], sizes**2 / len(rows)


def step_operator(coordinates: ArrayLike) -> np.ndarray:
    """Return the matrix M, (k, k), that best takes each row of coordinates, (n, k), to the next: M @ row."""
    coordinates = arguments.real_array("coordinates", coordinates, ndim=2)
    if len(coordinates) <= coordinates.shape[1]:
        raise ValueError(
            f"coordinates must have more rows than columns, but their shape is {coordinates.shape}"
        )
    return np.linalg.lstsq(coordinates[:-1], coordinates[1:])[0].T


def turning_planes(coordinates: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return the angles that the step operator turns by, (m,), and the rows in its planes, complex (n, m).

    Fastest first; angles in radians a row, in (0, pi). A plane is one complex number a row, of mean size 1:
    a left eigenvector times the row, which the operator multiplies by its eigenvalue.
    """
    coordinates = arguments.real_array("coordinates", coordinates, ndim=2)
    eigenvalues, left_vectors = np.linalg.eig(step_operator(coordinates).T)
    turning = np.flatnonzero(eigenvalues.imag > 1e-9)
    turning = turning[np.argsort(-np.angle(eigenvalues[turning]))]
    planes = coordinates @ left_vectors[:, turning]
    planes *= np.abs(planes[0]) / planes[0] / np.abs(planes).mean(axis=0)  # the first row points to the right
    return np.angle(eigenvalues[turning]), planes


def interpolation_r2(rows: ArrayLike, gap: int) -> float:
    """Keep every gap-th of rows, (n, d), real or complex; return R² of straight lines for those between."""
    rows = np.asarray(rows)
    gap = arguments.whole_number("gap", gap, at_least=2)
    if rows.ndim != 2 or len(rows) <= gap:
        raise ValueError(f"rows must be a matrix of more than {gap} rows, but their shape is {rows.shape}")
    kept = np.arange(0, len(rows), gap)
    between = np.setdiff1d(np.arange(kept[-1]), kept)
    guess = np.stack([np.interp(between, kept, column[kept]) for column in rows.T], axis=-1)
    return r_squared(rows[between], guess)


def r_squared(actual: ArrayLike, guess: ArrayLike) -> float:
    """Return 1 - error of guess / spread of actual about its mean row, both squared sums over (n, d)."""
    actual, guess = np.asarray(actual), np.asarray(guess)
    error, spread = np.abs(actual - guess) ** 2, np.abs(actual - actual.mean(axis=0)) ** 2
    return float(1 - error.sum() / spread.sum())
