"""A small pre-norm decoder in NumPy, with every gradient derived by hand (notebook 06).

Each step is a function that returns its output and, beside it, back(d_out): the gradients of its inputs, by
the chain rule. Running the steps forward and their backs in reverse order is all that "autograd" does.

Shapes: tokens (batch, n) integers; x (batch, n, d_model); heads (batch, n_heads, n, head_dim).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from helpers.schemes import SCHEMES, Gradients, Scheme

Back = Callable[[np.ndarray], Any]


@dataclass
class Decoder:
    """Weights by name, and the scheme that tells positions apart. The scheme's own are named "scheme.…"."""

    parameters: Gradients
    scheme: Scheme
    n_heads: int
    n_layers: int


def new_decoder(
    scheme: str | type[Scheme],
    vocabulary: int,
    *,
    d_model: int = 64,
    n_heads: int = 4,
    n_layers: int = 2,
    d_hidden: int = 256,
    n_positions: int = 64,
    seed: int = 0,
) -> Decoder:
    """Return an untrained decoder, float32. The scheme is a name in SCHEMES or a class of that form."""
    rng = np.random.default_rng(seed)

    def weight(n_in: int, n_out: int, scale: float = 1.0) -> np.ndarray:
        return rng.normal(0, scale * n_in**-0.5, (n_in, n_out)).astype(np.float32)

    parameters = {"embedding": rng.normal(0, d_model**-0.5, (vocabulary, d_model)).astype(np.float32)}
    shrink = (2 * n_layers) ** -0.5  # so that the sum over all layers starts at the size of one
    for layer in range(n_layers):
        parameters |= {
            f"{layer}.norm_1": np.ones(d_model, np.float32),
            f"{layer}.qkv": weight(d_model, 3 * d_model),
            f"{layer}.out": weight(d_model, d_model, shrink),
            f"{layer}.norm_2": np.ones(d_model, np.float32),
            f"{layer}.up": weight(d_model, d_hidden),
            f"{layer}.down": weight(d_hidden, d_model, shrink),
        }
    parameters |= {"norm": np.ones(d_model, np.float32), "unembedding": weight(d_model, vocabulary)}
    kind = SCHEMES[scheme] if isinstance(scheme, str) else scheme
    built = kind(d_model=d_model, n_heads=n_heads, n_positions=n_positions, rng=rng)
    parameters |= {f"scheme.{name}": array for name, array in built.parameters.items()}
    return Decoder(parameters, built, n_heads, n_layers)


# --- The steps, forward and back ---


