"""Pictures of notebook 04: vectors that turn, scores that swing with distance, turns of each pair."""

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.drawing import still
from helpers.figures import ACCENT, QUIET, SCHEME_COLOURS, SIGNED, number
from helpers.rope import inverse_frequencies, rotate

RED = SCHEME_COLOURS["rope"]
BLUE = "#0072B2"
INK_RED = "#A84300"  # the same red, dark enough for text


@still(10, 3.7)
def two_arrows(
    fig: Figure, q: np.ndarray, k: np.ndarray, places: Sequence[tuple[int, int]], angle: float
) -> str:
    """Draw a query and a key, (2,), turned by their positions, for each (query, key) pair of positions."""
    axes = fig.subplots(1, len(places))
    for ax, (at, other) in zip(axes, places, strict=True):
        _circle(ax)
        for vector, place, colour, name in ((q, at, INK_RED, "q"), (k, other, BLUE, "k")):
            x, y = rotate(vector, place, np.array([angle]))
            ax.annotate("", (x, y), (0, 0), arrowprops={"arrowstyle": "-|>", "color": colour, "lw": 3})
            ax.text(
                1.22 * x, 1.22 * y, name, color=colour, weight="bold", ha="center", va="center", fontsize=15
            )
        ax.set_title(f"query at {at}, key at {other}", loc="center")
    score = rotate(q, places[0][0], np.array([angle])) @ rotate(k, places[0][1], np.array([angle]))
    return (
        f"Query and key three apart, at {len(places)} places: their angle and their score, {score:.3f}, stay."
    )


