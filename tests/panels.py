"""The live panels of the notebooks, found, moved and judged without a browser: for test_panels.py."""

import ast
import math
import random
import re
from collections.abc import Iterator
from functools import cache
from inspect import signature
from itertools import combinations
from pathlib import Path
from typing import Any
from unittest import mock

import ipywidgets as widgets
import nbformat
import numpy as np
from matplotlib.figure import Figure
from matplotlib.text import Text

from helpers.drawing import DPI, PIXEL_RATIO, new_figure
from helpers.live import Panel

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"

N_RANDOM = 15
WINDOW_HEIGHT, CONTROLS_AND_CAPTION = 720, 140
TEXT_POINTS, TICK_POINTS = 12, 11
OVERLAP_PIXELS = 6  # the box of a text has some air around the letters
NUMBER = re.compile(r"[-−]?\d+(?:,\d{3})*(?:\.\d+)?(?:e[-+−]?\d+)?(?:/\d+(?:,\d{3})*)?")


# --- Finding panels ---


def cells_with_panels(path: Path) -> list[int]:
    """Return the numbers, from 1, of the cells that call live()."""
    return [
        number
        for number, cell in enumerate(nbformat.read(path, as_version=4).cells, start=1)
        if cell.cell_type == "code" and re.search(r"\blive\(", cell.source)
    ]


@cache
def panels_by_cell(path: Path) -> dict[int, list[Panel]]:
    """Run a notebook in this process as far as its last panel; return the panels that each cell made."""
    last = max(cells_with_panels(path), default=0)
    cells = nbformat.read(path, as_version=4).cells[:last]
    found: dict[int, list[Panel]] = {}
    namespace: dict[str, Any] = {"__name__": "__main__"}
    make = Panel.__init__
    for number, cell in enumerate(cells, start=1):
        if cell.cell_type != "code":
            continue

        def make_and_note(panel: Panel, *args: Any, number: int = number) -> None:
            make(panel, *args)
            found.setdefault(number, []).append(panel)

        code = compile(ast.parse(cell.source), f"{path.name}, cell {number}", "exec")
        with mock.patch.object(Panel, "__init__", make_and_note):
            exec(code, namespace)
    return found


# --- Moving them ---


