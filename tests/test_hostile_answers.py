"""The checks keep their promise whatever a function returns, raises or changes: one kind, short sentence."""

import decimal
import fractions
import functools
import os
import random
import re
import signal
import sys
import threading
import time
import warnings

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient
from small_exercises import double

from helpers import check
from helpers.check import EXERCISES, notes
from helpers.check.exercises import Exercise


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A place of the test's own for what is solved."""
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "solved"))
    return tmp_path / "solved"


def listed():
    return Exercise(
        "listed",
        "99",
        "a list of the numbers below n",
        lambda n: list(range(n)),
        lambda: [(3,), (2,)],
        {"not a set.": lambda n: set(range(n))},
    )


def word():
    return Exercise("word", "99", "a word", lambda n: "a" * n, lambda: [(3,), (2,)], {"b": lambda n: "b" * n})


# Numbers, a list, a word, and an answer that is judged: all exercises are of these kinds.
OF_EACH_KIND = {"numbers": double(), "list": listed(), "word": word(), "judged": EXERCISES["look_ahead"]}


def verdict_of(exercise, function):
    """The verdict; an error instead is not shown to pytest, which could not bear it either."""
    try:
        return exercise.verdict(function)
    except BaseException as error:
        kind = type.__repr__(type(error))[:60]
    raise AssertionError(f"no sentence, but {kind}")


def is_short(verdict):
    return len(verdict) < 1500 and verdict.count("\n") < 25


def raising(*_, **__):
    raise ZeroDivisionError("no")


def with_method(name, method=raising):
    return type("Odd", (), {name: method})()


class Metaclass(type):
    @property
    def __name__(cls):
        raise ZeroDivisionError("no")


class Tensor:
    """As PyTorch's, of a computation whose gradient is wanted."""

    shape = (3,)

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError(
            "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
        )

    def __repr__(self):
        return "tensor([0., 2., 4.], requires_grad=True)"


@functools.cache
def nested(kind=list):
    value = 1
    for _ in range(100_000):
        value = {0: value} if kind is dict else kind((value,))
    return value


def holding_itself():
    value = []
    value += [value, value]
    return value


async def coroutine():
    return 1


class OddStr(str):
    def __repr__(self):
        raise ZeroDivisionError("no")

    __str__ = __eq__ = __len__ = __getitem__ = __iter__ = __repr__
    __hash__ = str.__hash__


class OddList(list):
    __repr__ = __eq__ = __len__ = __iter__ = __getitem__ = raising


class OddFloat(float):
    __repr__ = __eq__ = __float__ = __format__ = raising
    __hash__ = float.__hash__


def objects(*held):
    array = np.empty(len(held), dtype=object)
    for i, one in enumerate(held):
        array[i] = one
    return array


