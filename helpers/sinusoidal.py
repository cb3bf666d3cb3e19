"""The sinusoidal table: a fixed vector of waves for every position (notebook 02, door 1: the embeddings).

Source: Vaswani et al. 2017, arXiv:1706.03762, section 3.5.
"""

import numpy as np
from numpy.typing import ArrayLike

from helpers import arguments

LAYOUTS = ("interleaved", "concatenated", "tensor2tensor")


def sinusoidal_encoding(
    positions: int | ArrayLike, d_model: int, base: float = 10_000.0, layout: str = "interleaved"
) -> np.ndarray:
    """Return one row per position, float64 (n, d_model), from waves of geometrically growing length.

    Column 2i is sin(position / base^(2i/d_model)) and column 2i + 1 the cosine of the same angle.

    positions: an int n means 0 to n - 1; else a 1-d array of finite numbers (negative and fractional too).
    layout: "interleaved" is the paper's; "concatenated" has the same columns, all sines first;
        "tensor2tensor" is concatenated with exponent 2i/(d_model - 2), so that its slowest wave has length
        2 pi base exactly: other numbers, not another order. An odd d_model has one sine more than cosines
        (in tensor2tensor: a last column of zeros).
    Raises ValueError for a d_model below 1, a base not above 0, NaN or inf; TypeError for wrong kinds.
    """
    d_model = arguments.whole_number("d_model", d_model, at_least=1)
    base = arguments.real_number("base", base, positive=True)
    layout = arguments.choice("layout", layout, LAYOUTS)
    positions = _position_array(positions)

    if layout == "tensor2tensor":
        n_waves = d_model // 2
        exponents = np.arange(n_waves) / max(n_waves - 1, 1)
    else:
        n_waves = (d_model + 1) // 2
        exponents = 2 * np.arange(n_waves) / d_model
    # A power, not exp(-ln(base) * exponent): that drifts to 3e-11 at position 1e6.
    angles = _finite_angles(positions, base**exponents)

    table = np.zeros((len(positions), d_model))
    if layout == "interleaved":
        table[:, 0::2] = np.sin(angles)
        table[:, 1::2] = np.cos(angles)[:, : d_model // 2]
    else:
        n_cosines = d_model // 2
        table[:, :n_waves] = np.sin(angles)
        table[:, n_waves : n_waves + n_cosines] = np.cos(angles)[:, :n_cosines]
    return table


def shift_matrix(offset: float, d_model: int, base: float = 10_000.0) -> np.ndarray:
    """Return the (d_model, d_model) matrix M with encoding(p + offset) = M @ encoding(p) for every p.

    It turns each (sine, cosine) pair of the interleaved layout by offset / base^(2i/d_model) radians.
    Raises ValueError for an odd d_model (its last sine has no cosine to turn with).
    """
    offset = arguments.real_number("offset", offset)
    d_model = arguments.even_number("d_model", d_model)
    base = arguments.real_number("base", base, positive=True)
    even = np.arange(0, d_model, 2)
    angles = _finite_angles(np.array([offset]), base ** (even / d_model), name="offset")[0]
    matrix = np.zeros((d_model, d_model))
    matrix[even, even] = matrix[even + 1, even + 1] = np.cos(angles)
    matrix[even, even + 1] = np.sin(angles)
    matrix[even + 1, even] = -np.sin(angles)
    return matrix


def wavelengths(d_model: int, base: float = 10_000.0) -> np.ndarray:
    """Return the positions each wave takes for a turn, 2 pi base^(2i/d_model): (ceil(d_model / 2),)."""
    d_model = arguments.whole_number("d_model", d_model, at_least=1)
    base = arguments.real_number("base", base, positive=True)
    with np.errstate(over="ignore"):
        lengths = 2 * np.pi * base ** (2 * np.arange((d_model + 1) // 2) / d_model)
    arguments.finite_result("base", lengths, f"the wavelengths of base {base}")
    return lengths


def _position_array(positions: int | ArrayLike) -> np.ndarray:
    if isinstance(positions, int | np.integer) and not isinstance(positions, bool):
        return np.arange(arguments.whole_number("positions", positions), dtype=np.float64)
    return arguments.real_array("positions", positions, ndim=1).astype(np.float64, copy=False)


def _finite_angles(positions: np.ndarray, periods: np.ndarray, name: str = "positions") -> np.ndarray:
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        angles = positions[:, None] / periods
    if not np.isfinite(angles).all():
        raise ValueError(
            f"{name} must give finite angles, but {np.abs(positions).max():.6g} overflows with this base"
        )
    return angles


def offset_share(scores: ArrayLike) -> float:
    """Return the share of the variance of scores, (n, n), that the offset explains: 1 for constant diagonals.

    Scores that have nothing to do with offsets still reach about 2/n, since there are 2n - 1 offsets to fit.
    Raises ValueError unless scores is square and varies.
    """
    scores = arguments.real_array("scores", scores, ndim=2)
    n = len(scores)
    if scores.shape != (n, n) or np.ptp(scores) == 0:
        raise ValueError(f"scores must be square and not all equal, but got shape {scores.shape}: {scores}")
    diagonal = (np.arange(n) - np.arange(n)[:, None] + n - 1).ravel()
    means = np.bincount(diagonal, scores.ravel()) / np.bincount(diagonal)
    return float(1 - np.var(scores.ravel() - means[diagonal]) / np.var(scores))
