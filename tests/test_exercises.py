"""The checked exercises: solutions pass, stubs are no errors, each typical mistake gets its own hint."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path

import nbformat
import numpy as np
import pytest
from small_exercises import double

from helpers import check
from helpers.check import EXERCISES
from helpers.check.exercises import Exercise
from helpers.check.notes import solved

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
CALL = re.compile(r"^check\.(\w+)\((\w+)\)$", re.MULTILINE)
PYTHON_BLOCK = re.compile(r"<summary>Solution</summary>\s*```python\n(.*?)```", re.DOTALL)
CHALLENGE = re.compile(r"^\*\*\d\. \(a challenge\)\*\* ")
MISTAKES = [(name, hint) for name, exercise in EXERCISES.items() for hint in exercise.mistakes]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A place of the test's own for what is solved."""
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "solved"))
    return tmp_path / "solved"


def cells():
    """Return (notebook, name of the exercise, its text, its stub cell) for all notebooks."""
    found = []
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4).cells
        for text, stub in pairwise(notebook):
            call = CALL.search(stub.source) if stub.cell_type == "code" else None
            if call:
                found.append((path, call.group(1), text, stub))
    return found


CELLS = cells()
IDS = [f"{path.name[:2]}-{name}" for path, name, _, _ in CELLS]


def namespace(path):
    """Run the imports of a notebook, which a solution may use."""
    names = {"check": check}
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code":
            exec(cell.source, names)
            return names
    raise AssertionError


# the notebooks


def test_each_exercise_stands_in_its_notebook_once():
    assert sorted(name for _, name, _, _ in CELLS) == sorted(EXERCISES)
    for path, name, text, stub in CELLS:
        assert path.name.startswith(EXERCISES[name].notebook)
        assert "exercise" in text.metadata["tags"]
        assert "exercise" in stub.metadata["tags"]
        assert "<summary>Hint</summary>" in text.source


@pytest.mark.parametrize("notebook", [path.name[:2] for path in sorted(NOTEBOOKS.glob("*.ipynb"))[1:]])
def test_each_notebook_has_three_to_five_exercises(notebook):
    [path] = NOTEBOOKS.glob(f"{notebook}_*.ipynb")
    text = "\n".join(
        cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown"
    )
    numbers = re.findall(r"^\*\*(\d)\. \(", text, re.MULTILINE)
    assert numbers == [str(number) for number in range(1, len(numbers) + 1)]
    assert 3 <= len(numbers) <= 5
    assert sum(one.notebook == notebook for one in EXERCISES.values()) >= 3


@pytest.mark.parametrize(("path", "name", "text", "stub"), CELLS, ids=IDS)
def test_the_printed_solution_is_right(path, name, text, stub):
    names = namespace(path)
    [solution] = PYTHON_BLOCK.findall(text.source)
    exec(solution, names)
    function = names[CALL.search(stub.source).group(2)]
    assert EXERCISES[name].verdict(function).startswith("✓ Right")
    assert solved(EXERCISES[name].notebook, name)


@pytest.mark.parametrize(("path", "name", "text", "stub"), CELLS, ids=IDS)
def test_the_stub_is_not_yet_and_no_error(path, name, text, stub, capsys):
    exec(stub.source, namespace(path))
    assert capsys.readouterr().out.startswith("Not yet")
    assert not solved(EXERCISES[name].notebook, name)
    assert stub.outputs[0].text.startswith("Not yet")


# the checks


@pytest.mark.parametrize("name", EXERCISES)
def test_there_are_several_inputs_and_two_mistakes(name):
    assert len(EXERCISES[name].inputs()) >= 2 or EXERCISES[name].judge
    assert len(EXERCISES[name].mistakes) >= 2


@pytest.mark.parametrize(("name", "hint"), MISTAKES)
def test_each_mistake_gets_its_own_hint_and_no_other(name, hint):
    exercise = EXERCISES[name]
    with np.errstate(all="ignore"):
        verdict = exercise.verdict(exercise.mistakes[hint])
    assert verdict.startswith("Not right yet for")
    assert verdict.endswith(f"\nHint: {hint}")
    assert not solved(exercise.notebook, name)


@pytest.mark.parametrize("name", EXERCISES)
def test_constants_do_not_pass(name):
    exercise = EXERCISES[name]
    for arguments in exercise.inputs():
        constant = exercise.solve(*arguments)
        verdict = exercise.verdict(lambda *_, constant=constant: constant)
        assert verdict.startswith("Not right yet"), verdict


@pytest.mark.parametrize("name", EXERCISES)
@pytest.mark.parametrize(
    "answer",
    [
        -7.5,
        "words",
        ["1"],
        {},
        np.zeros(0),
        np.full((2, 2), np.nan),
        np.full((64, 64), np.inf),
        np.zeros((64, 64)),
        [[1], [1, 2]],
        1j,
        object(),
        print,
        True,
    ],
)
def test_any_answer_gets_a_verdict(name, answer):
    verdict = EXERCISES[name].verdict(lambda *_: answer)
    assert verdict.startswith("Not right yet for"), verdict


