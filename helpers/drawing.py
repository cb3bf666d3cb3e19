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
from matplotlib.artist import Artist
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
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
        self._leaves: list[Artist] = []
        self._movers: set[Artist] = set()
        self._on_top: list[Artist] = []

    def draw(self) -> None:
        """Bring the canvas up to date with the artists."""
        if self._shape != _shape_of(self.figure):
            self._draw_fully()
            return
        moved = {artist for artist in self._leaves if artist.stale}
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
        if _axes_overlap(self.figure):
            return  # what lies above what can't be told axes by axes: draw fully each time
        self._shape = _shape_of(self.figure)
        # Hidden or empty artists stay stale. They may show up later, so they count as moving, where they can.
        movable = {artist for axes in self.figure.axes for artist in _in_drawing_order(axes)}
        movable |= set(_loose_artists(self.figure))
        leaves = [a for a in self.figure.findobj() if isinstance(a, Axis) or not a.get_children()]
        self._leaves = [artist for artist in leaves if not artist.stale or artist in movable]
        self._movers = {artist for artist in self._leaves if artist.stale}

    def _draw_background(self) -> None:
        for artist in self._on_top:
            artist.set_animated(True)  # the canvas leaves these out
        self.figure.canvas.draw()
        self._background = self.figure.canvas.copy_from_bbox(self.figure.bbox)
        for artist in self._on_top:
            artist.set_animated(False)


def _shape_of(figure: Figure) -> list[tuple]:
    """All that the frames, ticks and titles depend on, and which artists there are."""
    return [
        (
            axes.viewLim.get_points().tolist(),
            axes.get_position().bounds,
            (axes.get_visible(), axes.axison, axes.get_frame_on()),
            [axes.get_title(loc) for loc in ("left", "center", "right")],
            axes.get_children(),
        )
        for axes in figure.axes
    ] + [(_loose_artists(figure),)]


def _movers_and_above(figure: Figure, movers: set[Artist]) -> list[Artist]:
    """In drawing order. A mover that can't be drawn by itself is not among them."""
    on_top: list[Artist] = []
    for axes in sorted(figure.axes, key=lambda axes: axes.get_zorder()):
        artists = _in_drawing_order(axes)
        first = next((place for place, artist in enumerate(artists) if artist in movers), len(artists))
        on_top += artists[first:]
    return on_top + [artist for artist in _loose_artists(figure) if artist in movers]


def _in_drawing_order(axes: Any) -> list[Artist]:
    """What an axes draws, lowest first, without its patch, titles and ticks: those lie outside or below."""
    fixed = {axes.patch, axes.title, axes._left_title, axes._right_title}
    if not (axes.axison and axes.get_frame_on()):
        fixed |= set(axes.spines.values())
    artists = [a for a in axes.get_children() if a not in fixed and not isinstance(a, Axis)]
    return sorted(artists, key=lambda artist: artist.get_zorder())


def _loose_artists(figure: Figure) -> list[Artist]:
    """What belongs to the figure itself (texts, lines between axes), lowest first."""
    loose = [artist for artist in figure.get_children() if artist.axes is None and artist is not figure.patch]
    return sorted(loose, key=lambda artist: artist.get_zorder())


def _axes_overlap(figure: Figure) -> bool:
    boxes = [axes.get_position() for axes in figure.axes if axes.get_visible()]
    return any(
        a.x0 < b.x1 and b.x0 < a.x1 and a.y0 < b.y1 and b.y0 < a.y1
        for place, a in enumerate(boxes)
        for b in boxes[:place]
    )
