"""Figures that follow controls: live(builder, base=log_slider(...), offset=slider(...)).

A builder draws once on an empty figure and returns update(**values), which moves what it drew and returns one
sentence that says what is now seen. That sentence is the caption, the plain text of the output and the
picture's accessible name. Kernel and page keep one message in flight and then send the latest value, so the
picture follows a drag at whatever speed the machine has, without a timer.
"""

import gc
import html
import math
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from inspect import signature
from typing import Any

import ipywidgets as widgets
import traitlets
from IPython import get_ipython
from threadpoolctl import threadpool_limits

from helpers.drawing import DPI, Redrawer, display_data, new_figure, png

# A matrix of 128 x 64 is multiplied 40 times faster by one thread than by several that wait for each other.
threadpool_limits(1, user_api="blas")

Builder = Callable[..., Callable[..., str]]
_WIDE = {"description_width": "initial"}
_ROUND = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)
VIEW = "application/vnd.jupyter.widget-view+json"


def slider(value: float, low: float, high: float, step: float = 1, label: str = "") -> widgets.Widget:
    """Return a slider from low to high: of whole numbers if the step is one, else of decimals."""
    kind = widgets.IntSlider if isinstance(step, int) else widgets.FloatSlider
    return kind(value=value, min=low, max=high, step=step, description=label, style=_WIDE)


