"""Figures without pyplot, and a way to draw one again quickly when little of it moved.

Panels (helpers.live) run in a thread of the kernel, where pyplot's global state would get in the way.
"""

import base64
import io
import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import matplotlib.style
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import Collection
from matplotlib.figure import Figure, FigureBase
from matplotlib.text import Annotation, Text
from PIL import Image

matplotlib.style.use(Path(__file__).with_name("course.mplstyle"))

DPI = 100


def pixel_ratio(text: str) -> float:
    """Return how many pixels COURSE_PIXEL_RATIO asks for; if it is no such number, say so and return 1."""
    try:
        ratio = float(text or 1)
    except ValueError:
        ratio = 0.0
    if 0.5 <= ratio <= 8:
        return ratio
    print(f"COURSE_PIXEL_RATIO must be a number from 0.5 to 8, but is {text!r}: figures are drawn with 1.")
    return 1.0


# Pixels a CSS pixel, one setting for the whole course: 2 for projectors and fine screens.
PIXEL_RATIO = pixel_ratio(os.environ.get("COURSE_PIXEL_RATIO", ""))


def new_figure(width: float = 10, height: float = 5) -> Figure:
    """Return an empty figure of the given size in inches (100 CSS pixels each), in the course's style."""
    figure = Figure(figsize=(width, height), dpi=DPI * PIXEL_RATIO)
    FigureCanvasAgg(figure)
    return figure


def png(figure: Figure) -> bytes:
    """Encode what was last drawn on the figure's canvas. Level 1: the time matters more than the size."""
    pixels = figure.canvas.buffer_rgba()
    height, width, _ = pixels.shape
    stream = io.BytesIO()
    image = Image.frombuffer("RGBA", (width, height), pixels, "raw", "RGBA", 0, 1).convert("RGB")
    image.save(stream, "PNG", compress_level=1)
    return stream.getvalue()


def display_data(image: bytes, figure: Figure, sentence: str) -> tuple[dict[str, str], dict[str, dict]]:
    """Return the mime bundle and metadata under which notebooks store a picture and the words for it."""
    width, height = (round(inches * DPI) for inches in figure.get_size_inches())
    data = {"image/png": base64.b64encode(image).decode(), "text/plain": sentence}
    return data, {"image/png": {"alt": sentence, "width": width, "height": height}}


class Still:
    """A finished picture and one sentence that says what is on it."""

    def __init__(self, figure: Figure, sentence: str) -> None:
        self.figure, self.sentence = figure, sentence

    def _repr_mimebundle_(self, **_: Any) -> tuple[dict[str, str], dict[str, dict]]:
        self.figure.canvas.draw()
        return display_data(png(self.figure), self.figure, self.sentence)


def still(width: float = 10, height: float = 4) -> Callable:
    """Decorate draw(fig, ...) -> sentence, so that calling it without fig returns a Still of that size."""

    def decorate(draw: Callable[..., str]) -> Callable[..., Still]:
        @wraps(draw)
        def drawn(*args: Any, **options: Any) -> Still:
            figure = new_figure(width, height)
            figure.set_layout_engine("constrained", h_pad=0.12, w_pad=0.1)
            return Still(figure, draw(figure, *args, **options))

        return drawn

    return decorate


class Redrawer:
    """Draw a figure many times. Only the artists that were changed since the last time are drawn anew.

    Everything that never moved is kept as pixels (the background). A frame then is: put the background back,
    draw the artists that have moved at least once, and whatever lies above them. Each frame equals a full
    redraw to the pixel; where that can't be had this way (limits, ticks, titles) it is a full redraw.
    """

    def __init__(self, figure: Figure) -> None:
        self.figure = figure
        self.forget()

    def forget(self) -> None:
        """Make the next draw a full one."""
        self._shape: Any = None
        self._background: Any = None
        self._layers: list[list[Artist]] = []
        self._parts: list[Artist] = []  # all that was drawn, and so becomes stale when it is changed,
        self._arrays: dict[Collection, Any] = {}  # but for these, whose array can change unnoticed
        self._hidden: list[Artist] = []
        self._movers: set[Artist] = set()
        self._on_top: list[Artist] = []

    def draw(self) -> None:
        """Bring the canvas up to date with the artists."""
        if self._shape != _shape_of(self.figure) or any(_is_shown(artist) for artist in self._hidden):
            self._draw_fully()
            return
        moved = {artist for artist in self._parts if artist.stale}
        moved |= {artist for artist, array in self._arrays.items() if artist.get_array() is not array}
        if self._background is None or not moved <= self._movers:
            self._movers |= moved
            self._on_top = _movers_and_above(self._layers, self._movers)
            if not self._movers <= set(self._on_top):  # a tick, a title, a part of a legend
                self._draw_fully()
                return
            self._draw_background()
        canvas = self.figure.canvas
        canvas.restore_region(self._background)
        for artist in self._on_top:
            artist.draw(canvas.get_renderer())

    def _draw_fully(self) -> None:
        self.forget()
        self.figure.canvas.draw()
        if self.figure.get_layout_engine() or _axes_overlap(self.figure):
            return  # anything may move anything, or lie above it: draw fully each time
        self._shape = _shape_of(self.figure)
        self._layers = [_in_drawing_order(axes) for axes in self.figure.axes] + [_above_the_axes(self.figure)]
        _call_ticks_drawn(self.figure)
        parts = self.figure.findobj(lambda artist: not isinstance(artist, Axes | FigureBase))
        self._hidden = [artist for artist in parts if not _is_shown(artist)]
        movable = [artist for layer in self._layers for artist in layer if _is_shown(artist)]
        # An annotation that points out of the axes is not drawn, and can be pointed elsewhere unnoticed.
        self._movers = {artist for artist in movable if artist.stale or isinstance(artist, Annotation)}
        self._arrays = {artist: artist.get_array() for artist in movable if isinstance(artist, Collection)}
        self._parts = [*self._movers, *(artist for artist in parts if not artist.stale)]

    def _draw_background(self) -> None:
        shown = [artist for artist in self._on_top if artist.get_visible()]
        for artist in shown:
            artist.set_visible(False)
        try:
            self.figure.canvas.draw()
        finally:
            for artist in shown:
                artist.set_visible(True)
        _call_ticks_drawn(self.figure)
        self._background = self.figure.canvas.copy_from_bbox(self.figure.bbox)


