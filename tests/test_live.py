"""Live figures: controls, limits, errors, and what a notebook stores of them. No browser is needed."""

import base64
import gc
import html
import io
import queue
import re
import subprocess
import sys
import threading
import weakref

import ipywidgets as widgets
import nbformat
import numpy as np
import pytest
from ipywidgets.widgets import widget
from nbclient import NotebookClient
from PIL import Image

from helpers.drawing import PIXEL_RATIO
from helpers.live import VIEW, Later, Panel, choice, live, log_slider, slider, switch


class Counted:
    """A builder that notes what it was called with; fails says with which values it raises."""

    def __init__(self, fails=lambda **values: False, builds=True, size=(5, 2)):
        self.calls, self.builds, self.fails, self.size = [], builds, fails, size

    def __call__(self, figure):
        figure.set_size_inches(*self.size)
        axes = figure.add_axes([0.1, 0.2, 0.8, 0.6])
        if not self.builds:
            raise OSError("the table is missing")
        (line,) = axes.plot([0, 1], [0, 0])
        axes.set_ylim(0, 100)

        def update(**values):
            self.calls.append(values)
            if self.fails(**values):
                raise ValueError(f"no picture for {values}")
            numbers = [value for value in values.values() if isinstance(value, int | float)]
            line.set_ydata([0, sum(numbers)])
            return f"Now {', '.join(f'{name} = {value}' for name, value in values.items())}."

        return update


def decoded(panel):
    return np.asarray(Image.open(io.BytesIO(panel.image.value)))


def hidden(panel):
    return panel.image.layout.visibility == "hidden"


# --- Controls ---


def test_each_kind_of_control_gives_its_value():
    build = Counted()
    panel = live(
        build,
        whole=slider(3, 0, 10),
        decimal=slider(0.5, 0, 1, 0.25),
        far=log_slider(100, 1, 10_000),
        on=switch(True),
        word=choice("b", ["a", "b"]),
        frame=widgets.Play(value=2, min=0, max=5),
    )
    assert isinstance(panel, Panel)
    assert build.calls == [panel.values]
    assert panel.values == {"whole": 3, "decimal": 0.5, "far": 100, "on": True, "word": "b", "frame": 2}
    assert type(panel.values["whole"]) is int
    moved = {"whole": 10, "decimal": 0.75, "far": 10_000, "on": False, "word": "a", "frame": 5}
    for name, value in moved.items():
        panel.controls[name].value = value  # as the page does
        assert build.calls[-1] == panel.values
        assert build.calls[-1][name] == value
        assert f"{name} = {value}" in panel.sentence
    assert len(build.calls) == 1 + len(moved)


def test_sliders_have_the_given_ends_and_steps():
    whole, decimal = slider(3, 1, 9, 2), slider(0.5, 0, 1, 0.1)
    assert (whole.min, whole.max, whole.step) == (1, 9, 2)
    assert isinstance(whole, widgets.IntSlider)
    assert (decimal.min, decimal.max, decimal.step) == (0, 1, 0.1)
    assert isinstance(decimal, widgets.FloatSlider)


def test_a_log_slider_holds_the_round_numbers_its_ends_and_what_it_is_told():
    values = [value for _, value in log_slider(700, 7, 3000, also=[64, 9000]).options]
    decade = [10, 12, 15, 20, 25, 30, 40, 50, 60, 64, 80]
    hundreds = [100, 120, 150, 200, 250, 300, 400, 500, 600, 700, 800]
    assert values == [7, 8, *decade, *hundreds, 1000, 1200, 1500, 2000, 2500, 3000]
    assert all(type(value) is int for value in values)


def test_a_log_slider_can_go_below_one():
    control = log_slider(1, 1 / 16, 2, whole=False)
    expected = [0.0625, 0.08, 0.1, 0.12, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.8, 1, 1.2, 1.5, 2]
    assert [value for _, value in control.options] == expected
    assert [label for label, _ in control.options][:4] == ["0.0625", "0.08", "0.1", "0.12"]


@pytest.mark.parametrize(("value", "low", "high"), [(5, 0, 10), (5, -1, 10), (20, 1, 10), (0.5, 1, 10)])
def test_a_log_slider_without_room_is_named(value, low, high):
    with pytest.raises(ValueError, match=f"^value must be from low to high, .* but got {value} in {low} to"):
        log_slider(value, low, high)


