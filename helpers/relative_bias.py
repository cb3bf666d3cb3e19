"""Position as something added to the scores, by offset = key - query (notebook 05, door 3).

Sources: Shaw et al. 2018, arXiv:1803.02155; Huang et al. 2018 (Music Transformer), arXiv:1809.04281;
Raffel et al. 2019 (T5), arXiv:1910.10683; Press et al. 2021 (ALiBi), arXiv:2108.12409.
"""

import numpy as np
from numpy.typing import ArrayLike

from helpers import arguments, attention


def relative_offsets(n_queries: int, n_keys: int | None = None) -> np.ndarray:
    """Return key position minus query position, int (n_queries, n_keys): negative in the past.

    The queries are the last n_queries of the n_keys positions. Raises ValueError unless n_keys >= n_queries.
    """
    n_queries, n_keys = arguments.keys_for_queries(n_queries, n_keys)
    return np.arange(n_keys) - np.arange(n_keys - n_queries, n_keys)[:, None]


# --- Shaw: a learned vector an offset ---


def shaw_scores(q: ArrayLike, k: ArrayLike, key_table: ArrayLike) -> np.ndarray:
    """Return q_i . (k_j + key_table[r_ij]) / sqrt(d), (..., n_queries, n_keys), with r_ij the clipped offset.

    key_table: (2 clip + 1, d), rows for the offsets -clip to clip; further offsets share the end rows.
    """
    q = arguments.real_array("q", q, min_ndim=2)
    k = arguments.real_array("k", k, min_ndim=2)
    rows = _shaw_rows("key_table", key_table, "q", q.shape[-1])
    if k.shape[-2] < q.shape[-2]:
        raise ValueError(
            f"k must have at least one row per query ({q.shape[-2]}), but its shape is {k.shape}"
        )
    content = attention.scaled_scores(q, k)
    index = _clipped_offsets(q.shape[-2], k.shape[-2], len(rows))
    # Each query meets each row once, (..., n_queries, 2 clip + 1); the index then spreads them over the keys.
    by_row = attention.scaled_scores(q, rows)
    with np.errstate(over="ignore"):
        scores = content + by_row[..., np.arange(q.shape[-2])[:, None], index]
    arguments.finite_result("q, k and key_table", scores, "their scores")
    return scores.astype(np.result_type(q, k), copy=False)


def shaw_attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    key_table: ArrayLike,
    value_table: ArrayLike | None = None,
    *,
    mask: ArrayLike | None = None,
) -> np.ndarray:
    """Return sum_j weight_ij (v_j + value_table[r_ij]), (..., n_queries, d_v), the weights from shaw_scores.

    value_table: (2 clip + 1, d_v), or None for plain values. mask: bool, True = may attend.
    """
    v = arguments.real_array("v", v, min_ndim=2)
    weights = attention.masked_softmax(shaw_scores(q, k, key_table), mask=mask)
    output = attention.weighted_sum(weights, v)
    if value_table is None:
        return output
    rows = _shaw_rows("value_table", value_table, "v", v.shape[-1])
    if len(rows) != len(key_table):
        raise ValueError(
            f"value_table must have as many rows as key_table, {len(key_table)}, but got {len(rows)}"
        )
    index = _clipped_offsets(*weights.shape[-2:], len(rows))
    with np.errstate(over="ignore"):
        output = output + np.einsum("...qk,qkd->...qd", weights, rows[index])
    arguments.finite_result("v and value_table", output, "their sum")
    return output


def skew(scores: ArrayLike, *, causal: bool = True) -> np.ndarray:
    """Move scores by distance to scores by key, without a table of offsets (the Music Transformer's step).

    causal: scores (..., n_queries, n_keys) whose columns are the offsets -(n_keys - 1) to 0; entry [i, j] of
        the result belongs to key j. What stands above the diagonal is left over from the next row: mask it.
        More keys than queries are a memory, as in Transformer-XL (arXiv:1901.02860, appendix B).
    not causal: scores (..., n, 2n - 1) whose columns are the offsets -(n - 1) to n - 1; returns (..., n, n).
    """
    scores = arguments.real_array("scores", scores, min_ndim=2)
    n_queries, width = scores.shape[-2:]
    if arguments.flag("causal", causal):
        n_keys = width
        if n_keys < n_queries:
            raise ValueError(
                f"scores must have at least as many columns as rows, but their shape is {scores.shape}"
            )
    else:
        n_keys = n_queries
        if width != max(2 * n_queries - 1, 0):
            raise ValueError(
                f"scores must have the shape (..., n, 2n - 1), but their shape is {scores.shape}"
            )
    if scores.size == 0:
        return np.zeros((*scores.shape[:-1], n_keys), scores.dtype)
    # A column of zeros in front makes each row one longer. Cut into rows of the old width, row i starts
    # n_queries - 1 - i places further right: the diagonal of one offset has become a diagonal of the matrix.
    padded = np.concatenate([np.zeros_like(scores[..., :1]), scores], axis=-1)
    moved = padded.reshape(*scores.shape[:-2], -1)[..., n_queries:]
    return moved.reshape(*scores.shape)[..., :n_keys]


def _shaw_rows(name: str, table: ArrayLike, other: str, width: int) -> np.ndarray:
    rows = arguments.real_array(name, table, ndim=2)
    if len(rows) % 2 == 0:
        raise ValueError(f"{name} must have an odd number of rows, 2 clip + 1, but got {len(rows)}")
    arguments.same_width(name, rows.shape[-1], other, width)
    return rows


