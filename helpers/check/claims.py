"""A sentence of the text that is checked where it stands."""

import numpy as np


class ClaimFailed(AssertionError):
    """A sentence of the course does not hold on this machine."""


def claim(holds: bool, sentence: str) -> None:
    """Print the sentence with a tick if it holds, else raise ClaimFailed with it.

    holds: one True or False (reduce an array with .all() or .any() first, or TypeError is raised).
    """
    if not isinstance(holds, bool | np.bool_):
        raise TypeError(f"holds must be True or False, but got {type(holds).__name__}: {holds!r}")
    if not holds:
        raise ClaimFailed(f"This does not hold here: {sentence}")
    print(f"✓ {sentence}")
