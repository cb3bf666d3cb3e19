"""The seven schemes of the course, each described by its doors, so that a decoder can take any (notebook 06).

helpers/doors.py says what a door gets and returns. Each scheme's own facts stand with it: what it is called,
how it is drawn, what it costs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np

from helpers import arguments, rope
from helpers.doors import Facts, Parameters, Scheme, Through
from helpers.learned import LearnedTable, repeat_last_row
from helpers.relative_bias import alibi_slopes, t5_buckets
from helpers.sinusoidal import sinusoidal_encoding


@dataclass
class Sinusoidal(Scheme):
    """Door 1, Vaswani et al. 2017: add a fixed row of waves, divided by sqrt(d_model).

    The original multiplies the embeddings by sqrt(d_model) instead, which gives the same proportion. The
    amplitude makes the waves larger or smaller than that.
    """

    amplitude: float = 1.0
    base: float = 10_000.0
    facts: ClassVar[Facts] = Facts(
        "sinusoidal",
        1,
        "#0072B2",
        "#0072B2",
        "--",
        lambda size: size.d_model / size.n_layers,
        "amplitude",
        (0.5, 1, 4),
    )

    def embed(self, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        waves = sinusoidal_encoding(positions, self.d_model, self.base)
        return x + (self.amplitude * self.d_model**-0.5 * waves).astype(x.dtype)


@dataclass
class Learned(Scheme):
    """Door 1, Gehring et al. 2017: add a trained row; beyond the table it refuses.

    Set beyond = "repeat" for the usual work-around, in which all further positions get the last row.
    """

    beyond: str = "refuse"
    facts: ClassVar[Facts] = Facts(
        "learned", 1, "#E69F00", "#8A5F00", ":", lambda size: size.d_model / size.n_layers
    )

    def new_weights(self, rng: np.random.Generator) -> Parameters:
        rows = rng.normal(0, self.d_model**-0.5, (self.n_positions, self.d_model))
        return {"table": rows.astype(np.float32)}

    def embed(self, x: np.ndarray, positions: np.ndarray, *, table: np.ndarray) -> Through:
        rows = LearnedTable(table)
        looked_up = repeat_last_row(rows, positions) if self.beyond == "repeat" else rows.lookup(positions)

        def back(d_out: np.ndarray) -> tuple[np.ndarray, Parameters]:
            d_table = np.zeros_like(table)
            np.add.at(d_table, np.minimum(positions, len(table) - 1), d_out.sum(axis=0))
            return d_out, {"table": d_table}

        return x + looked_up, back


@dataclass
class Shaw(Scheme):
    """Door 3, Shaw et al. 2018: a trained vector an offset, keys only.

    Offsets of `clip` and more share a row; clip is half of n_positions, unless given.
    """

    clip: int | None = None
    facts: ClassVar[Facts] = Facts(
        "Shaw",
        3,
        "#CC79A7",
        "#9C3F74",
        "-.",  # a product with each row, then a sum per key
        lambda size: 2 * (2 * (size.n_positions // 2) + 1) * size.d_model + size.n_heads * size.n_keys,
    )

    def __post_init__(self) -> None:
        self.clip = self.n_positions // 2 if self.clip is None else self.clip

    def new_weights(self, rng: np.random.Generator) -> Parameters:
        return {"key_table": rng.normal(0, 0.1, (2 * self.clip + 1, self.head_dim)).astype(np.float32)}

    def bias(
        self,
        q: np.ndarray,
        query_positions: np.ndarray,
        key_positions: np.ndarray,
        *,
        key_table: np.ndarray,
    ) -> Through:
        offsets = key_positions - query_positions[:, None]
        row = np.clip(offsets, -self.clip, self.clip) + self.clip  # (n_queries, n_keys)
        rows = key_table[row] * q.dtype.type(self.head_dim**-0.5)
        by_query = _by_query(q)
        scores = by_query @ rows.swapaxes(-1, -2)

        def back(d_bias: np.ndarray) -> tuple[np.ndarray, Parameters]:
            d_scores = _by_query(d_bias)
            d_q = (d_scores @ rows).swapaxes(0, 1).reshape(q.shape)
            d_rows = d_scores.swapaxes(-1, -2) @ by_query * q.dtype.type(self.head_dim**-0.5)
            d_table = np.zeros_like(key_table)
            np.add.at(d_table, row, d_rows)
            return d_q, {"key_table": d_table}

        return scores.swapaxes(0, 1).reshape(*q.shape[:-1], len(key_positions)), back


def _by_query(x: np.ndarray) -> np.ndarray:
    """(batch, n_heads, n_queries, m) to (n_queries, batch * n_heads, m): a matrix for each query."""
    return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]).swapaxes(0, 1)


@dataclass
class T5(Scheme):
    """Door 3, Raffel et al. 2019: a trained number a head and bucket (16 buckets, max_distance n_positions).

    T5 itself does not scale its scores; here all schemes keep 1/sqrt(head_dim), to differ in position alone.
    """

    n_buckets: int = 16
    facts: ClassVar[Facts] = Facts(
        "T5", 3, "#009E73", "#00704F", (0, (7, 2)), lambda size: size.n_heads * size.n_keys
    )
    bias_of_positions: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.n_positions <= self.n_buckets // 2:
            raise ValueError(
                f"n_positions must be above {self.n_buckets // 2} for T5, which has a bucket of its own for "
                f"each distance below that, but got {self.n_positions}"
            )

    def new_weights(self, rng: np.random.Generator) -> Parameters:
        return {"table": np.zeros((self.n_buckets, self.n_heads), np.float32)}

    def bias(
        self, q: np.ndarray, query_positions: np.ndarray, key_positions: np.ndarray, *, table: np.ndarray
    ) -> Through:
        offsets = key_positions - query_positions[:, None]
        bucket = t5_buckets(offsets, self.n_buckets, max_distance=self.n_positions, bidirectional=False)

        def back(d_bias: np.ndarray) -> tuple[None, Parameters]:
            by_head = d_bias.sum(axis=0).reshape(self.n_heads, -1)
            sums = [np.bincount(bucket.ravel(), one, self.n_buckets) for one in by_head]
            return None, {"table": np.stack(sums, axis=-1).astype(table.dtype)}

        return np.moveaxis(table[bucket], -1, 0), back


@dataclass
class Rope(Scheme):
    """Door 2, Su et al. 2021: turn queries and keys.

    Set inv_freq and attention_factor to stretch it (notebook 07).
    """

    base: float = 10_000.0
    inv_freq: np.ndarray = field(init=False)
    attention_factor: float = field(init=False, default=1.0)
    facts: ClassVar[Facts] = Facts(
        "RoPE",
        2,
        "#D55E00",
        "#B04A00",
        "-",  # a pair takes 4 products and 2 sums; d/2 pairs; queries and keys
        lambda size: 6 * size.d_model,
        "base",
        (10, 100, 10_000),
        10_000,
    )

    def __post_init__(self) -> None:
        self.inv_freq = rope.inverse_frequencies(self.head_dim, self.base)

    def rotate(self, x: np.ndarray, positions: np.ndarray) -> Through:
        angles = positions[:, None] * self.inv_freq  # float64; only cosines and sines take x's precision
        cos, sin = ((self.attention_factor * wave(angles)).astype(x.dtype) for wave in (np.cos, np.sin))

        def back(d_out: np.ndarray) -> tuple[np.ndarray, Parameters]:
            return rope.turn_pairs(d_out, cos, -sin), {}  # the rotation back

        return rope.turn_pairs(x, cos, sin), back


@dataclass
class Alibi(Scheme):
    """Door 3, Press et al. 2021: a fixed slope a head; slope_factor multiplies all slopes."""

    slope_factor: float = 1.0
    facts: ClassVar[Facts] = Facts(
        "ALiBi",
        3,
        "#56B4E9",
        "#1B6CA8",
        (0, (4, 1, 1, 1, 1, 1)),
        lambda size: size.n_heads * size.n_keys,
        "slope_factor",
        (0.25, 1, 4),
    )
    bias_of_positions: ClassVar[bool] = True

    def bias(self, q: np.ndarray, query_positions: np.ndarray, key_positions: np.ndarray) -> np.ndarray:
        slopes = (self.slope_factor * alibi_slopes(self.n_heads)).astype(q.dtype)
        distances = np.abs(key_positions - query_positions[:, None]).astype(q.dtype)
        return -slopes[:, None, None] * distances


# The eighth scheme joins every figure, table and test by a line here.
SCHEMES: Mapping[str, type[Scheme]] = {
    "none": Scheme,
    "sinusoidal": Sinusoidal,
    "learned": Learned,
    "shaw": Shaw,
    "t5": T5,
    "rope": Rope,
    "alibi": Alibi,
}


# --- How a decoder asks for a scheme ---


class Spec(NamedTuple):
    """A scheme, its options by name and value (such as ("base", 10.0)), and how many keys its layer sees."""

    scheme: str | type[Scheme]
    options: tuple[tuple[str, float], ...] = ()
    window: int | None = None


def spec(scheme: "str | type[Scheme] | Spec", window: int | None = None, **options: float) -> Spec:
    """Return a Spec, from a name in SCHEMES or a class of that form: spec("rope", base=10, window=32).

    Raises ValueError for a name or an option that there is not, TypeError for what is no scheme.
    """
    if isinstance(scheme, Spec):
        return scheme
    if isinstance(scheme, str):
        arguments.choice("scheme", scheme, tuple(SCHEMES))
    elif not (isinstance(scheme, type) and issubclass(scheme, Scheme)):
        raise TypeError(
            f"scheme must be a name in SCHEMES or a class that extends Scheme, but got {scheme!r}"
        )
    return Spec(scheme, tuple(options.items()), window)


def build(one: Spec, d_model: int, n_heads: int, n_positions: int) -> Scheme:
    """Return the scheme that a Spec asks for."""
    kind = SCHEMES[one.scheme] if isinstance(one.scheme, str) else one.scheme
    options = dict(one.options)
    known = {name for name, part in getattr(kind, "__dataclass_fields__", {}).items() if part.init}
    unknown = set(options) - known
    if unknown:
        allowed = ", ".join(sorted(known - set(Scheme.__dataclass_fields__))) or "none"
        raise ValueError(f"options of {kind.__name__} must be of {allowed}, but got {sorted(unknown)}")
    return kind(d_model=d_model, n_heads=n_heads, n_positions=n_positions, **options)
