"""Pictures of notebook 05: offsets, the staircase of T5, the slopes of ALiBi, and a needle in a bias."""

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.figure import Figure

from helpers.attention import softmax
from helpers.drawing import still
from helpers.figures import ACCENT, QUIET, SCHEME_COLOURS, SIGNED, number
from helpers.relative_bias import alibi_bias, alibi_slopes, t5_bucket_starts, t5_buckets

SKY = SCHEME_COLOURS["alibi"]
BLUE = "#1B6CA8"  # ALiBi's sky blue, dark enough for thin lines and text
GREEN = SCHEME_COLOURS["t5"]


@still(10, 3.9)
def offsets_and_rows(fig: Figure, offsets: np.ndarray, clipped: np.ndarray) -> str:
    """Draw the offsets of all pairs, (n, n), and the table row that each one uses after clipping."""
    titles = "Offset: key minus query", "Row of the table, offsets clipped"
    for ax, table, title, look in zip(
        fig.subplots(1, 2), (offsets, clipped), titles, (SIGNED, {"cmap": "cividis"}), strict=True
    ):
        ax.imshow(table, **look)
        for i, j in np.ndindex(table.shape):
            middle = table.max() if look is not SIGNED else 4
            dark = abs(table[i, j]) >= middle if look is SIGNED else table[i, j] < 0.6 * middle
            ax.text(
                j, i, f"{table[i, j]}".replace("-", "−"), ha="center", va="center", color="w" if dark else "k"
            )
        ax.set(xlabel="key", ylabel="query", xticks=range(len(table)), yticks=range(len(table)))
        ax.set_title(title)
    return f"Offsets of {len(offsets)} queries and keys, and the table rows they use: far ones share a row."


@still(10, 4.2)
def staircase(fig: Figure, curves: dict[str, tuple[np.ndarray, np.ndarray]]) -> str:
    """Draw bucket numbers against distance for each named setting: (distances, buckets)."""
    ax = fig.subplots()
    for (name, (distances, buckets)), colour, style in zip(
        curves.items(), (GREEN, "#005A42"), ("-", "--"), strict=True
    ):
        ax.step(distances, buckets, where="post", color=colour, ls=style)
        last = distances[buckets.argmax()]
        ax.plot([last], [buckets.max()], "o", ms=10, color=colour)
        ax.text(
            last,
            buckets.max() + 1.2,
            f"{name}: last bucket from {last}",
            ha="right",
            color="#005A42",
            weight="bold",
        )
    ax.set(xlabel="distance to a key before the query", ylabel="bucket", xlim=(0, 150), ylim=(0, 35))
    ax.set_title("One bucket each for near distances, ever wider ones far away")
    return "T5 buckets against distance: exact at first, then logarithmic; the last starts before 128."


@still(10, 3.8)
def heads(fig: Figure, bias: np.ndarray, shown: Sequence[int]) -> str:
    """Draw the causal ALiBi bias, (n_heads, n, n), of some heads (counted from 0)."""
    axes = fig.subplots(1, len(shown), sharey=True)
    slopes = alibi_slopes(len(bias))
    for ax, head in zip(axes, shown, strict=True):
        image = ax.imshow(np.where(np.isinf(bias[head]), np.nan, bias[head]), vmin=-8, vmax=0)
        ax.set(xlabel="key")
        ax.set_title(f"head {head + 1}\nslope 1/{1 / slopes[head]:.0f}")
    axes[0].set_ylabel("query")
    fig.colorbar(image, ax=axes, label="bias", ticks=[-8, -4, 0], shrink=0.8)
    names = ", ".join(str(head + 1) for head in shown)
    return f"ALiBi bias of heads {names} of {len(bias)}: ramps down from the diagonal, each flatter."


@still(10, 4.4)
def needle_by_slope(fig: Figure, slopes: np.ndarray, weights: dict[int, np.ndarray]) -> str:
    """Draw the weight on a needle against the slope, (n,), for needles at several distances (log axis)."""
    ax = fig.subplots()
    for (distance, values), style in zip(weights.items(), ("-", "--", "-."), strict=True):
        best = values.argmax()
        ax.semilogx(slopes, values, style, color=BLUE)
        ax.plot(slopes[best], values[best], "o", ms=10, color=ACCENT)
        label = {"ha": "center", "weight": "bold", "bbox": {"fc": "white", "ec": "none", "pad": 1}}
        ax.text(slopes[best], values[best] + 0.05, f"distance {distance}", **label)
    ax.set(
        xlabel="slope", ylabel="weight on the needle", ylim=(0, 1.2 * max(v.max() for v in weights.values()))
    )
    ax.set_title("Each distance has its best slope, and it is not the smallest")
    best = ", ".join(f"{number(slopes[v.argmax()])} for distance {d}" for d, v in weights.items())
    return f"Weight on a needle against the slope: the best slopes are {best}."


N_KEYS = 96