def test_a_log_slider_shows_thousands():
    assert log_slider(10_000, 10, 1_000_000).label == "10,000"


def test_a_control_without_a_label_gets_its_name():
    panel = live(Counted(), d_model=slider(1, 0, 3), far=log_slider(10, 1, 100, "how far"), on=switch(False))
    assert [control.description for control in panel.controls.values()] == ["d model", "how far", "on"]


def test_a_figure_that_was_dropped_keeps_no_pixels():
    panel = live(Counted(), a=slider(1, 0, 3))
    canvas = weakref.ref(panel.figure.canvas)
    panel.close()
    del panel
    gc.collect()
    assert canvas() is None


def test_the_page_holds_the_controls_the_picture_and_its_caption():
    panel = live(Counted(), a=slider(1, 0, 3), b=slider(2, 0, 3))
    row, image, caption = panel.box.children
    assert row.children == tuple(panel.controls.values())
    assert image is panel.image
    assert caption is panel.caption


def test_a_change_changes_the_picture():
    panel = live(Counted(), height=slider(1, 0, 99))
    before = decoded(panel)
    panel.controls["height"].value = 80
    after = decoded(panel)
    assert after.shape == before.shape
    assert (after != before).any()
    panel.controls["height"].value = 1
    np.testing.assert_array_equal(decoded(panel), before)


# --- Limits ---


def with_limits():
    build = Counted()
    panel = live(
        build, limits={"head": lambda heads: heads - 1}, heads=slider(8, 1, 16), head=slider(7, 0, 7)
    )
    return panel, build


def test_a_limit_pulls_the_value_in_with_one_redraw():
    panel, build = with_limits()
    panel.controls["heads"].value = 3
    assert panel.values == {"heads": 3, "head": 2}
    assert panel.controls["head"].max == 2
    assert build.calls[1:] == [{"heads": 3, "head": 2}]
    assert "heads = 3, head = 2" in panel.sentence


def test_a_limit_that_grows_leaves_the_value():
    panel, build = with_limits()
    panel.controls["heads"].value = 16
    assert panel.values == {"heads": 16, "head": 7}
    assert panel.controls["head"].max == 15
    assert len(build.calls) == 2


def test_a_limit_holds_from_the_start():
    panel = live(
        Counted(), limits={"head": lambda heads: heads - 1}, heads=slider(4, 1, 16), head=slider(9, 0, 15)
    )
    assert panel.values == {"heads": 4, "head": 3}
    assert "head = 3" in panel.sentence


@pytest.mark.parametrize("names", [("heads", "head"), ("head", "heads")])
@pytest.mark.parametrize(("heads", "head"), [(16, 12), (2, 1), (2, 9)])
def test_set_moves_limited_controls_in_any_order(names, heads, head):
    panel, build = with_limits()
    wanted = {"heads": heads, "head": head}
    panel.set(**{name: wanted[name] for name in names})
    assert panel.values == {"heads": heads, "head": min(head, heads - 1)}
    assert build.calls[1:] == [panel.values]


