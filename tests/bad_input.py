"""What "refused" means in this course: the right kind of error, and a message that helps.

A helpful message names the argument, shows the offending value and says what would have been allowed.
"""

import re

import numpy as np
import pytest

# Words with which a message says what is allowed.
ALLOWED = (
    r"\b(must|has to|have to|need|needs|expected|expects|allowed|between|at least|one of|only|legal|give)\b"
)

# Values that are no number at all, and values that are a number but no count.
NOT_A_NUMBER = {"str": "7", "None": None, "complex": 2j, "bool": True, "list": [2]}
NOT_A_COUNT = {**NOT_A_NUMBER, "float": 2.0, "numpy_float": np.float64(2.0)}
NOT_A_FLAG = {"str": "yes", "None": None, "float": 0.5, "list": [True]}
NOT_FINITE = {"nan": np.nan, "inf": np.inf, "minus_inf": -np.inf}


def cases(values, *, without=()):
    """The entries of a table of values as pytest parameters with readable names."""
    return [pytest.param(value, id=name) for name, value in values.items() if name not in without]


def wrong_kinds(shape):
    """Arrays of this shape that hold no real numbers (and None, and a text in place of an array)."""
    return {
        "None": None,
        "text": "abc",
        "strings": np.full(shape, "a"),
        "complex": np.full(shape, 1j),
        "objects": np.full(shape, None, dtype=object),
        "bools": np.ones(shape, dtype=bool),
    }


def with_one(array, value):
    """A copy of the array in which the last number is this value."""
    spoiled = np.array(array)
    spoiled.flat[-1] = value
    return spoiled


def frozen(array):
    """A copy that can't be written to, so that a function that changes its input fails."""
    array = np.array(array)
    array.setflags(write=False)
    return array


def spellings(value):
    """The ways in which a message may show a value."""
    if isinstance(value, np.ndarray):
        kind = {"U": "str", "O": "object"}.get(value.dtype.kind, value.dtype.name)
        return {
            str(value.dtype),
            value.dtype.name,
            kind,
            *(repr(entry) for entry in value.ravel()[:1].tolist()),
        }
    return {str(value), repr(value)} | (
        {type(value).__name__} if not isinstance(value, int | float) else set()
    )


def shows(message, text):
    """Is this text in the message as a whole word or number (`3` is not in `0.35`)?"""
    return re.search(rf"(?<![\w.]){re.escape(text)}(?!\w|\.\d)", message) is not None


def refuses(call, error, argument, *values):
    """`call` raises `error`; the message names the argument, shows each value and says what is allowed."""
    with pytest.raises(error) as caught:
        call()
    message = str(caught.value)
    assert shows(message, argument), f"the argument {argument!r} is not named in: {message}"
    for value in values:
        assert any(shows(message, text) for text in spellings(value)), f"{value!r} is not shown in: {message}"
    assert re.search(ALLOWED, message), f"what is allowed is not said in: {message}"
    return message


def finite_or_refused(call):
    """For input at the edge of float64: an answer without NaN or inf, or a ValueError, but no third thing."""
    try:
        result = call()
    except ValueError:
        return None
    assert np.all(np.isfinite(result))
    return result