# Each makes an answer anew, since some can be read only once.
HOSTILE = {
    "tensor that wants a gradient": Tensor,
    "__array__ that fails": lambda: with_method("__array__"),
    "__array__ that exits": lambda: with_method("__array__", lambda *_, **__: sys.exit()),
    "__array__ of itself": lambda: with_method(
        "__array__", lambda self, dtype=None, copy=None: np.array([self, self], dtype=object)
    ),
    "__repr__ that fails": lambda: with_method("__repr__"),
    "__repr__ of no str": lambda: with_method("__repr__", lambda self: 7),
    "__repr__ of lines and signs": lambda: with_method("__repr__", lambda self: "\x1b[2J\n\ud800\n\n" * 50),
    "__class__ that fails": lambda: with_method("__class__", property(raising)),
    "__class__ that lies": lambda: with_method("__class__", list),
    "__getattribute__ that fails": lambda: with_method("__getattribute__"),
    "nameless kind": lambda: Metaclass("Odd", (), {})(),
    "str of its own": lambda: OddStr("none"),
    "list of its own": lambda: OddList([0, 2, 5]),
    "number of its own": lambda: OddFloat(5),
    "long range": lambda: range(5, 10**12),
    "range beyond all lengths": lambda: range(10**30),
    "long number": lambda: 10**5000,
    "long numbers": lambda: [10**5000, -(10**5000), 10**200],
    "long fraction": lambda: fractions.Fraction(10**5000),
    "list of objects": lambda: [with_method("__repr__")] * 9_000,
    "list of hostile lists": lambda: [nested(), range(10**12), Tensor()],
    "deep list": nested,
    "deep tuple": lambda: nested(tuple),
    "deep dictionary": lambda: nested(dict),
    "deep object array": lambda: objects(nested(), None),
    "list that holds itself": holding_itself,
    "dictionary of such": lambda: {"a": with_method("__repr__"), OddStr("b"): nested(), 10**5000: Tensor()},
    "keys of such": lambda: {OddFloat(1): 1, (with_method("__repr__"),): 2},
    "set of such": lambda: {OddFloat(1), with_method("__repr__"), frozenset([1])},
    "objects in an array": lambda: objects(with_method("__repr__"), Tensor()),
    "object in an array": lambda: np.array(with_method("__repr__"), dtype=object),
    "array of records": lambda: np.zeros(3, dtype=[("a", int), ("b", object)]),
    "long word in an array": lambda: np.array(["x" * 10**6]),
    "many dimensions": lambda: np.zeros((2,) * 16),
    "most dimensions": lambda: np.zeros((1,) * 60),
    "largest numbers": lambda: np.full((64, 64), 1e308),
    "larger than float": lambda: np.full((64, 64), np.longdouble("1e4000")),
    "coroutine": coroutine,
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("exercise", OF_EACH_KIND.values(), ids=OF_EACH_KIND)
@pytest.mark.parametrize("answer", HOSTILE.values(), ids=HOSTILE)
def test_whatever_is_returned_gets_one_short_sentence(exercise, answer):
    verdict = verdict_of(exercise, lambda *_: answer())
    assert verdict.startswith("Not right yet for"), verdict
    assert is_short(verdict)
    verdict.encode()
    assert verdict.replace("\n", "").isprintable()
    assert exercise.verdict(answer()).startswith(
        ("Give check.", "The function must", "It fails", "Not right")
    )


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            Tensor,
            "yours is Tensor, which can't be read: RuntimeError: Can't call numpy() on Tensor that requires",
        ),
        (lambda: range(5, 10**12), "yours is range with more than 10,000 entries"),
        (lambda: 10**5000, "yours is a whole number of about 5,000 digits"),
        (nested, "yours is list nested more than 20 deep"),
        (
            lambda: (i for i in ()),
            "yours is generator, which makes its values only when asked: return a list",
        ),
        (coroutine, "yours is coroutine: leave out the word `async`"),
        (
            lambda: np.zeros((2**15, 2**15)),
            "yours is an array of float64 of shape (32768, 32768), which is too",
        ),
        (lambda: with_method("__repr__"), "yours is Odd: its own text can't be read"),
    ],
)
@pytest.mark.timeout(60)
def test_what_is_returned_is_named(answer, words):
    for exercise in OF_EACH_KIND.values():
        assert words in exercise.verdict(lambda *_: answer())


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", EXERCISES)
def test_the_shape_of_a_huge_array_is_enough(name):
    """Of 8 TB nothing can be copied, compared or written out."""
    huge = np.broadcast_to(np.float64(1), (10**6, 10**6))
    verdict = EXERCISES[name].verdict(lambda *_: huge)
    assert "yours is an array of float64 of shape (1000000, 1000000), which is too large" in verdict
    assert is_short(verdict)


def test_a_huge_answer_is_not_kept_for_the_next_call():
    alive = []

    class Counted(np.ndarray):
        def __del__(self):
            alive.pop()

    def function(x):
        assert not alive, "the answer before is still there"
        alive.append(1)
        return np.zeros(10**6).view(Counted)

    assert double().verdict(function).startswith("Not right yet")


# what is raised


class Speechless(Exception):
    __str__ = raising


class Chatty(Exception):
    def __str__(self):
        return "and so on\n" * 100_000


class LongLine(BaseException):
    def __str__(self):
        return OddStr("x" * 10**6)