@pytest.mark.parametrize("name", EXERCISES)
def test_the_inputs_are_not_given_away_by_changing_them(name):
    first, again = EXERCISES[name].inputs(), EXERCISES[name].inputs()
    assert repr(first) == repr(again)


# what a learner's function may do


def boom(x):
    return x[1000]


def test_an_exception_is_told_with_the_line_and_the_input():
    verdict = double().verdict(boom)
    assert re.match(r"It fails, at line \d+ of its cell, `return x\[1000\]`:\n  IndexError: ", verdict)
    assert verdict.endswith("\nThat was for x = array([0., 1., 2.])")


def test_a_changed_input_is_told():
    def function(x):
        x *= 2
        return x

    assert double().verdict(function) == (
        "It changes its input x for x = array([0., 1., 2.]):\nWork on a copy, x.copy()."
    )


def test_a_forgotten_return_is_told_with_what_was_wanted():
    def printing(x):
        print(2 * x)

    verdict = double().verdict(printing)
    assert verdict.startswith("It returns None for x = array([0., 1., 2.]):\n  right: [0, 2, 4]\n")
    assert "To print is not to return." in verdict

    def in_place(x):
        x *= 2

    assert "It also changes its input x." in double().verdict(in_place)


def test_one_branch_without_a_return_is_not_called_nothing_so_far():
    def branch(x):
        if len(x) == 3:
            return 2 * x

    assert double().verdict(branch).startswith("It returns None for x = array([1., 1.]):")


@pytest.mark.parametrize("answer", [lambda x: 2 * x + 1j, lambda x: [str(2 * v) for v in x]])
def test_only_real_numbers_are_numbers(answer):
    verdict = double().verdict(answer)
    assert verdict.startswith("Not right yet")
    assert "yours is an array of complex128 of shape (3,)" in verdict or "yours is list: " in verdict


@pytest.mark.parametrize("name", EXERCISES)
def test_a_complex_answer_of_another_shape_gets_a_verdict(name):
    assert EXERCISES[name].verdict(lambda *_: np.ones((1, 3)) * 1j).startswith("Not right yet")
    assert EXERCISES[name].verdict(lambda *_: np.array([None, None])).startswith("Not right yet")


def test_a_word_of_numpy_is_a_word():
    exercise = EXERCISES["which_failure"]

    def by_where(start, window, sharpened):
        later = np.where(sharpened < -0.05, "dilution", np.where(window < -0.1, "distance", "none"))
        return np.where(start > 0.1, "vector", later)

    assert exercise.verdict(by_where).startswith("✓")
    wrong = exercise.verdict(lambda *_: np.array(["vector"])[0])
    assert "yours: 'vector'" in wrong


def test_single_precision_is_right_and_rounding_is_not():
    exercise = check.EXERCISES["masked_weights"]
    assert exercise.verdict(lambda s: exercise.solve(s).astype(np.float32)).startswith("✓")
    verdict = exercise.verdict(lambda s: exercise.solve(s).round(4))
    assert verdict.startswith("Not right yet")
    assert "is anything rounded on the way?" in verdict
    yours, right = re.findall(r"(?:yours|right): (\[\[.*?\]\])", verdict, re.DOTALL)
    assert yours != right, "the difference must be visible"


def test_a_name_of_the_cells_above_is_told():
    verdict = double().verdict(lambda x: not_there(x))  # noqa: F821
    assert "NameError" in verdict
    assert "run the cells above first" in verdict


def test_nothing_at_all_is_told():
    assert "the function itself, without brackets" in double().verdict(None)
    double()()


@pytest.mark.parametrize("value", [3, np.ones(3), "double"])
def test_what_is_no_function_is_told(value):
    assert "the function itself, without brackets" in double().verdict(value)


def test_the_number_of_arguments_is_told():
    assert double().verdict(lambda: 1) == "The function must take 1 argument: x."
    assert double().verdict(lambda a, b: 1) == "The function must take 1 argument: x."


def test_a_type_error_inside_is_not_taken_for_a_wrong_number_of_arguments():
    assert "TypeError" in double().verdict(lambda x: x + {})


def test_lists_and_integers_count_as_numbers():
    assert double().verdict(lambda x: [2 * float(v) for v in x]).startswith("✓")


@pytest.mark.parametrize("error", [NotImplementedError, NotImplementedError("later")])
def test_not_implemented_is_not_yet(error):
    def function(x):
        raise error

    assert double().verdict(function).startswith("Not yet")


@pytest.mark.parametrize(
    "error",
    [
        RecursionError("deep"),
        MemoryError(),
        ZeroDivisionError("zero"),
        SystemExit(),
        AssertionError(),
        StopIteration(),
        GeneratorExit(),
    ],
)
def test_other_exceptions_end_in_a_sentence(error):
    def function(x):
        raise error

    verdict = double().verdict(function)
    assert type(error).__name__ in verdict
    assert ": \n" not in verdict


def test_an_endless_loop_can_be_stopped():
    def function(x):
        while True:
            time.sleep(0.01)

    stop = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
    stop.start()
    verdict = double().verdict(function)
    assert verdict.startswith("Stopped, at line ")
    assert "Does every loop come to its end?" in verdict


