"""Pictures of notebook 07: what each method does to the frequencies, which pair breaks, and what it costs."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from helpers import stretching
from helpers.context_extension import unscaled
from helpers.drawing import still
from helpers.figures import ACCENT, INK, QUIET, apart, number
from helpers.stretching import METHODS, PAIRS, turns

METHOD_NAMES = {
    "unscaled": "as trained",
    "interpolation": "position interpolation",
    "ntk": "NTK-aware",
    "ntk_twice": "NTK-aware, doubled",
    "by_parts_paper": "by parts, 1 and 32",
    "llama3": "Llama 3, 1 and 4",
    "by_parts": "by parts, ½ and 4",
    "yarn": "YaRN",
}
_COLOURS = dict(
    zip(
        METHODS,
        ("#595959", "#0072B2", "#B04A00", "#8A5F00", "#1B6CA8", "#9C3F74", "#00704F", "#222222"),
        strict=True,
    )
)
_MARKERS = dict(zip(METHODS, "oXs^DvPh", strict=True))
_PAIRS = np.arange(PAIRS)


@still(10, 4.8)
def frequencies(fig: Figure, factor: float = 4) -> str:
    """Draw the new over the old frequency of each pair of the course's model, one line per method."""
    ax = fig.subplots()
    old = stretching.unscaled().inv_freq
    shown = ("unscaled", "interpolation", "ntk", "by_parts_paper", "llama3", "by_parts", "yarn")
    for method in shown:
        ratio = METHODS[method](factor).inv_freq / old
        label = METHOD_NAMES[method]
        ax.plot(_PAIRS, ratio, marker=_MARKERS[method], ms=8, color=_COLOURS[method], label=label)
    seen = turns(old)
    labels = [f"{i}\n{number(seen[i], 2)}" for i in _PAIRS]
    ax.set_xticks(_PAIRS, labels)
    ax.set_yscale("log", base=2)
    ax.set_yticks([1 / factor, 0.5, 1], [f"1/{factor:g}", "1/2", "1"])
    ax.set(xlabel="pair, and below it how often it turns in 64 positions", ylabel="new over old frequency")
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    ax.set_ylim(0.235, 1.08)
    ax.set_title(f"Reading {factor:g} times as far: which pairs are slowed, and how much")
    by_pair = "; ".join(
        f"{METHOD_NAMES[m]} {', '.join(number(r, 2) for r in METHODS[m](factor).inv_freq / old)}"
        for m in shown[1:]
    )
    return f"New over old frequency, pairs 0 to {PAIRS - 1}, factor {factor:g}: {by_pair}."


@still(10, 4.2)
def large_model(fig: Figure, title: str, curves: Mapping[str, np.ndarray]) -> str:
    """Draw new over old frequency by pair, (n_pairs,), for up to four methods on one large model."""
    ax = fig.subplots()
    looks = zip(("#1B6CA8", "#B04A00", "#00704F", INK), ("--", "-", "-.", ":"), strict=True)
    for (name, ratio), (colour, style) in zip(curves.items(), looks, strict=False):
        ax.plot(ratio, color=colour, ls=style, label=name)
    ax.set_yscale("log", base=2)
    low = np.log2(min(ratio.min() for ratio in curves.values()))
    ticks = 2.0 ** np.arange(0, np.floor(low) - 1, -1)
    ax.set_yticks(ticks, [f"1/{1 / tick:.0f}" if tick < 1 else "1" for tick in ticks])
    ax.set(xlabel="pair", ylabel="new over old frequency")
    ax.legend(loc="lower left", frameon=False)
    ax.set_title(title)
    ends = "; ".join(f"{name} ends at 1/{1 / ratio[-1]:.3g}" for name, ratio in curves.items())
    return f"New over old frequency of {len(ratio)} pairs: {ends}."


