"""A small pre-norm decoder in NumPy, with every gradient derived by hand (notebook 06).

It is one idea, many times: a step returns its output and, beside it, back(d_out), which gives the gradients
of its inputs by the chain rule (helpers/steps.py). Run the steps forward, then their backs in reverse order:
that is all that "autograd" does. The doors of a scheme are steps like all others (helpers/doors.py).

Shapes: tokens (batch, n) integers; x (batch, n, d_model); heads (batch, n_heads, n, head_dim).
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from helpers import arguments, attention
from helpers.doors import Back, Parameters, Scheme, through
from helpers.schemes import Spec, build, spec
from helpers.steps import (
    attend,
    cross_entropy,
    join_heads,
    linear,
    look_up,
    rms_norm,
    split_heads,
    split_one,
    squared_relu,
)


class Layer(NamedTuple):
    """How a layer tells positions apart: its scheme, where its weights are, and how many keys it sees."""

    scheme: Scheme
    prefix: str  # the scheme's weights are those parameters whose names begin with it
    window: int | None


@dataclass(frozen=True)
class Decoder:
    """Weights by name, the schemes' own among them; nothing else owns any. And a Layer for each layer."""

    parameters: Parameters
    layers: tuple[Layer, ...]
    n_heads: int

    @property
    def n_layers(self) -> int:
        return len(self.layers)

    @property
    def scheme(self) -> Scheme:
        """The scheme that all layers share."""
        if any(layer.scheme is not self.layers[0].scheme for layer in self.layers):
            raise AttributeError("this decoder has a scheme for each layer: see its layers")
        return self.layers[0].scheme

    def changed(self, **facts: object) -> "Decoder":
        """Return a decoder of the same weights, whose schemes have other attributes: changed(inv_freq=...).

        Raises AttributeError for what no scheme of it has.
        """
        known = {name for layer in self.layers for name in facts if hasattr(layer.scheme, name)}
        if missing := set(facts) - known:
            raise AttributeError(f"no scheme of this decoder has {sorted(missing)}")
        copies = {id(layer.scheme): copy.copy(layer.scheme) for layer in self.layers}
        for scheme in copies.values():
            vars(scheme).update({name: value for name, value in facts.items() if hasattr(scheme, name)})
        layers = tuple(layer._replace(scheme=copies[id(layer.scheme)]) for layer in self.layers)
        return replace(self, layers=layers)


class Read(NamedTuple):
    """What forward returns: logits (batch, n, vocabulary), back(d_logits) -> gradients by name, and weights,
    for each layer (batch, n_heads, n, n)."""

    logits: np.ndarray
    back: Back
    weights: list[np.ndarray]


def new_decoder(
    scheme: str | type[Scheme] | Spec | Sequence[str | type[Scheme] | Spec],
    vocabulary: int,
    *,
    d_model: int = 64,
    n_heads: int = 4,
    n_layers: int = 2,
    d_hidden: int = 256,
    n_positions: int = 64,
    seed: int = 0,
) -> Decoder:
    """Return an untrained decoder, float32.

    scheme: a name in SCHEMES, a class of that form, or a Spec, which all layers share; or a list or tuple
        with one of these for each layer, each with weights and a window of its own.
    Raises ValueError for sizes that are 0 or do not divide, TypeError for a wrong kind.
    """
    sizes = {"vocabulary": vocabulary, "d_model": d_model, "n_heads": n_heads, "n_layers": n_layers}
    sizes |= {"d_hidden": d_hidden, "n_positions": n_positions}
    for name, size in sizes.items():
        arguments.whole_number(name, size, at_least=1)
    if d_model % n_heads:
        raise ValueError(f"d_model must be a multiple of n_heads = {n_heads}, but got {d_model}")
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

    if isinstance(scheme, list | tuple) and not isinstance(scheme, Spec):
        specs = [spec(one) for one in scheme]
        if len(specs) != n_layers:
            raise ValueError(f"scheme must name one for each of {n_layers} layers, but got {len(specs)}")
        made = [(build(one, d_model, n_heads, n_positions), f"{i}.scheme.") for i, one in enumerate(specs)]
    else:
        specs = [spec(scheme)] * n_layers
        made = [(build(specs[0], d_model, n_heads, n_positions), "scheme.")] * n_layers
    for one, prefix in {id(one): (one, prefix) for one, prefix in made}.values():
        parameters |= {f"{prefix}{name}": array for name, array in one.new_weights(rng).items()}
    layers = [Layer(*one, _window(each.window)) for one, each in zip(made, specs, strict=True)]
    return Decoder(parameters, tuple(layers), n_heads)


