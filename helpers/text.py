"""What the decoders of notebooks 06 and 07 read: plays or novels, each in three parts.

Origin and licence of the texts: helpers/data/README.md.
"""

import bz2
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np

from helpers import arguments

LENGTH = 64  # what the models are trained on
REACH = 512  # how far they are tested

# Which parts of a file, in their order there, serve what.
_PARTS = {"tragedies": ((0, 2, 3), (1,), (4,)), "novels": ((0,), (1,), (2,))}


class Text(NamedTuple):
    """A text in three parts that share nothing, each (n,) letter numbers, and the letters in order.

    train: to train on. choose: to choose settings by, and for nothing else. test: to measure with.
    """

    train: np.ndarray
    choose: np.ndarray
    test: np.ndarray
    letters: str


@cache
def corpus(name: str = "tragedies") -> Text:
    """Return five tragedies by Shakespeare, or "novels" by Jane Austen, split by whole plays or novels.

    tragedies: Hamlet, Othello and King Lear to train on, Macbeth to choose, Romeo and Juliet to test. novels:
    Persuasion, the beginning of Northanger Abbey, that of Sense and Sensibility; parts as long as the plays'.
    """
    name = arguments.choice("name", name, tuple(_PARTS))
    packed = (files("helpers") / "data" / f"{name}.txt.bz2").read_bytes()
    parts = bz2.decompress(packed).decode("ascii").split("\f")
    letters = "".join(sorted(set("".join(parts))))
    numbers = [np.searchsorted(np.array(list(letters)), np.array(list(part))) for part in parts]
    return Text(*(np.concatenate([numbers[place] for place in part]) for part in _PARTS[name]), letters)


def random_pieces(text: np.ndarray, count: int, length: int, rng: np.random.Generator) -> np.ndarray:
    """Return count random pieces of a text, (count, length), to train on; they may overlap."""
    starts = rng.integers(0, len(text) - length + 1, count)
    return text[starts[:, None] + np.arange(length)]


def even_pieces(text: np.ndarray, count: int, length: int) -> np.ndarray:
    """Return count pieces of a text at even distances, (count, length), to measure with; none overlap.

    Raises ValueError if the text is too short for that.
    """
    if count * length > len(text):
        raise ValueError(
            f"count must be at most {len(text) // length} for pieces of {length} that don't overlap, but got "
            f"{count}"
        )
    starts = np.arange(count) * len(text) // count
    return text[starts[:, None] + np.arange(length)]
