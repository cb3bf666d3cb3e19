"""The seven schemes of the course as objects with three doors, so that a decoder can take any (notebook 06).

Each scheme may change the embeddings, the queries and keys, or the scores; a door that it does not use
returns its input or nothing. Beside each door stands its gradient. Parameters are shared by all layers.

Shapes: x (batch, n, d_model); q (batch, n_heads, n_queries, head_dim); positions (n,), integers from 0.
"""

from collections.abc import Mapping

import numpy as np

from helpers import rope
from helpers.learned import LearnedTable, repeat_last_row
from helpers.relative_bias import alibi_slopes, t5_buckets
from helpers.sinusoidal import sinusoidal_encoding

Gradients = dict[str, np.ndarray]


class Scheme:
    """No position at all ("none"), and the form of all others."""

    def __init__(self, d_model: int, n_heads: int, n_positions: int, rng: np.random.Generator) -> None:
        self.d_model, self.n_heads, self.n_positions = d_model, n_heads, n_positions
        self.parameters: Gradients = {}

    def embed(self, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Door 1: return the embeddings with what the positions add."""
        return x

    def embed_gradient(self, d_out: np.ndarray, positions: np.ndarray) -> Gradients:
        """Return the gradients of this door's parameters; x itself gets d_out unchanged."""
        return {}

    def rotate(self, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Door 2: return queries or keys, turned by their positions."""
        return x

    def rotate_gradient(self, d_out: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Return the gradient of the queries or keys before they were turned."""
        return d_out

    def bias(
        self, q: np.ndarray, query_positions: np.ndarray, key_positions: np.ndarray
    ) -> np.ndarray | None:
        """Door 3: return what is added to the scaled scores, or nothing. The mask is not its business."""
        return None

    def bias_gradient(
        self, d_bias: np.ndarray, q: np.ndarray, query_positions: np.ndarray, key_positions: np.ndarray
    ) -> tuple[np.ndarray | None, Gradients]:
        """Return the gradient of q through this door (or nothing), and those of its parameters."""
        return None, {}


class Sinusoidal(Scheme):
    """Door 1, Vaswani et al. 2017: add a fixed row of waves, divided by sqrt(d_model).

    The original multiplies the embeddings by sqrt(d_model) instead, which gives the same proportion.
    """

    def embed(self, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        return x + (sinusoidal_encoding(positions, self.d_model) / self.d_model**0.5).astype(x.dtype)


class Learned(Scheme):
    """Door 1, Gehring et al. 2017: add a trained row; beyond the table it refuses.

    Set beyond = "repeat" for the usual work-around, in which all further positions get the last row.
    """

    def __init__(self, d_model: int, n_heads: int, n_positions: int, rng: np.random.Generator) -> None:
        super().__init__(d_model, n_heads, n_positions, rng)
        self.parameters = {"table": rng.normal(0, d_model**-0.5, (n_positions, d_model)).astype(np.float32)}
        self.beyond = "refuse"

    def embed(self, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        table = LearnedTable(self.parameters["table"])
        return x + (repeat_last_row(table, positions) if self.beyond == "repeat" else table.lookup(positions))

    def embed_gradient(self, d_out: np.ndarray, positions: np.ndarray) -> Gradients:
        d_table = np.zeros_like(self.parameters["table"])
        np.add.at(d_table, np.minimum(positions, self.n_positions - 1), d_out.sum(axis=0))
        return {"table": d_table}


class Rope(Scheme):
    """Door 2, Su et al. 2021: turn queries and keys. Set inv_freq and attention_factor to stretch it."""

    def __init__(self, d_model: int, n_heads: int, n_positions: int, rng: np.random.Generator) -> None:
        super().__init__(d_model, n_heads, n_positions, rng)
        self.inv_freq, self.attention_factor = rope.inverse_frequencies(d_model // n_heads), 1.0

    def rotate(self, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        return rope.rotate(x, positions, self.inv_freq, self.attention_factor)

    def rotate_gradient(self, d_out: np.ndarray, positions: np.ndarray) -> np.ndarray:
        return rope.rotate(d_out, -positions, self.inv_freq, self.attention_factor)  # the rotation back


class Shaw(Scheme):
    """Door 3, Shaw et al. 2018: a trained vector an offset, keys only, clipped at half the length."""

    def __init__(self, d_model: int, n_heads: int, n_positions: int, rng: np.random.Generator) -> None:
        super().__init__(d_model, n_heads, n_positions, rng)
        self.clip, self.scale = n_positions // 2, (d_model // n_heads) ** -0.5
        rows = rng.normal(0, 0.1, (2 * self.clip + 1, d_model // n_heads))
        self.parameters = {"key_table": rows.astype(np.float32)}

    def _rows_used(self, query_positions: np.ndarray, key_positions: np.ndarray) -> np.ndarray:
        offsets = key_positions - query_positions[:, None]
        return np.clip(offsets, -self.clip, self.clip) + self.clip

    def bias(self, q: np.ndarray, query_positions: np.ndarray, key_positions: np.ndarray) -> np.ndarray:
        by_row = q @ self.parameters["key_table"].T * q.dtype.type(self.scale)
        index = self._rows_used(query_positions, key_positions)
        return by_row[..., np.arange(len(index))[:, None], index]

    def bias_gradient(
        self, d_bias: np.ndarray, q: np.ndarray, query_positions: np.ndarray, key_positions: np.ndarray
    ) -> tuple[np.ndarray, Gradients]:
        index = self._rows_used(query_positions, key_positions)
        # Undo the spreading: for each query, sum over the keys that used a row, (n_queries, n_keys, n_rows).
        used = (index[..., None] == np.arange(2 * self.clip + 1)).astype(q.dtype)
        d_by_row = np.einsum("bhqk,qkr->bhqr", d_bias, used, optimize=True) * q.dtype.type(self.scale)
        d_table = np.einsum("bhqr,bhqd->rd", d_by_row, q, optimize=True)
        return d_by_row @ self.parameters["key_table"], {"key_table": d_table}


class T5(Scheme):
    """Door 3, Raffel et al. 2019: a trained number a head and bucket (16 buckets, max_distance n_positions).

    T5 itself does not scale its scores; here all schemes keep 1/sqrt(head_dim), to differ in position alone.
    """

    def __init__(self, d_model: int, n_heads: int, n_positions: int, rng: np.random.Generator) -> None:
        super().__init__(d_model, n_heads, n_positions, rng)
        self.parameters = {"table": np.zeros((16, n_heads), np.float32)}

    def _buckets(self, query_positions: np.ndarray, key_positions: np.ndarray) -> np.ndarray:
        offsets = key_positions - query_positions[:, None]
        return t5_buckets(offsets, 16, max_distance=self.n_positions, bidirectional=False)

    def bias(self, q: np.ndarray, query_positions: np.ndarray, key_positions: np.ndarray) -> np.ndarray:
        buckets = self._buckets(query_positions, key_positions)
        return np.moveaxis(self.parameters["table"][buckets], -1, 0)

    def bias_gradient(
        self, d_bias: np.ndarray, q: np.ndarray, query_positions: np.ndarray, key_positions: np.ndarray
    ) -> tuple[None, Gradients]:
        buckets = self._buckets(query_positions, key_positions)
        d_table = np.zeros_like(self.parameters["table"])
        np.add.at(d_table, buckets, np.moveaxis(d_bias.sum(axis=0), 0, -1))
        return None, {"table": d_table}


class Alibi(Scheme):
    """Door 3, Press et al. 2021: a fixed slope a head."""

    def bias(self, q: np.ndarray, query_positions: np.ndarray, key_positions: np.ndarray) -> np.ndarray:
        distances = np.abs(key_positions - query_positions[:, None])
        return (-alibi_slopes(self.n_heads)[:, None, None] * distances).astype(q.dtype)


SCHEMES: Mapping[str, type[Scheme]] = {
    "none": Scheme,
    "sinusoidal": Sinusoidal,
    "learned": Learned,
    "shaw": Shaw,
    "t5": T5,
    "rope": Rope,
    "alibi": Alibi,
}
