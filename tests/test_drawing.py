"""Figures without pyplot: a quick redraw shows the same pixels as a full one, and really is quick."""

import base64
import io
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.patches import ConnectionPatch, Rectangle
from PIL import Image

from helpers import drawing
from helpers.drawing import Redrawer, Still, display_data, new_figure, png, still


def pixels(figure):
    return np.array(figure.canvas.buffer_rgba())


def wave(number, n=40):
    return np.sin(np.arange(n) / (2 + number))


def grid_of(number):
    return np.sin(np.add.outer(np.arange(12), np.arange(9)) * (number + 1) / 5)


# --- Scenes: each is built twice, and every change is made in both ---


def image_scene(figure):
    """A see-through image with holes, without a colour bar, and marks over it."""
    axes = figure.add_axes([0.1, 0.1, 0.35, 0.8])
    image = axes.imshow(grid_of(0), vmin=-1, vmax=1, alpha=0.7)
    (marker,) = axes.plot([2, 6], [2, 9], "k-")
    plain = figure.add_axes([0.55, 0.1, 0.4, 0.8])
    second = plain.imshow(grid_of(1), aspect="auto", vmin=-1, vmax=1)
    plain.set_axis_off()
    return SimpleNamespace(figure=figure, axes=axes, image=image, marker=marker, plain=plain, second=second)


def bar_scene(figure):
    """An image with a colour bar."""
    axes = figure.add_axes([0.1, 0.1, 0.6, 0.8])
    image = axes.imshow(grid_of(0), vmin=-1, vmax=1)
    bar = figure.colorbar(image, cax=figure.add_axes([0.8, 0.1, 0.04, 0.8]))
    return SimpleNamespace(figure=figure, axes=axes, image=image, bar=bar)


def line_scene(figure):
    """Lines of the same z-order that cross, texts, notes, a legend, a hidden line and an empty text."""
    axes = figure.add_axes([0.15, 0.2, 0.8, 0.65])
    lines = [axes.plot(wave(n), linewidth=6, label=f"wave {n}")[0] for n in range(3)]
    (hidden,) = axes.plot(wave(5), color="black", linewidth=5, visible=False)
    text = axes.text(10, 0.5, "ten", fontsize=16)
    empty = axes.text(30, -0.5, "")
    note = axes.annotate("here", (5, 0), (20, 0.8), arrowprops={"arrowstyle": "->"})
    axes.set(ylim=(-1.2, 1.2), xticks=[0, 20, 40], yticks=[-1, 1])
    title = axes.set_title("Waves")
    legend = axes.legend(loc="lower right")
    heading = figure.text(0.5, 0.95, "heading")
    return SimpleNamespace(**locals())


def shape_scene(figure):
    """Bars under a grid, and a scatter; the frame is drawn on one side only."""
    left = figure.add_axes([0.1, 0.15, 0.35, 0.7])
    bars = left.bar(range(4), [1, 2, 3, 4])
    left.grid(True)
    left.spines[["right", "top"]].set_visible(False)
    right = figure.add_axes([0.6, 0.15, 0.35, 0.7])
    dots = right.scatter(range(10), range(10), c=np.linspace(0, 1, 10), s=60)
    band = right.axvspan(2, 4, alpha=0.3)
    right.tick_params(direction="in", length=8)
    # Both lie over axes of which something moves.
    bridge = figure.add_artist(ConnectionPatch((3, 2), (1, 8), "data", "data", axesA=left, axesB=right))
    label = figure.text(0.25, 0.5, "over the bars", ha="center")
    return SimpleNamespace(**locals())


def polar_scene(figure):
    axes = figure.add_axes([0.1, 0.1, 0.8, 0.75], projection="polar")
    lines = axes.plot([0, 1], [0, 1], [0, 2], [0, 0.5])
    axes.set_ylim(0, 1.2)
    return SimpleNamespace(figure=figure, axes=axes, lines=lines)


def twin_scene(figure):
    """Two axes in the same place, of different scales."""
    axes = figure.add_axes([0.15, 0.15, 0.7, 0.7])
    (low,) = axes.plot(wave(0), linewidth=5)
    twin = axes.twinx()
    (high,) = twin.plot(10 * wave(1), "k-", linewidth=5)
    return SimpleNamespace(figure=figure, axes=axes, low=low, twin=twin, high=high)


def layout_scene(figure):
    """A figure whose layout engine gives the axes their place at every draw."""
    figure.set_layout_engine("constrained")
    axes = figure.subplots()
    (line,) = axes.plot(wave(0))
    return SimpleNamespace(figure=figure, axes=axes, line=line, label=axes.set_ylabel("label"))


