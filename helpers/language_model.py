"""A published language model of the Llama kind, in NumPy: open its file, and read on from any text
(notebook 08, door 2).

A layer is attention and a feed-forward step, each behind a norm and added to what was there. Positions enter
by the rotation of queries and keys alone, so they are given freely: a page that was read at 0 to 511 can
stand 16,000 positions before the next one (helpers/key_cache.py).
Sources: Touvron et al. 2023, arXiv:2302.13971 (Llama); Zhang and Sennrich 2019, arXiv:1910.07467 (the norm);
Shazeer 2020, arXiv:2002.05202 (SwiGLU); Ainslie et al. 2023, arXiv:2305.13245 (queries that share keys).
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from helpers import arguments, byte_pairs
from helpers.attention import softmax_rows, visible
from helpers.context_extension import RotaryScaling, unscaled
from helpers.key_cache import Cache, extended, numbers_below
from helpers.key_cache import moved as moved  # these three, so that a reader needs this module alone
from helpers.key_cache import without as without
from helpers.model_file import Model
from helpers.model_file import open_model as open_model
from helpers.rope import turn_pairs

LAYOUTS = ("interleaved", "half", "none")
ROWS = 256  # queries at a time, so that nine heads and 16,000 keys are 150 MB of scores

# A rotation for all layers, or one each; None turns nothing in that layer.
Scaling = RotaryScaling | Sequence[RotaryScaling | None] | None


def encode(model: Model, text: str) -> np.ndarray:
    """Return the tokens of a text, int64 (n,). Raises ValueError for a text of no tokens."""
    return np.array(byte_pairs.encode(model.tokenizer, text))


def decode(model: Model, tokens: ArrayLike) -> str:
    """Return the text of tokens, (n,). Raises ValueError for a token that the vocabulary does not have."""
    return byte_pairs.decode(model.tokenizer, tokens)


# --- The forward pass ---


class Read(NamedTuple):
    """What reading gave.

    logits: (last, vocabulary), one row a token, which guesses the next one. states: (n, d_model), of which
    logits are made. cache: for the text that follows, or None. weights: by layer, what each query pays each
    key, (n_heads, n_queries, n_keys).
    """

    logits: np.ndarray
    states: np.ndarray
    cache: Cache | None
    weights: dict[int, np.ndarray]


def forward(
    model: Model,
    tokens: ArrayLike,
    positions: ArrayLike | None = None,
    *,
    cache: Cache | None = None,
    scaling: Scaling = None,
    layout: str = "interleaved",
    last: int | None = None,
    look: Iterable[int] = (),
    keep: bool = True,
) -> Read:
    """Read tokens, after what is in the cache, if any.

    tokens: integers (n,). positions: real numbers (n,), at least 0, that never decrease, also from the end of
    the cache on; left out, they count on from there. Each token sees itself and all that came before it.
    scaling: what a method of context_extension returned (it holds for the keys of the cache, too, since they
    are kept unturned), or one for each layer, where None turns nothing; left out, as the model was trained.
    layout: "interleaved" is how a file of this format has its pairs, "half" is wrong, "none" turns nothing.
    last: for how many tokens at the end logits are wanted; all, unless said. look: layers whose attention
    weights are wanted. keep: whether to keep a cache, which takes 46 kB a token for notebook 08's model.
    Raises ValueError for no tokens, tokens or layers out of range, and what does not fit the model or tokens.
    """
    tokens = _checked_tokens(model, tokens)
    n, before = len(tokens), 0 if cache is None else len(cache)
    if cache is not None and _shape(cache) != (model.n_layers, model.n_kv_heads, model.head_dim):
        raise ValueError(f"cache must be of this model, but is of layers, heads and widths {_shape(cache)}")
    positions, end = extended(positions, n, cache)
    layout = arguments.choice("layout", layout, LAYOUTS)
    scalings = _one_a_layer(model, scaling if layout != "none" else [None] * model.n_layers)
    look = set(numbers_below("look", [*look], model.n_layers).tolist())
    last = n if last is None else min(arguments.whole_number("last", last), n)

    def norm(x: np.ndarray, gain: np.ndarray) -> np.ndarray:
        return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(model.epsilon)) * gain

    def heads(x: np.ndarray) -> np.ndarray:  # (n, heads * head_dim) to (heads, n, head_dim)
        return x.reshape(len(x), -1, model.head_dim).swapaxes(0, 1)

    x = model.embedding[tokens]
    keys, values, weights = [], [], {number: [] for number in look}
    for number, layer in enumerate(model.layers):
        normed = norm(x, layer["attn_norm"])
        k, v = heads(normed @ layer["attn_k"].T), heads(normed @ layer["attn_v"].T)
        if cache is not None:
            k = np.concatenate([cache.keys[number], k], axis=1)
            v = np.concatenate([cache.values[number], v], axis=1)
        if keep:
            keys.append(k)
            values.append(v)
        if number == 0 or scalings[number] is not scalings[number - 1] or len(positions) > 1:
            waves = _waves(positions[number % len(positions)], scalings[number])
        k = _turned(k, waves, slice(None), layout)
        for start in range(0, n, ROWS):
            rows = slice(start, min(start + ROWS, n))
            seen = slice(0, before + rows.stop)
            q = heads(normed[rows] @ layer["attn_q"].T)
            q = _turned(q, waves, slice(before + start, seen.stop), layout)
            mixed, paid = attend(q, k[:, seen], v[:, seen])
            x[rows] += mixed.swapaxes(0, 1).reshape(len(q[0]), -1) @ layer["attn_output"].T
            wide = norm(x[rows], layer["ffn_norm"])
            x[rows] += (silu(wide @ layer["ffn_gate"].T) * (wide @ layer["ffn_up"].T)) @ layer["ffn_down"].T
            if number in look:
                weights[number].append(np.pad(paid, ((0, 0), (0, 0), (0, before + n - seen.stop))))
    states = norm(x, model.norm)
    return Read(
        logits=states[n - last :] @ model.unembedding.T,
        states=states,
        cache=Cache(tuple(keys), tuple(values), positions, end) if keep else None,
        weights={number: np.concatenate(parts, axis=1) for number, parts in weights.items()},
    )


def attend(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the weighted sum of values, and the weights; the queries are the last of the keys' tokens.

    q: (n_heads, n, head_dim). k, v: (n_kv_heads, n_keys, head_dim); each serves n_heads / n_kv_heads queries.
    """
    (n_heads, n, head_dim), (n_kv_heads, n_keys, _) = q.shape, k.shape
    # Queries that share keys stand below each other, which makes one product of them.
    scores = (q * np.float32(head_dim**-0.5)).reshape(n_kv_heads, -1, head_dim) @ k.swapaxes(1, 2)
    scores = scores.reshape(n_heads, n, n_keys)
    if n > 1:
        scores[..., n_keys - n :] += np.where(visible(n, n), np.float32(0), np.float32(-np.inf))
    weights = softmax_rows(scores, out=scores)
    mixed = weights.reshape(n_kv_heads, -1, n_keys) @ v
    return mixed.reshape(n_heads, n, head_dim), weights