def _clipped_offsets(n_queries: int, n_keys: int, n_rows: int) -> np.ndarray:
    clip = n_rows // 2
    return np.clip(relative_offsets(n_queries, n_keys), -clip, clip) + clip


# --- T5: a learned number a bucket of offsets ---


def t5_buckets(
    offsets: ArrayLike, n_buckets: int = 32, max_distance: int = 128, bidirectional: bool = True
) -> np.ndarray:
    """Return the bucket of each offset (key - query), int, same shape: exact ones near, logarithmic ones far.

    With B buckets a direction and E = B // 2: a distance m < E has bucket m, a longer one bucket
    min(E + floor(ln(m/E) / ln(max_distance/E) * (B - E)), B - 1).
    bidirectional: half of the buckets for keys after the query; else those all fall in bucket 0 (mask them).
    Raises ValueError when no bucket is exact, or when max_distance is not above the exact range.
    """
    offsets = arguments.int_array("offsets", offsets)
    starts = t5_bucket_starts(n_buckets, max_distance, bidirectional)
    distances = np.abs(offsets.astype(np.float64))  # float: the smallest int64 has no absolute value
    if not bidirectional:
        distances = np.where(offsets > 0, 0, distances)
    buckets = np.searchsorted(starts, distances, side="right") - 1
    return buckets + np.where(bidirectional & (offsets > 0), len(starts), 0)


def t5_bucket_starts(n_buckets: int = 32, max_distance: int = 128, bidirectional: bool = True) -> np.ndarray:
    """Return the smallest distance in each bucket of one direction, int (B,).

    Computed in whole numbers: in float64 the logarithms of t5_buckets' formula fall on the wrong side of a
    boundary when they are merely written in another order (distance 64 of 32 buckets and 128).
    """
    bidirectional = arguments.flag("bidirectional", bidirectional)
    n_buckets = arguments.whole_number("n_buckets", n_buckets, at_least=4 if bidirectional else 2)
    max_distance = arguments.whole_number("max_distance", max_distance, at_least=1)
    per_side = n_buckets // 2 if bidirectional else n_buckets
    exact = per_side // 2
    if max_distance <= exact:
        raise ValueError(f"max_distance must be above the exact range, {exact}, but got {max_distance}")
    n_log = per_side - exact

    def reached(distance: int, step: int) -> bool:  # (m/E)^n_log >= (max_distance/E)^step, without fractions
        return distance**n_log * exact**step >= max_distance**step * exact**n_log

    starts = list(range(exact))
    for step in range(n_log):
        distance = int(exact * (max_distance / exact) ** (step / n_log))
        while reached(distance - 1, step):
            distance -= 1
        while not reached(distance, step):
            distance += 1
        starts.append(distance)
    return np.array(starts)


def t5_bias(
    table: ArrayLike,
    n_queries: int,
    n_keys: int | None = None,
    *,
    max_distance: int = 128,
    bidirectional: bool = True,
) -> np.ndarray:
    """Look each bias up in a (n_buckets, n_heads) table: (n_heads, n_queries, n_keys).

    T5 itself adds it to scores that are not divided by sqrt(head_dim), and uses none in cross-attention.
    """
    table = arguments.real_array("table", table, ndim=2)
    least = 4 if arguments.flag("bidirectional", bidirectional) else 2
    if len(table) < least:
        raise ValueError(f"table must have at least {least} rows, one a bucket, but got {len(table)}")
    offsets = relative_offsets(n_queries, n_keys)
    buckets = t5_buckets(offsets, len(table), max_distance, bidirectional)
    return np.moveaxis(table[buckets], -1, 0)


# --- ALiBi: a fixed slope a head --------


def alibi_slopes(n_heads: int, alibi_bias_max: float = 8.0) -> np.ndarray:
    """Return each head's slope, float64 (n_heads,): 2^(-8h/n_heads) for h = 1 to n_heads, a power of two.

    For other counts: the slopes of the largest power of two below, then the 1st, 3rd, 5th, ... of twice that
    power, in this order (the original code's; the list is then not sorted).
    alibi_bias_max: what stands in place of the 8, above 0; the smallest slope is 2^-alibi_bias_max. The name
    is MPT's, whose code takes every second slope of the next power of two, then those left out. For every
    n_heads that gives the same slopes as the original rule, in the same order.
    """
    n_heads = arguments.whole_number("n_heads", n_heads, at_least=1)
    largest = arguments.real_number("alibi_bias_max", alibi_bias_max, positive=True)
    power = 2 ** (n_heads.bit_length() - 1)  # the largest power of two that is not above n_heads
    slopes = 2.0 ** (-largest * (np.arange(1, power + 1) / power))
    between = 2.0 ** (-largest * (np.arange(1, 2 * power, 2) / (2 * power)))
    return np.concatenate([slopes, between[: n_heads - power]])


def alibi_bias(
    n_heads: int,
    n_queries: int,
    n_keys: int | None = None,
    *,
    causal: bool = True,
    alibi_bias_max: float = 8.0,
) -> np.ndarray:
    """Return -slope * distance for each head, query and key, float64 (n_heads, n_queries, n_keys).

    Add it after the scaling by 1/sqrt(head_dim). causal: -inf for keys after the query; else they count by
    their distance too, as in encoders. alibi_bias_max: as in alibi_slopes.
    """
    offsets = relative_offsets(n_queries, n_keys)
    bias = 0.0 - alibi_slopes(n_heads, alibi_bias_max)[:, None, None] * np.abs(offsets)  # 0.0, never -0.0
    return np.where(offsets > 0, -np.inf, bias) if arguments.flag("causal", causal) else bias