def _is_shown(artist: Artist) -> bool:
    return artist.get_visible() and not (isinstance(artist, Text) and not artist.get_text())


def _shape_of(figure: Figure) -> list[tuple]:
    """All that the frames and ticks depend on, and which artists there are in which order."""
    return [
        (
            axes.viewLim.get_points().tolist(),
            (axes.get_xscale(), axes.get_yscale()),
            axes.get_position().bounds,
            (axes.get_visible(), axes.axison, axes.get_frame_on()),
            _with_zorders(axes),
        )
        for axes in figure.axes
    ] + [(figure.bbox.bounds, _with_zorders(figure))]


def _with_zorders(parent: Artist) -> list[tuple[Artist, float]]:
    return [(artist, artist.get_zorder()) for artist in parent.get_children()]


def _movers_and_above(layers: list[list[Artist]], movers: set[Artist]) -> list[Artist]:
    """Of each axes, the lowest mover and what is drawn after it; and all that lies above the axes."""
    *axes_layers, top_layer = layers
    on_top: list[Artist] = []
    for layer in axes_layers:
        first = next((place for place, artist in enumerate(layer) if artist in movers), len(layer))
        on_top += layer[first:]
    return on_top + top_layer


def _in_drawing_order(axes: Any) -> list[Artist]:
    """What can be drawn alone, lowest first: not the ground, nor a title or a number, which have their place
    from others."""
    if not axes.get_visible():
        return []
    fixed = {axes.patch, axes.title, axes._left_title, axes._right_title}
    if not (axes.axison and axes.get_frame_on()):
        fixed |= set(axes.spines.values())
    artists = []
    for artist in sorted(axes.get_children(), key=lambda artist: artist.get_zorder()):
        if isinstance(artist, Axis):
            artists += _reaching_in(artist) if axes.axison and artist.get_visible() else []
        elif artist not in fixed:
            artists.append(artist)
    return artists


def _reaching_in(axis: Axis) -> list[Artist]:
    """Gridlines and tick marks, which lie above images and bars, and numbers that stand inside the axes."""
    artists: list[Artist] = []
    for tick in axis._update_ticks():
        artists += [tick.gridline, tick.tick1line, tick.tick2line]
        labels = [label for label in (tick.label1, tick.label2) if _is_shown(label)]
        artists += [label for label in labels if axis.axes.bbox.overlaps(label.get_window_extent())]
    return [artist for artist in artists if artist.get_visible()]


def _call_ticks_drawn(figure: Figure) -> None:
    """A drawn tick is stale at once, because labels are placed after it. This tells what is changed later."""
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            for tick in (*axis.majorTicks, *axis.minorTicks):
                for part in (tick, *tick.get_children()):
                    part.stale = False


def _above_the_axes(figure: Figure) -> list[Artist]:
    """What belongs to the figure itself (texts, lines between axes) and may cover what moves."""
    top = max((axes.get_zorder() for axes in figure.axes), default=-np.inf)
    loose = sorted(figure.get_children(), key=lambda artist: artist.get_zorder())
    return [a for a in loose if a.axes is None and a is not figure.patch and a.get_zorder() > top]


def _axes_overlap(figure: Figure) -> bool:
    boxes = [axes.get_position() for axes in figure.axes if axes.get_visible()]
    return any(
        a.x0 < b.x1 and b.x0 < a.x1 and a.y0 < b.y1 and b.y0 < a.y1
        for place, a in enumerate(boxes)
        for b in boxes[:place]
    )