@still(10, 4.6)
def blame(fig: Figure, strengths: np.ndarray, alone: np.ndarray, as_it_is: np.ndarray) -> str:
    """Draw, by pair, the angles seen and needed at 256, its strength, and the loss when slowed alone 4 times.

    strengths and alone (n_seeds, PAIRS), as_it_is (n_seeds,): losses of the last 16 characters of 256.
    """
    left, middle, right = fig.subplots(1, 3)
    seen, needed = turns(stretching.unscaled().inv_freq), turns(stretching.unscaled().inv_freq, 256)
    left.barh(_PAIRS - 0.2, np.minimum(seen, 1), 0.4, color=QUIET)
    left.barh(_PAIRS + 0.2, np.minimum(needed, 1), 0.4, color=ACCENT)
    left.text(0.99, 6.8, "in training", color=QUIET, ha="right", va="center", weight="bold")
    left.text(0.99, 7.2 + 0.25, "needed at 256", color=ACCENT, ha="right", va="center", weight="bold")
    left.set(xlabel="share of the circle", xlim=(0, 1.02), ylabel="pair")
    left.set_title("Angles seen and needed")
    middle.barh(_PAIRS, strengths.mean(axis=0), 0.6, color="#BBBBBB")
    for one in strengths:
        middle.plot(one, _PAIRS, "o", ms=6, color=INK, alpha=0.7)
    middle.set(xlabel="units of score")
    middle.set_title("How much it can say")
    change = alone - as_it_is[:, None]
    for pair in _PAIRS:
        right.plot(change[:, pair], np.full(len(change), pair), "o", ms=8, color=ACCENT, alpha=0.8)
    right.axvline(0, color="k", lw=1)
    right.set(xlabel="change of the loss (nats)")
    right.set_title("Slowed alone, by 4")
    for ax in (left, middle, right):
        ax.set_yticks(_PAIRS)
        ax.set_ylim(7.7, -0.7)
    best = int(change.mean(axis=0).argmin())
    return (
        f"Pair {best} alone, slowed 4 times, changes the loss of the last 16 of 256 characters by "
        f"{number(change[:, best].mean(), 2)} nats; it turned {number(seen[best], 2)} times in training, "
        f"needs {number(needed[best], 2)} turns at 256, and can give "
        f"{number(strengths[:, best].mean(), 2)} units of score."
    )


@still(10, 4.8)
def two_geometries(fig: Figure, changes: Mapping[float, np.ndarray]) -> str:
    """Draw what slowing one pair alone changes against how often it turned in training, by base of the model.

    changes: (n_seeds, PAIRS) for each base, of the loss of the last 16 of 256 characters, in nats.
    """
    ax = fig.subplots()
    looks = zip((ACCENT, "#1B6CA8"), ("o", "s"), (0, 0.02), strict=True)  # the second a hair to the right
    found = []
    for (base, change), (colour, marker, shift) in zip(changes.items(), looks, strict=False):
        seen = turns(unscaled(stretching.HEAD_DIM, base).inv_freq)
        for one in change:
            ax.plot(seen * 10**shift, one, marker, ms=6, color=colour, alpha=0.55, mec="none")
        label = f"base {number(base)}"
        ax.plot(seen * 10**shift, change.mean(axis=0), marker + "-", ms=10, lw=1.2, color=colour, label=label)
        best = int(change.mean(axis=0).argmin())
        found.append(
            f"base {number(base)}: pair {best}, which turned {number(seen[best], 2)} times, "
            f"{number(change[:, best].mean(), 2)} nats"
        )
    ax.axvspan(1 / 6, 1, color="#EEEEEE", zorder=0)
    ax.axhline(0, color="k", lw=1)
    ax.set_xscale("log")
    ax.set_xticks(
        [0.003, 0.01, 0.03, 0.1, 1 / 3, 1, 3, 10], ["1/300", "1/100", "1/30", "1/10", "1/3", "1", "3", "10"]
    )
    ax.minorticks_off()
    ax.set(xlabel="turns of the pair in training (64 positions)", ylabel="change of the loss (nats)")
    ax.legend(loc="lower left", frameon=False)
    ax.set_title("Slow one pair 4 times: who turned a part of a circle is to blame")
    return f"Change of the loss at the end of 256 when one pair is slowed; most for {'; '.join(found)}."