def log_slider(
    value: float, low: float, high: float, label: str = "", *, whole: bool = True, also: Sequence[float] = ()
) -> widgets.Widget:
    """Return a slider whose steps multiply, over round numbers from low to high, both above 0.

    Round are 1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6 and 8 times a power of ten, only whole ones if whole; the value,
    the ends and what the text names also are steps. Off, which is 0, needs a switch of its own. Raises
    ValueError unless 0 < low <= value <= high.
    """
    if not 0 < low <= value <= high:
        raise ValueError(f"value must be from low to high, both above 0, but got {value} in {low} to {high}")
    # A slider of exponents would take any number, and move it to a step: 3 becomes 3.11.
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = {float(f"{start}e{power}") for power in powers for start in _ROUND} | {value, low, high, *also}
    steps = sorted({float(step) for step in steps if low <= step <= high})
    if whole:
        steps = [int(step) for step in steps if step == int(step)]
    options = [(f"{step:,}" if whole else f"{step:g}", step) for step in steps]
    return widgets.SelectionSlider(value=value, options=options, description=label, style=_WIDE)


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
    Running the cell again closes the panels that it made before. Raises TypeError for what is no control.
    """
    for name, control in controls.items():
        if not isinstance(control, widgets.DOMWidget) or not hasattr(control, "value"):
            raise TypeError(f"{name} must be a control, such as slider(1, 0, 9), but got {control!r}")
    panel = Panel(build, controls, limits or {})
    _replace(panel)
    return panel


# The panels of each cell, and the execution that made them.
_panels: dict[str, tuple[int, list["Panel"]]] = {}


def _replace(panel: "Panel") -> None:
    """Close what an earlier run of this cell made: nobody sees it any more, but it would keep its memory."""
    shell = get_ipython()
    kernel = getattr(shell, "kernel", None)
    parent = getattr(kernel, "get_parent", lambda channel: {})("shell")
    cell = parent.get("metadata", {}).get("cellId")
    if not cell:  # not every page says which cell runs
        return
    execution, made = _panels.get(cell, (None, []))
    if execution != shell.execution_count:
        for old in made:
            old.close()
        made = []
        # IPython 9 keeps the picture of every output; and a figure, full of circles, waits long for its turn.
        getattr(getattr(shell, "history_manager", None), "outputs", {}).pop(execution, None)
        gc.collect()
    _panels[cell] = shell.execution_count, [*made, panel]


def _somebody_is_there() -> bool:
    """Say whether a page shows the output, in which sliders can be moved, and not a program that only runs.

    Programs say with each cell that nobody is there to answer input().
    """
    return getattr(getattr(get_ipython(), "kernel", None), "_allow_stdin", True)


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
        if isinstance(self._results[key], BaseException):
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
            except BaseException as error:  # a thread has nobody to tell: the panel says it
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
        self._row = widgets.HBox([*controls.values()], layout=widgets.Layout(flex_flow="row wrap"))
        self.box = widgets.VBox([self._row, self.image, self.caption])
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

    def close(self) -> None:
        """Take the panel off the page and free its memory."""
        with self._lock:
            self._busy = True  # for ever: what comes late, from a thread, finds nothing to draw on
            for widget in (*self.controls.values(), self._row, self.image, self.caption, self.box):
                widget.unobserve_all()
                for part in (widget.layout, getattr(widget, "style", None), widget):
                    if part is not None:
                        part.close()
            # The kernel keeps whatever a cell returned, and so this panel: nothing large may hang on it.
            self.figure = self.image = self.caption = self.box = self._row = None
            self._build = self._update = self._redrawer = None
            self.controls = {}

    def _on_change(self, _: Any = None) -> None:
        with self._lock:
            if self._busy:
                return
            self._busy = True
            try:
                self._show()
            finally:
                self._busy = False

    def _follow_limits(self) -> None:
        for name, limit in self._limits.items():
            needed = {other: self.controls[other].value for other in signature(limit).parameters}
            self.controls[name].max = limit(**needed)  # the widget pulls its value in by itself

    def _show(self) -> None:
        try:
            self._follow_limits()
            if self._update is None:
                self.figure.clear()
                again = {"redraw": self._on_change} if "redraw" in signature(self._build).parameters else {}
                self._update = self._build(self.figure, **again)
                width = f"{self.figure.get_size_inches()[0] * DPI:.0f}px"
                self.image.layout.width = self.caption.layout.max_width = width
            sentence = self._update(**self.values)
            if not isinstance(sentence, str):
                raise TypeError(f"update must return a sentence, but it returned a {type(sentence).__name__}")
            self._redrawer.draw()
            self.sentence, self.error = sentence, None
        except (Exception, SystemExit) as error:  # a panel never takes the page down: it says what is wrong
            self._redrawer.forget()
            self.error = error
            self.sentence = f"This panel can't be drawn with these values: {_text_of(error)}."
            # Colours of its own for paper and ink: they stand out on a dark page as well.
            self._say(self.sentence + " Move a control to go on.", "color:#7A0012;background:#FDECEA")
            self.image.layout.visibility = "hidden"  # keeps its place, so that the page does not jump
            return
        with self.image.hold_sync():
            self.image.value = png(self.figure)
            self.image.tooltip = self.sentence
        self.image.layout.visibility = "visible"
        self._say(self.sentence, "color:inherit")

    def _say(self, sentence: str, style: str) -> None:
        self.caption.value = (
            f'<p style="{style};font-size:15px;line-height:1.4;margin:0">{html.escape(sentence)}</p>'
        )

    def _repr_mimebundle_(self, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        if self.figure is None:
            return {
                "text/plain": "This panel is closed, since its cell ran again: see the new one there."
            }, {}
        data, metadata = display_data(self.image.value, self.figure, self.sentence)
        if self.error is not None:
            del data["image/png"]  # it would show other values than the sentence
        if not _somebody_is_there():  # the picture is all that a page made by a program can show
            return data, metadata
        view = self.box._repr_mimebundle_(**options)
        # By the process, helpers/contents.py knows later whether the view is still alive.
        return {**view, **data}, {**metadata, VIEW: {"processes": [os.getpid(), os.getppid()]}}


def _text_of(error: BaseException) -> str:
    """Return what an error says, cut to some three lines, and its kind."""
    try:
        text = str(error)
    except Exception:  # its own text can be what is wrong
        text = ""
    return f"{text[:300]}{'…' if len(text) > 300 else ''} ({type(error).__name__})"
