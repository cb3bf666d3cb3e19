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
        "the base is multiplied by s itself; it has to be s raised to d/(d − 2), so that the slowest pair is "
        "divided by s exactly.": lambda rotary_dim, base, factor: inverse_frequencies(
            rotary_dim, base * factor
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
    tolerance=1e-10,
)


def _turns(rotary_dim: int, base: float, trained_length: int) -> np.ndarray:
    return trained_length * inverse_frequencies(rotary_dim, base) / (2 * np.pi)


pair_to_slow = Exercise(
    "pair_to_slow",
    NOTEBOOK,
    "the pair to slow, from the turns",
    lambda rotary_dim, base, trained_length: int(np.argmax(_turns(rotary_dim, base, trained_length) < 0.5)),
    lambda: [(16, 10_000.0, 64), (64, 10_000.0, 512), (128, 500_000.0, 8192)],
    {
        "these are radians, not turns: a circle has 2π of them.": lambda rotary_dim, base, trained_length: (
            int(np.argmax(2 * np.pi * _turns(rotary_dim, base, trained_length) < 0.5))
        ),
        "the slowest pair hardly turns, and hardly matters.": lambda rotary_dim, base, trained_length: (
            rotary_dim // 2 - 1
        ),
        "this is the last pair that did turn half a circle; the next one is meant.": (
            lambda rotary_dim, base, trained_length: (
                int(np.argmax(_turns(rotary_dim, base, trained_length) < 0.5)) - 1
            )
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
        "for a factor below 1 nothing is stretched, and nothing is to be sharpened: 1.": lambda factor: (
            (1 + 0.1 * np.log(factor)) ** 2
        ),
        "the logarithm is the natural one, not to base 10.": lambda factor: (
            (1 + 0.1 * np.log10(max(factor, 1.0))) ** 2
        ),
    },
)
