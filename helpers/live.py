"""Figures that follow controls: live(builder, base=log_slider(...), offset=slider(...)).

A builder draws once on an empty figure and returns update(**values), which moves what it drew and returns one
sentence that says what is now seen. That sentence is the caption, the plain text of the output and the
picture's accessible name. Kernel and page keep one message in flight and then send the latest value, so the
picture follows a drag at whatever speed the machine has, without a timer.
"""

import html
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from inspect import signature
from typing import Any

import ipywidgets as widgets
import numpy as np
import traitlets
from threadpoolctl import threadpool_limits

from helpers.drawing import DPI, Redrawer, display_data, new_figure, png

# A matrix of 128 x 64 is multiplied 40 times faster by one thread than by several that wait for each other.
threadpool_limits(1, user_api="blas")

Builder = Callable[..., Callable[..., str]]
_WIDE = {"description_width": "initial"}


def slider(value: float, low: float, high: float, step: float = 1, label: str = "") -> widgets.Widget:
    """Return a slider from low to high: of whole numbers if the step is one, else of decimals."""
    kind = widgets.IntSlider if isinstance(step, int) else widgets.FloatSlider
    return kind(value=value, min=low, max=high, step=step, description=label, style=_WIDE)


def log_slider(
    value: float, low: float, high: float, label: str = "", steps: int = 60, readout: str = ",.0f"
) -> widgets.Widget:
    """Return a slider whose steps multiply: from low to high, both above 0. Off needs a switch of its own."""
    first, start, last = np.log10([low, value, high])
    # A page moves what stands between two steps to the nearest one, so the steps are laid through the value.
    up_to_start = max(round(steps * (start - first) / (last - first)), 1)
    step = (start - first) / up_to_start or (last - first) / steps
    return widgets.FloatLogSlider(
        value=value, min=first, max=last, step=step, readout_format=readout, description=label, style=_WIDE
    )


def switch(value: bool, label: str = "") -> widgets.Widget:
    """Return a box to tick."""
    return widgets.Checkbox(value=value, description=label, indent=False)


def choice(value: Any, options: Sequence[Any], label: str = "") -> widgets.Widget:
    """Return a drop-down list."""
    return widgets.Dropdown(value=value, options=options, description=label, style=_WIDE)


def live(build: Builder, *, limits: dict[str, Callable[..., int]] | None = None, **controls: Any) -> "Panel":
    """Show the builder's figure under its controls.

    build: build(figure) -> update(**values) -> sentence; it sets the figure's size itself if 10 x 5 won't do.
        With a second argument, redraw, it gets a function that draws again when something came Later.
    limits: the upper end of a control that depends on others, for example {"head": lambda heads: heads - 1}.
    controls: one value widget for each argument of update.
    """
    return Panel(build, controls, limits or {})


class Later:
    """Numbers that take too long for a frame: asked for by key, computed in a thread, the last wish first.

    So a panel goes on following the hand, and draws again when the number it waits for is there.
    """

    def __init__(self, compute: Callable[..., Any], redraw: Callable[[], None]) -> None:
        self._compute, self._redraw = compute, redraw
        self._lock, self._wish, self._busy = threading.Lock(), None, False
        self._results: dict[tuple, Any] = {}

    def get(self, *key: Any) -> Any:
        """Return compute(*key) if it is known by now, else None."""
        with self._lock:
            if key not in self._results:
                self._wish = key
                if not self._busy:
                    self._busy = True
                    threading.Thread(target=self._work, daemon=True).start()
                return None
        return self._known(key)

    def now(self, *key: Any) -> Any:
        """Return compute(*key), waiting for it."""
        if key not in self._results:
            self._results[key] = self._compute(*key)
        return self._known(key)

    def _known(self, key: tuple) -> Any:
        if isinstance(self._results[key], Exception):
            raise self._results[key]
        return self._results[key]

    def _work(self) -> None:
        while True:
            with self._lock:
                key, self._wish = self._wish, None
                if key is None or key in self._results:  # nobody waits, or for what has just come
                    self._busy = False
                    return
            try:
                self._results[key] = self._compute(*key)
            except Exception as error:  # a thread has nobody to tell: the panel says it
                self._results[key] = error
            with suppress(Exception):  # a redraw that fails must not end this thread: others still wait
                self._redraw()


