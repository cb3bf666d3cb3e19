"""Every live panel of the notebooks, moved over its whole range without a browser.

The kernel swallows an exception in a control's callback; here panel.set raises it, or panel.error holds it.
"""

import numpy as np
import pytest
from panels import (
    NOTEBOOKS,
    Reference,
    acts_at,
    cells_with_panels,
    faults_of_sentence,
    faults_of_size,
    faults_of_texts,
    is_number,
    names_value,
    panels_by_cell,
    pixels,
    rests_on_a_step,
    settings_of,
    sweep,
)

from helpers.live import Later, live, slider, switch

PATHS = sorted(NOTEBOOKS.glob("*.ipynb"))
PANELS = [(path, number) for path in PATHS for number in cells_with_panels(path)]


@pytest.fixture(autouse=True)
def nothing_comes_later(monkeypatch):
    """Panels wait for their numbers here, so that every picture compared is a finished one."""
    monkeypatch.setattr(Later, "get", Later.now)


def test_there_are_panels():
    assert len(PANELS) >= 5


@pytest.mark.parametrize(
    ("path", "number"), PANELS, ids=[f"{path.stem}-cell{number}" for path, number in PANELS]
)
def test_panel(path, number):
    panels = panels_by_cell(path).get(number)
    assert panels, "the cell calls live() and makes no panel"
    faults = [fault for panel in panels for fault in faults_of(panel)]
    assert not faults, "\n".join(faults[:30])


def faults_of(panel):
    """Return what is wrong with a panel, each fault once, with the first values that show it."""
    found = dict.fromkeys(faults_of_size(panel.figure), "at rest")
    for name, control in panel.controls.items():
        if not control.description.strip():
            found[f"{name} has no label"] = "at rest"
        if not rests_on_a_step(control):
            found[f"{name} opens at {control.value}, between two steps: the page would move it"] = "at rest"
    reference = Reference(panel)
    rest, rest_sentence, rest_pixels = panel.values, panel.sentence, pixels(panel.figure)
    without_effect, unsaid = set(panel.controls), {}
    for move, name in sweep(panel):
        faults = []
        if panel.error is not None:
            found.setdefault(f"error: {panel.error!r}", move)
            continue
        shown, sentence, values = pixels(panel.figure), panel.sentence, panel.values
        texts = reference.draw(values)
        expected = pixels(reference.figure)
        if shown.shape != expected.shape:
            faults.append(f"the picture is {shown.shape}, built anew {expected.shape}")
        elif (shown != expected).any():
            wrong = int((shown != expected).any(axis=-1).sum())
            faults.append(f"{wrong} pixels differ from a full redraw")
        faults += faults_of_sentence(sentence) + faults_of_texts(reference.figure, texts)
        if name is not None:
            if shown.shape != rest_pixels.shape or (shown != rest_pixels).any():
                without_effect.discard(name)
            if values[name] != rest[name]:
                unsaid[name] = [
                    *unsaid.get(name, []),
                    *fault_of_name(name, values[name], sentence, rest_sentence),
                ]
        for fault in faults:
            found.setdefault(fault, move)
    for name in panel.controls:
        place = acts_at(panel, name) if name in without_effect else rest
        if place is None:
            found[f"{name} changes nothing in the picture"] = "all its values"
            continue
        said = unsaid.get(name, []) if place == rest else faults_of_names(panel, name, place)
        found |= dict.fromkeys(said, f"at {place}")
    return [f"{fault}   [{move}]" for fault, move in found.items()]


def faults_of_names(panel, name, place):
    """Move a control that does nothing at rest where it does something, and judge the sentence there."""
    rest, faults = panel.values, []
    sentence = panel.set(**place).sentence
    for value in settings_of(panel.controls[name]):
        if value != place[name]:
            panel.set(**{**place, name: value})
            faults += fault_of_name(name, panel.values[name], panel.sentence, sentence)
    panel.set(**rest)
    return faults