SCENES = {
    scene.__name__.removesuffix("_scene"): scene
    for scene in (image_scene, bar_scene, line_scene, shape_scene, polar_scene, twin_scene, layout_scene)
}

# --- Changes, by a whole number. A quiet one must be drawn without a full redraw ---

QUIET = {
    "image": {
        "data": lambda s, n: s.image.set_data(grid_of(n)),
        "holes": lambda s, n: s.image.set_data(np.where(grid_of(n) > 0, grid_of(n), np.nan)),
        "colour limits": lambda s, n: s.image.set_clim(-1 - n, 1),
        "colour map": lambda s, n: s.image.set_cmap(["viridis", "RdBu", "gray"][n % 3]),
        "opacity": lambda s, n: s.image.set_alpha(0.2 + 0.05 * n),
        "hide and show": lambda s, n: s.image.set_visible(n % 2 == 0),
        "marker": lambda s, n: s.marker.set_xdata([n, 6]),
        "image without axis": lambda s, n: s.second.set_data(grid_of(n)),
        "all": lambda s, n: (s.second.set_data(grid_of(n)), s.image.set_data(grid_of(n + 1))),
    },
    "bar": {
        "data": lambda s, n: s.image.set_data(grid_of(n)),
    },
    "line": {
        "one line": lambda s, n: s.lines[0].set_ydata(wave(n)),
        "middle line": lambda s, n: s.lines[1].set_ydata(wave(n)),
        "all lines": lambda s, n: [line.set_ydata(wave(n + k)) for k, line in enumerate(s.lines)],
        "colour": lambda s, n: s.lines[1].set_color(f"C{n}"),
        "width": lambda s, n: s.lines[1].set_linewidth(1 + n),
        "hide and show": lambda s, n: s.lines[1].set_visible(n % 2 == 0),
        "hidden appears": lambda s, n: (s.hidden.set_visible(n % 2 == 1), s.hidden.set_ydata(wave(n))),
        "text": lambda s, n: s.text.set_text(f"{n} {'wide ' * n}"),
        "place of text": lambda s, n: s.text.set_position((n * 4, n / 10)),
        "text from empty": lambda s, n: s.empty.set_text("x" * (n % 3)),
        "note": lambda s, n: s.note.set_text(f"there {n}"),
        "end of the arrow": lambda s, n: setattr(s.note, "xy", (n * 3, 0)),
        "place of note": lambda s, n: s.note.set_position((20 + n, 0.5)),
        "text of the figure": lambda s, n: s.heading.set_text(f"heading {n}"),
        "nothing": lambda s, n: None,
    },
    "shape": {
        "heights": lambda s, n: [bar.set_height((n + k) % 5) for k, bar in enumerate(s.bars)],
        "one bar": lambda s, n: s.bars[2].set_height(n % 5),
        "bar colour": lambda s, n: s.bars[1].set_color(f"C{n}"),
        "offsets": lambda s, n: s.dots.set_offsets(np.c_[np.arange(10), np.roll(np.arange(10), n)]),
        "dot colours": lambda s, n: s.dots.set_array(np.roll(np.linspace(0, 1, 10), n)),
        "dot faces": lambda s, n: s.dots.set_facecolor(f"C{n}"),
        "dot sizes": lambda s, n: s.dots.set_sizes([20 + 30 * n]),
        "band": lambda s, n: s.band.set_x(n),
    },
    "polar": {
        "hands": lambda s, n: [line.set_xdata([0, n + k]) for k, line in enumerate(s.lines)],
    },
    "twin": {},
    "layout": {},
}

