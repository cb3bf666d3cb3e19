"""Scaled dot-product attention, and the test that shows it cannot see order (notebook 01).

Shapes: q is (..., n_queries, head_dim), k is (..., n_keys, head_dim), v is (..., n_keys, d_v).
Source: Vaswani et al. 2017, arXiv:1706.03762, equation 1.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from helpers import arguments

# --- The formulas, which check nothing: the decoder of notebook 06 is built on them, too ---


def softmax_rows(scores: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Return exp(scores) / sum(exp(scores)) over the last axis; out may be scores itself.

    The largest score of a row is subtracted first, which changes no weight and keeps exp from overflowing. A
    row that is all -inf gives zeros.
    """
    peak = np.fmax.reduce(scores, axis=-1, keepdims=True, initial=-np.inf)  # quicker than max
    peak[peak == -np.inf] = 0
    weights = np.exp(np.subtract(scores, peak, out=out), out=out)
    total = np.einsum("...k->...", weights)[..., None]
    weights /= np.where(total == 0, weights.dtype.type(1), total)
    return weights


def visible(n_queries: int, n_keys: int, window: int | None = None) -> np.ndarray:
    """Return who may attend to whom: bool (n_queries, n_keys), True where key <= query.

    The queries are the last n_queries of the n_keys positions. With a window, a query sees only the last
    `window` keys, its own among them.
    """
    offsets = np.arange(n_keys) - np.arange(n_keys - n_queries, n_keys)[:, None]
    return (offsets <= 0) if window is None else (offsets <= 0) & (offsets > -window)


# --- The same, checked ---


def softmax(scores: ArrayLike, axis: int = -1) -> np.ndarray:
    """Turn scores into weights that sum to 1 along an axis.

    scores: any shape; -inf means "never" and gets weight 0. A slice that is all -inf gives zeros.
    Returns an array of the same shape and precision (integers become float64).
    Raises ValueError for NaN, +inf or an axis out of range, TypeError for what is no real array.
    """
    scores = arguments.real_array("scores", scores, min_ndim=1, masked=True)
    if isinstance(axis, bool) or not isinstance(axis, int | np.integer):
        raise TypeError(f"axis must be a whole number, but got {axis!r}")
    if not -scores.ndim <= axis < scores.ndim:
        raise ValueError(f"axis must be from {-scores.ndim} to {scores.ndim - 1}, but got {axis}")
    wide = scores.astype(np.result_type(scores.dtype, np.float32), copy=False)  # float16 sums badly
    with np.errstate(over="ignore"):  # a difference beyond the largest float is as good as -inf
        weights = softmax_rows(np.moveaxis(wide, axis, -1))
    return np.moveaxis(weights, -1, axis).astype(scores.dtype, copy=False)


def causal_mask(n_queries: int, n_keys: int | None = None) -> np.ndarray:
    """Return who may attend to whom when nobody sees the future: bool (n_queries, n_keys), True = may.

    The queries are the last n_queries of the n_keys positions (lower-right aligned), as when tokens are
    decoded with a cache of earlier keys. Raises ValueError unless n_keys >= n_queries >= 0.
    """
    return visible(*arguments.keys_for_queries(n_queries, n_keys))


def attention_weights(
    q: ArrayLike,
    k: ArrayLike,
    *,
    bias: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    scale: float | None = None,
) -> np.ndarray:
    """Return softmax(q k^T * scale + bias), the weight each query gives each key: (..., n_queries, n_keys).

    bias: added after the scaling, broadcast to the scores; -inf allowed.
    mask: bool, True = may attend, broadcast likewise. A query that may attend to nothing gets zeros.
    scale: 1/sqrt(head_dim) unless given (T5 uses 1).
    Raises ValueError for shapes that do not fit, NaN, inf, or scores too large for their precision.
    """
    q = arguments.real_array("q", q, min_ndim=2)
    k = arguments.real_array("k", k, min_ndim=2)
    weights = masked_softmax(scaled_scores(q, k, scale), bias=bias, mask=mask)
    return weights.astype(np.result_type(q, k), copy=False)


def attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    bias: ArrayLike | None = None,
    mask: ArrayLike | None = None,
    scale: float | None = None,
) -> np.ndarray:
    """Return the weighted sum of values, attention_weights(q, k, ...) @ v: (..., n_queries, d_v)."""
    v = arguments.real_array("v", v, min_ndim=2)
    weights = attention_weights(q, k, bias=bias, mask=mask, scale=scale)
    return weighted_sum(weights, v)