def needle(fig: Figure) -> Callable[..., str]:
    """Build the main panel: the bias of one ALiBi head, and the weight that reaches a needle."""
    fig.set_size_inches(10, 4.8)
    bias_at = fig.add_axes((0.075, 0.575, 0.26, 0.35))
    weight_at = fig.add_axes((0.075, 0.105, 0.26, 0.35))
    ramp_at = fig.add_axes((0.45, 0.575, 0.535, 0.35))
    curve_at = fig.add_axes((0.45, 0.105, 0.535, 0.35))
    bias_at.set_title("Bias of the head")
    weight_at.set_title("Weights of the head")
    ramp_at.set_title("Bias in the query's row")
    curve_at.set_title("Weights in the query's row")
    empty = np.zeros((N_KEYS, N_KEYS))
    bias_image = bias_at.imshow(empty, vmin=-8, vmax=0, aspect="auto")
    weight_image = weight_at.imshow(empty, vmin=0, vmax=0.2, aspect="auto")
    rows = []
    for ax in (bias_at, weight_at):
        rows.append(ax.axhline(0, color=ACCENT, lw=2))
        ax.set_ylabel("query")
    bias_at.set_xticklabels([])
    weight_at.set_xlabel("key")
    keys = np.arange(N_KEYS)
    (ramp,) = ramp_at.plot(keys, 0.0 * keys, color=BLUE)
    (ramp_needle,) = ramp_at.plot([0], [0], "o", ms=12, color=ACCENT)
    ramp_at.set(xlim=(-1, N_KEYS), ylim=(-8.5, 0.8), xticklabels=[], ylabel="bias")
    curve_at.set_yscale("log")
    (curve,) = curve_at.plot(keys, np.ones(N_KEYS), color=BLUE)
    (curve_needle,) = curve_at.plot([0], [1], "o", ms=12, color=ACCENT)
    curve_at.set(xlim=(-1, N_KEYS), ylim=(3e-5, 1.5), xlabel="key", ylabel="weight")
    lines = [ax.axvline(0, color=QUIET, ls=":", lw=1.5) for ax in (ramp_at, curve_at)]

    def update(
        heads: int,
        head: int,
        factor: float,
        off: bool,
        query: int,
        causal: bool,
        distance: int,
        advantage: float,
    ) -> str:
        slope = 0.0 if off else factor * alibi_slopes(heads)[head - 1]
        # Scale the slope, not the bias: 0 times the -inf of the mask would be NaN.
        one_head = alibi_bias(1, N_KEYS, causal=causal)[0] / alibi_slopes(1)[0]
        bias = np.where(np.isinf(one_head), -np.inf, slope * np.nan_to_num(one_head, neginf=0.0))
        scores = np.zeros((N_KEYS, N_KEYS))
        scores[:, query - distance] = advantage
        weights = softmax(scores + bias)
        visible = np.isfinite(bias)
        bias_image.set_data(np.where(visible, bias, np.nan))
        weight_image.set_data(np.where(visible, weights, np.nan))
        for row in rows:
            row.set_ydata([query, query])
        place = query - distance
        ramp.set_ydata(np.where(visible[query], bias[query], np.nan))
        ramp_needle.set_data([place], [max(bias[query, place], -8.3)])
        curve.set_ydata(np.where(visible[query], weights[query], np.nan))
        curve_needle.set_data([place], [max(weights[query, place], 3.5e-5)])
        for line in lines:
            line.set_xdata([query, query])
        beats = "beats" if advantage > slope * distance else "does not beat"
        name = "switched off" if off else f"slope {number(slope)}"
        return (
            f"Head {head} of {heads} ({name}, factor {number(factor)}), query {query}, "
            f"{'causal' if causal else 'both sides'}: a needle at distance {distance} with advantage "
            f"{number(advantage)} {beats} distance 0 and gets weight {number(weights[query, place])}."
        )

    return update


def buckets(fig: Figure) -> Callable[..., str]:
    """Build the T5 panel: the staircase of buckets, and how many distances each bucket holds."""
    fig.set_size_inches(10, 4.2)
    left = fig.add_axes((0.07, 0.15, 0.42, 0.74))
    right = fig.add_axes((0.585, 0.15, 0.395, 0.74))
    offsets = np.arange(-300, 301)
    (stairs,) = left.plot(offsets, 0 * offsets, color=GREEN, drawstyle="steps-mid")
    (last_dot,) = left.plot([0], [0], "o", ms=11, color=ACCENT)
    left.set(xlabel="offset (key − query)", ylabel="bucket", xlim=(-300, 300), ylim=(-2, 66))
    left.set_title("Bucket of each offset")
    bars = right.bar(np.arange(64), np.ones(64), color=GREEN, width=0.85)
    right.set_yscale("log")
    right.set(xlabel="bucket of the past", ylabel="distances in it", ylim=(0.7, 700), xlim=(-1, 64))
    right.set_title("How many (the last: up to 511)")

    def update(n_buckets: int, max_distance: int, bidirectional: bool) -> str:
        stairs.set_ydata(t5_buckets(offsets, n_buckets, max_distance, bidirectional))
        starts = t5_bucket_starts(n_buckets, max_distance, bidirectional)
        last = int(starts[-1])
        last_dot.set_data([-last], [len(starts) - 1])
        widths = np.diff(np.append(starts, max(last + 1, 512)))
        for bucket, bar in enumerate(bars):
            bar.set_height(widths[bucket] if bucket < len(widths) else 0)
        exact, mode = len(starts) // 2, "both directions" if bidirectional else "causal"
        near = (
            f"distances 0 to {exact - 1} have a bucket each" if exact > 1 else "distance 0 has its own bucket"
        )
        return (
            f"{n_buckets} buckets, max_distance {max_distance}, {mode}: {near}, and "
            f"the last bucket takes everything from {last} on."
        )

    return update