def test_limits_may_depend_on_several_controls_and_on_each_other():
    build = Counted()
    panel = live(
        build,
        limits={"head": lambda heads: heads - 1, "pair": lambda width, head: width // 2 - 1 + head},
        width=slider(8, 2, 64, 2),
        heads=slider(4, 1, 16),
        head=slider(3, 0, 15),
        pair=slider(0, 0, 99),
    )
    panel.set(pair=99)
    assert panel.values["pair"] == 8 // 2 - 1 + 3
    panel.controls["heads"].value = 1
    assert panel.values == {"width": 8, "heads": 1, "head": 0, "pair": 3}
    assert len(build.calls) == 3


# --- Moving from code ---


def test_set_draws_once_and_returns_the_panel():
    build = Counted()
    panel = live(build, a=slider(1, 0, 9), b=slider(2, 0, 9), on=switch(False))
    assert panel.set(a=5, b=6, on=True) is panel
    assert build.calls[1:] == [{"a": 5, "b": 6, "on": True}]
    assert panel.sentence == "Now a = 5, b = 6, on = True."


def test_set_refuses_unknown_names_and_moves_nothing():
    build = Counted()
    panel = live(build, a=slider(1, 0, 9), b=slider(2, 0, 9))
    with pytest.raises(ValueError, match=r"set takes a, b, but got c, d"):
        panel.set(a=5, d=1, c=2)
    assert panel.values == {"a": 1, "b": 2}
    assert len(build.calls) == 1


def test_set_with_a_value_that_is_not_offered_keeps_picture_and_controls_together():
    panel = live(Counted(), a=slider(1, 0, 9), word=choice("x", ["x", "y"]))
    with pytest.raises(Exception, match="Invalid selection"):
        panel.set(a=5, word="z")
    assert panel.values == {"a": 5, "word": "x"}
    assert panel.sentence == "Now a = 5, word = x."
    panel.controls["a"].value = 6  # and the controls still work
    assert "a = 6" in panel.sentence


# --- Errors ---


def test_an_error_is_said_in_words_and_the_next_legal_value_recovers():
    build = Counted(fails=lambda a, b: a > b)
    panel = live(build, a=slider(1, 0, 9), b=slider(2, 0, 9))
    assert not hidden(panel)
    for _ in range(2):
        panel.controls["a"].value = 7
        assert isinstance(panel.error, ValueError)
        assert "no picture for {'a': 7, 'b': 2} (ValueError)" in panel.sentence
        assert html.escape(panel.sentence) in panel.caption.value
        assert "Move a control" in panel.caption.value
        assert hidden(panel)
        panel.controls["b"].value = 8
        assert panel.error is None
        assert panel.sentence == "Now a = 7, b = 8."
        assert panel.sentence in panel.caption.value
        assert not hidden(panel)
        fresh = live(Counted(), a=slider(7, 0, 9), b=slider(8, 0, 9))
        np.testing.assert_array_equal(decoded(panel), decoded(fresh))
        panel.set(a=1, b=2)


def test_a_picture_that_cannot_be_drawn_is_an_error_too():
    def build(figure):
        text = figure.text(0.5, 0.5, "")

        def update(broken):
            text.set_text("$\\frac{$" if broken else "whole")
            return "A text."

        return update

    panel = live(build, broken=switch(False))
    before = panel.image.value
    panel.controls["broken"].value = True
    assert isinstance(panel.error, ValueError)
    assert hidden(panel)
    panel.controls["broken"].value = False
    assert panel.error is None
    assert panel.image.value == before


def test_values_that_are_illegal_at_first_are_said_in_words():
    panel = live(Counted(fails=lambda a: a < 5), a=slider(1, 0, 9))
    assert isinstance(panel.error, ValueError)
    assert hidden(panel)
    panel.controls["a"].value = 6
    assert panel.error is None
    assert not hidden(panel)
    assert decoded(panel).shape == (200 * PIXEL_RATIO, 500 * PIXEL_RATIO, 3)


def test_a_builder_that_fails_at_first_is_called_again():
    build = Counted(builds=False)
    panel = live(build, a=slider(1, 0, 9))
    assert isinstance(panel.error, OSError)
    assert "the table is missing (OSError)" in panel.sentence
    assert "the table is missing" in panel.caption.value
    assert hidden(panel)
    assert build.calls == []
    build.builds, build.size = True, (6, 3)
    panel.controls["a"].value = 2
    assert panel.error is None
    assert not hidden(panel)
    assert len(panel.figure.axes) == 1  # what the failed attempt drew is gone
    assert panel.image.layout.width == "600px"
    np.testing.assert_array_equal(decoded(panel), decoded(live(Counted(size=(6, 3)), a=slider(2, 0, 9))))


def test_a_builder_that_draws_is_not_called_again():
    built = []

    def build(figure):
        built.append(figure)
        return Counted()(figure)

    panel = live(build, a=slider(1, 0, 9))
    panel.set(a=2).set(a=3)
    assert built == [panel.figure]


# --- What a notebook stores, and what is read out ---


def test_the_mime_bundle_has_the_widget_the_picture_and_its_words():
    panel = live(Counted(size=(7, 3)), a=slider(1, 0, 9)).set(a=4)
    data, metadata = panel._repr_mimebundle_(include=None, exclude=None)
    view = data["application/vnd.jupyter.widget-view+json"]
    assert view["model_id"] == panel.box.model_id
    assert data["text/plain"] == panel.sentence == "Now a = 4."
    assert data["text/plain"] in panel.caption.value
    picture = Image.open(io.BytesIO(base64.b64decode(data["image/png"])))
    assert picture.format == "PNG"
    assert picture.size == (700 * PIXEL_RATIO, 300 * PIXEL_RATIO)
    np.testing.assert_array_equal(np.asarray(picture), decoded(panel))
    assert metadata["image/png"] == {"alt": "Now a = 4.", "width": 700, "height": 300}


def test_the_stored_picture_is_the_same_from_run_to_run():
    pictures = {live(Counted(), a=slider(1, 0, 9)).set(a=4).image.value for _ in range(3)}
    assert len(pictures) == 1
    # ... and does not depend on what was shown before.
    assert live(Counted(), a=slider(1, 0, 9)).set(a=9).set(a=2).set(a=4).image.value in pictures


@pytest.mark.parametrize("build", [Counted(fails=lambda a: a > 5), Counted(builds=False)])
def test_an_error_is_stored_without_a_picture_of_other_values(build):
    panel = live(build, a=slider(1, 0, 9)).set(a=7)
    data, _ = panel._repr_mimebundle_()
    assert data["text/plain"] == panel.sentence
    assert "can't be drawn" in data["text/plain"]
    assert "image/png" not in data


def test_the_caption_shows_text_as_it_is():
    def build(figure):
        return lambda a: f"<b>a</b> & {a} < 5 > 'x'."

    panel = live(build, a=slider(1, 0, 9))
    assert "&lt;b&gt;a&lt;/b&gt; &amp; 1 &lt; 5 &gt;" in panel.caption.value
    assert "<b>" not in panel.caption.value
    assert panel._repr_mimebundle_()[0]["text/plain"] == "<b>a</b> & 1 < 5 > 'x'."


def test_the_picture_is_named_by_the_sentence():
    panel = live(Counted(), a=slider(1, 0, 9))
    assert panel.image.tooltip == "Now a = 1."
    panel.controls["a"].value = 3
    assert panel.image.tooltip == "Now a = 3."
    # The front end reads this trait when there is a tooltip, and fails where a model lacks it.
    assert "description" in panel.image.keys


def test_the_picture_is_as_wide_as_the_figure_or_the_page():
    panel = live(Counted(size=(7, 3)), a=slider(1, 0, 9))
    layout = panel.image.layout
    assert (layout.width, layout.max_width, layout.height) == ("700px", "100%", "auto")


# --- Threads ---


def test_changes_from_several_threads_leave_the_last_values_shown():
    build = Counted()
    panel = live(build, a=slider(0, 0, 99), b=slider(0, 0, 99), c=slider(0, 0, 99))

    def move(name, start):
        for number in range(start, start + 30):
            if number % 3:
                panel.controls[name].value = number
            else:
                panel.set(**{name: number})

    threads = [threading.Thread(target=move, args=(name, 2 + 7 * k)) for k, name in enumerate("abc")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert panel.values == {"a": 31, "b": 38, "c": 45}
    assert panel.error is None
    assert panel.sentence == "Now a = 31, b = 38, c = 45."
    assert panel.sentence in panel.caption.value
    fresh = live(Counted(), a=slider(31, 0, 99), b=slider(38, 0, 99), c=slider(45, 0, 99))
    np.testing.assert_array_equal(decoded(panel), decoded(fresh))


def test_only_one_thread_draws_at_a_time():
    inside, most = [], []

    def build(figure):
        update = Counted()(figure)

        def slow(**values):
            inside.append(1)
            most.append(len(inside))
            threading.Event().wait(0.002)
            inside.pop()
            return update(**values)

        return slow

    panel = live(build, a=slider(0, 0, 99), b=slider(0, 0, 99))
    threads = [
        threading.Thread(target=lambda name=name: [panel.set(**{name: n}) for n in range(1, 15)])
        for name in "ab"
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(most) == {1}


def test_an_error_in_one_thread_lets_the_others_go_on():
    panel = live(Counted(fails=lambda a: a == 5), a=slider(0, 0, 9))
    thread = threading.Thread(target=lambda: panel.set(a=5))
    thread.start()
    thread.join()
    assert panel.error is not None
    assert panel.set(a=6).error is None


# --- What comes later ---

LONG = 60  # seconds; nothing takes that long unless it hangs


class Gated:
    """Numbers that are ready when the test says so. Notes what was asked for, and on which thread."""

    def __init__(self, fails=()):
        self.fails, self.calls, self.threads = fails, [], []
        self.started, self.drawn = queue.Queue(), queue.Queue()
        self.go = threading.Semaphore(0)

    def compute(self, *key):
        self.calls.append(key)
        self.threads.append(threading.current_thread())
        self.started.put(key)
        assert self.go.acquire(timeout=LONG)
        if key in self.fails:
            raise ValueError(f"no number for {key}")
        return f"number {key}"

    def redraw(self):
        self.drawn.put(threading.current_thread())

    def later(self):
        return Later(self.compute, self.redraw)

    def wait_for_start(self):
        return self.started.get(timeout=LONG)

    def wait_for_redraw(self):
        return self.drawn.get(timeout=LONG)

    def build(self, figure, redraw):
        """A builder whose line waits for its number; it notes when it was drawn again."""

        def redraw_and_note():
            redraw()
            self.redraw()

        later = Later(self.compute, redraw_and_note)
        axes = figure.add_axes([0.1, 0.2, 0.8, 0.6])
        (line,) = axes.plot([0, 1], [0, 0])
        axes.set_ylim(0, 10)

        def update(a, b=0):
            found = later.get(a)
            line.set_visible(found is not None)
            line.set_ydata([0, a])
            return f"a = {a}, b = {b}: {'being measured' if found is None else found}."

        return update


@pytest.fixture
def all_ended():
    """After the test, no thread that it started is left."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        thread.join(LONG)
        assert not thread.is_alive()


no_thread_is_left = pytest.mark.usefixtures("all_ended")


@no_thread_is_left
def test_later_computes_in_a_thread_and_draws_again():
    gated = Gated()
    later = gated.later()
    assert later.get("a", 1) is None
    assert gated.wait_for_start() == ("a", 1)
    assert gated.drawn.empty()
    gated.go.release()
    assert gated.wait_for_redraw() is gated.threads[0]
    assert gated.threads[0] is not threading.current_thread()
    assert later.get("a", 1) == "number ('a', 1)"
    assert later.get("a", 1) == "number ('a', 1)"
    assert gated.calls == [("a", 1)]
    assert gated.drawn.empty()


@no_thread_is_left
def test_the_last_wish_comes_first_and_those_between_are_dropped():
    gated = Gated()
    later = gated.later()
    assert later.get(1) is None
    assert gated.wait_for_start() == (1,)
    for wish in (2, 3, 4, 3, 5):
        assert later.get(wish) is None
    gated.go.release(9)
    for _ in range(2):
        gated.wait_for_redraw()
    assert gated.calls == [(1,), (5,)]
    assert later.get(5) == "number (5,)"
    assert later.get(1) == "number (1,)"


@no_thread_is_left
def test_a_dropped_wish_can_be_wished_again():
    gated = Gated()
    later = gated.later()
    later.get(1)
    gated.wait_for_start()
    later.get(2)
    later.get(3)
    gated.go.release(9)
    for _ in range(2):
        gated.wait_for_redraw()
    assert later.get(2) is None
    gated.wait_for_redraw()
    assert later.get(2) == "number (2,)"
    assert gated.calls == [(1,), (3,), (2,)]


@no_thread_is_left
def test_a_wish_may_come_while_it_draws_again():
    """As when an update asks for a second number once it has the first."""
    gated = Gated()
    gated.go.release(9)
    found = []

    def redraw():
        found.append((later.get(1), later.get(2)))
        gated.redraw()

    later = Later(gated.compute, redraw)
    assert later.get(1) is None
    for _ in range(2):
        gated.wait_for_redraw()
    assert found == [("number (1,)", None), ("number (1,)", "number (2,)")]


@no_thread_is_left
def test_only_one_number_is_computed_at_a_time():
    gated = Gated()
    later = gated.later()
    later.get(1)
    gated.wait_for_start()
    later.get(2)
    assert gated.calls == [(1,)]  # the second waits, for the first is not through its gate
    assert gated.started.empty()
    gated.go.release(2)
    for _ in range(2):
        gated.wait_for_redraw()
    assert gated.calls == [(1,), (2,)]


@no_thread_is_left
def test_now_waits_and_is_kept():
    gated = Gated()
    later = gated.later()
    gated.go.release()
    assert later.now(7) == "number (7,)"
    assert gated.threads == [threading.current_thread()]
    assert later.now(7) == later.get(7) == "number (7,)"
    assert gated.calls == [(7,)]
    assert gated.drawn.empty()


@no_thread_is_left
def test_an_error_comes_with_its_number_and_leaves_the_others():
    gated = Gated(fails=[(2,)])
    gated.go.release(9)
    later = gated.later()
    assert later.get(2) is None
    gated.wait_for_redraw()
    for _ in range(2):
        with pytest.raises(ValueError, match="no number for"):
            later.get(2)
    assert later.get(3) is None
    gated.wait_for_redraw()
    assert later.get(3) == "number (3,)"
    assert gated.calls == [(2,), (3,)]


@no_thread_is_left
def test_an_error_of_now_is_raised_at_once():
    gated = Gated(fails=[(2,)])
    gated.go.release(9)
    with pytest.raises(ValueError, match="no number for"):
        gated.later().now(2)


@no_thread_is_left
def test_now_raises_an_error_that_came_in_the_thread():
    gated = Gated(fails=[(2,)])
    gated.go.release(9)
    later = gated.later()
    later.get(2)
    gated.wait_for_redraw()
    with pytest.raises(ValueError, match="no number for"):
        later.now(2)


@no_thread_is_left
def test_what_is_being_computed_is_not_computed_again():
    """Moving a control that the number does not depend on asks for the same number."""
    gated = Gated()
    later = gated.later()
    later.get(1)
    gated.wait_for_start()
    later.get(1)
    gated.go.release(9)
    gated.wait_for_redraw()
    for thread in gated.threads:
        thread.join(LONG)
    assert gated.calls == [(1,)]


@no_thread_is_left
def test_an_error_of_the_redraw_does_not_stop_the_numbers(monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    gated = Gated()

    def redraw():
        raise OSError("the page is gone")

    later = Later(gated.compute, redraw)
    later.get(1)
    gated.go.release()
    gated.wait_for_start()
    gated.threads[0].join(LONG)
    before = set(threading.enumerate())
    assert later.get(2) is None
    assert set(threading.enumerate()) - before  # one that waits at the gate
    gated.go.release()
    assert gated.wait_for_start() == (2,)


@no_thread_is_left
def test_a_panel_says_that_it_waits_and_then_follows_by_itself():
    gated = Gated()
    panel = live(gated.build, a=slider(3, 0, 9))
    assert panel.error is None
    assert panel.sentence == "a = 3, b = 0: being measured."
    assert panel.sentence in panel.caption.value
    assert not hidden(panel)
    before = decoded(panel)
    gated.go.release()
    gated.wait_for_redraw()
    assert panel.sentence == "a = 3, b = 0: number (3,)."
    assert panel.sentence in panel.caption.value
    assert panel.image.tooltip == panel.sentence
    assert (decoded(panel) != before).any()
    assert panel._repr_mimebundle_()[0]["text/plain"] == panel.sentence


@no_thread_is_left
def test_a_panel_that_waits_follows_the_hand():
    gated = Gated()
    panel = live(gated.build, a=slider(1, 0, 9))
    gated.wait_for_start()
    for a in (2, 3, 4):
        panel.controls["a"].value = a
        assert panel.sentence == f"a = {a}, b = 0: being measured."
    gated.go.release()
    gated.wait_for_redraw()
    assert panel.sentence == "a = 4, b = 0: being measured."  # the number of a = 1 came, and isn't shown
    gated.go.release()
    gated.wait_for_redraw()
    assert panel.sentence == "a = 4, b = 0: number (4,)."
    assert gated.calls == [(1,), (4,)]
    panel.set(a=1)
    assert panel.sentence == "a = 1, b = 0: number (1,)."


@no_thread_is_left
def test_a_panel_shows_what_was_measured_before_at_once():
    gated = Gated()
    gated.go.release(9)
    panel = live(gated.build, a=slider(1, 0, 9))
    gated.wait_for_redraw()
    first = decoded(panel)
    panel.set(a=2)
    gated.wait_for_redraw()
    panel.set(a=1)
    assert panel.sentence == "a = 1, b = 0: number (1,)."
    np.testing.assert_array_equal(decoded(panel), first)
    assert gated.drawn.empty()


@no_thread_is_left
def test_an_error_of_a_number_reaches_the_panel_and_other_values_recover():
    gated = Gated(fails=[(5,)])
    gated.go.release(99)
    panel = live(gated.build, a=slider(5, 0, 9), b=slider(0, 0, 9))
    gated.wait_for_redraw()
    for _ in range(2):
        assert isinstance(panel.error, ValueError)
        assert "no number for (5,) (ValueError)" in panel.sentence
        assert "Move a control" in panel.caption.value
        assert hidden(panel)
        assert "image/png" not in panel._repr_mimebundle_()[0]
        panel.controls["b"].value += 1  # no help
        assert isinstance(panel.error, ValueError)
        if panel.set(a=6).sentence.endswith("being measured."):
            gated.wait_for_redraw()
        assert panel.error is None
        assert panel.sentence == f"a = 6, b = {panel.values['b']}: number (6,)."
        assert not hidden(panel)
        panel.set(a=5)
    assert gated.calls == [(5,), (6,)]


@no_thread_is_left
def test_a_number_that_comes_amid_moves_leaves_the_last_values_shown():
    gated = Gated()
    gated.go.release(999)
    panel = live(gated.build, a=slider(0, 0, 99), b=slider(0, 0, 99))
    for step in range(1, 40):
        panel.set(a=step % 10) if step % 2 else panel.set(b=step)
    panel.set(a=9, b=99)
    while panel.sentence != "a = 9, b = 99: number (9,).":
        gated.wait_for_redraw()
    for thread in gated.threads:
        thread.join(LONG)
    assert panel.error is None
    assert panel.sentence == "a = 9, b = 99: number (9,)."
    fresh = Gated()
    fresh.go.release(9)
    other = live(fresh.build, a=slider(9, 0, 99), b=slider(99, 0, 99))
    fresh.wait_for_redraw()
    np.testing.assert_array_equal(decoded(panel), decoded(other))


def test_a_builder_is_given_the_redraw_only_if_it_asks():
    given = []

    def build(figure, **options):
        given.append(options)
        return lambda a: f"{a}."

    live(build, a=slider(1, 0, 9))
    assert given == [{}]


# --- Set-up ---


def run_fresh(code):
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


def test_pyplot_is_never_imported():
    code = """if True:
        import sys
        import helpers.live
        panel = helpers.live.live(lambda figure: lambda a: f"{a}.", a=helpers.live.slider(1, 0, 3))
        panel.set(a=2)._repr_mimebundle_()
        print("matplotlib.pyplot" in sys.modules)
    """
    assert run_fresh(code) == ["False"]


def test_small_matrices_are_multiplied_by_one_thread():
    code = """if True:
        import numpy
        import helpers.live
        from threadpoolctl import threadpool_info
        print(*(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"))
    """
    assert set(run_fresh(code)) <= {"1"}


# --- Cells that run again, programs that only run, and mistakes of a builder ---


class Kernel:
    """As much of a kernel as a panel asks for: the cell that runs, and whether somebody is there."""

    def __init__(self, cell="one", execution=1, somebody=True):
        self.kernel, self._allow_stdin = self, somebody
        self.cell, self.execution_count = cell, execution

    def get_parent(self, channel):
        return {"metadata": {"cellId": self.cell} if self.cell else {}}


@pytest.fixture
def kernel(monkeypatch):
    kernel = Kernel()
    monkeypatch.setattr("helpers.live.get_ipython", lambda: kernel)
    monkeypatch.setattr("helpers.live._panels", {})
    return kernel


def test_a_cell_that_runs_again_closes_its_panels(kernel):
    live(Counted(), a=slider(1, 0, 3))
    before = len(widget._instances)
    for kernel.execution_count in range(2, 6):
        panel = live(Counted(), a=slider(1, 0, 3))
    assert len(widget._instances) == before
    panel.controls["a"].value = 2
    assert "a = 2" in panel.sentence


def test_what_is_closed_keeps_no_picture(kernel):
    old = live(Counted(), a=slider(1, 0, 3))
    figure = weakref.ref(old.figure.canvas)
    kernel.execution_count += 1
    live(Counted(), a=slider(1, 0, 3))
    gc.collect()
    assert figure() is None
    old._on_change()  # what comes late does nothing
    assert list(old._repr_mimebundle_()[0]) == ["text/plain"]  # Out[1] can still be asked for


@pytest.mark.parametrize("cells", [("one", "two"), (None, None)])
def test_panels_of_other_cells_stay(kernel, cells):
    panels = []
    for kernel.execution_count, kernel.cell in enumerate(cells):
        panels.append(live(Counted(), a=slider(1, 0, 3)))
    for panel in panels:
        panel.controls["a"].value = 2
        assert "a = 2" in panel.sentence


def test_all_panels_of_one_run_stay(kernel):
    first, second = (live(Counted(), a=slider(1, 0, 3)) for _ in range(2))
    first.controls["a"].value = 2
    second.controls["a"].value = 3
    assert ("a = 2" in first.sentence, "a = 3" in second.sentence) == (True, True)


@pytest.mark.parametrize("somebody", [True, False])
def test_a_program_that_only_runs_gets_the_picture_alone(kernel, somebody):
    kernel._allow_stdin = somebody
    data, metadata = live(Counted(), a=slider(1, 0, 3))._repr_mimebundle_()
    assert (VIEW in data) is (VIEW in metadata) is somebody
    assert data["image/png"]
    assert data["text/plain"] == "Now a = 1."


def test_an_update_without_a_sentence_is_said_in_the_panels_place():
    panel = live(lambda figure: lambda a: None, a=slider(1, 0, 3))
    assert isinstance(panel.error, TypeError)
    assert "update must return a sentence, but it returned a NoneType" in panel.caption.value


def test_a_way_out_of_python_is_said_in_the_panels_place():
    def leave(a):
        raise SystemExit("bye")

    panel = live(lambda figure: leave, a=slider(1, 0, 3))
    assert "bye (SystemExit)" in panel.caption.value


def test_a_limit_that_fails_is_said_in_the_panels_place():
    panel = live(Counted(), limits={"a": lambda b: 1 // b}, a=slider(1, 0, 3), b=slider(0, 0, 3))
    assert "ZeroDivisionError" in panel.caption.value
    panel.controls["b"].value = 2
    assert panel.error is None


def test_a_later_that_leaves_python_is_said_too():
    def leave(key):
        raise SystemExit("bye")

    panels, seen = [], threading.Event()

    def build(figure, redraw):
        def again():
            redraw()
            seen.set()

        later = Later(leave, again)
        return lambda a: f"Got {later.get(a)}."

    panels.append(live(build, a=slider(1, 0, 3)))
    assert seen.wait(10)
    assert "bye (SystemExit)" in panels[0].caption.value


class Unspeakable(Exception):
    def __str__(self):
        raise ValueError


@pytest.mark.parametrize("error", [Unspeakable(), ValueError("x" * 10**6)])
def test_any_error_is_said_in_a_few_lines(error):
    def fail(a):
        raise error

    panel = live(lambda figure: fail, a=slider(1, 0, 3))
    assert type(error).__name__ in panel.sentence
    assert len(panel.sentence) < 500


@pytest.mark.parametrize("value", [3, "base", widgets.Layout()])
def test_what_is_no_control_is_named(value):
    with pytest.raises(TypeError, match=r"^base must be a control, such as slider\(1, 0, 9\), but got"):
        live(Counted(), base=value)


def test_an_error_can_be_read_on_either_theme():
    """It brings its own paper: 4.5 is what WCAG asks for."""
    panel = live(lambda figure: lambda a: None, a=slider(1, 0, 3))
    ink, paper = re.findall("#([0-9A-F]{6})", panel.caption.value)
    lights = []
    for colour in (ink, paper):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (0, 2, 4)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        lights.append(np.dot(linear, [0.2126, 0.7152, 0.0722]))
    assert (max(lights) + 0.05) / (min(lights) + 0.05) >= 4.5


def test_a_notebook_that_a_program_runs_holds_pictures_alone():
    """So that `nbconvert --execute --to html` shows them without a network."""
    code = "from helpers.live import *\nlive(lambda figure: lambda a: f'a is {a}.', a=slider(1, 0, 3))"
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    NotebookClient(notebook, kernel_name="python3").execute()
    (output,) = notebook.cells[0].outputs
    assert set(output.data) == {"image/png", "text/plain"}
    assert output.data["text/plain"] == "a is 1."