def settings_of(control: widgets.Widget) -> list[Any]:
    """Return the lowest, the middle and the highest value that a control can now have."""
    if isinstance(control, widgets.Checkbox | widgets.ToggleButton):
        return [False, True]
    if hasattr(control, "options"):
        values = [option[1] if isinstance(option, tuple) else option for option in control.options]
        return list(dict.fromkeys([values[0], values[len(values) // 2], values[-1]]))
    steps = number_of_steps(control)
    return list(dict.fromkeys(at_step(control, step) for step in (0, steps // 2, steps)))


def random_setting(control: widgets.Widget, rng: random.Random) -> Any:
    if isinstance(control, widgets.Checkbox | widgets.ToggleButton):
        return rng.choice(settings_of(control))
    if hasattr(control, "options"):
        return rng.choice([option[1] if isinstance(option, tuple) else option for option in control.options])
    return at_step(control, rng.randint(0, number_of_steps(control)))


def number_of_steps(control: widgets.Widget) -> int:
    return math.ceil((control.max - control.min) / control.step - 1e-6)  # the last one may be shorter


def at_step(control: widgets.Widget, step: int) -> Any:
    value = min(control.min + step * control.step, control.max)
    return value


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def rests_on_a_step(control: widgets.Widget) -> bool:
    """Say whether the page will show the value as it is: a slider moves others to the nearest step."""
    if hasattr(control, "options") or not hasattr(control, "step"):
        return True
    steps = (control.value - control.min) / control.step
    return bool(abs(steps - round(steps)) < 1e-6)


def sweep(panel: Panel) -> Iterator[tuple[str, str | None]]:
    """Move each control to its ends and its middle, the others at rest; then set random combinations.

    After each move, yields what was done and the name of the control if it was a single one.
    """
    rest = panel.values
    for name, control in panel.controls.items():
        for value in settings_of(control):
            panel.set(**{**rest, name: value})
            yield f"{name} = {panel.values[name]!r}", name
        panel.set(**rest)
    rng = random.Random(0)
    for _ in range(N_RANDOM):
        panel.set(**{name: random_setting(control, rng) for name, control in panel.controls.items()})
        yield ", ".join(f"{name} = {value!r}" for name, value in panel.values.items()), None
    panel.set(**rest)


def acts_at(panel: Panel, name: str) -> dict[str, Any] | None:
    """Return values at which this control changes the picture, one other control moved away from rest.

    For what belongs to one method of several, as a threshold does. None if there is no such place.
    """
    rest = panel.values
    try:
        for other, control in panel.controls.items():
            for value in every_setting(control) if other != name else []:
                panel.set(**{**rest, other: value})
                place, before = panel.values, pixels(panel.figure)
                for setting in settings_of(panel.controls[name]):
                    panel.set(**{**place, name: setting})
                    if panel.error is None and (pixels(panel.figure) != before).any():
                        return place
    finally:
        panel.set(**rest)
    return None


def every_setting(control: widgets.Widget) -> list[Any]:
    """Return all values of a control, or its lowest, middle and highest if they are many."""
    if hasattr(control, "options"):
        return [option[1] if isinstance(option, tuple) else option for option in control.options]
    if hasattr(control, "step") and number_of_steps(control) <= 20:
        return [at_step(control, step) for step in range(number_of_steps(control) + 1)]
    return settings_of(control)


class Reference:
    """The panel's figure built anew and drawn in full, to compare the panel's picture with."""

    def __init__(self, panel: Panel) -> None:
        self.figure = new_figure()
        again = {"redraw": lambda: None} if "redraw" in signature(panel._build).parameters else {}
        self.update = panel._build(self.figure, **again)

    def draw(self, values: dict[str, Any]) -> list[Text]:
        """Draw the values, and return the texts that are seen."""
        self.update(**values)
        texts: list[Text] = []
        draw_text = Text.draw

        def draw_and_note(text: Text, renderer: Any) -> None:
            texts.append(text)
            draw_text(text, renderer)

        with mock.patch.object(Text, "draw", draw_and_note):
            self.figure.canvas.draw()
        return [text for text in texts if text.get_visible() and text.get_text().strip()]


# --- Judging them ---


def names_value(sentence: str, value: float) -> bool:
    """Say whether a number of the sentence is the value, rounded to two digits or more, or its percentage."""
    for match in NUMBER.finditer(sentence):
        top, _, bottom = match[0].replace(",", "").replace("−", "-").partition("/")
        number = float(top) / float(bottom or 1) if float(bottom or 1) else float(top)
        numbers = [number, number / 100] if sentence[match.end() :].lstrip()[:1] == "%" else [number]
        if any(abs(number - value) <= 0.05 * abs(value) + 1e-12 for number in numbers):
            return True
    return False


def faults_of_sentence(sentence: str) -> list[str]:
    if not sentence.strip():
        return ["the sentence is empty"]
    return [] if sentence.endswith(".") else [f"the sentence has no full stop: {sentence}"]


def faults_of_size(figure: Figure) -> list[str]:
    height = figure.get_size_inches()[1] * DPI + CONTROLS_AND_CAPTION
    return [f"with its controls it is {height:.0f} pixels high"] if height > WINDOW_HEIGHT else []


def faults_of_texts(figure: Figure, texts: list[Text]) -> list[str]:
    """Say which texts are too small, cut by the figure's edge, or printed over each other."""
    ticks = {
        label
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for tick in (*axis.majorTicks, *axis.minorTicks)
        for label in (tick.label1, tick.label2)
    }
    faults = []
    boxes = []
    slack = PIXEL_RATIO
    for text in texts:
        words, points = text.get_text().replace("\n", " / "), text.get_fontsize()
        if points < (TICK_POINTS if text in ticks else TEXT_POINTS):
            faults.append(f"{words!r} has {points:g} points")
        box = text.get_window_extent()
        if text.get_clip_on() and text.get_clip_box() is not None and not box.overlaps(text.get_clip_box()):
            continue
        if min(box.x0, box.y0) < -slack or box.x1 > figure.bbox.x1 + slack or box.y1 > figure.bbox.y1 + slack:
            faults.append(f"{words!r} is cut by the figure's edge ({box.bounds})")
        if text.get_rotation() % 90 == 0:  # the box of a slanted text covers much that the text does not
            boxes.append((words, box))
    for (words, box), (other_words, other) in combinations(boxes, 2):
        wide = min(box.x1, other.x1) - max(box.x0, other.x0)
        high = min(box.y1, other.y1) - max(box.y0, other.y0)
        if min(wide, high) > OVERLAP_PIXELS * PIXEL_RATIO:
            faults.append(f"{words!r} and {other_words!r} overlap by {wide:.0f} x {high:.0f} pixels")
    return faults


def pixels(figure: Figure) -> np.ndarray:
    return np.array(figure.canvas.buffer_rgba())
