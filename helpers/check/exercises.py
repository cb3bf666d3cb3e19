"""Check what a learner wrote: on inputs she has not seen, with the difference and a hint if it is wrong.

An exercise holds a reference solution, inputs, and functions that make the typical mistakes. Whoever answers
like one of those gets its hint. Nothing that her function does ends the cell with a traceback.
"""

import copy
import inspect
import linecache
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from helpers.check import notes

# Answers up to this size are shown whole.
SHOWN_WHOLE = 16


@dataclass(frozen=True)
class Exercise:
    """One exercise; call it with the learner's function.

    name: what the notebooks call. notebook: its number, as "02". title: a few words for check.progress().
    solve: the reference; the names of its arguments are shown. inputs: returns the arguments of each call.
    mistakes: a hint for each typical wrong function. judge: for exercises with many right answers, returns
    what is wrong with an answer to some arguments, or "". tolerance: relative and absolute; single precision
    is right, a rounded answer is not.
    """

    name: str
    notebook: str
    title: str
    solve: Callable
    inputs: Callable[[], Sequence[tuple]]
    mistakes: Mapping[str, Callable]
    judge: Callable[..., str] | None = None
    tolerance: tuple[float, float] = (1e-6, 1e-6)
    names: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", tuple(inspect.signature(self.solve).parameters))

    def __call__(self, function: Any = None) -> None:
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
                answer = ...
            except (Exception, SystemExit) as error:
                return self._failed(function, arguments, error)
            if isinstance(answer, np.generic) or (isinstance(answer, np.ndarray) and not answer.ndim):
                answer = answer.item()  # a plain number or word
            if answer is ...:
                return "Not yet: the function returns nothing so far. Write it, run its cell, and see."
            changed = [
                name for name, *pair in zip(self.names, given, arguments, strict=True) if not _equal(*pair)
            ]
            if answer is None:
                return self._nothing(arguments, changed)
            if changed:
                return (
                    f"It changes its input {changed[0]}{self._for(arguments)}\n"
                    f"Work on a copy, {changed[0]}.copy()."
                )
            answers.append(answer)
        for arguments, answer in zip(cases, answers, strict=True):
            wrong = self._difference(arguments, answer)
            if wrong:
                return f"Not right yet{self._for(arguments)}\n{wrong}{self._hint(cases, answers)}"
        noted = notes.note(self.notebook, self.name)
        return f"✓ Right, for all {len(cases)} inputs that were tried.{noted}"

    def _nothing(self, arguments: tuple, changed: Sequence[str]) -> str:
        """Say that a function that was written has returned None."""
        right = self.solve(*copy.deepcopy(arguments))
        wanted = "" if self.judge or np.size(right) > SHOWN_WHOLE else "\n" + _labelled("right", right)
        also = f" It also changes its input {changed[0]}." if changed else ""
        return (
            f"It returns None{self._for(arguments)}{wanted}\n"
            f"Does every way through it end in a `return`? To print is not to return.{also}"
        )

    def _difference(self, arguments: tuple, answer: Any) -> str:
        if self.judge is not None:
            numbers = _numbers(answer)
            if numbers is None:
                return f"  real numbers are wanted, but yours is {_kind(answer)}"
            if not np.isfinite(numbers).all():
                return "  yours holds nan or inf, which are no numbers"
            return self.judge(numbers, *copy.deepcopy(arguments))
        return _difference(answer, self.solve(*copy.deepcopy(arguments)), self.tolerance)

    def _hint(self, cases: Sequence[tuple], answers: list) -> str:
        for hint, mistake in self.mistakes.items():
            with np.errstate(all="ignore"):
                made = [mistake(*copy.deepcopy(arguments)) for arguments in cases]
            if all(_equal(*pair, self.tolerance) for pair in zip(answers, made, strict=True)):
                return f"\nHint: {hint}"
        return ""

    def _failed(self, function: Callable, arguments: tuple, error: BaseException) -> str:
        try:
            inspect.signature(function).bind(*arguments)
        except TypeError:
            count = "1 argument" if len(arguments) == 1 else f"{len(arguments)} arguments"
            return f"The function must take {count}: {', '.join(self.names)}."
        except ValueError:  # a function without a readable signature
            pass
        said = f"{type(error).__name__}: {error}".removesuffix(": ")
        help_ = ""
        if isinstance(error, NameError):
            help_ = (
                "\nIf the notebook defines it: run the cells above first (Run › Run All Above Selected Cell)."
            )
        return (
            f"It fails{_place(function, error)}:\n  {said}\nThat was{self._for(arguments).rstrip(':')}{help_}"
        )

    def _for(self, arguments: tuple) -> str:
        """Return the input in words: on one line if it has room there, else an argument a line."""
        lines = [
            f"{name} = {_shown(value, indent=len(name) + 5)}"
            for name, value in zip(self.names, arguments, strict=True)
        ]
        if sum(map(len, lines)) < 80 and not any("\n" in line for line in lines):
            return f" for {', '.join(lines)}:"
        return " for\n  " + "\n  ".join(lines)


