"""Exercises of notebook 07."""

import numpy as np

from helpers import context_extension
from helpers.check.exercises import Exercise
from helpers.rope import inverse_frequencies

NOTEBOOK = "07"


def _ntk(rotary_dim: int, base: float, factor: float) -> np.ndarray:
    return context_extension.ntk_aware(rotary_dim, base, factor=factor).inv_freq


ntk_frequencies = Exercise(
    "ntk_frequencies",
    NOTEBOOK,
    "NTK-aware scaling",
    _ntk,
    lambda: [(8, 10_000.0, 4.0), (64, 500_000.0, 2.5), (16, 10_000.0, 1.0)],
    {
        "the base is multiplied by s itself; it has to be s raised to d/(d − 2), with / and not //, so that "
        "the slowest pair is divided by s exactly.": lambda rotary_dim, base, factor: inverse_frequencies(
            rotary_dim, base * factor
        ),
        "nothing is stretched: these are the old frequencies.": lambda rotary_dim, base, factor: (
            inverse_frequencies(rotary_dim, base)
        ),
        "the exponent stands upside down: it is d/(d − 2), larger than 1.": lambda rotary_dim, base, factor: (
            inverse_frequencies(rotary_dim, base * factor ** ((rotary_dim - 2) / rotary_dim))
        ),
        "brackets: d / d − 2 is −1.": lambda rotary_dim, base, factor: inverse_frequencies(
            rotary_dim, base * factor ** (rotary_dim / rotary_dim - 2)
        ),
        "the new base is right, but the frequencies have the exponent −2i/d: a minus is missing.": (
            lambda rotary_dim, base, factor: 1 / _ntk(rotary_dim, base, factor)
        ),
        "the new base is right, but the frequencies have the exponent −2i/d, not −i/d.": (
            lambda rotary_dim, base, factor: np.sqrt(_ntk(rotary_dim, base, factor))
        ),
        "this is the new base alone: what are the frequencies with it?": lambda rotary_dim, base, factor: (
            base * factor ** (rotary_dim / (rotary_dim - 2))
        ),
        "all pairs are divided by s: that is position interpolation. The fastest must stay.": (
            lambda rotary_dim, base, factor: inverse_frequencies(rotary_dim, base) / factor
        ),
        "base and factor are raised together: only the factor gets the exponent d/(d − 2).": (
            lambda rotary_dim, base, factor: inverse_frequencies(
                rotary_dim, (base * factor) ** (rotary_dim / (rotary_dim - 2))
            )
        ),
    },
    tolerance=(1e-5, 1e-13),  # in single precision, a power by way of its logarithm is 1e-6 off
)


def _turns(rotary_dim: int, base: float, trained_length: int) -> np.ndarray:
    return trained_length * inverse_frequencies(rotary_dim, base) / (2 * np.pi)


def _pair(rotary_dim: int, base: float, trained_length: int, limit: float = 0.5) -> int:
    """The first pair that turned less than so many times."""
    return int(np.argmax(_turns(rotary_dim, base, trained_length) < limit))


pair_to_slow = Exercise(
    "pair_to_slow",
    NOTEBOOK,
    "the pair to slow, from the turns",
    lambda rotary_dim, base, trained_length: _pair(rotary_dim, base, trained_length),
    lambda: [(16, 10_000.0, 64), (64, 10_000.0, 512), (128, 500_000.0, 8192)],
    {
        "these are radians, not turns: a circle has 2π of them.": lambda rotary_dim, base, trained_length: (
            _pair(rotary_dim, base, trained_length, 0.5 / (2 * np.pi))
        ),
        "one too far: pairs count from 0.": (
            lambda rotary_dim, base, trained_length: 1 + _pair(rotary_dim, base, trained_length)
        ),
        "this is a feature, 2i: return the number of the pair, i.": lambda rotary_dim, base, trained_length: (
            2 * _pair(rotary_dim, base, trained_length)
        ),
        "half a circle was asked for: less than 0.5 turns, not less than 1.": (
            lambda rotary_dim, base, trained_length: _pair(rotary_dim, base, trained_length, 1)
        ),
        "a circle has 2π radians, not π.": lambda rotary_dim, base, trained_length: _pair(
            rotary_dim, base, trained_length, 0.25
        ),
        "the fastest pair of all turned most: it has seen its whole circle.": lambda *_: 0,
        "`trained_length` is not used: other lengths than 64 are asked for.": (
            lambda rotary_dim, base, trained_length: _pair(rotary_dim, base, 64)
        ),
        "the slowest pair hardly turns, and hardly matters.": lambda rotary_dim, base, trained_length: (
            rotary_dim // 2 - 1
        ),
        "this is the last pair that did turn half a circle; the next one is meant.": (
            lambda rotary_dim, base, trained_length: _pair(rotary_dim, base, trained_length) - 1
        ),
    },
)

score_multiplier = Exercise(
    "score_multiplier",
    NOTEBOOK,
    "how much YaRN sharpens",
    lambda factor: (1 + 0.1 * np.log(max(factor, 1.0))) ** 2,
    lambda: [(16.0,), (4.0,), (1.0,), (0.5,)],
    {
        "queries *and* keys are multiplied by it, so the scores get its square.": lambda factor: (
            1 + 0.1 * np.log(max(factor, 1.0))
        ),
        "queries *and* keys are multiplied by it, so the scores get its square; and below factor 1 nothing "
        "is sharpened.": lambda factor: 1 + 0.1 * np.log(factor),
        "for a factor below 1 nothing is stretched, and nothing is to be sharpened: 1.": lambda factor: (
            (1 + 0.1 * np.log(factor)) ** 2
        ),
        "the logarithm is the natural one, not to base 10.": lambda factor: (
            (1 + 0.1 * np.log10(max(factor, 1.0))) ** 2
        ),
    },
)