def linear(x: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, Back]:
    """x @ weight, over the last axis (as one large matrix: many small products take twice as long)."""
    rows = x.reshape(-1, x.shape[-1])

    def back(d_out: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        d_rows = d_out.reshape(-1, d_out.shape[-1])
        return (d_rows @ weight.T).reshape(x.shape), rows.T @ d_rows

    return (rows @ weight).reshape(*x.shape[:-1], -1), back


def rms_norm(x: np.ndarray, gain: np.ndarray) -> tuple[np.ndarray, Back]:
    """Each vector divided by its root mean square, times a gain a feature."""
    inverse = 1 / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6)
    unit = x * inverse

    def back(d_out: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        d_unit = d_out * gain
        # The part of the change that only makes the vector longer is divided away again.
        along = np.mean(d_unit * unit, axis=-1, keepdims=True)
        return inverse * (d_unit - unit * along), (d_out * unit).sum(axis=(0, 1))

    return unit * gain, back


def squared_relu(x: np.ndarray) -> tuple[np.ndarray, Back]:
    """max(x, 0) squared."""
    positive = np.maximum(x, 0)
    return positive * positive, lambda d_out: 2 * positive * d_out


def attend(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, bias: np.ndarray
) -> tuple[np.ndarray, Back, np.ndarray]:
    """softmax(q k^T / sqrt(head_dim) + bias) v. Also returns the weights."""
    scale = q.dtype.type(q.shape[-1] ** -0.5)
    scores = q @ k.swapaxes(-1, -2) * scale
    scores += bias
    scores -= scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores, out=scores)
    weights /= weights.sum(axis=-1, keepdims=True)

    def back(d_out: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        d_v = weights.swapaxes(-1, -2) @ d_out
        d_weights = d_out @ v.swapaxes(-1, -2)
        # Weights sum to 1: what all of them would gain alike is nobody's gain.
        d_scores = weights * (d_weights - (d_weights * weights).sum(axis=-1, keepdims=True))
        return d_scores @ k * scale, d_scores.swapaxes(-1, -2) @ q * scale, d_v, d_scores

    return weights @ v, back, weights


def cross_entropy(logits: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return -log of the probability of each target, targets' shape, and the gradient of their mean."""
    logits = logits - logits.max(axis=-1, keepdims=True)
    probabilities = np.exp(logits)
    total = probabilities.sum(axis=-1, keepdims=True)
    picked = np.take_along_axis(logits, targets[..., None], axis=-1)
    losses = (np.log(total) - picked)[..., 0]
    gradient = probabilities / total
    np.put_along_axis(
        gradient, targets[..., None], np.take_along_axis(gradient, targets[..., None], axis=-1) - 1, axis=-1
    )
    return losses, gradient / gradient.dtype.type(targets.size)


# --- The decoder ---


def visible_bias(n: int, window: int | None, dtype: np.dtype) -> np.ndarray:
    """Return 0 where a query may attend and a very negative number elsewhere, (n, n).

    Nobody sees the future; with a window, only the last `window` keys, the query's own among them, are seen.
    """
    offsets = np.arange(n) - np.arange(n)[:, None]
    seen = (offsets <= 0) & (True if window is None else offsets > -window)
    return np.where(seen, 0, -1e9).astype(dtype)


def forward(
    model: Decoder,
    tokens: np.ndarray,
    *,
    start: int = 0,
    window: int | None = None,
    sharpen_beyond: int | None = None,
) -> tuple[np.ndarray, Callable[[np.ndarray], Gradients], list[np.ndarray]]:
    """Return logits (batch, n, vocabulary), back(d_logits) -> gradients by name, and each layer's weights.

    start: the position of the first token. window: how many keys each query sees, its own included.
    sharpen_beyond: multiply the scores of a query with m > sharpen_beyond keys by ln m / ln sharpen_beyond.
    """
    p, scheme, n = model.parameters, model.scheme, tokens.shape[1]
    positions = start + np.arange(n)
    dtype = p["embedding"].dtype
    hidden = visible_bias(n, window, dtype)
    sharpness = _sharpness(n, window, sharpen_beyond, dtype)
    x = scheme.embed(p["embedding"][tokens], positions)
    layers, all_weights = [], []
    for layer in range(model.n_layers):
        x, back, weights = _block(model, layer, x, positions, hidden, sharpness)
        layers.append(back)
        all_weights.append(weights)
    normed, norm_back = rms_norm(x, p["norm"])
    logits, unembed_back = linear(normed, p["unembedding"])

    def back(d_logits: np.ndarray) -> Gradients:
        gradients = {name: np.zeros_like(p[f"scheme.{name}"]) for name in scheme.parameters}
        gradients = {f"scheme.{name}": array for name, array in gradients.items()}
        d_normed, gradients["unembedding"] = unembed_back(d_logits)
        d_x, gradients["norm"] = norm_back(d_normed)
        for layer_back in reversed(layers):
            d_x, of_layer = layer_back(d_x)
            _add(gradients, of_layer)
        _add(gradients, {f"scheme.{name}": g for name, g in scheme.embed_gradient(d_x, positions).items()})
        gradients["embedding"] = np.zeros_like(p["embedding"])
        np.add.at(gradients["embedding"], tokens, d_x)
        return gradients

    return logits, back, all_weights


def _block(
    model: Decoder, layer: int, x: np.ndarray, positions: np.ndarray, hidden: np.ndarray, sharpness: Any
) -> tuple[np.ndarray, Callable, np.ndarray]:
    """Attention, then a feed-forward layer, each added to what came in (pre-norm)."""
    p, scheme = model.parameters, model.scheme
    names = [f"{layer}.{name}" for name in ("norm_1", "qkv", "out", "norm_2", "up", "down")]
    norm_1, qkv, out, norm_2, up, down = (p[name] for name in names)

    normed, norm_1_back = rms_norm(x, norm_1)
    projected, qkv_back = linear(normed, qkv)
    q, k, v = split_heads(projected, model.n_heads)
    q, k = (scheme.rotate(part, positions) for part in (q, k))
    offset_bias = scheme.bias(q, positions, positions)
    bias = hidden if offset_bias is None else hidden + offset_bias
    mixed, attend_back, weights = attend(q * sharpness, k, v, bias * sharpness)
    attended, out_back = linear(join_heads(mixed), out)
    x = x + attended

    normed, norm_2_back = rms_norm(x, norm_2)
    wide, up_back = linear(normed, up)
    active, active_back = squared_relu(wide)
    narrow, down_back = linear(active, down)

    def back(d_x: np.ndarray) -> tuple[np.ndarray, Gradients]:
        gradients: Gradients = {}
        d_active, gradients[names[5]] = down_back(d_x)
        d_normed, gradients[names[4]] = up_back(active_back(d_active))
        d_more, gradients[names[3]] = norm_2_back(d_normed)
        d_x = d_x + d_more

        d_joined, gradients[names[2]] = out_back(d_x)
        d_q, d_k, d_v, d_scores = attend_back(split_one(d_joined, model.n_heads))
        d_q, d_bias = d_q * sharpness, d_scores * sharpness
        if offset_bias is not None:
            d_q_more, of_scheme = scheme.bias_gradient(d_bias, q, positions, positions)
            d_q = d_q if d_q_more is None else d_q + d_q_more
            gradients |= {f"scheme.{name}": gradient for name, gradient in of_scheme.items()}
        d_q, d_k = (scheme.rotate_gradient(part, positions) for part in (d_q, d_k))
        d_normed, gradients[names[1]] = qkv_back(np.concatenate([join_heads(d) for d in (d_q, d_k, d_v)], -1))
        d_more, gradients[names[0]] = norm_1_back(d_normed)
        return d_x + d_more, gradients

    return x + narrow, back, weights


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


def _sharpness(n: int, window: int | None, beyond: int | None, dtype: np.dtype) -> Any:
    if beyond is None:
        return dtype.type(1)
    keys = np.minimum(np.arange(1, n + 1), n if window is None else window)
    return (np.log(np.maximum(keys, beyond)) / np.log(beyond)).astype(dtype)[:, None]


def _add(total: Gradients, more: Gradients) -> None:
    for name, gradient in more.items():
        total[name] = total[name] + gradient if name in total else gradient


def loss_and_gradients(
    model: Decoder, tokens: np.ndarray, targets: np.ndarray, start: int = 0
) -> tuple[float, Gradients]:
    """Return the mean loss in nats per token, and the gradient of every parameter by its name."""
    logits, back, _ = forward(model, tokens, start=start)
    losses, d_logits = cross_entropy(logits, targets)
    return float(losses.mean()), back(d_logits)