def fault_of_name(name, value, sentence, before):
    if sentence != before or (is_number(value) and names_value(sentence, value)):
        return []
    return [f"the sentence neither names {name} nor changes with it: {sentence}"]


# --- The judges themselves ---


def panel_of(update, **controls):
    """A panel whose line and sentence are update(values) -> (height, sentence)."""

    def build(figure):
        axes = figure.add_axes([0.1, 0.2, 0.8, 0.7])
        (line,) = axes.plot([0, 1], [0, 0])
        axes.set_ylim(-1, 30)

        def move(**values):
            height, sentence = update(**values)
            line.set_ydata([0, height])
            return sentence

        return move

    return live(build, **controls)


@pytest.mark.parametrize(
    ("update", "expected"),
    [
        (lambda on, a: (a if on else 0, f"Height {a}." if on else "Off."), []),
        (lambda on, a: (a + 10 * on, f"Height {a}, {on}."), []),
        (lambda on, a: (10 * on, f"Height {a}, {on}."), ["a changes nothing in the picture"]),
        (lambda on, a: (10 * on, f"{on}."), ["a changes nothing in the picture"]),
        (
            lambda on, a: (a if on else 0, f"{on}."),
            ["the sentence neither names a nor changes with it: True."],
        ),
        (
            lambda on, a: (a + 10 * on, "Height."),
            [f"the sentence neither names {x} nor changes" for x in ("on", "a")],
        ),
    ],
    ids=["acts when on", "acts", "said, not shown", "idle", "shown when on, not said", "shown, not said"],
)
def test_a_control_is_judged_where_it_acts(update, expected):
    panel = panel_of(update, on=switch(False), a=slider(1, 0, 9))
    found = faults_of(panel)
    for fault in expected:
        assert any(line.startswith(fault) for line in found), found
    assert bool(found) == bool(expected)
    assert panel.values == {"on": False, "a": 1}


@pytest.mark.parametrize(
    ("sentence", "value"),
    [
        ("Base 10,000 is the usual one.", 10_000),
        ("Base 1e4.", 10_000),
        ("Base 1.2e-05.", 1.21e-5),
        ("The slope is 0.123.", 0.12345),
        ("The slope is 1/16.", 0.0625),
        ("Slope −0.5 or so.", -0.5),
        ("At 25 % strength.", 0.25),
        ("At 25% strength.", 0.25),
        ("Offset 0, head 3.", 0),
        ("A turn of 1,234,568 positions.", 1234567.9),
    ],
)
def test_a_named_value_is_found(sentence, value):
    assert names_value(sentence, value)


@pytest.mark.parametrize(
    ("sentence", "value"),
    [
        ("Base 10,000.", 1000),
        ("Base 1e4.", 4),
        ("Slope 0.5.", -0.5),
        ("Slope 0.12.", 0.145),
        ("Offset 10.", 0),
        ("At 25 positions.", 0.25),
        ("No number.", 3),
    ],
)
def test_a_value_that_is_not_named_is_missed(sentence, value):
    assert not names_value(sentence, value)


def test_texts_are_judged():
    from helpers.drawing import new_figure

    figure = new_figure(4, 3)
    texts = [
        figure.text(0.1, 0.5, "small", fontsize=9),
        figure.text(0.9, 0.2, "beyond the edge"),
        figure.text(0.4, 0.5, "one"),
        figure.text(0.41, 0.51, "two"),
        figure.text(0.1, 0.8, "well"),
    ]
    figure.canvas.draw()
    faults = faults_of_texts(figure, texts)
    assert len(faults) == 3
    assert "'small' has 9 points" in faults
    assert any("'beyond the edge' is cut" in fault for fault in faults)
    assert any("'one' and 'two' overlap" in fault for fault in faults)
    assert faults_of_size(new_figure(10, 6))
    assert not faults_of_size(new_figure(10, 5.8))
    assert np.array(faults_of_sentence("")).size == 1
    assert faults_of_sentence("No stop")
    assert not faults_of_sentence("A stop.")
