"""Ask a learner's function, and read what comes back. Her code runs here, and in no other part of the checks.

A function may return, raise or change anything, also objects whose own methods fail. What was read is plain
and a copy, so what compares or prints it needs no care.
"""

import copy
import inspect
import linecache
import random
import sys
import traceback
import warnings
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

# No right answer is nearly as large, or nested as deep. What is larger is neither copied nor shown.
LARGEST = 10_000
DEEPEST = 20


@dataclass(frozen=True, eq=False)
class Other:
    """An answer that no right one is like, in words that fit behind "yours is"."""

    words: str

    def __repr__(self) -> str:
        return f"<{self.words}>"


class _NotRead(Exception):
    """An answer can't be read; the text goes on behind its kind."""


def ask(function: Callable, arguments: tuple) -> tuple[Any, tuple]:
    """Return a function's answer to copies of these arguments, and what it left of them, both as read().

    ... is the answer of a function that is not written yet. What else the function raises is raised.
    """
    given = copy.deepcopy(arguments)
    with settings_kept():
        try:
            answer = function(*given)
        except NotImplementedError:
            answer = ...
    return read(answer), tuple(map(read, given))


@contextmanager
def settings_kept() -> Iterator[None]:
    """Leave the settings that all cells share as they were, whatever is set meanwhile; exit() raises."""
    limit, filters, outputs = sys.getrecursionlimit(), list(warnings.filters), (sys.stdout, sys.stderr)
    # NumPy's old random numbers are the ones that all cells share.
    generator, state = np.random.get_bit_generator(), np.random.get_state(legacy=False)  # noqa: NPY002
    python_state = random.getstate()
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell is not None:
        shell.ask_exit = _exit  # IPython's own exit() would end the kernel, and all that is in it
    with np.errstate(), np.printoptions():
        try:
            yield
        finally:
            sys.setrecursionlimit(limit)  # first, for a low one would stop the rest
            if shell is not None:
                vars(shell).pop("ask_exit", None)
            sys.stdout, sys.stderr = outputs
            warnings.filters[:] = filters  # catch_warnings would show a warning anew for each input
            random.setstate(python_state)
            np.random.set_bit_generator(generator)
            np.random.set_state(state)  # noqa: NPY002


def _exit() -> None:
    raise SystemExit


def _attempt(code: Callable[[], Any], otherwise: Any) -> Any:
    """Return what some code returns, which may be a learner's, or something else if it fails."""
    try:
        return code()
    except KeyboardInterrupt:
        raise
    except BaseException:
        return otherwise


@settings_kept()
def read(value: Any) -> Any:
    """Return a copy of what a value holds, or an Other.

    It is made of None, ..., bool, int, float and str, arrays and single numbers of NumPy (numbers and words),
    and list, tuple, set, frozenset and dict of all these.
    """
    try:
        return _plain(value, 0, [LARGEST])
    except KeyboardInterrupt:
        raise
    except _NotRead as problem:
        return Other(f"{_kind(value)} {problem}")
    except BaseException as error:
        return Other(f"{_kind(value)}, which can't be read: {shorten(said(error))}")


def _plain(value: Any, depth: int, room: list[int]) -> Any:
    """Read a value that lies so deep; room holds how many more entries are read."""
    if depth > DEEPEST:
        raise _NotRead(f"nested more than {DEEPEST} deep")
    _take(room, 1)

    def entries(values: Any) -> list:
        return [_plain(entry, depth + 1, room) for entry in values]

    if value is None or value is ... or isinstance(value, bool):
        return value
    # The methods of the built-in types, since a learner's own type may have others.
    if isinstance(value, np.ndarray | np.generic):
        return _array(np.asarray(value), depth, room)
    if isinstance(value, str):
        return str.__str__(value)[:1000]
    if isinstance(value, int):
        return _whole(int.__int__(value))
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, Real | Decimal):  # a fraction, for instance
        return float(value)
    if isinstance(value, list):
        return entries(list.__iter__(value))
    if isinstance(value, tuple):
        return tuple(entries(tuple.__iter__(value)))
    if isinstance(value, frozenset):
        return frozenset(entries(frozenset.__iter__(value)))
    if isinstance(value, set):
        return set(entries(set.__iter__(value)))
    if isinstance(value, dict):
        return dict(entries(dict.items(value)))
    if hasattr(type(value), "__array__"):
        return _array(np.asarray(value), depth, room)
    return _other(value, entries, room)


