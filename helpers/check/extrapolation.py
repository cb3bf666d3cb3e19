"""Exercises of notebook 06."""

from collections.abc import Callable

import numpy as np

from helpers import results
from helpers.check.exercises import Exercise

NOTEBOOK = "06"


def _by(window_line: float = -0.1, sharpened_line: float = -0.05, window_first: bool = False) -> Callable:
    """Return a diagnosis that asks for changes below these lines."""

    def diagnosis(start: float, window: float, sharpened: float) -> str:
        if start > 0.1:
            return "vector"
        if window_first and window < window_line:
            return "distance"
        if sharpened < sharpened_line:
            return "dilution"
        return "distance" if window < window_line else "none"

    return diagnosis


_diagnosis = _by()


def _any_change(start: float, window: float, sharpened: float) -> str:
    if start > 0.1:
        return "vector"
    if abs(sharpened) > 0.03:
        return "dilution"
    return "distance" if window < -0.1 else "none"


def _tests() -> list[tuple[float, float, float]]:
    """The three changes of shipped models of six schemes, at positions 448 to 511."""
    found = []
    for line in ("rope, usual", "learned", "alibi", "t5, untuned", "sinusoidal", "shaw"):
        start = results.measured(line, "start")[:, 2] - results.measured(line, "start")[:, 0]
        window, sharpened = (
            results.at_end(line, test) - results.at_end(line) for test in ("window", "sharpened")
        )
        found += [tuple(map(float, one)) for one in zip(start, window, sharpened, strict=True)]
    return found


which_failure = Exercise(
    "which_failure",
    NOTEBOOK,
    "unlabelled schemes told apart",
    _diagnosis,
    _tests,
    {
        "a window helps against dilution, too, since it takes far keys away. Ask sharpening first.": (
            _by(window_first=True)
        ),
        "a window helps against dilution, too: ask sharpening first. And ask a window to give back at least "
        "0.1: so small a change is no failure.": _by(window_line=0, window_first=True),
        "unseen vectors come first: a window helps against them, too.": lambda start, window, sharpened: (
            "distance" if window < -0.1 and sharpened >= -0.05 else _diagnosis(start, window, sharpened)
        ),
        "so small a change is no failure: ask a window to give back at least 0.1.": _by(window_line=0),
        "so small a change is no dilution: ask sharpening to give back at least 0.05.": _by(sharpened_line=0),
        "so small changes are no failures: ask a window to give back at least 0.1, and sharpening 0.05.": _by(
            window_line=0, sharpened_line=0
        ),
        "sharpening has to give back only 0.05, not 0.1.": _by(sharpened_line=-0.1),
        "a cure lowers the loss: ask for changes below −0.1 and −0.05.": lambda start, window, sharpened: (
            "vector" if start > 0.1 else _diagnosis(0, -window, -sharpened)
        ),
        "vectors that were never trained make the loss rise: the change of `start` is above 0.1.": (
            lambda start, window, sharpened: "vector" if start < -0.1 else _diagnosis(0, window, sharpened)
        ),
        "in small letters.": lambda start, window, sharpened: _diagnosis(
            start, window, sharpened
        ).capitalize(),
        "only a loss that *falls* is a cure. Sharper scores make RoPE a little worse.": _any_change,
    },
)


def _sharpen(scores: np.ndarray, trained_length: int) -> np.ndarray:
    keys = np.arange(1, len(scores) + 1)
    return scores * (np.log(np.maximum(keys, trained_length)) / np.log(trained_length))[:, None]


def _rows(scores: np.ndarray, trained_length: int, of_keys: Callable, otherwise: float = 1) -> np.ndarray:
    """A number for each row that sees more keys than in training, and another for the others."""
    keys = np.arange(1, len(scores) + 1)
    return np.where(keys > trained_length, of_keys(keys), otherwise)[:, None]


def _score_inputs() -> list[tuple[np.ndarray, int]]:
    rng = np.random.default_rng(41)
    return [(rng.normal(size=(n, n)).round(2), trained) for n, trained in ((4, 2), (9, 4), (3, 8))]


sharpen = Exercise(
    "sharpen",
    NOTEBOOK,
    "scores that grow with the keys",
    _sharpen,
    _score_inputs,
    {
        "all rows are multiplied alike: row i sees i + 1 keys only.": lambda scores, trained_length: (
            scores * np.log(max(len(scores), trained_length)) / np.log(trained_length)
        ),
        "the first rows get *flatter*: leave those alone that see no more keys than in training.": (
            lambda scores, trained_length: (
                scores * (np.log(np.arange(1, len(scores) + 1)) / np.log(trained_length))[:, None]
            )
        ),
        "columns are multiplied: the queries are the rows, so give the factors the shape (n, 1).": (
            lambda scores, trained_length: (_sharpen(np.ones_like(scores), trained_length) * scores.T).T
        ),
        "the factor is ln m / ln trained_length, not ln of their ratio.": lambda scores, trained_length: (
            scores * _rows(scores, trained_length, lambda m: np.log(m / trained_length))
        ),
        "the other way up: more keys ask for larger scores.": lambda scores, trained_length: (
            scores / _sharpen(np.ones_like(scores), trained_length)
        ),
        "multiply the row; adding the same number to all its scores changes no weight.": (
            lambda scores, trained_length: (
                scores + _rows(scores, trained_length, lambda m: np.log(m) / np.log(trained_length), 0)
            )
        ),
        "row i sees i + 1 keys, its own among them, not i.": lambda scores, trained_length: (
            scores
            * (np.log(np.maximum(np.arange(len(scores)), trained_length)) / np.log(trained_length))[:, None]
        ),
    },
)


def _recalled(predicted: np.ndarray, text: np.ndarray, distance: int) -> float:
    return float(np.mean(predicted[distance - 1 :] == text[distance:]))


def _recall_inputs() -> list[tuple]:
    rng = np.random.default_rng(43)
    cases = []
    for distance in (6, 4, 10):
        text = np.resize(rng.integers(0, 16, distance), 2 * distance)
        predicted = text[1:].copy()
        wrong = rng.permutation(2 * distance - 1)[: distance // 2]
        predicted[wrong] = (predicted[wrong] + 1) % 16
        predicted[: distance - 1] = rng.integers(0, 16, distance - 1)
        cases.append((predicted, text, distance))
    return cases


recall_share = Exercise(
    "recall_share",
    NOTEBOOK,
    "the share of a string recalled",
    _recalled,
    _recall_inputs,
    {
        "letters of the first time are counted: nobody can know those.": lambda predicted, text, distance: (
            float(np.mean(predicted == text[1:]))
        ),
        "one letter is lost: the first of the second time is guessed at predicted[distance − 1].": (
            lambda predicted, text, distance: float(np.mean(predicted[distance:] == text[distance + 1 :]))
        ),
        "this is a number of letters; a share lies between 0 and 1.": lambda predicted, text, distance: float(
            np.sum(predicted[distance - 1 :] == text[distance:])
        ),
        "the second time has `distance` letters: divide by that, not by all.": (
            lambda predicted, text, distance: _recalled(predicted, text, distance) / 2
        ),
        "a share lies between 0 and 1, not 0 and 100.": lambda predicted, text, distance: (
            100 * _recalled(predicted, text, distance)
        ),
        "one late: predicted[i] is the guess for text[i + 1].": lambda predicted, text, distance: float(
            np.mean(predicted[distance:] == text[distance:-1])
        ),
    },
)
