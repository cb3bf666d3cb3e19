"""Checks of what callers pass in. Every message names the argument, the value, and what is allowed.

A wrong kind (a string, None, a complex number, a bool where a number is wanted) raises TypeError,
a wrong value ValueError. The mathematics modules call these first and then trust their input.
"""

from collections.abc import Callable
from typing import Any

import numpy as np


def whole_number(name: str, value: Any, *, at_least: int = 0) -> int:
    """Return value as an int, or raise: bools and floats are no counts."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be a whole number of at least {at_least}, but got {value!r}")
    if value < at_least:
        raise ValueError(f"{name} must be a whole number of at least {at_least}, but got {value}")
    return int(value)


def even_number(name: str, value: Any, *, at_least: int = 2) -> int:
    """Return value as an int, or raise unless it is even."""
    number = whole_number(name, value, at_least=at_least)
    if number % 2:
        raise ValueError(f"{name} must be even, since dimensions come in pairs, but got {number}")
    return number


def real_number(name: str, value: Any, *, positive: bool = False) -> float:
    """Return value as a float, or raise unless it is finite (and above 0 if asked)."""
    allowed = "a finite number above 0" if positive else "a finite number"
    number = isinstance(value, int | float | np.integer | np.floating)
    if isinstance(value, bool | np.bool_) or not number:
        raise TypeError(f"{name} must be {allowed}, but got {value!r}")
    try:
        result = float(value)
    except OverflowError:  # a Python int beyond 1.8e308
        result = np.inf
    if not np.isfinite(result) or (positive and result <= 0):
        raise ValueError(f"{name} must be {allowed}, but got {value}")
    return result


def choice(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    """Return value, or raise unless it is one of the allowed words."""
    words = ", ".join(repr(word) for word in allowed)
    if not isinstance(value, str):
        raise TypeError(f"{name} must be one of {words}, but got {value!r}")
    if value not in allowed:
        raise ValueError(f"{name} must be one of {words}, but got {value!r}")
    return value


def flag(name: str, value: Any) -> bool:
    """Return value as a bool, or raise unless it is one."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, but got {value!r}")
    return bool(value)


def real_array(
    name: str, value: Any, *, ndim: int | None = None, min_ndim: int = 0, masked: bool = False
) -> np.ndarray:
    """Return value as a floating array of its own precision (integers become float64), or raise.

    masked: allow -inf, which stands for "may not attend".
    """
    array = _array(name, value, "iuf", "an array of real numbers", ndim=ndim, min_ndim=min_ndim)
    if array.dtype.kind != "f":
        array = array.astype(np.float64)
    if not _all_finite(array):
        wrong = ~np.isfinite(array) & ~(masked & (array == -np.inf))
        allowed = "finite numbers or -inf" if masked else "finite numbers"
        _refuse_first(name, array, wrong, allowed)
    return array


def int_array(name: str, value: Any, *, ndim: int | None = None) -> np.ndarray:
    """Return value as an integer array, or raise: whole floats are refused too, since they are a slip."""
    array = _array(name, value, "iu", "an array of integers", ndim=ndim, min_ndim=0)
    return array.astype(np.int64) if array.dtype.kind == "f" else array  # an empty list is legal


def bool_array(name: str, value: Any) -> np.ndarray:
    """Return value as a bool array, or raise: 0 and 1 are refused, since masks are often the other way."""
    allowed = "an array of True (may attend) and False"
    array = _array(name, value, "b", allowed, ndim=None, min_ndim=0)
    return array.astype(bool)


def callable_argument(name: str, value: Any) -> Callable:
    """Return value, or raise unless it can be called."""
    if not callable(value):
        raise TypeError(f"{name} must be a function, but got {value!r}")
    return value


def same_width(name: str, width: int, other_name: str, other_width: int) -> None:
    """Raise unless two last dimensions agree."""
    if width != other_width:
        raise ValueError(
            f"{name} must have the width of {other_name}, {other_width}, but its width is {width}"
        )


def finite_result(name: str, result: np.ndarray, what: str) -> None:
    """Raise when finite input gave a result too large for its precision; name says whose fault it is."""
    if not _all_finite(result):
        largest = np.finfo(result.dtype).max
        raise ValueError(f"{name} must give finite results, but {what} overflow(s) {largest:.3g}")


def keys_for_queries(n_queries: Any, n_keys: Any) -> tuple[int, int]:
    """Return both counts, or raise unless n_keys >= n_queries >= 0 (no n_keys: as many as queries)."""
    n_queries = whole_number("n_queries", n_queries)
    n_keys = n_queries if n_keys is None else whole_number("n_keys", n_keys)
    if n_keys < n_queries:
        raise ValueError(
            f"n_keys must be at least n_queries = {n_queries}, since queries come last, but got {n_keys}"
        )
    return n_queries, n_keys


def _array(name: str, value: Any, kinds: str, allowed: str, *, ndim: int | None, min_ndim: int) -> np.ndarray:
    try:
        array = np.asarray(value)
    except ValueError as error:  # rows of different lengths
        raise ValueError(f"{name} must be {allowed} with rows of one length, but got {value!r}") from error
    if array.dtype.kind not in kinds and not _is_empty_sequence(value, array):
        raise TypeError(f"{name} must be {allowed}, but got {_shown(value)} of type {array.dtype}")
    if ndim is not None and array.ndim != ndim:
        raise ValueError(
            f"{name} must have {ndim} dimension(s), but got an array of shape {array.shape}: {_shown(value)}"
        )
    if array.ndim < min_ndim:
        raise ValueError(
            f"{name} must have at least {min_ndim} dimensions, but got shape {array.shape}: {_shown(value)}"
        )
    return array


def _is_empty_sequence(value: Any, array: np.ndarray) -> bool:
    """[] becomes a float array in NumPy; as a list of no integers or no bools it is legal."""
    return isinstance(value, list | tuple) and array.size == 0


def _all_finite(array: np.ndarray) -> bool:
    """True when nothing is NaN or infinite. Two reductions are twice as fast as a mask of the whole array."""
    return array.size == 0 or bool(np.isfinite(array.max()) and np.isfinite(array.min()))


def _refuse_first(name: str, array: np.ndarray, wrong: np.ndarray, allowed: str) -> None:
    if wrong.any():
        index = tuple(int(i) for i in np.argwhere(wrong)[0])
        place = f"{name}[{', '.join(map(str, index))}]" if index else name
        raise ValueError(f"{name} must hold {allowed}, but {place} is {array[index]}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