LOUD = {
    "image": {
        "extent": lambda s, n: s.image.set_extent((0, 5 + n, 0, 8)),
        "shape of the data": lambda s, n: s.image.set(data=np.eye(3 + n), extent=(0, 3 + n, 0, 3 + n)),
        "shape of the axes": lambda s, n: s.axes.set_aspect(1 + n / 4),
        "second image": lambda s, n: s.axes.imshow(grid_of(n), alpha=0.3),
        "axis on": lambda s, n: s.plain.set_axis_on() if n % 2 else s.plain.set_axis_off(),
        "scale without axis": lambda s, n: s.plain.set_yscale(["linear", "symlog"][n % 2]),
        "title": lambda s, n: s.plain.set_title("" if n % 3 == 0 else f"title {n}", loc="right"),
        "limits without axis": lambda s, n: s.plain.set_xlim(0, 3 + n),
    },
    "bar": {
        "colour limits": lambda s, n: s.image.set_clim(-1 - n, 1),
        "colour map": lambda s, n: s.image.set_cmap(["viridis", "RdBu", "gray"][n % 3]),
        "label": lambda s, n: s.bar.set_label("x" * n),
    },
    "line": {
        "limits": lambda s, n: s.axes.set_xlim(0, 40 + n),
        "turned limits": lambda s, n: s.axes.invert_yaxis(),
        "limits that follow": lambda s, n: (s.lines[0].set_xdata(np.arange(40) * (n + 1)), s.axes.relim()),
        "ticks": lambda s, n: s.axes.set_xticks(range(0, 40, n + 1)),
        "tick labels": lambda s, n: s.axes.set_xticks([5, 10], [f"a{n}", "b"]),
        "tick colour": lambda s, n: s.axes.tick_params(labelcolor=f"C{n}"),
        "scale": lambda s, n: s.axes.set_yscale(["linear", "symlog"][n % 2]),
        "title": lambda s, n: s.axes.set_title(f"title {n}"),
        "title colour": lambda s, n: s.title.set_color(f"C{n}"),
        "title from empty": lambda s, n: s.axes.set_title("x" * (n % 3), loc="right"),
        "title hidden": lambda s, n: s.title.set_visible(n % 2 == 0),
        "label": lambda s, n: s.axes.set_ylabel(f"label {n}"),
        "label from empty": lambda s, n: s.axes.xaxis.label.set_text("x" * (n % 3)),
        "axis hidden": lambda s, n: s.axes.xaxis.set_visible(n % 2 == 0),
        "legend text": lambda s, n: s.legend.get_texts()[0].set_text(f"name {n}"),
        "legend hidden": lambda s, n: s.legend.set_visible(n % 2 == 0),
        "legend title": lambda s, n: s.legend.set_title("x" * (n % 3)),
        "legend line": lambda s, n: s.legend.get_lines()[1].set_color(f"C{n}"),
        "z-order": lambda s, n: s.lines[n % 3].set_zorder(1.5 + n / 10),
        "equal z-order": lambda s, n: s.text.set_zorder(n % 4),
        "added": lambda s, n: s.axes.plot(wave(n + 4), "k:"),
        "removed": lambda s, n: s.axes.lines[-1].remove() if len(s.axes.lines) > 4 else None,
        "replaced": lambda s, n: (s.axes.texts[-1].remove(), s.axes.text(n, 0, f"new {n}")),
        "face": lambda s, n: s.axes.set_facecolor(f"C{n}"),
        "ground": lambda s, n: s.figure.set_facecolor(f"C{n}"),
        "text added to the figure": lambda s, n: s.figure.text(n / 10, 0.02, str(n)),
        "heading over all": lambda s, n: s.figure.suptitle("x" * (n % 3)),
        "size": lambda s, n: s.figure.set_size_inches(4 + n / 10, 2.5),
        "place": lambda s, n: s.axes.set_position([0.2, 0.2, 0.3 + n / 20, 0.5]),
        "axes hidden": lambda s, n: s.axes.set_visible(n % 2 == 0),
    },
    "shape": {
        "spines": lambda s, n: s.left.spines["left"].set_visible(n % 2 == 0),
        "spine comes": lambda s, n: s.left.spines[["right", "top"]].set_visible(n % 2 == 1),
        "axis": lambda s, n: s.right.axis("off" if n % 2 else "on"),
        "frame": lambda s, n: s.right.set_frame_on(n % 2 == 0),
        "grid": lambda s, n: s.left.grid(n % 2 == 0),
        "another grid": lambda s, n: s.right.grid(n % 2 == 1),
        "grid below": lambda s, n: s.left.set_axisbelow(["line", True, False][n % 3]),
        "numbers inside": lambda s, n: s.left.tick_params(pad=-20 - n),
        "ticks inside": lambda s, n: s.left.tick_params(direction=["in", "out"][n % 2]),
        "bridge": lambda s, n: s.bridge.set_color(f"C{n}"),
        "label": lambda s, n: s.label.set_text(f"over {n}"),
        "under all": lambda s, n: s.figure.add_artist(
            Rectangle((0.1 * n, 0), 0.2, 1, color="0.9", zorder=-1, transform=s.figure.transFigure)
        ),
        "label under all": lambda s, n: s.label.set(zorder=n % 3 - 1, text=f"under {n}"),
    },
    "polar": {
        "limits": lambda s, n: s.axes.set_ylim(0, 1 + n),
        "title": lambda s, n: s.axes.set_title(f"title {n}"),
    },
    "twin": {
        "low": lambda s, n: s.low.set_ydata(wave(n)),
        "high": lambda s, n: s.high.set_ydata(10 * wave(n)),
        "right limits": lambda s, n: s.twin.set_ylim(-10 - n, 10),
    },
    "layout": {
        "line": lambda s, n: s.line.set_ydata(wave(n)),
        "text beside the axes": lambda s, n: s.axes.text(41, 0, "x" * n),
        "words of the label": lambda s, n: s.label.set_text("y" * n + "\n" * n),
    },
}

