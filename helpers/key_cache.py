"""The keys and values that a language model keeps of what it has read, and where they stand (notebook 08).

Keys are kept as they were before they were turned, so a page can be moved after it was read: as a whole or
one token of it, in some pairs of features only, or in some layers only. Nothing of it is read again.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from helpers import arguments


@dataclass(frozen=True)
class Cache:
    """What later tokens see of earlier ones: keys, not turned yet, and values.

    keys, values: by layer (n_kv_heads, n, head_dim). positions: where the keys stand, (1 or n_layers, n, 1 or
    pairs): one layer stands for all, and one pair of features too, unless somebody moved some of them.
    end: the position of the token that was read last.
    """

    keys: tuple[np.ndarray, ...]
    values: tuple[np.ndarray, ...]
    positions: np.ndarray
    end: float

    def __len__(self) -> int:
        return self.positions.shape[1]


def moved(
    cache: Cache,
    keys: ArrayLike | slice = slice(None),
    *,
    to: ArrayLike | None = None,
    by: ArrayLike | None = None,
    pairs: ArrayLike | slice = slice(None),
    layers: ArrayLike | slice = slice(None),
) -> Cache:
    """Return a cache in which these keys stand elsewhere, in these pairs and layers (all, unless said).

    keys, pairs, layers: numbers, or slices. to: their new positions, or by: how far they move; one for all
    keys, or one for each. Only distances count, so a position may become negative.
    Raises ValueError for both or neither of to and by, for numbers out of range, NaN or inf.
    """
    if (to is None) == (by is None):
        raise ValueError(f"moved needs either to or by, but got to = {to} and by = {by}")
    n_pairs = cache.keys[0].shape[-1] // 2
    rows, columns = numbers_below("keys", keys, len(cache)), numbers_below("pairs", pairs, n_pairs)
    depths = numbers_below("layers", layers, len(cache.keys))
    # One layer stands for all of them, and one pair, as long as none is treated differently.
    n_layers, _, n_columns = cache.positions.shape
    if n_layers == 1:
        n_layers, depths = (1, [0]) if len(depths) == len(cache.keys) else (len(cache.keys), depths)
    if n_columns == 1:
        n_columns, columns = (1, [0]) if len(columns) == n_pairs else (n_pairs, columns)
    positions = np.broadcast_to(cache.positions, (n_layers, len(cache), n_columns)).copy()
    place = np.ix_(depths, rows, columns)
    name, value = ("to", to) if by is None else ("by", by)
    value = arguments.real_array(name, value)
    if value.shape not in ((), rows.shape):
        raise ValueError(f"{name} must be one number, or one for each of {len(rows)} keys, not {value.shape}")
    value = np.broadcast_to(value, rows.shape)[:, None]
    positions[place] = value if by is None else positions[place] + value
    return replace(cache, positions=positions)


def without(cache: Cache, keys: ArrayLike | slice) -> Cache:
    """Return a cache that lacks these keys, given by their numbers or a slice: nobody will see them."""
    kept = np.delete(np.arange(len(cache)), numbers_below("keys", keys, len(cache)))
    return replace(
        cache,
        keys=tuple(one[:, kept] for one in cache.keys),
        values=tuple(one[:, kept] for one in cache.values),
        positions=cache.positions[:, kept],
    )


def extended(positions: ArrayLike | None, n: int, cache: Cache | None) -> tuple[np.ndarray, float]:
    """Return the positions of the cache and of n more tokens, (1 or n_layers, all, 1 or pairs), and the end.

    positions: real numbers (n,), at least 0, that never decrease; left out, they count on from the cache's.
    Raises ValueError for others.
    """
    begin = 0.0 if cache is None else cache.end + 1
    own = begin + np.arange(n) if positions is None else arguments.real_array("positions", positions, ndim=1)
    if len(own) != n:
        raise ValueError(f"positions must be {n}, one a token, but got {len(own)}")
    if own.min() < 0:
        raise ValueError(f"positions must be at least 0, but got {own.min():g}")
    steps = np.diff(own, prepend=0.0 if cache is None else cache.end)
    if steps.min() < 0:
        at = int(steps.argmin())
        raise ValueError(f"positions must never decrease, but got {own[at]:g} after {own[at] - steps[at]:g}")
    if own[-1] > 2**53:
        raise ValueError(f"positions must be at most 2^53, but got {own[-1]:g}")
    if cache is None:
        return own[None, :, None].astype(np.float64), float(own[-1])
    layers, _, pairs = cache.positions.shape
    own_too = np.broadcast_to(own[:, None], (layers, n, pairs))
    return np.concatenate([cache.positions, own_too], axis=1), float(own[-1])


def numbers_below(name: str, chosen: ArrayLike | slice, n: int) -> np.ndarray:
    """Return the numbers that are meant, or raise unless each is from 0 to n - 1, and none comes twice."""
    if isinstance(chosen, slice):
        return np.arange(n)[chosen]
    numbers = np.atleast_1d(arguments.int_array(name, chosen))
    if numbers.ndim > 1 or (numbers.size and not 0 <= numbers.min() <= numbers.max() < n):
        raise ValueError(f"{name} must be numbers from 0 to {n - 1}, but got {chosen}")
    if len(set(numbers.tolist())) < len(numbers):
        raise ValueError(f"{name} must be numbers that come once, but got {chosen}")
    return numbers
