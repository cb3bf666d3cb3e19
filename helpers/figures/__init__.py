"""The pictures and panels of the course, one module a notebook. Nothing here is mathematics.

A picture is a function that returns a Still; a builder is build(figure) -> update(**values) -> sentence.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from helpers.schemes import SCHEMES

# What each scheme says of itself: one fixed colour in every figure, from the colour-blind-safe set of Okabe
# and Ito; the same hue, dark enough for text on white; and a line style, so that colour never stands alone.
SCHEME_COLOURS = {name: kind.facts.colour for name, kind in SCHEMES.items()}
SCHEME_INKS = {name: kind.facts.ink for name, kind in SCHEMES.items()}
SCHEME_STYLES = {name: kind.facts.line for name, kind in SCHEMES.items()}
SCHEME_NAMES = {name: kind.facts.label for name, kind in SCHEMES.items()}
ACCENT = "#B8460A"  # what the reader moves: vermilion, dark enough for text on white
INK = "#222222"
QUIET = "#595959"
SIGNED = {"cmap": "RdBu_r"}


def apart(ends: Mapping[Any, float], gap: float) -> dict[Any, float]:
    """Return heights for labels at the ends of lines, moved apart where lines end close together."""
    order = sorted(ends, key=ends.get)
    places = np.array([ends[one] for one in order])
    for _ in range(200):  # push neighbours apart, a little from both sides
        short = np.maximum(gap - np.diff(places), 0)
        places[:-1] -= short / 2
        places[1:] += short / 2
    return dict(zip(order, places.tolist(), strict=True))


def number(value: float, digits: int = 3) -> str:
    """Return a value as a reader writes it: 10,000, 0.125, 3.2e-05, with a true minus sign."""
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e9:
        decimals = max(0, digits - 1 - int(f"{abs(value):e}".split("e")[1]))
        text = f"{value:,.{decimals}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
    else:
        text = f"{value:.{digits - 1}e}"
    return text.replace("-", "−", 1) if value < 0 else text
