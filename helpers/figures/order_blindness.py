"""Pictures of notebook 01: attention weights before and after a shuffle, and who sees the order."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from helpers.attention import attention_weights, causal_mask
from helpers.drawing import still
from helpers.figures import ACCENT, QUIET, number
from helpers.sinusoidal import sinusoidal_encoding

ROUNDING = 1e-12  # changes below it are drawn at the floor: their digits differ between processors
FLOOR = 1e-15


@still(10, 4.4)
def weights_before_and_after(
    fig: Figure, words: Sequence[str], before: np.ndarray, order: Sequence[int], after: np.ndarray
) -> str:
    """Draw two weight matrices, (n, n), with their words, and where the rows and columns of one word went."""
    left, right = fig.subplots(1, 2)
    image = _weight_matrix(left, before, words, "In the first order")
    shuffled = [words[i] for i in order]
    _weight_matrix(right, after, shuffled, "Shuffled: the same weights, moved along")
    fig.colorbar(image, ax=[left, right], label="weight", shrink=0.85)
    first, second = " ".join(words), " ".join(shuffled)
    return f"Attention weights for “{first}” and for “{second}”: the same numbers, permuted."


@still(10, 4.2)
def change_by_depth(fig: Figure, changes: dict[str, np.ndarray]) -> str:
    """Draw one dot an order for each named model: how far the last word's output moved (log axis)."""
    ax = fig.subplots()
    spread = np.random.default_rng(0)
    for row, (name, values) in enumerate(reversed(changes.items())):
        shown = np.where(values > ROUNDING, values, FLOOR)
        colour = ACCENT if values.max() > ROUNDING else QUIET
        ax.semilogx(shown, row + spread.uniform(-0.28, 0.28, len(shown)), "o", ms=4, color=colour, alpha=0.55)
        ax.text(3e1, row, name, va="center", color=colour, weight="bold")
    ax.set(xlim=(1e-16, 2e1), ylim=(-0.6, len(changes) - 0.4), yticks=[])
    ax.set_xlabel("change of the last word's output when its predecessors are reordered")
    ax.spines["left"].set_visible(False)
    ax.axvspan(1e-16, ROUNDING, color="#EEEEEE", zorder=0)
    ax.text(1.4e-16, len(changes) - 0.45, "rounding only", color=QUIET, va="top")
    ax.set_title("The last word sees the order only with a mask and a second layer")
    largest = ", ".join(f"{name}: {_size(values)}" for name, values in changes.items())
    return f"Largest change of the last word's output over all orders of its predecessors: {largest}."


@still(10, 3.6)
def start_token(fig: Figure, shares: np.ndarray) -> str:
    """Draw the weight each of n equal words gives the start token, (n,)."""
    ax = fig.subplots()
    places = np.arange(1, len(shares) + 1)
    ax.plot(places, shares, "o", ms=11, color=ACCENT)
    for place, share in zip(places, shares, strict=True):
        ax.text(place + 0.1, share + 0.01, f"{share:.3f}", va="bottom")
    ax.set(xlabel="place of the word after the start token", ylabel="weight on the start token")
    ax.set(ylim=(0, 1.15 * shares.max()), xlim=(0.6, len(shares) + 0.7), xticks=places)
    ax.set_title("With a start token and a mask, a count leaks in")
    first, last = shares[0], shares[-1]
    return f"Weight on the start token falls from {first:.3f} to {last:.3f} as more equal words come between."


