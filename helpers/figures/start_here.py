"""Pictures of notebook 00: the map of the course, and a panel to warm up on."""

from collections.abc import Callable

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from helpers.attention import softmax
from helpers.drawing import still
from helpers.figures import ACCENT, INK, QUIET, SCHEME_COLOURS

_DOORS = (
    # x of the box it opens, title, what happens, schemes with their notebooks
    (
        1.2,
        "Door 1: the embeddings",
        "add a vector\nper position",
        "sinusoidal (02)\nlearned (03)",
        "sinusoidal",
    ),
    (
        4.2,
        "Door 2: queries and keys",
        "turn by an angle\nper position",
        "RoPE (04)",
        "rope",
    ),
    (7.2, "Door 3: the scores", "add a number\nper offset", "Shaw, T5,\nALiBi (05)", "t5"),
)


@still(10, 4.6)
def three_doors(fig: Figure) -> str:
    """Draw the path from tokens to outputs, and the three places where position can come in."""
    ax = fig.subplots()
    ax.set(xlim=(0, 10), ylim=(0, 4.7))
    ax.axis("off")
    boxes = ((1.2, "embeddings"), (4.2, "queries\nand keys"), (7.2, "scores\nq · k"), (9.4, "output"))
    for centre, words in boxes:
        half = 0.55 if words == "output" else 0.9
        box = FancyBboxPatch(
            (centre - half, 0.35), 2 * half, 0.95, boxstyle="round,pad=0.03", fc="#F2F2F2", ec=QUIET
        )
        ax.add_patch(box)
        ax.text(centre, 0.82, words, ha="center", va="center")
    for start, stop, words in ((2.15, 3.25, "project"), (5.15, 6.25, "compare"), (8.15, 8.8, "mix")):
        ax.annotate("", (stop, 0.82), (start, 0.82), arrowprops={"arrowstyle": "->", "color": INK, "lw": 1.8})
        ax.text((start + stop) / 2, 0.95, words, ha="center", va="bottom", fontsize=12)
    for centre, title, action, schemes, colour in _DOORS:
        shade = SCHEME_COLOURS[colour]
        ax.text(centre, 4.45, title, ha="center", va="top", weight="bold", fontsize=13)
        ax.add_patch(
            FancyBboxPatch(
                (centre - 1.1, 2.15), 2.2, 1.7, boxstyle="round,pad=0.05", fc="white", ec=shade, lw=3
            )
        )
        ax.text(centre, 3.42, action, ha="center", va="center")
        ax.text(centre, 2.62, schemes, ha="center", va="center", color=QUIET)
        ax.annotate(
            "", (centre, 1.4), (centre, 2.08), arrowprops={"arrowstyle": "-|>", "color": shade, "lw": 3}
        )
    return (
        "Three doors into attention: a vector added to the embeddings (sinusoidal, learned), a rotation of "
        "queries and keys (RoPE), a number added to the scores (Shaw, T5, ALiBi)."
    )


KEYS = {"a": 20.0, "b": 80.0, "c": 170.0, "d": 260.0}  # directions of the four keys, in degrees


def query_and_keys(fig: Figure) -> Callable[..., str]:
    """Build the warm-up panel: a query among four keys, and the weights that softmax gives them."""
    fig.set_size_inches(10, 4.3)
    plane = fig.add_axes((0.03, 0.06, 0.38, 0.82))
    bars_at = fig.add_axes((0.53, 0.17, 0.44, 0.69))
    plane.set(xlim=(-1.55, 1.55), ylim=(-1.45, 1.45), aspect="equal")
    plane.axis("off")
    plane.set_title("Your query (round tip) and four keys", loc="left")
    directions = np.radians(list(KEYS.values()))
    keys = np.stack([np.cos(directions), np.sin(directions)], axis=-1)
    for name, (x, y) in zip(KEYS, keys, strict=True):
        plane.annotate("", (x, y), (0, 0), arrowprops={"arrowstyle": "-|>", "color": QUIET, "lw": 2})
        plane.text(1.27 * x, 1.2 * y, f"key {name}", ha="center", va="center")
    (arrow,) = plane.plot([0, 1], [0, 0], color=ACCENT, lw=4)
    (tip,) = plane.plot([1], [0], "o", color=ACCENT, ms=11)

    bars = bars_at.bar(list(KEYS), np.zeros(len(KEYS)), color="#0072B2", width=0.6)
    texts = [bars_at.text(i, 0, "", ha="center", va="bottom") for i in range(len(KEYS))]
    bars_at.set(ylim=(0, 1.12), xlabel="key", ylabel="weight", yticks=[0, 0.5, 1])
    bars_at.set_title("Softmax turns dot products into weights", loc="left")

    def update(angle: float, sharpness: float) -> str:
        turn = np.radians(angle)
        query = np.array([np.cos(turn), np.sin(turn)])
        weights = softmax(sharpness * keys @ query)
        arrow.set_data([0, query[0]], [0, query[1]])
        tip.set_data([query[0]], [query[1]])
        for bar, text, weight in zip(bars, texts, weights, strict=True):
            bar.set_height(weight)
            text.set_y(weight + 0.02)
            text.set_text(f"{weight:.2f}")
        best = [name for name, weight in zip(KEYS, weights, strict=True) if weight > weights.max() - 1e-9]
        leader = f"key {best[0]} gets" if len(best) == 1 else f"keys {' and '.join(best)} both get"
        return (
            f"With the query at {angle:.0f} degrees and sharpness {sharpness:.2f}, {leader} the most "
            f"weight, {weights.max():.2f}; the four weights sum to 1."
        )

    return update
