"""Check what a learner wrote: on inputs she has not seen, with the difference and a hint if it is wrong.

An exercise holds a reference solution, inputs, and functions that make the typical mistakes. Whoever answers
like one of those gets its hint. Nothing that her function does ends the cell with a traceback.
"""

import copy
import inspect
import linecache
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from helpers.check import notes


@dataclass(frozen=True)
class Exercise:
    """One exercise; call it with the learner's function.

    name: what the notebooks call. notebook: its number, as "02". title: a few words for check.progress().
    solve: the reference; the names of its arguments are shown. inputs: returns the arguments of each call.
    mistakes: a hint for each typical wrong function. judge: for exercises with many right answers, returns
    what is wrong with an answer to some arguments, or "".
    """

    name: str
    notebook: str
    title: str
    solve: Callable
    inputs: Callable[[], Sequence[tuple]]
    mistakes: Mapping[str, Callable]
    judge: Callable[..., str] | None = None
    tolerance: float = 1e-8
    names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(inspect.signature(self.solve).parameters))

    def __call__(self, function: Any) -> None:
        """Print whether the function is right, and if not, how its answer differs and what may help."""
        print(self.verdict(function))

    def verdict(self, function: Any) -> str:
        """Return what is to be printed; a right answer is noted for check.progress()."""
        if not callable(function):
            return (
                f"Give check.{self.name} the function itself, without brackets behind its name: "
                f"it got {_shown(function)}."
            )
        cases, answers = self.inputs(), []
        for arguments in cases:
            given = copy.deepcopy(arguments)
            try:
                answer = function(*given)
            except KeyboardInterrupt as error:
                return f"Stopped{_place(function, error)}. Does every loop come to its end?"
            except NotImplementedError:
                answer = None
            except (Exception, SystemExit) as error:
                return self._failed(function, arguments, error)
            if answer is None or answer is ...:
                return "Not yet: the function returns nothing so far. Write it, run its cell, and see."
            if not _equal(list(given), list(arguments)):
                return f"It changes its input{self._for(arguments)}. Work on a copy, for example x.copy()."
            answers.append(answer)
        for arguments, answer in zip(cases, answers, strict=True):
            wrong = self._difference(arguments, answer)
            if wrong:
                return f"Not right yet{self._for(arguments)}:\n{wrong}{self._hint(cases, answers)}"
        noted = notes.note(self.notebook, self.name)
        return f"✓ Right, for all {len(cases)} inputs that were tried.{noted}"

    def _difference(self, arguments: tuple, answer: Any) -> str:
        if self.judge is not None:
            try:
                numbers = np.asarray(answer, dtype=float)
            except (TypeError, ValueError):
                return f"  an array of numbers is wanted, but yours is {_shown(answer)}"
            return self.judge(numbers, *copy.deepcopy(arguments))
        return _difference(answer, self.solve(*copy.deepcopy(arguments)), self.tolerance)

    def _hint(self, cases: Sequence[tuple], answers: list) -> str:
        for hint, mistake in self.mistakes.items():
            if all(
                _equal(answer, mistake(*copy.deepcopy(arguments)), self.tolerance)
                for arguments, answer in zip(cases, answers, strict=True)
            ):
                return f"\nHint: {hint}"
        return ""

    def _failed(self, function: Callable, arguments: tuple, error: BaseException) -> str:
        try:
            inspect.signature(function).bind(*arguments)
        except TypeError:
            wanted = ", ".join(self.names)
            return f"The function must take {len(arguments)} argument(s): {wanted}."
        except ValueError:  # a function without a readable signature
            pass
        kind, what = type(error).__name__, str(error) or "no more is said"
        return f"It fails{self._for(arguments)}{_place(function, error)}:\n  {kind}: {what}"

    def _for(self, arguments: tuple) -> str:
        return " for " + ", ".join(
            f"{name} = {_shown(value)}" for name, value in zip(self.names, arguments, strict=True)
        )


def _place(function: Callable, error: BaseException) -> str:
    """Return the last line of the learner's own code that was running, in words."""
    file = getattr(getattr(function, "__code__", None), "co_filename", None)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename == file:
            line = linecache.getline(frame.filename, frame.lineno).strip()
            return f", at line {frame.lineno} of its cell, `{line}`"
    return ""


def _difference(answer: Any, expected: Any, tolerance: float) -> str:
    """Return in words how an answer differs from what was expected; "" if it does not."""
    if isinstance(expected, str | list):
        same = _equal(answer, expected)
        return "" if same else f"  yours: {_shown(answer)}\n  right: {_shown(expected)}"
    try:
        array = np.asarray(answer, dtype=float)
    except (TypeError, ValueError):
        return f"  yours is {type(answer).__name__}: {_shown(answer)}\n  right: {_shown(expected)}"
    right = np.asarray(expected, dtype=float)
    if array.shape != right.shape:
        return (
            f"  yours has the shape {array.shape}: {_shown(answer)}\n  right: {right.shape}: {_shown(right)}"
        )
    if _equal(array, right, tolerance):
        return ""
    if right.ndim == 0 or right.size <= 8:
        return f"  yours: {_shown(array)}\n  right: {_shown(right)}"
    off = ~np.isclose(array, right, rtol=tolerance, atol=tolerance)
    place = tuple(int(i) for i in np.argwhere(off)[0])
    return (
        f"  {int(off.sum())} of {off.size} numbers differ; the first is at {list(place)}:\n"
        f"  yours: {_shown(array[place])}\n  right: {_shown(right[place])}"
    )


def _equal(one: Any, other: Any, tolerance: float = 1e-8) -> bool:
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(
            _equal(a, b, tolerance) for a, b in zip(one, other, strict=True)
        )
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key], tolerance) for key in one)
    try:
        one, other = np.asarray(one, dtype=float), np.asarray(other, dtype=float)
    except (TypeError, ValueError):
        return type(one) is type(other) and bool(np.all(one == other))
    return one.shape == other.shape and bool(np.allclose(one, other, rtol=tolerance, atol=tolerance))


def _shown(value: Any) -> str:
    """Return a value as a learner can read it on one line or a few."""
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_shown(item)}" for key, item in value.items()) + "}"
    if isinstance(value, np.ndarray) or (np.isscalar(value) and not isinstance(value, str | bool)):
        if np.size(value) > 40:
            return f"an array of shape {np.shape(value)}"
        return np.array2string(np.asarray(value), precision=4, suppress_small=True, separator=", ")
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."