def shuffle(words: Sequence[str], x: np.ndarray, projections: tuple[np.ndarray, ...]) -> Callable[..., Any]:
    """Return the builder of the main panel for n words, x (n, d), and (W_q, W_k, W_v)."""

    def build(fig: Figure) -> Callable[..., str]:
        fig.set_size_inches(10, 4.7)
        n = len(words)
        panels = [fig.add_axes((left, 0.2, 0.265, 0.58)) for left in (0.09, 0.43)]
        titles = ("Weights, first order", "Weights, shuffled")  # dark 0, bright 1, white: masked
        images, rows, columns = [], [], []
        slanted = {"rotation": 45, "ha": "right", "va": "top", "rotation_mode": "anchor"}
        for ax, title in zip(panels, titles, strict=True):
            images.append(ax.imshow(np.zeros((n, n)), vmin=0, vmax=1, aspect="auto"))
            ax.set(xticks=[], yticks=[], xlabel="key")
            ax.xaxis.labelpad = 44
            rows.append([ax.text(-0.65, i, "", ha="right", va="center") for i in range(n)])
            columns.append([ax.text(i + 0.25, n - 0.2, "", **slanted) for i in range(n)])
            ax.set_title(title)
        panels[0].set_ylabel("query", labelpad=42)
        scale = fig.add_axes((0.79, 0.2, 0.195, 0.58))
        scale.set_yscale("log")
        scale.set(ylim=(1e-16, 1e2), xlim=(0.5, 3.5), xticks=[1, 2, 3], xlabel="layers")
        scale.set_yticks([1e-12, 1e-8, 1e-4, 1])
        scale.minorticks_off()
        scale.axhspan(1e-16, ROUNDING, color="#EEEEEE", zorder=0)
        scale.set_title("Change of “mat”")
        dots = [scale.plot([depth], [FLOOR], "o", ms=11, color=QUIET)[0] for depth in (1, 2, 3)]
        ring = scale.plot([1], [FLOOR], "o", ms=19, mfc="none", mec=ACCENT, mew=2.5)[0]
        scale.text(0.6, 1e-14, "rounding only", color=QUIET, fontsize=12)
        heading = fig.text(0.09, 0.93, "", color=ACCENT, fontsize=15)

        def update(seed: int, layers: int, mask: bool, signal: float) -> str:
            order = shuffled_predecessors(n, seed)
            changes = []
            for depth in (1, 2, 3):
                before = stack(x, projections, depth, mask, signal)
                after = stack(x[order], projections, depth, mask, signal)
                changes.append(float(np.abs(before[0][-1] - after[0][-1]).max()))
                if depth == layers:
                    pictured = before[1], after[1]
            for image, weights in zip(images, pictured, strict=True):
                image.set_data(np.where(causal_mask(n), weights, np.nan) if mask else weights)
            for labels, places in zip(zip(rows, columns, strict=True), (range(n), order), strict=True):
                for row, column, place in zip(*labels, places, strict=True):
                    row.set_text(words[place])
                    column.set_text(words[place])
            for dot, change in zip(dots, changes, strict=True):
                dot.set_ydata([_drawn(change)])
                dot.set_color(ACCENT if change > ROUNDING else QUIET)
            ring.set_data([layers], [_drawn(changes[layers - 1])])
            sentence = " ".join(words[i] for i in order)
            heading.set_text(f"Shuffled: {sentence}")
            change = changes[layers - 1]
            seen = f"moves by {number(change)}" if change > ROUNDING else "stays the same, but for rounding"
            return (
                f"Order “{sentence}” (seed {seed}), layers: {layers}, mask {'on' if mask else 'off'}, "
                f"position signal {number(signal)}: the output of the last word, mat, {seen}."
            )

        return update

    return build


def shuffled_predecessors(n: int, seed: int) -> np.ndarray:
    """Return an order of n places that leaves the last one where it is; seed 0 changes nothing."""
    order = np.arange(n)
    if seed:
        order[:-1] = np.random.default_rng(seed).permutation(n - 1)
    return order


def stack(
    x: np.ndarray, projections: tuple[np.ndarray, ...], layers: int, mask: bool, signal: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the output, (n, d), and the last weights, (n, n), of attention layers with residuals."""
    w_q, w_k, w_v = projections
    x = x + signal * sinusoidal_encoding(len(x), x.shape[1], base=100.0)
    may_attend = causal_mask(len(x)) if mask else None
    for _ in range(layers):
        weights = attention_weights(x @ w_q, x @ w_k, mask=may_attend)
        x = x + weights @ (x @ w_v)
    return x, weights


def _weight_matrix(ax: Axes, weights: np.ndarray, words: Sequence[str], title: str) -> Any:
    image = ax.imshow(weights, vmin=0, vmax=weights.max())
    places = range(len(words))
    ax.set_xticks(places, words, rotation=45, ha="right", rotation_mode="anchor")
    ax.set_yticks(places, words)
    ax.set(ylabel="query", xlabel="key")
    ax.set_title(title)
    for i in places:
        for j in places:
            light = weights[i, j] < 0.6 * weights.max()
            ax.text(
                j,
                i,
                f"{weights[i, j]:.2f}",
                ha="center",
                va="center",
                color="w" if light else "k",
                fontsize=11,
            )
    return image


def _size(values: np.ndarray) -> str:
    return number(float(values.max())) if values.max() > ROUNDING else "rounding only"


def _drawn(change: float) -> float:
    return change if change > ROUNDING else FLOOR