def test_the_first_difference_is_shown_for_large_answers():
    large = Exercise(
        "large",
        "99",
        "large",
        lambda n: np.zeros((n, n)),
        lambda: [(10,)],
        {"a": lambda n: 1, "b": lambda n: 2},
    )

    def function(n):
        answer = np.zeros((n, n))
        answer[3, 4] = 7
        return answer

    wanted = "1 of 100 numbers differ; the first is at [3, 4]:\n  yours: 7\n  right: 0"
    assert wanted in large.verdict(function)


@pytest.mark.parametrize(
    ("window_line", "sharpened_line", "hint"),
    [
        (-0.1, 0, "so small a change is no dilution"),
        (0, 0, "so small changes are no failures"),
        (-0.1, -0.1, "sharpening has to give back only 0.05"),
    ],
)
def test_a_line_of_ones_own_between_failure_and_none_gets_a_hint(window_line, sharpened_line, hint):
    def function(start, window, sharpened):
        if start > 0.1:
            return "vector"
        if sharpened < sharpened_line:
            return "dilution"
        return "distance" if window < window_line else "none"

    assert f"\nHint: {hint}" in check.EXERCISES["which_failure"].verdict(function)


# progress


def test_progress_is_kept_and_shown(capsys):
    check.wave_table(check.wave_table.solve)
    capsys.readouterr()
    check.progress()
    printed = capsys.readouterr().out
    assert "02   1 of 3 solved\n     ✓ the table without a loop\n     · the shift back\n" in printed
    assert "03   0 of 3" in printed
    code = "from helpers import check; check.progress()"
    again = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert again.stdout == printed  # after a restart, too


def test_a_later_wrong_answer_does_not_take_the_mark_away():
    double().verdict(lambda x: 2 * x)
    double().verdict(lambda x: x)
    assert solved("99", "double")


def test_a_place_that_can_not_be_written_is_told(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "file" / "inside"))
    verdict = double().verdict(lambda x: 2 * x)
    assert verdict.startswith("✓ Right")
    assert "can't be noted" in verdict
    assert not solved("99", "double")


def test_notebook_00_lists_all_exercises_as_unsolved(capsys):
    [path] = NOTEBOOKS.glob("00_*.ipynb")
    stored = [cell for cell in nbformat.read(path, as_version=4).cells if "check.progress()" in cell.source]
    check.progress()
    assert stored[-1].outputs[0].text == capsys.readouterr().out


# what is not checked by a function


@pytest.mark.whole
def test_the_scheme_of_ones_own_does_what_its_solution_says(capsys):
    """Notebook 06, the challenge: the printed solution holds, has no failure, and does not come near T5."""
    [path] = NOTEBOOKS.glob("06_*.ipynb")
    names = namespace(path)
    notebook = nbformat.read(path, as_version=4).cells
    [text] = [cell.source for cell in notebook if CHALLENGE.sub("", cell.source).startswith("Train a scheme")]
    [work] = [cell.source for cell in notebook if "def put_to_the_tests" in cell.source]
    [solution] = re.findall(r"One solution</summary>\s*```python\n(.*?)```", text, re.DOTALL)
    exec(work, names)
    exec(solution, names)
    at_64, at_512, start, window, sharpened = map(
        float, re.findall(r"[-+]?\d+\.\d\d", capsys.readouterr().out)
    )
    assert check.EXERCISES["which_failure"].solve(start, window, sharpened) == "none"
    assert abs(at_512 - at_64) < 0.1
    assert at_512 > 1.92 + 0.03
    assert f"{at_512:.2f}" in text


def solution_of(number, beginning):
    """Return the notebook's imports as a namespace, and the printed solution of an unchecked exercise."""
    [path] = NOTEBOOKS.glob(f"{number}_*.ipynb")
    cells = nbformat.read(path, as_version=4).cells
    [text] = [cell.source for cell in cells if CHALLENGE.sub("", cell.source).startswith(beginning)]
    [solution] = PYTHON_BLOCK.findall(text)
    return namespace(path), solution, text


def test_a_t5_table_imitates_a_steep_ramp_and_no_flat_one():
    """Notebook 05, the challenge."""
    names, solution, text = solution_of("05", "Can a T5 table")
    exec(solution, names)
    error = names["imitation_error"]
    assert max(error(1 / 8, 64), error(1 / 8, 512)) < 0.02
    assert 0.28 < error(1 / 256, 512) < 0.38
    assert "less than 2 %" in text
    assert "off by a third" in text


@pytest.mark.whole
def test_pair_3_is_best_divided_by_about_6_and_pair_2_helps_beside_8(capsys):
    """Notebook 07, the challenge."""
    names, solution, _ = solution_of("07", "Find the best single change")
    names["run"] = names["results"].rope_models()[0]
    exec(solution, names)
    by_2, by_4, by_6, by_8, both = map(float, re.findall(r": (\d\.\d\d)", capsys.readouterr().out))
    assert by_6 < min(by_2, by_4, by_8) - 0.05
    assert both < by_6