def silu(x: np.ndarray) -> np.ndarray:
    """Return x / (1 + exp(-x)): 0 far below zero, x far above."""
    with np.errstate(over="ignore"):  # an infinite denominator is right, too
        return x / (1 + np.exp(-x))


def _waves(positions: np.ndarray, scaling: RotaryScaling | None) -> tuple[np.ndarray, np.ndarray] | None:
    """Return cosine and sine of each token's angles, float32 (n, pairs) each; angles are float64."""
    if scaling is None:
        return None
    angles = positions[:, : len(scaling.inv_freq)] * scaling.inv_freq
    return tuple((scaling.attention_factor * wave(angles)).astype(np.float32) for wave in (np.cos, np.sin))


def _turned(x: np.ndarray, waves: tuple | None, rows: slice, layout: str) -> np.ndarray:
    return x if waves is None else turn_pairs(x, waves[0][rows], waves[1][rows], layout)


# --- What the numbers say ---


def losses(model: Model, states: ArrayLike, targets: ArrayLike) -> np.ndarray:
    """Return -ln(probability of each target), float32 (n,), given the states before them.

    states: (n, d_model), of `Read`. targets: (n,), the tokens that came. Logits are made for a few at a time.
    """
    states = arguments.real_array("states", states, ndim=2)
    targets = _checked_tokens(model, targets, "targets")
    if states.shape != (len(targets), model.d_model):
        raise ValueError(f"states must have shape {(len(targets), model.d_model)}, but has {states.shape}")
    found = []
    for start in range(0, len(targets), ROWS):
        logits = states[start : start + ROWS] @ model.unembedding.T
        logits -= logits.max(axis=-1, keepdims=True)
        right = np.take_along_axis(logits, targets[start : start + ROWS, None], axis=-1)[:, 0]
        found.append(np.log(np.exp(logits, out=logits).sum(axis=-1)) - right)
    return np.concatenate(found)