# --- The decoder ---


def forward(
    model: Decoder,
    tokens: np.ndarray,
    *,
    start: int = 0,
    window: int | None = None,
    sharpen_beyond: int | None = None,
) -> Read:
    """Read tokens: return logits, back(d_logits) -> gradients by name, and each layer's attention weights.

    start: the position of the first token. window: how many keys each query sees, its own included, in every
    layer (a layer that has a smaller window of its own keeps it). sharpen_beyond: multiply the scores of a
    query with m > sharpen_beyond keys by ln m / ln sharpen_beyond (Chiang and Cholak 2022, arXiv:2202.12172).
    Raises ValueError or TypeError for what is not legal, naming it.
    """
    p = model.parameters
    tokens = _numbers("tokens", tokens, len(p["embedding"]))
    arguments.whole_number("start", start)
    _window(window)
    if sharpen_beyond is not None:
        arguments.whole_number("sharpen_beyond", sharpen_beyond, at_least=2)
    positions = start + np.arange(tokens.shape[1])
    x, embedding_back = look_up(p["embedding"], tokens)
    backs: list[Back] = []
    for scheme, prefix in {id(layer.scheme): layer[:2] for layer in model.layers}.values():
        x, back = through(scheme, "embed", x, positions, weights=_own(p, prefix))
        backs.append(_named(back, prefix))
    windows = [_smaller(window, layer.window) for layer in model.layers]
    hidden = {size: _hidden(size, tokens.shape[1], x.dtype) for size in windows}
    all_weights, shared = [], {}
    for number, size in enumerate(windows):
        x, back, weights = _block(model, number, x, positions, hidden[size], sharpen_beyond, shared)
        backs.append(back)
        all_weights.append(weights)
    normed, norm_back = rms_norm(x, p["norm"])
    logits, unembed_back = linear(normed, p["unembedding"])

    def back(d_logits: np.ndarray) -> Parameters:
        gradients = {name: np.zeros_like(array) for name, array in p.items() if "scheme." in name}
        d_normed, gradients["unembedding"] = unembed_back(d_logits)
        d_x, gradients["norm"] = norm_back(d_normed)
        for step_back in reversed(backs):
            d_x, more = step_back(d_x)
            for name, gradient in more.items():
                gradients[name] = gradients[name] + gradient if name in gradients else gradient
        gradients["embedding"] = embedding_back(d_x)
        return gradients

    return Read(logits, back, all_weights)


def _block(
    model: Decoder,
    number: int,
    x: np.ndarray,
    positions: np.ndarray,
    hidden: np.ndarray,
    sharpen_beyond: int | None,
    shared: dict[tuple[int, int], tuple[np.ndarray, Back]],
) -> tuple[np.ndarray, Back, np.ndarray]:
    """Attention, then a feed-forward layer, each added to what came in (pre-norm)."""
    p, (scheme, prefix, _) = model.parameters, model.layers[number]
    own = _own(p, prefix)
    norm_1, qkv, out, norm_2, up, down = (f"{number}.{name}" for name in _WEIGHTS)

    normed, norm_1_back = rms_norm(x, p[norm_1])
    projected, qkv_back = linear(normed, p[qkv])
    q, k, v = split_heads(projected, model.n_heads)
    q, q_back = through(scheme, "rotate", q, positions, weights=own)
    k, k_back = through(scheme, "rotate", k, positions, weights=own)
    bias, bias_back = _bias(scheme, q, positions, own, hidden, shared)
    sharp = _sharpness(hidden, sharpen_beyond)
    if sharp is None:
        mixed, attend_back, weights = attend(q, k, v, bias)
    else:
        mixed, attend_back, weights = attend(q * sharp, k, v, bias * sharp)
    attended, out_back = linear(join_heads(mixed), p[out])
    x = x + attended

    normed, norm_2_back = rms_norm(x, p[norm_2])
    wide, up_back = linear(normed, p[up])
    active, active_back = squared_relu(wide)
    narrow, down_back = linear(active, p[down])

    def back(d_x: np.ndarray) -> tuple[np.ndarray, Parameters]:
        gradients: Parameters = {}
        d_active, gradients[down] = down_back(d_x)
        d_normed, gradients[up] = up_back(active_back(d_active))
        d_more, gradients[norm_2] = norm_2_back(d_normed)
        d_x = d_x + d_more

        d_joined, gradients[out] = out_back(d_x)
        d_q, d_k, d_v, d_bias = attend_back(split_one(d_joined, model.n_heads))
        if sharp is not None:
            d_q, d_bias = d_q * sharp, d_bias * sharp
        d_q_of_bias, of_bias = bias_back(d_bias)
        d_q, of_q = q_back(d_q if d_q_of_bias is None else d_q + d_q_of_bias)
        d_k, of_k = k_back(d_k)
        for gradient in (of_bias, of_q, of_k):
            for name, array in gradient.items():
                gradients[prefix + name] = gradients.get(prefix + name, 0) + array
        d_normed, gradients[qkv] = qkv_back(np.concatenate([join_heads(d) for d in (d_q, d_k, d_v)], -1))
        d_more, gradients[norm_1] = norm_1_back(d_normed)
        return d_x + d_more, gradients

    return x + narrow, back, weights