def scaled_scores(q: np.ndarray, k: np.ndarray, scale: float | None = None) -> np.ndarray:
    """Return q k^T * scale, (..., n_queries, n_keys), for checked arrays, in float32 or wider."""
    arguments.same_width("k", k.shape[-1], "q", q.shape[-1])
    if q.shape[-1] == 0:
        raise ValueError(f"q must have at least one feature, but its shape is {q.shape}")
    _leading_dimensions("k", k.shape[:-2], "q", q.shape[:-2])
    scale = q.shape[-1] ** -0.5 if scale is None else arguments.real_number("scale", scale)
    wide = np.result_type(q, k, np.float32)  # products of float16 overflow at 65504
    with np.errstate(over="ignore", invalid="ignore"):
        scores = q.astype(wide, copy=False) @ np.swapaxes(k, -1, -2).astype(wide, copy=False)
        scores = scores * wide.type(scale)
    largest = f"q and k with entries up to {np.abs(q).max(initial=0):.3g} and {np.abs(k).max(initial=0):.3g}"
    arguments.finite_result("q, k and scale", scores, largest)
    return scores


def masked_softmax(
    scores: np.ndarray, *, bias: ArrayLike | None = None, mask: ArrayLike | None = None
) -> np.ndarray:
    """Add a bias to scores, close what the mask forbids, and take the softmax over keys."""
    n_queries, n_keys = scores.shape[-2:]
    if bias is not None:
        bias = arguments.real_array("bias", bias, masked=True)
        _fits_scores("bias", bias, n_queries, n_keys, scores.shape)
        with np.errstate(over="ignore"):
            scores = scores + bias
        arguments.finite_result("bias", np.where(bias == -np.inf, 0, scores), "its sum with the scores")
    if mask is not None:
        mask = arguments.bool_array("mask", mask)
        _fits_scores("mask", mask, n_queries, n_keys, scores.shape)
        scores = np.where(mask, scores, -np.inf)
    return softmax(scores)


def weighted_sum(weights: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return weights @ v in their common precision, with an error that names v when the shapes do not fit."""
    if v.shape[-2] != weights.shape[-1]:
        raise ValueError(f"v must have one row a key ({weights.shape[-1]}), but its shape is {v.shape}")
    _leading_dimensions("v", v.shape[:-2], "the weights", weights.shape[:-2])
    dtype = np.result_type(weights, v)
    wide = np.result_type(dtype, np.float32)
    with np.errstate(over="ignore", invalid="ignore"):  # rounding may lift the largest float over the edge
        output = (weights.astype(wide, copy=False) @ v.astype(wide, copy=False)).astype(dtype, copy=False)
    arguments.finite_result("v", output, "its weighted sum")
    return output


def equivariance_error(
    layer: Callable[[np.ndarray], np.ndarray], x: ArrayLike, permutation: ArrayLike
) -> float:
    """Return max abs(layer(x[permutation]) - layer(x)[permutation]): 0 when order only moves the output rows.

    x: (n, d). permutation: the numbers 0 to n - 1 in some order. layer: maps (n, d) to (n, anything).
    """
    layer = arguments.callable_argument("layer", layer)
    x = arguments.real_array("x", x, ndim=2)
    permutation = arguments.int_array("permutation", permutation, ndim=1)
    if not np.array_equal(np.sort(permutation), np.arange(len(x))):
        raise ValueError(
            f"permutation must hold each of 0 to {len(x) - 1} once, but got {permutation.tolist()}"
        )
    outputs = [arguments.real_array("the output of layer", layer(rows)) for rows in (x[permutation], x)]
    for output in outputs:
        if output.shape[:1] != x.shape[:1]:
            raise ValueError(f"layer must return {len(x)} rows, one a token, but got shape {output.shape}")
    return float(np.abs(outputs[0] - outputs[1][permutation]).max(initial=0.0))


def _leading_dimensions(name: str, shape: tuple, other_name: str, other_shape: tuple) -> None:
    try:
        np.broadcast_shapes(shape, other_shape)
    except ValueError as error:
        raise ValueError(
            f"{name} must have leading dimensions that fit {other_name}'s {other_shape}, but got {shape}"
        ) from error


def _fits_scores(name: str, array: np.ndarray, n_queries: int, n_keys: int, shape: tuple) -> None:
    """A bias or mask may add leading dimensions (heads), but never queries or keys."""
    try:
        fits = np.broadcast_shapes(array.shape, shape)[-2:] == (n_queries, n_keys)
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"{name} must broadcast to the scores' shape {shape}, but its shape is {array.shape}"
        )