@still(10, 5)
def score_by_distance(fig: Figure, distances: np.ndarray, curves: dict[str, np.ndarray]) -> str:
    """Draw scores against distance, (n,), for several pairs of fixed vectors (log axis)."""
    axes = fig.subplots(len(curves), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for ax, (name, scores), colour in zip(axes, curves.items(), (RED, "#555555", BLUE), strict=False):
        ax.semilogx(distances, scores, color=colour, lw=1.8)
        ax.axhline(0, color=QUIET, lw=1, ls=":")
        ax.set(ylim=(-0.75, 1.15), yticks=[0, 1], xlim=(1, distances[-1]))
        ax.set_title(name)
    axes[-1].set_xlabel("distance between query and key (positions)")
    fig.supylabel("score", fontsize=13)
    return "Scores of fixed vectors against distance: " + "; ".join(curves) + "."


@still(10, 4.4)
def turns(fig: Figure, inv_freq: np.ndarray, lengths: Sequence[int]) -> str:
    """Draw how many turns each pair, (m,), makes within each length (log axis)."""
    ax = fig.subplots()
    pairs = np.arange(len(inv_freq))
    for length, colour, marker in zip(lengths, (INK_RED, BLUE), ("o", "s"), strict=True):
        made = length * inv_freq / (2 * np.pi)
        ax.semilogy(pairs, made, marker, ms=7, color=colour)
        ax.text(len(inv_freq) - 0.3, made[-1], f"within {length:,}", color=colour, va="center", weight="bold")
    ax.plot([-0.7, len(inv_freq) - 0.6], [1, 1], color="k", lw=1.5)
    ax.text(len(inv_freq) - 0.3, 1, "one turn", va="center")
    ax.set(xlabel="pair (fast to slow)", ylabel="turns", xlim=(-0.7, len(inv_freq) + 5.5))
    ax.set_xticks(range(0, len(inv_freq), 4))
    ax.set_title("Many pairs never finish a turn")
    counts = ", ".join(f"{(length * inv_freq >= 2 * np.pi).sum()} within {length:,}" for length in lengths)
    return f"Of {len(inv_freq)} pairs, so many finish a turn: {counts} positions."


WIDTH = 64
MADE_FOR = 100
_DISTANCES = np.union1d(np.geomspace(1, 10_000, 420).round(), [MADE_FOR])
KINDS = ("k equals q", "q and k random", "k made for 100")


def fixed_vectors(kind: str, base: float) -> tuple[np.ndarray, np.ndarray]:
    """Return a query and a key of length 1, (64,): equal, random, or a key that fits best at distance 100."""
    if kind == "k equals q":
        q = np.tile([1.0, 0.0], WIDTH // 2)
        k = q
    else:
        q, k = np.random.default_rng(7).normal(size=(2, WIDTH))
        if kind == "k made for 100":
            k = rotate(q, MADE_FOR, base=base)
    return q / np.linalg.norm(q), k / np.linalg.norm(k)


def explorer(fig: Figure) -> Callable[..., str]:
    """Build the main panel: one pair turning, the score against distance, and the score matrix."""
    fig.set_size_inches(10, 4.6)
    wheel = fig.add_axes((0.005, 0.08, 0.265, 0.8))
    curve_at = fig.add_axes((0.355, 0.16, 0.335, 0.68))
    matrix_at = fig.add_axes((0.765, 0.16, 0.205, 0.68))
    _circle(wheel)
    wheel.set_title("One pair", loc="left")
    arrows = {}
    for name, colour in (("q", INK_RED), ("k", BLUE)):
        (line,) = wheel.plot([], [], color=colour, lw=4)
        (tip,) = wheel.plot([], [], "o", color=colour, ms=10)
        label = wheel.text(0, 0, name, color=colour, weight="bold", ha="center", va="center", fontsize=15)
        arrows[name] = line, tip, label

    curve_at.set_xscale("log")
    curve_at.set(xlim=(1, 10_000), ylim=(-0.8, 1.15), yticks=[-0.5, 0, 0.5, 1])
    curve_at.set(xlabel="distance (positions)", ylabel="score")
    curve_at.axhline(0, color=QUIET, lw=1, ls=":")
    (curve,) = curve_at.plot(_DISTANCES, 0 * _DISTANCES, color=RED, lw=1.6)
    (dot,) = curve_at.plot([1], [0], "o", ms=12, color=ACCENT, clip_on=False)
    curve_at.set_title("Score against distance")

    image = matrix_at.imshow(np.zeros((48, 48)), vmin=-1, vmax=1, aspect="auto", **SIGNED)
    matrix_at.set(xticks=[0, 40], yticks=[0, 40], xticklabels=["p", "p+40"], yticklabels=["p", "p+40"])
    matrix_at.set(xlabel="key", ylabel="query")
    matrix_at.yaxis.labelpad = -18
    matrix_at.set_title("Scores, 48 places")
    readout = fig.text(0.355, 0.945, "", color=ACCENT, fontsize=15, weight="bold")

    def update(base: float, position: int, distance: float, zero: bool, pair: int, vectors: str) -> str:
        steps = 0 if zero else round(distance)
        q, k = fixed_vectors(vectors, base)
        q_place, k_place = position + steps, position
        q_turned, k_turned = rotate(q, q_place, base=base), rotate(k, k_place, base=base)
        for name, vector in (("q", q_turned), ("k", k_turned)):
            x, y = vector[2 * pair : 2 * pair + 2] / np.linalg.norm(vector[2 * pair : 2 * pair + 2])
            line, tip, label = arrows[name]
            radius = 1.0 if name == "q" else 0.8  # so that neither hides the other when they agree
            line.set_data([0, radius * x], [0, radius * y])
            tip.set_data([radius * x], [radius * y])
            label.set_position(
                (1.26 * x, 1.26 * y) if name == "q" else (0.55 * x + 0.17 * y, 0.55 * y - 0.17 * x)
            )
        curve.set_ydata(rotate(np.tile(q, (len(_DISTANCES), 1)), _DISTANCES, base=base) @ k)
        score = q_turned @ k_turned
        dot.set_data([max(steps, 1)], [score])
        places = position + np.arange(48)
        scores = (
            rotate(np.tile(q, (48, 1)), places, base=base) @ rotate(np.tile(k, (48, 1)), places, base=base).T
        )
        image.set_data(scores)
        shown = f"{score:.6f}".replace("-", "−")  # enough digits to see that none of them changes
        readout.set_text(f"score {shown}")
        turned = steps * inverse_frequencies(WIDTH, base)[pair] / (2 * np.pi)
        return (
            f"Base {number(base)}, {vectors}: query at {q_place:,}, key at {k_place:,}, offset "
            f"{number(-steps)}. Pair {pair} turns {number(turned)} times over that distance. The score is "
            f"{shown}."
        )

    return update


def _circle(ax: Axes) -> None:
    turn = np.linspace(0, 2 * np.pi, 200)
    ax.plot(np.cos(turn), np.sin(turn), color="#BBBBBB", lw=1.2)
    ax.set(xlim=(-1.42, 1.42), ylim=(-1.42, 1.42), aspect="equal")
    ax.axis("off")