@still(10, 5)
def trade_off(fig: Figure, points: Mapping[str, tuple[np.ndarray, np.ndarray]], window: np.ndarray) -> str:
    """Draw the loss at the end of 256 against the loss at 64, (n_seeds,) each, one mark per method.

    window: the loss at the end of 256 with the last 64 keys, (n_seeds,).
    """
    whole, close = fig.subplots(1, 2, width_ratios=(1, 1.6))
    for ax in (whole, close):
        for method, (old, new) in points.items():
            look = {"color": _COLOURS[method], "ls": "none", "marker": _MARKERS[method]}
            ax.plot(old, new, ms=6, alpha=0.35, **look)
            ax.plot(old.mean(), new.mean(), ms=12, mec="w", label=METHOD_NAMES[method], **look)
        ax.axhline(window.mean(), color="k", ls=":", lw=2.5, label="64 keys only, as trained")
        ax.set(xlabel="loss at the old length (nats)")
    whole.set(ylabel="loss of the last 16 of 256 (nats)")
    whole.set_title("All methods")
    far_off = {"unscaled", "interpolation", "by_parts_paper"}
    near = np.array([pair for method, pair in points.items() if method not in far_off])  # (n, 2, n_seeds)
    for limits, values in ((close.set_xlim, near[:, 0]), (close.set_ylim, near[:, 1])):
        low, high = min(values.min(), window.mean() if limits == close.set_ylim else np.inf), values.max()
        limits(low - 0.06 * (high - low), high + 0.06 * (high - low))
    close.set_title("The better ones, close up")
    close.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    each = "; ".join(f"{METHOD_NAMES[m]} {o.mean():.2f} and {n.mean():.2f}" for m, (o, n) in points.items())
    return f"Loss at 64 and at the end of 256, means of five models: {each}; 64 keys: {window.mean():.2f}."


@still(10, 4.4)
def base_sweep(fig: Figure, bases: Sequence[float], losses: Mapping[int, np.ndarray]) -> str:
    """Draw the loss against the base used when testing, (n_seeds, n_bases) for each length."""
    ax = fig.subplots()
    looks = dict(zip(losses, zip(("-", "--", "-."), (INK, "#1B6CA8", "#B04A00"), strict=True), strict=True))
    for length, values in losses.items():
        style, colour = looks[length]
        ax.plot(bases, values.mean(axis=0), marker="o", ls=style, color=colour)
        ax.fill_between(bases, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.15, lw=0)
    ends = {length: float(values.mean(axis=0)[-1]) for length, values in losses.items()}
    for length, place in apart(ends, 0.14).items():
        ax.text(bases[-1] * 1.15, place, f"at {length}", color=looks[length][1], va="center", weight="bold")
    ax.axvline(1e4, color=QUIET, lw=1.2)
    ax.text(1.05e4, 0.98, "trained with this base", color=QUIET, va="top", transform=ax.get_xaxis_transform())
    ax.set_xscale("log")
    ax.set(xlabel="base", ylabel="loss (nats)", xlim=(bases[0], bases[-1] * 2))
    ax.set_title("A larger base helps far out and harms the old length")
    best = {n: bases[int(v.mean(axis=0).argmin())] for n, v in losses.items()}
    found = ", ".join(f"{number(b)} at {n}" for n, b in best.items())
    return f"Loss against the base at test time; the best base is {found}."


@still(10, 4.2)
def tuned(
    fig: Figure, before: Mapping[str, np.ndarray], after: Mapping[str, np.ndarray], window: float
) -> str:
    """Draw the loss at 512 before and after 50 steps on texts of 512, (n_seeds,) each, one row per method."""
    ax = fig.subplots()
    for row, method in enumerate(before):
        start, end = before[method].mean(), after[method].mean()
        ax.plot([start, end], [row, row], lw=2, color=_COLOURS[method])
        ax.plot(before[method], np.full(5, row), "o", mfc="w", ms=8, color=_COLOURS[method])
        ax.plot(after[method], np.full(5, row), "o", ms=8, color=_COLOURS[method])
        ax.text(before[method].max() + 0.04, row, f"{start:.2f} → {end:.2f}", va="center")
    ax.axvline(window, color="k", ls=":", lw=2.5)
    ax.text(window + 0.02, -0.75, "64 keys, not tuned", ha="left", va="center", weight="bold")
    ax.set_yticks(range(len(before)), [METHOD_NAMES[m] for m in before])
    ax.set_ylim(len(before) - 0.5, -1)
    highest = max(losses.max() for losses in before.values())
    ax.set(xlabel="loss at the end of 512 (nats)", xlim=(window - 0.1, highest + 0.6))
    ax.set_title("Fifty steps of fine-tuning (open: before, full: after)")
    found = ", ".join(f"{METHOD_NAMES[m]} {before[m].mean():.2f} to {after[m].mean():.2f}" for m in before)
    return (
        f"Loss at 512 before and after 50 steps on texts of 512: {found}; 64 keys, not tuned: {window:.2f}."
    )
