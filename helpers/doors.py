"""The three doors by which a scheme lets position into a decoder (notebook 06).

A scheme owns no weights: `new_weights` makes what it trains, the decoder's `parameters` keep it, and each
door gets what it asks for by name. A door returns its output and back(d_out), the way the gradient goes home:

- embed(x, positions, *, weights): the embeddings with what positions add; back(d_out) -> d_x, gradients;
- rotate(x, positions, *, weights): queries or keys, turned; back(d_out) -> d_x, gradients;
- bias(q, query_positions, key_positions, *, weights): what is added to the scaled scores, whatever the mask;
  back(d_bias) -> d_q (or None, if q is not used), gradients.

gradients: those of the door's weights by name. A door that trains nothing and only adds may return its array
alone; the gradient passes unchanged. So a scheme of your own can be a class of one method.

Shapes: x (batch, n, d_model); q (batch, n_heads, n_queries, head_dim); positions (n,), integers from 0.
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

Parameters = dict[str, np.ndarray]
Back = Callable[[np.ndarray], Any]
Through = tuple[np.ndarray, Back]  # what goes through a door comes out, with its way back


class Size(NamedTuple):
    """What the work of a scheme depends on."""

    d_model: int
    n_heads: int
    n_layers: int
    n_positions: int
    n_keys: int


class Facts(NamedTuple):
    """What is said about a scheme: its name in words, its door (0: none), and how its lines are drawn.

    ink is the colour, dark enough for text on white. operations: the additions and multiplications that it
    adds per token and layer, from a Size; tables, slopes and angles are taken as computed before. knob: what
    is tried out before the scheme is compared with others (helpers/race.py), an option of its own or a field
    of Settings, with the values to try and the usual one.
    """

    label: str
    door: int
    colour: str
    ink: str
    line: str | tuple
    operations: Callable[[Size], float]
    knob: str = "position_rate"
    tried: tuple[float, ...] = (1, 10, 30)
    usual: float = 1


@dataclass
class Scheme:
    """No position at all ("none"), and the form of all others."""

    d_model: int
    n_heads: int
    n_positions: int

    facts: ClassVar[Facts] = Facts(
        "none", 0, "#777777", "#595959", "-", lambda size: 0, "weight_decay", (0, 0.01, 0.1), 0.01
    )
    # Whether the bias depends on positions alone: then it is computed once and serves all layers.
    bias_of_positions: ClassVar[bool] = False

    @property
    def head_dim(self) -> int:
        return self.d_model // self.n_heads

    def new_weights(self, rng: np.random.Generator) -> Parameters:
        """Return what is trained, by name, float32."""
        return {}

    def embed(self, x: np.ndarray, positions: np.ndarray) -> np.ndarray | Through:
        """Door 1: add to the embeddings."""
        return x

    def rotate(self, x: np.ndarray, positions: np.ndarray) -> np.ndarray | Through:
        """Door 2: turn queries and keys."""
        return x

    def bias(
        self, q: np.ndarray, query_positions: np.ndarray, key_positions: np.ndarray
    ) -> np.ndarray | Through | None:
        """Door 3: add to the scores."""
        return None


@functools.cache
def _asked_for(function: Callable) -> frozenset[str]:
    """Return the names of the weights that a door asks for: its keyword-only arguments."""
    parts = inspect.signature(function).parameters.values()
    return frozenset(part.name for part in parts if part.kind is part.KEYWORD_ONLY)


def through(scheme: Scheme, door: str, *inputs: np.ndarray, weights: Parameters) -> Through:
    """Return the output of a scheme's door and its way back; weights: all that the scheme trains, by name.

    What stands alone was only added to what came in, and its gradient passes unchanged.
    """
    function = getattr(type(scheme), door)
    asked = _asked_for(function)
    result = getattr(scheme, door)(*inputs, **{name: weights[name] for name in asked})
    if isinstance(result, tuple):
        return result
    used = function is not getattr(Scheme, door)
    where = f"{type(scheme).__name__}.{door}"
    if result is None and used:
        raise TypeError(f"{where} must return an array, but it returned None: is a `return` missing?")

    def back(d_out: np.ndarray) -> tuple[np.ndarray | None, Parameters]:
        if used and (asked or door == "rotate"):
            raise TypeError(f"{where} must return its output and back to be trained (see helpers/doors.py)")
        return None if door == "bias" else d_out, {}

    return result, back