def likeliest(model: Model, logits: ArrayLike, count: int = 5) -> list[tuple[str, float]]:
    """Return the likeliest next tokens as text, with their probabilities; logits: (vocabulary,)."""
    logits = arguments.real_array("logits", logits, ndim=1)
    arguments.same_width("logits", len(logits), "the vocabulary", len(model.embedding))
    count = arguments.whole_number("count", count, at_least=1)
    probabilities = softmax_rows(logits)
    best = np.argsort(-probabilities, kind="stable")[:count]
    return [(decode(model, [token]), float(probabilities[token])) for token in best]


class Continuation(NamedTuple):
    """tokens: (n,), what was written. probabilities: (n,), what each got. cache: of all that was read."""

    tokens: np.ndarray
    probabilities: np.ndarray
    cache: Cache


def generate(
    model: Model,
    tokens: ArrayLike,
    n: int,
    positions: ArrayLike | None = None,
    *,
    cache: Cache | None = None,
    scaling: Scaling = None,
    layout: str = "interleaved",
    temperature: float = 0.0,
    seed: int = 0,
) -> Continuation:
    """Read tokens and write up to n more, one at a time; earlier if the model ends its text.

    temperature: 0 takes the likeliest token each time, else one is drawn from softmax(logits / temperature).
    Positions count on from the last one. The other arguments, and what is raised, are as in `forward`.
    """
    n = arguments.whole_number("n", n, at_least=1)
    temperature = arguments.real_number("temperature", temperature)
    if temperature < 0:
        raise ValueError(f"temperature must be at least 0, but got {temperature}")
    rng = np.random.default_rng(arguments.whole_number("seed", seed))
    written, given = [], []
    while True:
        read = forward(model, tokens, positions, cache=cache, scaling=scaling, layout=layout, last=1)
        cache, positions = read.cache, None
        if len(written) == n or (written and written[-1] == model.end):
            return Continuation(np.array(written), np.array(given), cache)
        logits = read.logits[0].astype(np.float64)
        probabilities = softmax_rows(logits if temperature == 0 else logits / temperature)
        token = probabilities.argmax() if temperature == 0 else rng.choice(len(logits), p=probabilities)
        written.append(int(token))
        given.append(float(probabilities[token]))
        tokens = [token]


# --- Checks ---


def _checked_tokens(model: Model, tokens: ArrayLike, name: str = "tokens") -> np.ndarray:
    tokens = arguments.int_array(name, tokens, ndim=1)
    if not tokens.size:
        raise ValueError(f"{name} must hold at least one token, but got none")
    if wrong := [token for token in (tokens.min(), tokens.max()) if not 0 <= token < len(model.embedding)]:
        raise ValueError(f"{name} must be from 0 to {len(model.embedding) - 1}, but got {wrong[0]}")
    return tokens


def _shape(cache: Cache) -> tuple[int, int, int]:
    return len(cache.keys), *cache.keys[0].shape[::2]


def _one_a_layer(model: Model, scaling: Scaling) -> Sequence[RotaryScaling | None]:
    if scaling is None:
        scaling = unscaled(model.head_dim, model.base)
    scalings = [scaling] * model.n_layers if isinstance(scaling, RotaryScaling) else scaling
    if not isinstance(scalings, list | tuple) or len(scalings) != model.n_layers:
        raise ValueError(f"scaling must be a RotaryScaling, or one for each of {model.n_layers} layers")
    checked: dict[int, RotaryScaling | None] = {id(None): None}
    for one in scalings:
        if id(one) not in checked:
            checked[id(one)] = _checked_scaling(one, model.head_dim // 2)
    return [checked[id(one)] for one in scalings]


def _checked_scaling(scaling: RotaryScaling, n_pairs: int) -> RotaryScaling:
    if not isinstance(scaling, RotaryScaling):
        raise TypeError(f"scaling must be of what context_extension returns, but got {scaling!r}")
    inv_freq = arguments.real_array("inv_freq", scaling.inv_freq, ndim=1).astype(np.float64)
    if not 1 <= len(inv_freq) <= n_pairs:
        raise ValueError(f"inv_freq must have 1 to {n_pairs} entries, one a pair, but has {len(inv_freq)}")
    return RotaryScaling(inv_freq, arguments.real_number("attention_factor", scaling.attention_factor))