def _take(room: list[int], entries: int) -> None:
    if entries > room[0]:
        raise _NotRead(f"with more than {LARGEST:,} entries")
    room[0] -= entries


def _array(array: np.ndarray, depth: int, room: list[int]) -> Any:
    """Read an array; one of a single number is that number."""
    name = f"an array of {array.dtype.name} of shape {array.shape}"
    if array.size > LARGEST or array.nbytes > 8 * LARGEST:  # known without reading it
        return Other(f"{name}, which is too large")
    if array.dtype.kind == "O":
        held = _plain(array.tolist(), depth + 1, room)
        return held if not array.ndim else Other(name) if numbers(held) is None else numbers(held)
    if array.dtype.kind not in "biufU":
        return Other(name if array.ndim else f"{array.dtype.name}: {_represented(array.item())}")
    _take(room, array.size)
    if array.ndim:
        return array.copy()
    # Among others a plain number is easier to read; alone it keeps its precision.
    return array.item() if depth or array.dtype.kind == "U" else array.copy()[()]


def _whole(number: int) -> Any:
    if number.bit_length() > 1000:  # beyond the largest float; Python itself refuses to print more digits
        return Other(f"a whole number of about {round(number.bit_length() * np.log10(2)):,} digits")
    return number if number.bit_length() < 64 else float(number)  # all that NumPy takes for numbers


def _other(value: Any, entries: Callable, room: list[int]) -> Any:
    """Read what is no number, word, array or one of Python's usual collections."""
    if isinstance(value, Coroutine):
        value.close()  # or Python warns that nobody waited for it
        return Other(f"{_kind(value)}: leave out the word `async`")
    if isinstance(value, Iterator):  # it may be endless
        return Other(f"{_kind(value)}, which makes its values only when asked: return a list or an array")
    if callable(value):
        name = _attempt(lambda: shorten(value.__name__), "")
        return Other(f"{_kind(value)}: {name}".removesuffix(": "))
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):  # range, deque, …
        return entries(iter(value))
    if hasattr(type(value), "__len__"):
        _take(room, len(value))
    return Other(f"{_kind(value)}: {_represented(value)}")


def numbers(value: Any) -> np.ndarray | None:
    """Return what was read as an array of real numbers; None if it holds anything else."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError):  # rows of different lengths, for instance
        return None
    return array if array.dtype.kind in "biuf" else None


def _kind(value: Any) -> str:
    return _attempt(lambda: cut(type(value).__name__), "an object")


def _represented(value: Any) -> str:
    return _attempt(lambda: shorten(repr(value)), "its own text can't be read")


@settings_kept()
def said(error: BaseException) -> str:
    """Return the kind and the text of an exception, which a few lines are enough of."""
    text = _attempt(lambda: cut(str(error)), "its own text can't be read")
    return f"{_kind(error)}: {text}".removesuffix(": ")


def shorten(text: str) -> str:
    """Return at most 120 characters of a text, on one line."""
    text = str.__str__(text)  # a learner's own kind of str may do anything
    line = _printable(" ".join(text[:1000].split()))
    return line if len(line) <= 120 and len(text) <= 1000 else line[:117] + "..."


def cut(text: str, lines: int = 4, width: int = 120) -> str:
    """Return the first lines of a text, as far as they have room."""
    text = str.__str__(text).strip()
    begun = "\n".join(line[:width] for line in text[: 2 * lines * width].split("\n")[:lines])
    return _printable(begun) if begun == text else f"{_printable(begun)} ..."


def _printable(text: str) -> str:
    """Escape what can't be printed or would change the print, as in coloured texts."""
    return "".join(sign if sign.isprintable() or sign == "\n" else ascii(sign)[1:-1] for sign in text)


@settings_kept()
def place(function: Callable, error: BaseException) -> str:
    """Return the last line of the learner's own code that was running, in words."""

    def words() -> str:
        file = function.__code__.co_filename
        lines = [
            line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == file
        ]
        if not lines:
            return ""
        return f", at line {lines[-1]} of its cell, `{cut(linecache.getline(file, lines[-1]), width=80)}`"

    return _attempt(words, "")


@settings_kept()
def takes(function: Callable, count: int) -> bool:
    """Return whether a function can be called with so many arguments; True where that can't be known."""
    signature = _attempt(lambda: inspect.signature(function), None)
    return signature is None or _attempt(lambda: signature.bind(*range(count)), None) is not None
