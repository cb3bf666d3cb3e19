"""Read further than a RoPE model was trained: other angles per position, same weights (notebook 07, door 2).

Each method returns RotaryScaling(inv_freq, attention_factor) for rope.rotate(x, positions, *scaling):
inv_freq, (rotary_dim // 2,) radians per position in float64, fastest pair first; attention_factor, which
multiplies rotated queries and keys, so that scores get its square. Factor 1 changes nothing.

Common arguments: rotary_dim, even, at least 2; base, above 0; factor, how many times longer than trained,
above 0; trained_length, tokens. All raise ValueError (TypeError for a wrong kind) for anything else.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from helpers import arguments
from helpers.rope import inverse_frequencies


class RotaryScaling(NamedTuple):
    """The angles per position of each pair, and what multiplies rotated queries and keys."""

    inv_freq: np.ndarray
    attention_factor: float


def unscaled(rotary_dim: int, base: float = 10_000.0) -> RotaryScaling:
    """Return RoPE as it was trained (Su et al. 2021, arXiv:2104.09864)."""
    return RotaryScaling(inverse_frequencies(rotary_dim, base), 1.0)


def position_interpolation(rotary_dim: int, base: float = 10_000.0, *, factor: float) -> RotaryScaling:
    """Divide all frequencies by factor: squeezed positions (Chen et al. 2023, arXiv:2306.15595)."""
    factor = arguments.real_number("factor", factor, positive=True)
    return _checked(_mixed(inverse_frequencies(rotary_dim, base), factor, np.zeros(1)), "factor")


def ntk_aware(rotary_dim: int, base: float = 10_000.0, *, factor: float) -> RotaryScaling:
    """Enlarge base to base * factor^(d/(d - 2)), d = rotary_dim (bloc97 2023; arXiv:2309.00071, section 3.1).

    So the fastest pair stays and the slowest is divided by factor, exactly. One pair can't be both: with
    rotary_dim 2 any factor but 1 raises ValueError.
    """
    return _enlarged_base(rotary_dim, base, arguments.real_number("factor", factor, positive=True))


def dynamic_ntk(
    rotary_dim: int, base: float = 10_000.0, *, trained_length: int, length: int, factor: float = 1.0
) -> RotaryScaling:
    """Enlarge the base by how long the text is now (emozilla 2023; arXiv:2309.00071, appendix B.1).

    Up to trained_length nothing changes. Beyond, ntk_aware's factor is factor * (length/trained_length - 1)
    + 1, the rule of the transformers library. Factor 1 is the paper's rule, length/trained_length.
    Keys that were rotated at another length don't fit: keep them unrotated, or rotate them again.
    """
    trained_length = _length("trained_length", trained_length, at_least=1)
    length = _length("length", length)
    factor = arguments.real_number("factor", factor, positive=True)
    return _enlarged_base(rotary_dim, base, 1 + factor * max(length / trained_length - 1, 0))


def ntk_by_parts(
    rotary_dim: int,
    base: float = 10_000.0,
    *,
    trained_length: int,
    factor: float,
    low_rotations: float = 1.0,
    high_rotations: float = 32.0,
) -> RotaryScaling:
    """Divide by factor only what turned little in training (Peng et al. 2023, arXiv:2309.00071, section 3.2).

    A pair that turned low_rotations times or less within trained_length is divided by factor, one that turned
    high_rotations times or more is kept, and between the two the share kept grows linearly with the number of
    turns. If both thresholds are equal, the ramp is a step: pairs that turned more often than that are kept,
    and all others are divided. This is the paper's ramp; yarn has the one of its code. Raises ValueError
    unless 0 <= low_rotations <= high_rotations.
    """
    trained_length = _length("trained_length", trained_length, at_least=1)
    factor = arguments.real_number("factor", factor, positive=True)
    low_rotations = _at_least_0("low_rotations", low_rotations)
    high_rotations = arguments.real_number("high_rotations", high_rotations)
    _in_order("low_rotations", low_rotations, "high_rotations", high_rotations, may_be_equal=True)
    inv_freq = inverse_frequencies(rotary_dim, base)
    turns = trained_length * inv_freq / (2 * np.pi)
    if low_rotations == high_rotations:
        kept = (turns > low_rotations).astype(np.float64)
    else:
        with np.errstate(over="ignore"):  # a ramp of almost no width
            kept = np.clip((turns - low_rotations) / (high_rotations - low_rotations), 0, 1)
    return _checked(_mixed(inv_freq, factor, kept), "factor")


def yarn(
    rotary_dim: int,
    base: float = 10_000.0,
    *,
    trained_length: int,
    factor: float,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    truncate: bool = True,
    mscale: float | None = None,
    mscale_all_dim: float | None = None,
    attention_factor: float | None = None,
) -> RotaryScaling:
    """By parts as the code of YaRN does it, with a temperature (Peng et al. 2023, arXiv:2309.00071).

    The ramp has the ends of ntk_by_parts, at beta_fast and beta_slow turns, but between them the share kept
    falls linearly with the number of the pair. Both ends are rounded outwards to whole pairs unless truncate
    is False (as in gpt-oss). base must be above 1, where pairs are ordered from fast to slow.
    Two extremes follow the paper instead. If not even the fastest pair turns more than beta_slow times, all
    pairs are divided (the code keeps the fastest, or all); if each turns beta_fast times, all are kept.
    attention_factor: 0.1 ln(factor) + 1 (1 for factors up to 1) unless given. With both mscale and
    mscale_all_dim (DeepSeek) it is (0.1 mscale ln(factor) + 1) / (0.1 mscale_all_dim ln(factor) + 1), and
    yarn_softmax_multiplier has the rest. One of the two alone is ignored, and a 0 counts as not given, since
    the transformers library reads configurations so (DeepSeek's own code takes this 0 as a number).
    """
    trained_length = _length("trained_length", trained_length, at_least=1)
    factor = arguments.real_number("factor", factor, positive=True)
    beta_fast = arguments.real_number("beta_fast", beta_fast, positive=True)
    beta_slow = arguments.real_number("beta_slow", beta_slow, positive=True)
    _in_order("beta_slow", beta_slow, "beta_fast", beta_fast, may_be_equal=False)
    inv_freq, base = inverse_frequencies(rotary_dim, base), float(base)
    if base <= 1:
        raise ValueError(f"base must be above 1 for a ramp over the pairs, but got {base}")

    def pair_that_turns(times: float) -> float:
        return rotary_dim * np.log(trained_length / (2 * np.pi * times)) / (2 * np.log(base))

    low, high = pair_that_turns(beta_fast), pair_that_turns(beta_slow)
    divides_all = high <= 0  # not even pair 0 turns more than beta_slow times
    if arguments.flag("truncate", truncate):
        low, high = np.floor(low), np.ceil(high)
    low, high = max(low, 0), min(high, rotary_dim - 1)  # sic: the reference's bound, not the last pair
    high = max(high, low + 0.001)  # where the bounds have crossed, all pairs lie below both of them
    ramp = np.clip((np.arange(len(inv_freq)) - low) / (high - low), 0, 1)
    kept = np.zeros(len(ramp)) if divides_all else 1 - ramp
    if attention_factor is not None:
        temperature = arguments.real_number("attention_factor", attention_factor, positive=True)
    else:
        temperature = _temperature(factor, mscale, mscale_all_dim)
    return _checked(_mixed(inv_freq, factor, kept), "factor", temperature)


def yarn_softmax_multiplier(factor: float, mscale_all_dim: float) -> float:
    """Return (0.1 mscale_all_dim ln(factor) + 1)^2, by which DeepSeek multiplies all scores.

    There the temperature acts on features that do not turn as well, so it is not in attention_factor.
    With mscale_all_dim 0 this is 1, as in DeepSeek's code, which then leaves the scores alone.
    """
    factor = arguments.real_number("factor", factor, positive=True)
    growth = _growth(factor, _at_least_0("mscale_all_dim", mscale_all_dim))
    if growth > 1e150:
        raise ValueError(f"mscale_all_dim must give a finite multiplier, but {mscale_all_dim} is too large")
    return growth**2


def llama3(
    rotary_dim: int,
    base: float = 10_000.0,
    *,
    trained_length: int,
    factor: float,
    low_freq_factor: float = 1.0,
    high_freq_factor: float = 4.0,
) -> RotaryScaling:
    """Return Llama 3.1's rule, which is ntk_by_parts under other names (Dubey et al. 2024, arXiv:2407.21783).

    Its published code speaks of wavelengths; trained_length/wavelength is the number of turns. Llama 4 Scout
    sets both thresholds to 1, which makes the ramp a step. A pair that turns exactly that often is divided
    here, whereas the published formula would be 0/0.
    """
    low_freq_factor = _at_least_0("low_freq_factor", low_freq_factor)
    high_freq_factor = arguments.real_number("high_freq_factor", high_freq_factor)
    _in_order("low_freq_factor", low_freq_factor, "high_freq_factor", high_freq_factor, may_be_equal=True)
    turns = {"low_rotations": low_freq_factor, "high_rotations": high_freq_factor}
    return ntk_by_parts(rotary_dim, base, trained_length=trained_length, factor=factor, **turns)


def longrope(
    rotary_dim: int,
    base: float = 10_000.0,
    *,
    trained_length: int,
    short_factors: ArrayLike,
    long_factors: ArrayLike,
    length: int | None = None,
    max_length: int | None = None,
    factor: float | None = None,
    attention_factor: float | None = None,
) -> RotaryScaling:
    """Divide each pair by a factor of its own, found by search (Ding et al. 2024, arXiv:2402.13753).

    short_factors, long_factors: (rotary_dim // 2,), above 0; the long ones hold for all positions as soon as
    length is above trained_length (so keys that were rotated before don't fit), the short ones up to there.
    attention_factor: unless given, sqrt(1 + ln s / ln(trained_length)), for short texts too, where s is
    factor or else max_length / trained_length; 1 for s up to 1. That rule is Phi-3's code, not the paper's.
    """
    trained_length = _length("trained_length", trained_length, at_least=2)
    inv_freq = inverse_frequencies(rotary_dim, base)
    short_factors = _one_per_pair("short_factors", short_factors, len(inv_freq))
    long_factors = _one_per_pair("long_factors", long_factors, len(inv_freq))
    length = trained_length if length is None else _length("length", length)
    if factor is not None:
        stretch = arguments.real_number("factor", factor, positive=True)
    elif max_length is not None:
        stretch = _length("max_length", max_length, at_least=1) / trained_length
    else:
        stretch = 1.0
    temperature = np.sqrt(1 + np.log(max(stretch, 1)) / np.log(trained_length))
    if attention_factor is not None:
        temperature = arguments.real_number("attention_factor", attention_factor, positive=True)
    if length > trained_length:
        return _divided(inv_freq, "long_factors", long_factors, float(temperature))
    return _divided(inv_freq, "short_factors", short_factors, float(temperature))


def _enlarged_base(rotary_dim: int, base: float, factor: float) -> RotaryScaling:
    """(base * factor^(d/(d-2)))^(-2i/d) is base^(-2i/d) * factor^(-2i/(d-2)): no large base is computed."""
    inv_freq = inverse_frequencies(rotary_dim, base)
    if rotary_dim == 2 and factor != 1:
        raise ValueError(
            f"rotary_dim must be at least 4 for a base that grows with factor = {factor}, but got 2"
        )
    with np.errstate(over="ignore"):
        slower = inv_freq * factor ** (-np.arange(0, rotary_dim, 2) / max(rotary_dim - 2, 1))
    return _checked(slower, "factor")


def _mixed(inv_freq: np.ndarray, factor: float, kept: np.ndarray) -> np.ndarray:
    """Divide by factor what is not kept. Factor 1 is exact: kept and divided would each be rounded."""
    if factor == 1:
        return inv_freq
    with np.errstate(over="ignore", invalid="ignore"):
        return inv_freq * kept + inv_freq / factor * (1 - kept)


def _growth(factor: float, mscale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * mscale * float(np.log(factor)) + 1


def _temperature(factor: float, mscale: float | None, mscale_all_dim: float | None) -> float:
    above = 0.0 if mscale is None else _at_least_0("mscale", mscale)
    below = 0.0 if mscale_all_dim is None else _at_least_0("mscale_all_dim", mscale_all_dim)
    if above == 0 or below == 0:
        return _growth(factor, 1.0)
    return _growth(factor, above) / _growth(factor, below)


def _divided(inv_freq: np.ndarray, name: str, factors: np.ndarray, temperature: float) -> RotaryScaling:
    with np.errstate(over="ignore"):
        return _checked(inv_freq / factors, name, temperature)


def _checked(inv_freq: np.ndarray, name: str, attention_factor: float = 1.0) -> RotaryScaling:
    arguments.finite_result(name, inv_freq, "the frequencies")
    if not np.isfinite(attention_factor):
        raise ValueError(f"mscale must give a finite attention factor, but got {attention_factor}")
    return RotaryScaling(inv_freq, attention_factor)


def _length(name: str, value: int, at_least: int = 0) -> int:
    """Lengths meet frequencies as float64, which holds whole numbers exactly up to 2^53."""
    length = arguments.whole_number(name, value, at_least=at_least)
    if length > 2**53:
        raise ValueError(f"{name} must be at most 2^53, but got {value}")
    return length


def _in_order(low_name: str, low: float, high_name: str, high: float, *, may_be_equal: bool) -> None:
    if low > high or (low == high and not may_be_equal):
        allowed = "at least" if may_be_equal else "above"
        raise ValueError(f"{high_name} must be {allowed} {low_name} = {low}, but got {high}")


def _at_least_0(name: str, value: float) -> float:
    number = arguments.real_number(name, value)
    if number < 0:
        raise ValueError(f"{name} must be at least 0, but got {value}")
    return number


def _one_per_pair(name: str, values: ArrayLike, n_pairs: int) -> np.ndarray:
    array = arguments.real_array(name, values, ndim=1).astype(np.float64)
    if len(array) != n_pairs:
        raise ValueError(f"{name} must have {n_pairs} entries, one per pair, but got {len(array)}")
    if array.size and array.min() <= 0:
        raise ValueError(f"{name} must hold numbers above 0, but got {array.min()}")
    return array
