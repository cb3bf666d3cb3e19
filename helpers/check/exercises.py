"""Check what a learner wrote: on inputs she has not seen, with the difference and a hint if it is wrong.

An exercise holds a reference solution, inputs, and functions that make the typical mistakes. Whoever answers
like one of those gets its hint. Nothing that her function does ends the cell with a traceback: her code runs
in `answers`, and what comes from there is plain.
"""

import copy
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from helpers.check import answers, notes

# Answers up to this size are shown whole.
SHOWN_WHOLE = 16


@dataclass(frozen=True)
class Exercise:
    """One exercise; call it with the learner's function.

    name: what the notebooks call. notebook: its number, as "02". title: a few words for check.progress().
    solve: the reference; the names of its arguments are shown. inputs: returns the arguments of each call.
    mistakes: a hint for each typical wrong function. judge: for exercises with many right answers, returns
    what is wrong with an answer to some arguments, or "". tolerance: relative and absolute; what was computed
    in single precision is right, a rounded answer is not.
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
        try:
            return self._verdict(function)
        except KeyboardInterrupt as error:
            return f"Stopped{answers.place(function, error)}. Does every loop come to its end?"

    def _verdict(self, function: Any) -> str:
        if not callable(function):
            return (
                f"Give check.{self.name} the function itself, without brackets behind its name: "
                f"it got {_shown(answers.read(function))}."
            )
        cases, found = self.inputs(), []
        for arguments in cases:
            try:
                answer, left = answers.ask(function, arguments)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # SystemExit, too
                return self._failed(function, arguments, error)
            no_answer = self._no_answer(arguments, answer, left)
            if no_answer:
                return no_answer
            found.append(answer)
        return self._judged(cases, found)

    @np.errstate(all="ignore")
    def _no_answer(self, arguments: tuple, answer: Any, left: tuple) -> str:
        """Say why there is nothing to judge; "" if there is. left: what the arguments are after the call."""
        if answer is ...:
            return "Not yet: the function returns nothing so far. Write it, run its cell, and see."
        changed = [name for name, *pair in zip(self.names, left, arguments, strict=True) if not _equal(*pair)]
        if answer is None:
            return self._nothing(arguments, changed)
        if changed:
            return (
                f"It changes its input {changed[0]}{self._for(arguments)}\n"
                f"Work on a copy, {changed[0]}.copy()."
            )
        return ""

    @np.errstate(all="ignore")  # a wrong answer may be as large as it likes
    def _judged(self, cases: Sequence[tuple], found: list) -> str:
        for arguments, answer in zip(cases, found, strict=True):
            wrong = self._difference(arguments, answer)
            if wrong:
                return f"Not right yet{self._for(arguments)}\n{wrong}{self._hint(cases, found)}"
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
        right = self.solve(*copy.deepcopy(arguments))
        if self.judge is None:
            return _difference(answer, right, self.tolerance)
        numbers = answers.numbers(answer)
        if numbers is None:
            shape = " × ".join(map(str, np.shape(right)))
            return f"  {shape} real numbers are wanted, but yours is {_kind(answer)}"
        if not np.isfinite(numbers).all():
            return "  yours holds nan or inf, which are no numbers"
        return self.judge(numbers.astype(float), *copy.deepcopy(arguments))

    def _hint(self, cases: Sequence[tuple], found: list) -> str:
        for hint, mistake in self.mistakes.items():
            made = [answers.read(mistake(*copy.deepcopy(arguments))) for arguments in cases]
            if all(_equal(*pair, self.tolerance) for pair in zip(found, made, strict=True)):
                return f"\nHint: {hint}"
        return ""

    def _failed(self, function: Callable, arguments: tuple, error: BaseException) -> str:
        if issubclass(type(error), TypeError) and not answers.takes(function, len(arguments)):
            count = "1 argument" if len(arguments) == 1 else f"{len(arguments)} arguments"
            return f"The function must take {count}: {', '.join(self.names)}."
        text = answers.said(error).replace("\n", "\n  ")
        return (
            f"It fails{answers.place(function, error)}:\n  {text}\n"
            f"That was{self._for(arguments).rstrip(':')}{_help(error)}"
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


def _help(error: BaseException) -> str:
    if issubclass(type(error), NameError):
        return "\nIf the notebook defines it: run the cells above first (Run › Run All Above Selected Cell)."
    if issubclass(type(error), SystemExit):
        return "\n`exit()` and `quit()` end Python itself; a function ends with `return`."
    return ""


def _kind(value: Any) -> str:
    """Return in words what a value is that holds no real numbers."""
    if isinstance(value, answers.Other):
        return value.words
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype.name} of shape {value.shape}"
    return f"{type(value).__name__}: {_shown(value)}"


def _difference(answer: Any, expected: Any, tolerance: tuple[float, float]) -> str:
    """Return in words how an answer differs from what was expected; "" if it does not."""
    if isinstance(answer, answers.Other):
        return f"  yours is {answer.words}\n{_labelled('right', expected)}"
    if isinstance(expected, str | list):
        if _equal(answer, expected):
            return ""
        wanted = type(expected).__name__
        fits = isinstance(answer, str if wanted == "str" else list | np.ndarray)
        kind = "" if fits else f"  yours is {type(answer).__name__}, wanted is {wanted}\n"
        return f"{kind}{_labelled('yours', answer)}\n{_labelled('right', expected)}"
    numbers, right = answers.numbers(answer), np.asarray(expected, dtype=float)
    if numbers is None:
        return f"  yours is {_kind(answer)}\n{_labelled('right', right)}"
    tolerance, numbers = _allowed(numbers, tolerance), numbers.astype(float)
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


def _allowed(numbers: np.ndarray, tolerance: tuple[float, float]) -> tuple[float, float]:
    """Return the tolerance for an answer of this precision: half precision can't be as near as others."""
    if numbers.dtype.kind != "f":
        return tolerance
    precision = np.finfo(numbers.dtype)
    return max(tolerance[0], float(precision.eps)), max(tolerance[1], float(precision.smallest_subnormal))