_WEIGHTS = ("norm_1", "qkv", "out", "norm_2", "up", "down")


def loss_and_gradients(
    model: Decoder, tokens: np.ndarray, targets: np.ndarray, start: int = 0, counted: np.ndarray | None = None
) -> tuple[float, Parameters]:
    """Return the mean loss in nats per token, and the gradient of every parameter by its name.

    targets: of the shape of tokens. counted: bool of that shape; where it is False, the loss does not count.
    """
    logits, back, _ = forward(model, tokens, start=start)
    targets = _numbers("targets", targets, logits.shape[-1])
    _same_shape("targets", targets, logits.shape[:2])
    losses, loss_back = cross_entropy(logits, targets)
    share = np.full(losses.shape, 1 / max(losses.size, 1), losses.dtype)
    if counted is not None:
        counted = arguments.bool_array("counted", counted)
        _same_shape("counted", counted, losses.shape)
        share = (counted / max(counted.sum(), 1)).astype(losses.dtype)
    return float((losses * share).sum(dtype=np.float64)), back(loss_back(share))


# --- Small parts ---


def _bias(
    scheme: Scheme, q: np.ndarray, positions: np.ndarray, own: Parameters, hidden: np.ndarray, shared: dict
) -> tuple[np.ndarray, Back]:
    """Return what is added to the scores, the mask included. What depends on no query is computed once."""
    key = id(scheme), id(hidden)
    if key not in shared:
        bias, back = through(scheme, "bias", q, positions, positions, weights=own)
        found = hidden if bias is None else hidden + bias, back
        if bias is not None and not scheme.bias_of_positions:
            return found
        shared[key] = found
    return shared[key]


def _hidden(window: int | None, n: int, dtype: np.dtype) -> np.ndarray:
    """Return 0 where a query may attend and -inf elsewhere, (n, n)."""
    return np.where(attention.visible(n, n, window), dtype.type(0), dtype.type(-np.inf))


def _smaller(one: int | None, other: int | None) -> int | None:
    return min((size for size in (one, other) if size is not None), default=None)


def _sharpness(hidden: np.ndarray, beyond: int | None) -> np.ndarray | None:
    """Return what the scores of each query are multiplied by, (n, 1)."""
    if beyond is None:
        return None
    keys = np.maximum((hidden == 0).sum(axis=-1, keepdims=True), beyond)
    return (np.log(keys) / np.log(beyond)).astype(hidden.dtype)


def _own(parameters: Parameters, prefix: str) -> Parameters:
    """Return the weights of a scheme under the names that it gave them."""
    start = len(prefix)
    return {name[start:]: array for name, array in parameters.items() if name.startswith(prefix)}


def _named(back: Back, prefix: str) -> Back:
    """Return back with the gradients under the names that the decoder's parameters have."""

    def named(d_out: np.ndarray) -> tuple[np.ndarray, Parameters]:
        d_in, gradients = back(d_out)
        return d_in, {prefix + name: gradient for name, gradient in gradients.items()}

    return named


def _window(window: Any) -> int | None:
    return window if window is None else arguments.whole_number("window", window, at_least=1)


def _numbers(name: str, numbers: Any, count: int) -> np.ndarray:
    """Return token numbers as an array, (batch, n), or raise."""
    numbers = arguments.int_array(name, numbers, ndim=2)
    if numbers.size and not 0 <= numbers.min() <= numbers.max() < count:
        wrong = numbers[(numbers < 0) | (numbers >= count)].flat[0]
        raise ValueError(f"{name} must hold numbers from 0 to {count - 1}, the vocabulary, but got {wrong}")
    return numbers


def _same_shape(name: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise ValueError(f"{name} must have the shape of tokens, {shape}, but its shape is {array.shape}")
