"""The pictures and panels of the course, one module a notebook. Nothing here is mathematics.

A picture is a function that returns a Still; a builder is build(figure) -> update(**values) -> sentence.
"""

# One fixed colour a scheme in every figure, from the colour-blind-safe set of Okabe and Ito.
SCHEME_COLOURS = {
    "none": "#777777",
    "sinusoidal": "#0072B2",
    "learned": "#E69F00",
    "shaw": "#CC79A7",
    "t5": "#009E73",
    "rope": "#D55E00",
    "alibi": "#56B4E9",
}
# The same hues, dark enough for text on white; and a line style each, so that colour never stands alone.
SCHEME_INKS = {
    "none": "#595959",
    "sinusoidal": "#0072B2",
    "learned": "#8A5F00",
    "shaw": "#9C3F74",
    "t5": "#00704F",
    "rope": "#B04A00",
    "alibi": "#1B6CA8",
}
SCHEME_STYLES = {
    "none": "-",
    "sinusoidal": "--",
    "learned": ":",
    "shaw": "-.",
    "t5": (0, (7, 2)),
    "rope": "-",
    "alibi": (0, (4, 1, 1, 1, 1, 1)),
}
SCHEME_NAMES = {
    "none": "none",
    "sinusoidal": "sinusoidal",
    "learned": "learned",
    "shaw": "Shaw",
    "t5": "T5",
    "rope": "RoPE",
    "alibi": "ALiBi",
}
ACCENT = "#B8460A"  # what the reader moves: vermilion, dark enough for text on white
INK = "#222222"
QUIET = "#595959"
SIGNED = {"cmap": "RdBu_r"}


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