class Coloured(Exception):
    def __str__(self):
        return "\x1b[31mred\x1b[0m \r\ud800"


ERRORS = {
    "speechless": Speechless,
    "many lines": Chatty,
    "a long line": LongLine,
    "coloured": Coloured,
    "GeneratorExit": GeneratorExit,
    "nameless kind": lambda: Metaclass("Odd", (Exception,), {})(),
    "__class__ that fails": lambda: type("Odd", (Exception,), {"__class__": property(raising)})(),
    "long name": lambda: type("x" * 10**6, (Exception,), {})(),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
def test_whatever_is_raised_ends_in_a_short_sentence(error):
    def function(x):
        raise error()

    verdict = verdict_of(double(), function)
    assert re.match(r"It fails, at line \d+ of its cell, `raise error\(\)`:\n  \S", verdict)
    assert "That was for x = array([0., 1., 2.])" in verdict
    assert is_short(verdict)
    verdict.encode()
    assert verdict.replace("\n", "").isprintable()


def test_what_can_not_be_said_is_named_by_its_kind():
    def function(x):
        raise Speechless

    assert "\n  Speechless: its own text can't be read\n" in double().verdict(function)


def test_leaving_python_is_told_from_leaving_a_function():
    def function(x):
        sys.exit()

    verdict = double().verdict(function)
    assert verdict.startswith("It fails, at line ")
    assert verdict.endswith("\n`exit()` and `quit()` end Python itself; a function ends with `return`.")


@pytest.mark.parametrize("name", ["__array__", "__repr__", "__len__"])
def test_an_interrupt_while_an_answer_is_read_still_interrupts(name):
    def wait(*_, **__):
        while True:
            time.sleep(0.01)

    stop = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
    stop.start()
    assert verdict_of(double(), lambda x: with_method(name, wait)).startswith("Stopped")
    stop.cancel()


# what may be asked at all


@pytest.mark.parametrize("name", ["__code__", "__signature__", "__class__"])
def test_a_function_whose_own_attributes_fail(name):
    function = type("Odd", (), {name: property(raising), "__call__": raising})()
    assert verdict_of(double(), function).startswith("It fails:\n  ZeroDivisionError: no")


def test_a_type_error_of_an_unreadable_function_is_no_wrong_number_of_arguments():
    def call(self, x):
        raise TypeError("something else")

    function = type("Odd", (), {"__signature__": "none", "__call__": call})()
    assert "TypeError: something else" in double().verdict(function)


# what is changed


def test_a_list_that_is_filled_again_is_judged_by_what_it_held():
    again, array = [], np.zeros(0)

    def list_(x):
        again[:] = [2 * float(v) for v in x]
        return again

    def array_(x):
        array.resize(len(x), refcheck=False)
        array[:] = 2 * x
        return array

    assert [double().verdict(one)[:7] for one in (list_, array_)] == ["✓ Right"] * 2


def test_a_nested_list_or_a_row_that_is_filled_again_is_judged_by_what_it_held():
    eye = EXERCISES["permutation_matrix"]
    rows, held = [], [np.zeros(0)]

    def nested_list(order):
        rows[:] = [row.tolist() for row in eye.solve(order)]
        return rows

    def list_of_one_array(order):
        held[0].resize((len(order), len(order)), refcheck=False)
        held[0][:] = eye.solve(order)
        return list(held[0])

    assert eye.verdict(nested_list).startswith("✓")
    assert eye.verdict(list_of_one_array).startswith("✓")


def test_a_hostile_change_of_an_input_is_told():
    def function(order):
        order[0] = with_method("__array__")
        return 1

    def longer(order):
        order.extend(range(10**6))
        return 1

    eye = EXERCISES["permutation_matrix"]
    for one in (function, longer):
        assert verdict_of(eye, one).startswith("It changes its input order for order = [2, 0, 1]:")


def _error_state():
    np.seterr(all="raise")
    np.seterrcall(print)


def _recursion():
    for limit in range(1, 1000):
        try:
            return sys.setrecursionlimit(limit)
        except RecursionError:
            pass


SETTINGS = {
    "NumPy's errors": (_error_state, lambda: (np.geterr(), np.geterrcall())),
    "NumPy's print": (
        lambda: np.set_printoptions(precision=1, threshold=0, formatter={"all": raising}),
        np.get_printoptions,
    ),
    "NumPy's random numbers": (np.random.normal, lambda: repr(np.random.get_state())),  # noqa: NPY002
    "NumPy's generator": (
        lambda: np.random.set_bit_generator(np.random.PCG64(1)),
        lambda: type(np.random.get_bit_generator()),
    ),
    "Python's random numbers": (lambda: random.seed(0), random.getstate),
    "filters of warnings": (lambda: warnings.simplefilter("ignore"), lambda: list(warnings.filters)),
    "no filters of warnings": (warnings.resetwarnings, lambda: list(warnings.filters)),
    "depth of recursion": (_recursion, sys.getrecursionlimit),
    "a large depth of recursion": (lambda: sys.setrecursionlimit(10**6), sys.getrecursionlimit),
    "where prints go": (lambda: setattr(sys, "stdout", None), lambda: sys.stdout),
}


@pytest.mark.parametrize(("change", "setting"), SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("where", ["function", "failing function", "answer", "error"])
def test_the_settings_are_as_before(change, setting, where, capsys):
    def function(x):
        if where != "answer":
            change()
        if where == "failing function":
            raise ZeroDivisionError
        if where == "error":
            raise type("Odd", (Exception,), {"__str__": lambda self: change() or "odd"})
        return 2 * x if where == "function" else with_method("__repr__", lambda self: change() or "odd")

    before = setting()
    double()(function)
    assert setting() == before
    assert capsys.readouterr().out.startswith("✓ Right" if where == "function" else ("It fails", "Not right"))


def test_a_warning_is_shown_once_and_not_for_each_input():
    def function(x):
        warnings.warn("look", stacklevel=1)
        return 2 * x

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("default")
        double().verdict(function)
    assert len(seen) == 1


def test_a_kernel_that_raises_at_any_overflow_gets_the_same_verdicts():
    for exercise in EXERCISES.values():
        wrong = exercise.verdict(lambda *_: np.full((64, 64), 1e308))
        with np.errstate(all="raise"):
            assert verdict_of(exercise, lambda *_: np.full((64, 64), 1e308)) == wrong


# right answers


KINDS = {
    "half precision": lambda right: np.asarray(right, dtype=np.float16),
    "objects": lambda right: np.asarray(right, dtype=object),
    "fractions": np.vectorize(fractions.Fraction, otypes=[object]),
    "decimals": lambda right: np.vectorize(decimal.Decimal, otypes=[object])(right).tolist(),
}
NUMBERS = [one for one in EXERCISES.values() if not isinstance(one.solve(*one.inputs()[0]), str)]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_right_answer_is_right_in_every_kind_of_number(kind):
    for exercise in NUMBERS:
        verdict = exercise.verdict(lambda *inputs, one=exercise: kind(np.asarray(one.solve(*inputs), float)))
        assert verdict.startswith("✓ Right"), f"{exercise.name}: {verdict}"


def test_half_precision_is_no_excuse_for_rounding():
    exercise = EXERCISES["wave_table"]
    verdicts = [
        exercise.verdict(lambda *inputs, n=n: exercise.solve(*inputs).round(n).astype(np.float16))
        for n in (2, 8)
    ]
    assert "is anything rounded on the way?" in verdicts[0]
    assert verdicts[1].startswith("✓ Right")


def place_in_single_precision(share, next_share):
    share, next_share = np.float32(share), np.float32(next_share)
    return (1 / share - 1) / (1 / next_share - 1 / share)


def place_by_products(share, next_share):
    share, next_share = np.float32(share), np.float32(next_share)
    return float(next_share * (1 - share) / (share - next_share))


def frequencies_by_logarithm(rotary_dim, base, factor):
    base = np.float32(base) * np.float32(factor) ** np.float32(rotary_dim / (rotary_dim - 2))
    pairs = np.arange(0, rotary_dim, 2, dtype=np.float32)
    return np.float32(10) ** (-pairs * np.log10(base) / np.float32(rotary_dim))


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("place_from_shares", place_in_single_precision),
        ("place_from_shares", place_by_products),
        ("ntk_frequencies", frequencies_by_logarithm),
    ],
)
def test_what_was_computed_in_single_precision_is_right(name, function):
    assert EXERCISES[name].verdict(function).startswith("✓ Right")