MENU = {scene: QUIET[scene] | LOUD[scene] for scene in SCENES}
EVERY = [(scene, name) for scene, menu in MENU.items() for name in menu]


class Twins:
    """The same scene twice: one drawn by a Redrawer, the other in full each time."""

    def __init__(self, name):
        self.menu = MENU[name]
        self.quick, self.slow = (SCENES[name](small_figure()) for _ in range(2))
        self.redrawer = Redrawer(self.quick.figure)

    def change(self, name, number):
        for scene in (self.quick, self.slow):
            self.menu[name](scene, number)

    def differ(self):
        """Draw both, and return how many pixels differ."""
        self.redrawer.draw()
        self.slow.figure.canvas.draw()
        quick, slow = pixels(self.quick.figure), pixels(self.slow.figure)
        assert quick.shape == slow.shape
        return int((quick != slow).any(axis=-1).sum())


def small_figure():
    figure = new_figure(4, 2.5)
    figure.set_dpi(50)
    return figure


@pytest.mark.parametrize(("scene", "name"), EVERY)
def test_a_redraw_equals_a_full_redraw(scene, name):
    twins = Twins(scene)
    assert twins.differ() == 0
    others = [quiet for quiet in QUIET[scene] if quiet != name]
    # First alone, then among artists that move. The last two leave hidden what the change may have hidden.
    frames = {1: [name], 2: [name], 3: others, 4: [name], 5: [name], 6: others, 12: others}
    for number, names in frames.items():
        for each in names:
            twins.change(each, number)
        assert twins.differ() == 0, f"frame {number}"


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_sequence_of_changes_equals_a_full_redraw(data):
    scene = data.draw(st.sampled_from(sorted(SCENES)))
    frame = st.lists(st.tuples(st.sampled_from(sorted(MENU[scene])), st.integers(0, 9)), max_size=3)
    twins = Twins(scene)
    for changes in data.draw(st.lists(frame, max_size=5)):
        for name, number in changes:
            twins.change(name, number)
        assert twins.differ() == 0


@pytest.mark.parametrize(("scene", "name"), [(scene, name) for scene in QUIET for name in QUIET[scene]])
def test_a_quiet_change_is_drawn_without_a_full_redraw(scene, name):
    twins = Twins(scene)
    for number in range(4):  # the first frames find out what moves
        twins.change(name, number)
        twins.redrawer.draw()
    full_redraws = count_full_redraws(twins.quick.figure)
    for number in (5, 6):
        twins.change(name, number)
        twins.redrawer.draw()
    assert full_redraws == []
    assert twins.differ() == 0


def count_full_redraws(figure):
    calls, draw = [], figure.canvas.draw

    def counted():
        calls.append(1)
        draw()

    figure.canvas.draw = counted
    return calls


def test_what_does_not_move_is_not_drawn_again():
    twins = Twins("line")
    drawn = []
    for number in range(4):
        twins.change("text", number)
        twins.redrawer.draw()
    line = twins.quick.lines[0]  # its z-order is below the text's
    draw = line.draw
    line.draw = lambda renderer: (drawn.append(1), draw(renderer))
    twins.change("text", 8)
    assert twins.differ() == 0
    assert drawn == []


def test_forget_makes_the_next_redraw_a_full_one():
    twins = Twins("line")
    twins.redrawer.draw()
    full_redraws = count_full_redraws(twins.quick.figure)
    twins.redrawer.forget()
    twins.redrawer.draw()
    assert full_redraws == [1]


def test_a_text_that_cannot_be_drawn_leaves_no_trace():
    twins = Twins("line")
    for number in range(4):
        twins.change("text", number)
        twins.change("all lines", number)
        twins.redrawer.draw()
    for breaks in (twins.quick.text, twins.quick.title):
        before = breaks.get_text()
        breaks.set_text("$\\frac{$")
        with pytest.raises(ValueError, match="frac"):
            twins.redrawer.draw()
        twins.redrawer.forget()
        breaks.set_text(before)
        assert twins.differ() == 0
        twins.change("all lines", 6)
        assert twins.differ() == 0


