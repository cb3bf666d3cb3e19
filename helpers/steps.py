"""The steps that a decoder is made of, forward and back (notebook 06).

Each returns its output and, beside it, back(d_out): the gradients of its inputs, by the chain rule.

Shapes: tokens (batch, n) integers; x (batch, n, d_model); heads (batch, n_heads, n, head_dim).
"""

from typing import NamedTuple

import numpy as np

from helpers import attention
from helpers.doors import Back


def look_up(table: np.ndarray, tokens: np.ndarray) -> tuple[np.ndarray, Back]:
    """The rows of a table that tokens ask for."""

    def back(d_out: np.ndarray) -> np.ndarray:
        # To look up a row is to multiply by a one-hot row. (np.add.at takes five times as long.)
        one_hot = np.eye(len(table), dtype=table.dtype)[tokens.ravel()]
        return one_hot.T @ d_out.reshape(tokens.size, -1)

    return table[tokens], back


def linear(x: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, Back]:
    """x @ weight, over the last axis (as one large matrix: many small products take twice as long)."""
    rows = x.reshape(-1, x.shape[-1])

    def back(d_out: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        d_rows = d_out.reshape(-1, d_out.shape[-1])
        return (d_rows @ weight.T).reshape(x.shape), rows.T @ d_rows

    return (rows @ weight).reshape(*x.shape[:-1], -1), back


def rms_norm(x: np.ndarray, gain: np.ndarray) -> tuple[np.ndarray, Back]:
    """Each vector divided by its root mean square, times a gain a feature."""
    width = x.shape[-1]
    inverse = 1 / np.sqrt(np.vecdot(x, x)[..., None] / width + 1e-6)
    unit = x * inverse

    def back(d_out: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        d_x = d_out * gain
        # The part of the change that only makes the vector longer is divided away again.
        d_x -= unit * (np.vecdot(d_x, unit)[..., None] / width)
        d_x *= inverse
        return d_x, np.einsum("bnd,bnd->d", d_out, unit)

    return unit * gain, back


def squared_relu(x: np.ndarray) -> tuple[np.ndarray, Back]:
    """max(x, 0) squared."""
    positive = np.maximum(x, 0)

    def back(d_out: np.ndarray) -> np.ndarray:
        d_x = positive * d_out
        d_x *= 2  # in place: on arrays this large, each pass over memory counts
        return d_x

    return np.square(positive), back


class Attended(NamedTuple):
    """What attend returns: the mixed values, back(d_out) -> d_q, d_k, d_v, d_bias, and the weights."""

    out: np.ndarray
    back: Back
    weights: np.ndarray


def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray, bias: np.ndarray) -> Attended:
    """softmax(q k^T / sqrt(head_dim) + bias) v; bias is -inf where a key is hidden."""
    scale = q.dtype.type(q.shape[-1] ** -0.5)
    scaled = q * scale
    scores = scaled @ k.swapaxes(-1, -2)
    scores += bias
    weights = attention.softmax_rows(scores, out=scores)
    out = weights @ v

    def back(d_out: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        d_v = weights.swapaxes(-1, -2) @ d_out
        # Weights sum to 1: what all of them would gain alike, d_out . out, is nobody's gain.
        d_scores = d_out @ v.swapaxes(-1, -2)
        d_scores -= np.vecdot(d_out, out)[..., None]
        d_scores *= weights
        return d_scores @ k * scale, d_scores.swapaxes(-1, -2) @ scaled, d_v, d_scores

    return Attended(out, back, weights)


def cross_entropy(logits: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, Back]:
    """-log of the probability of each target, in nats and of the targets' shape."""
    shifted = logits - np.fmax.reduce(logits, axis=-1, keepdims=True)
    exponentials = np.exp(shifted)
    total = exponentials.sum(axis=-1, keepdims=True)
    picked = np.take_along_axis(shifted, targets[..., None], axis=-1)

    def back(d_losses: np.ndarray) -> np.ndarray:
        d_logits = exponentials / total  # the probabilities, less 1 for what came
        at = np.take_along_axis(d_logits, targets[..., None], axis=-1)
        np.put_along_axis(d_logits, targets[..., None], at - 1, axis=-1)
        return d_logits * d_losses[..., None]

    return (np.log(total) - picked)[..., 0], back


def split_one(x: np.ndarray, n_heads: int) -> np.ndarray:
    """(batch, n, d_model) to (batch, n_heads, n, head_dim)."""
    batch, n, d_model = x.shape
    return np.ascontiguousarray(x.reshape(batch, n, n_heads, d_model // n_heads).swapaxes(1, 2))


def split_heads(projected: np.ndarray, n_heads: int) -> list[np.ndarray]:
    """(batch, n, 3 d_model) to queries, keys and values by head."""
    return [split_one(part, n_heads) for part in np.split(projected, 3, axis=-1)]


def join_heads(x: np.ndarray) -> np.ndarray:
    """(batch, n_heads, n, head_dim) to (batch, n, d_model)."""
    batch, n_heads, n, head_dim = x.shape
    return x.swapaxes(1, 2).reshape(batch, n, n_heads * head_dim)
