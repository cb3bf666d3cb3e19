"""An exercise so small that every kind of answer to it can be tried."""

import numpy as np

from helpers.check.exercises import Exercise


def double():
    """Twice the numbers; whoever squares them gets a hint."""
    return Exercise(
        "double",
        "99",
        "twice",
        lambda x: 2 * x,
        lambda: [(np.arange(3.0),), (np.ones(2),)],
        {"not squared.": lambda x: x**2},
    )