def _pair(numbers: np.ndarray, right: np.ndarray, off: np.ndarray) -> str:
    """Return both answers on lines of their own, with as many digits as it takes to see the difference."""
    for precision in (4, 7, 17):
        yours, wanted = (_labelled(*one, precision) for one in (("yours", numbers), ("right", right)))
        if yours[9:] != wanted[9:]:
            break
    nearly = np.allclose(numbers[off], right[off], rtol=1e-2, atol=1e-4)
    return f"{yours}\n{wanted}" + ("\n  Nearly: is anything rounded on the way?" if nearly else "")


def _equal(one: Any, other: Any, tolerance: tuple[float, float] = (1e-8, 1e-8)) -> bool:
    """Return whether two values that were read are alike; None, sets and Others are so by `==`."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(
            _equal(a, b, tolerance) for a, b in zip(one, other, strict=True)
        )
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key], tolerance) for key in one)
    numbers, others = answers.numbers(one), answers.numbers(other)
    if numbers is None or others is None:
        return type(one) is type(other) and np.array_equal(one, other)
    tolerance, numbers, others = _allowed(numbers, tolerance), numbers.astype(float), others.astype(float)
    return numbers.shape == others.shape and bool(np.allclose(numbers, others, *tolerance, equal_nan=True))


def _labelled(label: str, value: Any, precision: int = 4) -> str:
    text = _shown(value, indent=len(label) + 4, precision=precision, plain=True)
    return f"  {label}: {text}"


def _shown(value: Any, indent: int = 0, precision: int = 4, plain: bool = False) -> str:
    """Return a value as a learner can read it; an array so that it can be told from a list, unless plain."""
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

        width = max(map(len, map(digits, array.ravel())), default=0) if array.dtype.kind == "f" else 0
        text = np.array2string(
            array,
            separator=", ",
            threshold=24,
            prefix=" " * indent + before,
            formatter={"float_kind": lambda number: digits(number).rjust(width)},
        )
        text = answers.cut(text, lines=10)  # many short dimensions are not shortened
        return f"{before}{text})" if before else text
    return answers.shorten(repr(value))
