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
