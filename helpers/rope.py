"""Rotary position embedding: turn queries and keys by an angle a position (notebook 04, door 2).

Pair i of a vector at position p turns by p * inv_freq[i], with inv_freq[i] = base^(-2i/rotary_dim):
(u, v) -> (u cos - v sin, u sin + v cos). A score of a query at p and a key at r then depends on r - p alone.
Source: Su et al. 2021 (RoFormer), arXiv:2104.09864, equation 34.
"""

import numpy as np
from numpy.typing import ArrayLike

from helpers import arguments

LAYOUTS = ("interleaved", "half")


# --- The formula, which checks nothing: the decoder of notebook 06 is built on it, too ---


def turn(
    u: np.ndarray, v: np.ndarray, cos: np.ndarray | float, sin: np.ndarray | float
) -> tuple[np.ndarray, np.ndarray]:
    """Turn the points (u, v) by an angle, given by its cosine and sine: all of RoPE is this."""
    return u * cos - v * sin, u * sin + v * cos


def turn_pairs(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, layout: str = "interleaved") -> np.ndarray:
    """Turn the pairs of x, (..., n, head_dim), by angles given by cos and sin, (..., n, m).

    Only the first 2m features turn, the rest passes unchanged. x, cos and sin are of one precision.
    """
    m = cos.shape[-1]
    out = np.array(x, order="C")
    # `turn` for all pairs in one go: (u + iv)(cos + i sin) is (u cos - v sin) + i(u sin + v cos), and takes a
    # seventh of the time.
    if layout == "half":
        pairs = out[..., :m] + 1j * out[..., m : 2 * m]
        pairs *= cos + 1j * sin
        out[..., :m], out[..., m : 2 * m] = pairs.real, pairs.imag
    else:
        pairs = out[..., : 2 * m].view(np.result_type(out, np.complex64))
        pairs *= cos + 1j * sin
    return out


# --- The same, checked ---


def inverse_frequencies(rotary_dim: int, base: float = 10_000.0) -> np.ndarray:
    """Return the radians each pair turns from one position to the next: float64 (rotary_dim // 2,)."""
    rotary_dim = arguments.even_number("rotary_dim", rotary_dim)
    base = arguments.real_number("base", base, positive=True)
    with np.errstate(over="ignore"):
        inv_freq = base ** (-np.arange(0, rotary_dim, 2) / rotary_dim)
    if not np.isfinite(inv_freq).all():
        raise ValueError(f"base must give finite frequencies, but {base} is too close to 0")
    return inv_freq


def rotate(
    x: ArrayLike,
    positions: ArrayLike,
    inv_freq: ArrayLike | None = None,
    attention_factor: float = 1.0,
    *,
    base: float | None = None,
    layout: str = "interleaved",
) -> np.ndarray:
    """Rotate the pairs of x by their positions; same shape and precision as x (integers become float64).

    x: (..., n, head_dim), queries or keys, never values.
    positions: (n,), or any shape that broadcasts to x.shape[:-1]; negative and fractional ones are legal.
    inv_freq: (m,) radians per position; only the first 2m features turn (partial rotary).
        Left out, it is inverse_frequencies(head_dim, base), with base 10,000 unless given.
    attention_factor: multiplies the rotated features, so that scores get its square (notebook 07).
    layout: "interleaved" pairs features (2i, 2i + 1); "half" pairs (i, i + m), as Llama checkpoints do.
    Raises ValueError for an odd head_dim, shapes that do not fit, base together with inv_freq, NaN or inf.
    """
    x = arguments.real_array("x", x, min_ndim=1)
    layout = arguments.choice("layout", layout, LAYOUTS)
    attention_factor = arguments.real_number("attention_factor", attention_factor)
    angles = _angles(x.shape, positions, _frequencies(x.shape, inv_freq, base))
    _refuse_overflow(x, attention_factor)
    wide = np.result_type(x.dtype, np.float32)
    # Angles are float64 up to here; only their cosines and sines take the precision of x.
    cos, sin = ((attention_factor * wave(angles)).astype(wide) for wave in (np.cos, np.sin))
    return turn_pairs(x.astype(wide, copy=False), cos, sin, layout).astype(x.dtype, copy=False)