def _place(function: Callable, error: BaseException) -> str:
    """Return the last line of the learner's own code that was running, in words."""
    file = getattr(getattr(function, "__code__", None), "co_filename", None)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename == file:
            line = linecache.getline(frame.filename, frame.lineno).strip()
            return f", at line {frame.lineno} of its cell, `{line}`"
    return ""


def _numbers(value: Any) -> np.ndarray | None:
    """Return real numbers as an array; None for anything else, such as words or complex numbers."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            array = np.asarray(value)
    except (TypeError, ValueError):
        return None
    return array.astype(float) if array.dtype.kind in "biuf" else None


def _kind(value: Any) -> str:
    """Return in words what a value is that holds no real numbers."""
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype.name} of shape {value.shape}"
    return f"{type(value).__name__}: {_shown(value)}"


def _difference(answer: Any, expected: Any, tolerance: tuple[float, float]) -> str:
    """Return in words how an answer differs from what was expected; "" if it does not."""
    if isinstance(expected, str | list):
        if _equal(answer, expected):
            return ""
        wanted = type(expected).__name__
        fits = isinstance(answer, str if wanted == "str" else list | np.ndarray)
        kind = "" if fits else f"  yours is {type(answer).__name__}, wanted is {wanted}\n"
        return f"{kind}{_labelled('yours', answer)}\n{_labelled('right', expected)}"
    numbers, right = _numbers(answer), np.asarray(expected, dtype=float)
    if numbers is None:
        return f"  yours is {_kind(answer)}\n{_labelled('right', right)}"
    if numbers.shape != right.shape:
        return (
            f"  yours has the shape {numbers.shape}, wanted is {right.shape}:\n"
            f"{_labelled('yours', numbers)}\n{_labelled('right', right)}"
        )
    if _equal(numbers, right, tolerance):
        return ""
    off = ~np.isclose(numbers, right, *tolerance)
    if right.size <= SHOWN_WHOLE:
        return _pair(numbers, right, off)
    place = tuple(int(i) for i in np.argwhere(off)[0])
    return (
        f"  {int(off.sum())} of {off.size} numbers differ; the first is at {list(place)}:\n"
        f"{_pair(numbers[place], right[place], off[place])}"
    )


def _pair(numbers: np.ndarray, right: np.ndarray, off: np.ndarray) -> str:
    """Return both answers on lines of their own, with as many digits as it takes to see the difference."""
    for precision in (4, 7, 17):
        yours, wanted = (_labelled(*one, precision) for one in (("yours", numbers), ("right", right)))
        if yours[9:] != wanted[9:]:
            break
    nearly = np.allclose(numbers[off], right[off], rtol=1e-2, atol=1e-4)
    return f"{yours}\n{wanted}" + ("\n  Nearly: is anything rounded on the way?" if nearly else "")


def _equal(one: Any, other: Any, tolerance: tuple[float, float] = (1e-8, 1e-8)) -> bool:
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(
            _equal(a, b, tolerance) for a, b in zip(one, other, strict=True)
        )
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key], tolerance) for key in one)
    numbers, others = _numbers(one), _numbers(other)
    if numbers is None or others is None:
        alike = type(one) is type(other) and np.shape(one) == np.shape(other)
        return alike and bool(np.all(one == other))
    return numbers.shape == others.shape and bool(np.allclose(numbers, others, *tolerance, equal_nan=True))


def _labelled(label: str, value: Any, precision: int = 4) -> str:
    text = _shown(value, indent=len(label) + 4, precision=precision, plain=True)
    return f"  {label}: {text}"


def _shown(value: Any, indent: int = 0, precision: int = 4, plain: bool = False) -> str:
    """Return a value as a learner can read it; an array so that it can be told from a list, unless plain."""
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_shown(item)}" for key, item in value.items()) + "}"
    if isinstance(value, float | np.floating) and not plain:
        return f"{value:.6g}"
    if isinstance(value, np.ndarray | np.generic) or (plain and isinstance(value, int | float)):
        array = np.asarray(value)
        before = "" if plain or not array.ndim else "array("

        def digits(number: float) -> str:
            text = f"{number:.{precision}g}"
            # What is shown of the input may be typed in again, and must not become whole numbers then.
            return text + "." if before and text.lstrip("-").isdigit() else text

        width = max(map(len, map(digits, array.flat)), default=0) if array.dtype.kind == "f" else 0
        text = np.array2string(
            array,
            separator=", ",
            threshold=24,
            prefix=" " * indent + before,
            formatter={"float_kind": lambda number: digits(number).rjust(width)},
        )
        return f"{before}{text})" if before else text
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."