def test_an_error_while_the_background_is_drawn_leaves_no_artist_out(monkeypatch):
    twins = Twins("line")
    twins.differ()
    twins.change("all lines", 3)
    with monkeypatch.context() as patch:
        patch.setattr(twins.quick.figure.canvas, "draw", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            twins.redrawer.draw()
    twins.redrawer.forget()
    assert twins.differ() == 0


def test_the_figures_own_draw_still_shows_everything():
    twins = Twins("line")
    for number in range(4):
        twins.change("all lines", number)
        twins.redrawer.draw()
    twins.quick.figure.canvas.draw()
    assert twins.differ() == 0
    assert not any(artist.get_animated() for artist in twins.quick.figure.findobj())
    assert twins.quick.lines[0].get_visible()
    assert not twins.quick.hidden.get_visible()


# --- Figures and pictures ---


@pytest.mark.parametrize("size", [(10, 5), (4, 2.5), (7.3, 3.1)])
def test_a_png_has_the_figures_size_and_pixels(size):
    figure = new_figure(*size)
    image_scene(figure)
    figure.canvas.draw()
    decoded = Image.open(io.BytesIO(png(figure)))
    assert decoded.size == figure.canvas.get_width_height(physical=True)
    np.testing.assert_array_equal(np.asarray(decoded), pixels(figure)[..., :3])


def test_the_pixel_ratio_makes_a_finer_picture_of_the_same_size():
    code = """if True:
        import io
        from PIL import Image
        from helpers.drawing import display_data, new_figure, png
        figure = new_figure(6, 3)
        figure.canvas.draw()
        image = png(figure)
        shown = display_data(image, figure, "Words.")[1]["image/png"]
        print(Image.open(io.BytesIO(image)).size, shown["width"], shown["height"])
    """
    environment = os.environ | {"COURSE_PIXEL_RATIO": "2"}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert result.stdout.split() == ["(1200,", "600)", "600", "300"], result.stderr


@pytest.mark.parametrize("ratio", ["x", "2,5", "nan", "inf", "0", "-1", "1e9", "\udce9"])
def test_a_pixel_ratio_that_is_none_is_one_plain_sentence(ratio):
    code = "from helpers.drawing import PIXEL_RATIO; print(PIXEL_RATIO)"
    environment = os.environ | {"COURSE_PIXEL_RATIO": ratio, "PYTHONUTF8": "1"}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    sentence, used = ran.stdout.decode().splitlines()
    assert sentence.startswith("COURSE_PIXEL_RATIO must be a number from 0.5 to 8, but is '")
    assert (used, ran.stderr) == ("1.0", b"")


def test_an_empty_pixel_ratio_is_none():
    assert drawing.pixel_ratio("") == 1
    assert drawing.pixel_ratio("1.5") == 1.5


def test_display_data_holds_the_picture_and_its_words():
    figure = new_figure(6, 3)
    figure.canvas.draw()
    data, metadata = display_data(png(figure), figure, "A white field.")
    assert data["text/plain"] == "A white field."
    assert base64.b64decode(data["image/png"]) == png(figure)
    assert metadata == {"image/png": {"alt": "A white field.", "width": 600, "height": 300}}


def draw_line(figure, number=0):
    """Draw a line."""
    figure.subplots().plot(wave(number))
    return f"Wave {number}."


def test_still_draws_on_a_figure_of_its_own():
    drawn = still(6, 3)(draw_line)
    assert drawn.__doc__ == draw_line.__doc__
    picture = drawn(number=2)
    assert isinstance(picture, Still)
    assert picture.sentence == "Wave 2."
    data, metadata = picture._repr_mimebundle_(include=None, exclude=None)
    assert data["text/plain"] == "Wave 2."
    assert Image.open(io.BytesIO(base64.b64decode(data["image/png"]))).size == (
        600 * drawing.PIXEL_RATIO,
        300 * drawing.PIXEL_RATIO,
    )
    assert metadata["image/png"]["width"] == 600


def test_a_still_is_the_same_from_run_to_run():
    drawn = still(4, 2)(draw_line)
    assert drawn(3)._repr_mimebundle_() == drawn(3)._repr_mimebundle_()
    assert drawn(3)._repr_mimebundle_() != drawn(4)._repr_mimebundle_()


def test_figures_have_the_courses_style():
    figure = new_figure()
    axes = figure.subplots()
    assert axes.title.get_fontsize() >= 12
    assert not axes.spines["top"].get_visible()
    assert figure.get_facecolor() == (1, 1, 1, 1)
