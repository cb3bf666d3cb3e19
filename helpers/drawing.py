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
# Pixels a CSS pixel, one setting for the whole course: 2 for projectors and fine screens.
PIXEL_RATIO = float(os.environ.get("COURSE_PIXEL_RATIO", "1"))


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
        self._parts: list[Artist] = []  # all that was drawn, and so is stale when it was changed
        self._hidden: list[Artist] = []  # what stays stale because it is not drawn
        self._arrays: dict[Collection, Any] = {}
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
            self._on_top = _movers_and_above(self.figure, self._movers)
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
        parts = self.figure.findobj(lambda artist: not isinstance(artist, Axes | FigureBase))
        self._hidden = [artist for artist in parts if not _is_shown(artist)]
        # These two can be changed without becoming stale: where an annotation points, and a collection's array.
        movable = [artist for artist in _movers_and_above(self.figure) if _is_shown(artist)]
        self._movers = {artist for artist in movable if artist.stale or isinstance(artist, Annotation)}
        self._arrays = {a: a.get_array() for a in movable if isinstance(a, Collection)}
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
        self._background = self.figure.canvas.copy_from_bbox(self.figure.bbox)


def _is_shown(artist: Artist) -> bool:
    return artist.get_visible() and not (isinstance(artist, Text) and not artist.get_text())


def _shape_of(figure: Figure) -> list[tuple]:
    """All that the frames and ticks depend on, and which artists there are, in which order."""
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


def _movers_and_above(figure: Figure, movers: set[Artist] | None = None) -> list[Artist]:
    """In drawing order; without movers, all that can move. A mover that can't be drawn alone is left out."""
    on_top: list[Artist] = []
    for axes in figure.axes:
        artists = _in_drawing_order(axes)
        is_mover = [movers is None or artist in movers for artist in artists]
        if any(is_mover):
            on_top += artists[is_mover.index(True) :]
    return on_top + _above_the_axes(figure)


def _in_drawing_order(axes: Any) -> list[Artist]:
    """What an axes draws, lowest first, without its patch, titles and axis labels: those are not drawn alone."""
    if not axes.get_visible():
        return []
    left_out = {axes.patch, axes.title, axes._left_title, axes._right_title}
    if not (axes.axison and axes.get_frame_on()):
        left_out |= set(axes.spines.values())
    artists = []
    for artist in sorted(axes.get_children(), key=lambda artist: artist.get_zorder()):
        if isinstance(artist, Axis):
            artists += _reaching_in(artist) if axes.axison and artist.get_visible() else []
        elif artist not in left_out:
            artists.append(artist)
    return artists


def _reaching_in(axis: Axis) -> list[Artist]:
    """Gridlines and tick marks, which lie above images and bars, and numbers that stand inside the axes."""
    artists: list[Artist] = []
    for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
        if not tick.stale:  # else it is out of view
            artists += [
                line for line in (tick.gridline, tick.tick1line, tick.tick2line) if line.get_visible()
            ]
            labels = [label for label in (tick.label1, tick.label2) if _is_shown(label)]
            artists += [text for text in labels if axis.axes.bbox.overlaps(text.get_window_extent())]
    return artists


def _above_the_axes(figure: Figure) -> list[Artist]:
    """What belongs to the figure itself (texts, lines between axes) and may cover what moves, lowest first."""
    top = max((axes.get_zorder() for axes in figure.axes), default=-np.inf)
    loose = [artist for artist in figure.get_children() if artist.axes is None and artist.get_zorder() > top]
    return sorted((a for a in loose if a is not figure.patch), key=lambda artist: artist.get_zorder())


def _axes_overlap(figure: Figure) -> bool:
    boxes = [axes.get_position() for axes in figure.axes if axes.get_visible()]
    return any(
        a.x0 < b.x1 and b.x0 < a.x1 and a.y0 < b.y1 and b.y0 < a.y1
        for place, a in enumerate(boxes)
        for b in boxes[:place]
    )