@pytest.mark.parametrize("size", [1e-310, 1e-200, 1e200, 1e307])
def test_a_matrix_of_any_size_looks_ahead(size):
    exercise = EXERCISES["look_ahead"]
    assert exercise.verdict(lambda *arguments: size * exercise.solve(*arguments)).startswith("✓ Right")


# where nothing can be noted


@pytest.fixture
def homeless(monkeypatch):
    """As for a user with no entry in the list of users: then platformdirs raises, or returns a "~"."""
    monkeypatch.delenv("COURSE_PROGRESS")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)


def test_a_right_answer_of_a_user_without_a_home_is_right(homeless, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    verdict = double().verdict(lambda x: 2 * x)
    assert verdict.startswith(
        "✓ Right, for all 2 inputs that were tried. (It can't be noted: this user has no "
    )
    assert "COURSE_PROGRESS may name one" in verdict
    assert not list(tmp_path.iterdir()), "no folder named ~ is made"
    check.progress()
    assert "02   0 of 3 solved" in capsys.readouterr().out


@pytest.mark.parametrize(
    "error",
    [RuntimeError("Could not determine home directory."), ValueError("Unset: APPDATA"), KeyError("uid")],
)
def test_a_home_that_can_not_be_found_is_no_error(error, monkeypatch):
    monkeypatch.delenv("COURSE_PROGRESS")

    def user_data_dir(*_):
        raise error

    monkeypatch.setattr("platformdirs.user_data_dir", user_data_dir)
    assert "(It can't be noted: this user has no folder" in double().verdict(lambda x: 2 * x)
    assert not notes.solved("99", "double")


def test_a_folder_that_no_file_can_have_is_no_error(monkeypatch):
    monkeypatch.setattr(notes.os, "environ", {"COURSE_PROGRESS": "a\0b"})
    assert "✓ Right, for all 2 inputs that were tried. (It can't be noted in a" in double().verdict(
        lambda x: 2 * x
    )
    assert not notes.solved("99", "double")


# what another version of the course knew


def test_a_check_that_is_gone_says_so():
    with pytest.raises(
        AttributeError, match=r"there is no check\.old_table in the installed course"
    ) as caught:
        check.old_table(len)
    assert "make lab" in str(caught.value)
    assert not hasattr(check, "old_table")


# in a real kernel


CELLS = [
    "import sys\nfrom helpers import check",
    "def f(order):\n    exit()\ncheck.permutation_matrix(f)",
    "def f(order):\n    quit\n    quit(True)\ncheck.permutation_matrix(f)",
    "def f(order):\n    sys.exit('bye')\ncheck.permutation_matrix(f)",
    "def f(order):\n    raise ValueError('\\ud800' + 'x' * 10**6)\ncheck.permutation_matrix(f)",
    "async def f(order):\n    return 1\ncheck.permutation_matrix(f)",
    "import time\ntime.sleep(0.5)\nprint('alive')",
]


def test_a_kernel_survives():
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS])
    NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    printed = ["".join(output.text for output in cell.outputs) for cell in notebook.cells]
    assert printed[1].startswith("It fails, at line 2 of its cell, `exit()`:\n  SystemExit\n")
    assert printed[2].startswith("It fails, at line 3 of its cell, `quit(True)`:\n  SystemExit\n")
    assert printed[3].startswith("It fails, at line 2 of its cell, `sys.exit('bye')`:\n  SystemExit: bye\n")
    assert "  ValueError: \\ud800xxxx" in printed[4]
    assert is_short(printed[4])
    assert printed[5].startswith(
        "Not right yet for order = [2, 0, 1]:\n  yours is coroutine: leave out the word"
    )
    assert "never awaited" not in printed[5]
    assert printed[6] == "alive\n"