def interleaved_to_half(x: ArrayLike) -> np.ndarray:
    """Reorder features [a0 b0 a1 b1 ...] to [a0 a1 ... b0 b1 ...]: pairs (2i, 2i + 1) become (i, i + m)."""
    x = _even_width(x)
    return np.concatenate([x[..., 0::2], x[..., 1::2]], axis=-1)


def half_to_interleaved(x: ArrayLike) -> np.ndarray:
    """Undo interleaved_to_half."""
    x = _even_width(x)
    m = x.shape[-1] // 2
    return np.stack([x[..., :m], x[..., m:]], axis=-1).reshape(x.shape)


def round_to_bfloat16(x: ArrayLike) -> np.ndarray:
    """Round to the nearest bfloat16 (8 bits of precision, ties to even), returned as float32, same shape.

    For showing what low precision does to positions and angles; nothing in these modules computes with it.
    """
    x = arguments.real_array("x", x).astype(np.float64)
    _, exponent = np.frexp(x)  # 2^(exponent - 1) <= abs(x) < 2^exponent
    last_bit = np.maximum(exponent, -125) - 8  # below 2^-126 the steps stop getting finer
    with np.errstate(over="ignore"):
        rounded = np.ldexp(np.rint(np.ldexp(x, -last_bit)), last_bit).astype(np.float32)
    if not np.isfinite(rounded).all():
        raise ValueError(f"x must hold numbers up to 3.39e38 in size, but got {np.abs(x).max():.6g}")
    return rounded


def _frequencies(shape: tuple, inv_freq: ArrayLike | None, base: float | None) -> np.ndarray:
    head_dim = arguments.even_number("head_dim (the last dimension of x)", shape[-1])
    if inv_freq is None:
        return inverse_frequencies(head_dim, 10_000.0 if base is None else base)
    if base is not None:
        raise ValueError(
            f"base must not be given together with inv_freq, which it would compute, but got {base}"
        )
    inv_freq = arguments.real_array("inv_freq", inv_freq, ndim=1).astype(np.float64, copy=False)
    if len(inv_freq) > head_dim // 2:
        raise ValueError(
            f"inv_freq must have at most {head_dim // 2} entries, one a pair of x's {head_dim} features, "
            f"but got {len(inv_freq)}"
        )
    return inv_freq


def _angles(shape: tuple, positions: ArrayLike, inv_freq: np.ndarray) -> np.ndarray:
    positions = arguments.real_array("positions", positions).astype(np.float64, copy=False)
    try:
        fits = np.broadcast_shapes(positions.shape, shape[:-1]) == shape[:-1]
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"positions must broadcast to x.shape[:-1] = {shape[:-1]}, but have the shape {positions.shape}"
        )
    with np.errstate(over="ignore"):
        angles = positions[..., None] * inv_freq
    if not np.isfinite(angles).all():
        raise ValueError(f"positions must give finite angles, but {np.abs(positions).max():.6g} overflows")
    return angles


def _refuse_overflow(x: np.ndarray, attention_factor: float) -> None:
    """A turn can stretch one feature by the square root of 2."""
    biggest = float(np.finfo(x.dtype).max)
    if abs(attention_factor) > biggest:
        raise ValueError(
            f"attention_factor must be up to {biggest:.3g} in size for {x.dtype}, but got {attention_factor}"
        )
    if x.size:
        largest = max(abs(float(x.max())), abs(float(x.min())))
        limit = biggest / (1.5 * max(1.0, abs(attention_factor)))
        if largest > limit:
            raise ValueError(
                f"x must hold numbers up to {limit:.3g} in size to be rotated, but got {largest:.6g}"
            )


def _even_width(x: ArrayLike) -> np.ndarray:
    x = arguments.real_array("x", x, min_ndim=1)
    arguments.even_number("the last dimension of x", x.shape[-1], at_least=0)
    return x