class Picture(widgets.Image):
    """An image with the name that a screen reader says. Without this trait the page fails on a tooltip."""

    description = traitlets.Unicode("").tag(sync=True)


class Panel:
    """Controls in a row, the picture they move, and its caption. The last error is in .error, else None."""

    def __init__(self, build: Builder, controls: dict[str, Any], limits: dict[str, Callable]) -> None:
        self.controls, self.error, self.sentence = controls, None, ""
        self._build, self._limits = build, limits
        self._update: Callable[..., str] | None = None
        # Callbacks come on a thread of their own, and one that moves a limit calls the next within itself.
        self._lock, self._busy = threading.RLock(), False
        self.figure = new_figure()
        self._redrawer = Redrawer(self.figure)

        # The place is as wide as the window allows, and stays when the picture is hidden.
        shape = {"max_width": "100%", "height": "auto", "min_height": "0", "object_fit": "contain"}
        self.image = Picture(format="png", layout=widgets.Layout(**shape))
        self.caption = widgets.HTML()
        for name, control in controls.items():
            control.description = control.description or name.replace("_", " ")
            control.tooltip = control.tooltip or control.description  # else the page says "null"
            control.observe(self._on_change, "value")
            # Sliders share the width of a row; a box to tick needs no more than its words.
            control.layout.flex = "0 0 auto" if isinstance(control, widgets.Checkbox) else "1 1 310px"
            control.layout.width, control.layout.max_width = "auto", "480px"
            control.layout.margin = "2px 18px 2px 2px"
        row = widgets.HBox([*controls.values()], layout=widgets.Layout(flex_flow="row wrap"))
        self.box = widgets.VBox([row, self.image, self.caption])
        self._on_change()

    @property
    def values(self) -> dict[str, Any]:
        """What the controls now say."""
        return {name: control.value for name, control in self.controls.items()}

    def set(self, **values: Any) -> "Panel":
        """Move controls from code, then draw once."""
        unknown = values.keys() - self.controls.keys()
        if unknown:
            raise ValueError(f"set takes {', '.join(self.controls)}, but got {', '.join(sorted(unknown))}")
        with self._lock:
            self._busy = True
            try:
                # What others limit comes last, so that the order of the arguments does not matter.
                free = [name for name in values if name not in self._limits]
                for name in [*free, *(name for name in self._limits if name in values)]:
                    self._follow_limits()
                    self.controls[name].value = values[name]
            finally:
                self._busy = False
                self._on_change()
        return self

    def _on_change(self, _: Any = None) -> None:
        with self._lock:
            if self._busy:
                return
            self._busy = True
            try:
                self._follow_limits()
                self._show()
            finally:
                self._busy = False

    def _follow_limits(self) -> None:
        for name, limit in self._limits.items():
            needed = {other: self.controls[other].value for other in signature(limit).parameters}
            self.controls[name].max = limit(**needed)  # the widget pulls its value in by itself

    def _show(self) -> None:
        try:
            if self._update is None:
                self.figure.clear()
                again = {"redraw": self._on_change} if "redraw" in signature(self._build).parameters else {}
                self._update = self._build(self.figure, **again)
                width = f"{self.figure.get_size_inches()[0] * DPI:.0f}px"
                self.image.layout.width = self.caption.layout.max_width = width
            self.sentence = self._update(**self.values)
            self._redrawer.draw()
            self.error = None
        except Exception as error:  # a panel never takes the page down: it says what is wrong and goes on
            self._redrawer.forget()
            self.error = error
            self.sentence = f"This panel can't be drawn with these values: {error} ({type(error).__name__})."
            self._say(self.sentence + " Move a control to go on.", "#B00020")
            self.image.layout.visibility = "hidden"  # keeps its place, so that the page does not jump
            return
        with self.image.hold_sync():
            self.image.value = png(self.figure)
            self.image.tooltip = self.sentence
        self.image.layout.visibility = "visible"
        self._say(self.sentence, "inherit")

    def _say(self, sentence: str, colour: str) -> None:
        self.caption.value = (
            f'<p style="color:{colour};font-size:15px;line-height:1.4;margin:0">{html.escape(sentence)}</p>'
        )

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        data, metadata = display_data(self.image.value, self.figure, self.sentence)
        if self.error is not None:
            del data["image/png"]  # it would show other values than the sentence
        return {**self.box._repr_mimebundle_(**options), **data}, metadata
