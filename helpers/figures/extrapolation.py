"""Pictures of notebook 06: losses past the trained length, tests that tell why, recall, attention maps."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from helpers.drawing import still
from helpers.figures import ACCENT, QUIET, SCHEME_COLOURS, SCHEME_INKS, SCHEME_NAMES, SCHEME_STYLES, number
from helpers.live import Later
from helpers.training import LENGTH, REACH, Run, corpus, token_losses, windows
from helpers.transformer import forward

LENGTHS = (64, 128, 256, 512)


def _look(scheme: str) -> dict[str, Any]:
    return {"color": SCHEME_COLOURS[scheme], "ls": SCHEME_STYLES[scheme]}


def _band(ax: Axes, x: np.ndarray, curves: np.ndarray, colour: str, alpha: float = 0.2) -> None:
    """Fill from the smallest to the largest seed of curves, (n_seeds, n)."""
    ax.fill_between(x, curves.min(axis=0), curves.max(axis=0), color=colour, alpha=alpha, lw=0)


def _label_ends(ax: Axes, x: float, ends: Mapping[str, float], gap: float) -> None:
    """Write each scheme's name beside the end of its line, moved apart where lines end close together."""
    low = -np.inf
    for scheme, end in sorted(ends.items(), key=lambda item: item[1]):
        low = max(end, low + gap)
        ax.text(x, low, SCHEME_NAMES[scheme], color=SCHEME_INKS[scheme], va="center", weight="bold")


@still(10, 4)
def training(fig: Figure, losses: Mapping[str, np.ndarray]) -> str:
    """Draw the training loss of each scheme, (steps,), smoothed over 20 steps."""
    ax = fig.subplots()
    for scheme, values in sorted(losses.items(), key=lambda item: -item[1][-20:].mean()):
        smooth = np.convolve(values, np.ones(20) / 20, mode="valid")
        ax.plot(np.arange(len(smooth)) + 20, smooth, lw=1.8, label=SCHEME_NAMES[scheme], **_look(scheme))
    steps = max(map(len, losses.values()))
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, handlelength=3)
    ax.set(xlabel="step", ylabel="training loss (nats)", ylim=(1.6, 3.4), xlim=(0, steps))
    ax.set_title("Without positions, the loss stays high")
    ends = ", ".join(f"{SCHEME_NAMES[s]} {v[-20:].mean():.2f}" for s, v in losses.items())
    return f"Training loss over {steps} steps; at the end: {ends}."


@still(10, 5)
def loss_by_length(
    fig: Figure,
    by_position: Mapping[str, np.ndarray],
    floor: np.ndarray,
    yours: Mapping[str, np.ndarray] | None = None,
) -> str:
    """Draw the mean loss of texts against their length, with bands, from losses (n_seeds, REACH) by position.

    floor: the same for the model to beat, RoPE that sees 64 keys only. yours: one run each, (REACH,), dots.
    """
    ax = fig.subplots()
    lengths = np.unique(np.geomspace(16, REACH, 60).astype(int))

    def of_length(losses: np.ndarray) -> np.ndarray:
        return (losses.cumsum(axis=1) / np.arange(1, losses.shape[1] + 1))[:, lengths - 1]

    ends = {}
    for scheme, losses in by_position.items():
        curves = of_length(losses)
        ax.plot(lengths, curves.mean(axis=0), **_look(scheme))
        _band(ax, lengths, curves, SCHEME_COLOURS[scheme])
        ends[scheme] = float(curves[:, -1].mean())
    for scheme, losses in (yours or {}).items():
        ax.plot(
            lengths, of_length(losses[None])[0], "o", ms=5, color=SCHEME_COLOURS[scheme], mec="k", mew=0.6
        )
    ax.plot(lengths, of_length(floor).mean(axis=0), color="k", lw=3, ls=(0, (1, 1)))
    ax.text(18, of_length(floor).mean(axis=0)[-1] - 0.09, "RoPE, 64 keys only", weight="bold", va="center")
    ax.axvline(LENGTH, color=QUIET, lw=1.2)
    ax.text(LENGTH * 0.97, 3.3, "trained up to here", color=QUIET, ha="right", va="top")
    ax.set_xscale("log", base=2)
    ax.set_xticks([16, 32, *LENGTHS], ["16", "32", *map(str, LENGTHS)])
    _label_ends(ax, REACH * 1.06, ends, 0.085)
    ax.set(
        xlabel="length of the text (characters)", ylabel="mean loss (nats)", xlim=(16, 900), ylim=(1.65, 3.4)
    )
    ax.set_title("Your models (dots) on our bands" if yours else "Past the trained length, models part ways")
    worst = max(ends, key=ends.get)
    return (
        f"Mean loss against length, five seeds. At {REACH}: "
        f"{', '.join(f'{SCHEME_NAMES[s]} {e:.2f}' for s, e in ends.items())}; worst is {SCHEME_NAMES[worst]}."
    )


@still(10, 5.2)
def loss_by_position(
    fig: Figure, with_all: Mapping[str, np.ndarray], window: Mapping[str, np.ndarray]
) -> str:
    """Draw the loss in bins of 16 positions, with all keys and with the last 64: (n_seeds, REACH) each."""
    axes = fig.subplots(2, 4, sharex=True, sharey=True)
    middles = np.arange(8, REACH, 16)
    for ax, scheme in zip(axes.flat, with_all, strict=False):
        for losses, style in ((with_all[scheme], _look(scheme)), (window[scheme], {"color": "k", "ls": ":"})):
            bins = losses.reshape(len(losses), -1, 16).mean(axis=2)
            ax.plot(middles, bins.mean(axis=0), lw=2.2, **style)
            _band(ax, middles, bins, style["color"])
        ax.axvline(LENGTH, color=QUIET, lw=1)
        ax.set_title(SCHEME_NAMES[scheme], color=SCHEME_INKS[scheme])
        ax.set(ylim=(1.5, 4.2), xlim=(0, REACH), xticks=[64, 256, 512])
    note = axes.flat[-1]
    note.axis("off")
    note.plot([0, 90], [3.2, 3.2], color=QUIET, lw=2.2)
    note.text(110, 3.2, "all keys", va="center")
    note.plot([0, 90], [2.7, 2.7], "k:", lw=2.2)
    note.text(110, 2.7, "last 64 keys", va="center")
    fig.supxlabel("position", fontsize=13)
    fig.supylabel("loss (nats)", fontsize=13)
    return "Loss by position for seven schemes, with all keys and with the last 64 only, five seeds."


def _signed(value: float) -> str:
    """Return +1.20, −0.30 or, for what two digits can't tell from nothing, 0.00."""
    return f"{value:+.2f}".replace("-", "−") if abs(value) >= 0.005 else "0.00"


@still(10, 4.6)
def three_tests(fig: Figure, tests: Mapping[str, Mapping[str, np.ndarray]]) -> str:
    """Draw, for each test, the change of the loss of each scheme, (n_seeds,): a dot a seed."""
    axes = fig.subplots(1, len(tests), sharey=True)
    patch = {"boxstyle": "square,pad=0.1", "fc": "w", "ec": "none"}
    for ax, (name, changes) in zip(axes, tests.items(), strict=True):
        for row, (scheme, values) in enumerate(changes.items()):
            ax.plot(values, np.full(len(values), row), "o", ms=8, color=SCHEME_COLOURS[scheme], alpha=0.8)
            ax.annotate(
                _signed(values.mean()),
                (values.max(), row),
                (9, 0),
                textcoords="offset points",
                va="center",
                bbox=patch,
            )
        ax.axvline(0, color="k", lw=1, zorder=0)
        ax.set_title(name)
        ax.set_xlabel("change of the loss (nats)")
        low, high = ax.dataLim.intervalx
        ax.set_xlim(low - 0.12 * (high - low), high + 0.38 * (high - low))
    axes[0].set_yticks(range(len(changes)), [SCHEME_NAMES[s] for s in changes])
    axes[0].invert_yaxis()
    found = []
    for name, changes in tests.items():
        scheme = max(changes, key=lambda s: abs(changes[s].mean()))
        value = number(float(changes[scheme].mean()))
        found.append(f"{name.replace(chr(10), ' ')}: {SCHEME_NAMES[scheme]} {value}")
    return f"Change of the loss in three tests, largest for {'; '.join(found)}."


@still(10, 4.6)
def recall(fig: Figure, distances: Sequence[int], accuracy: Mapping[str, np.ndarray]) -> str:
    """Draw the share of a repeated string that is predicted, (n_seeds, n_distances), against the distance."""
    ax = fig.subplots()
    for scheme, shares in sorted(accuracy.items(), key=lambda item: -item[1].mean()):
        label = SCHEME_NAMES[scheme]
        ax.plot(distances, shares.mean(axis=0), marker="o", ms=6, label=label, **_look(scheme))
        ax.plot(distances, shares.T, color=SCHEME_COLOURS[scheme], lw=0.9, alpha=0.6)
    ax.axvspan(distances[0], 32, color="#EEEEEE", zorder=0)
    ax.text(distances[0] * 1.02, 1.03, "trained on", color=QUIET, va="bottom")
    ax.axhline(1 / 16, color="k", lw=1, ls=":")
    ax.text(distances[0] * 1.02, 1 / 16 + 0.015, "guessing", color=QUIET)
    ax.set_xscale("log", base=2)
    ax.set_xticks(distances, [str(d) for d in distances])
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False, handlelength=3)
    ax.set(xlabel="distance to the first time (letters)", ylabel="letters predicted", ylim=(0, 1.12))
    ax.set_xlim(distances[0] * 0.97, distances[-1] * 1.03)
    ax.set_title("ALiBi looks back further than it was trained to (thin lines: single seeds)")
    found = [
        f"{SCHEME_NAMES[s]} {shares[:, 2].mean():.2f} at {distances[2]}, "
        f"{shares[:, 5].mean():.2f} at {distances[5]}"
        for s, shares in accuracy.items()
    ]
    return f"Share of a repeated string that is predicted, by distance: {'; '.join(found)}."


@still(10, 3.3)
def attention_maps(fig: Figure, maps: Mapping[str, np.ndarray]) -> str:
    """Draw attention weights, (n, n), of one head for several models, on one logarithmic colour scale."""
    axes = fig.subplots(1, len(maps), sharey=True)
    for ax, (scheme, weights) in zip(axes, maps.items(), strict=True):
        seen = np.where(weights > 0, np.maximum(weights, 1e-4), np.nan)
        image = ax.imshow(seen, norm=LogNorm(1e-4, 1), interpolation="antialiased")
        ax.axhline(LENGTH, color=ACCENT, lw=2)
        ax.set_title(SCHEME_NAMES[scheme], color=SCHEME_INKS[scheme])
        ax.set_xlabel("key")
    axes[0].set_ylabel("query")
    fig.colorbar(image, ax=axes, label="weight", shrink=0.9)
    names = ", ".join(SCHEME_NAMES[s] for s in maps)
    return f"Attention maps of {names} over {len(seen)} positions, trained on 64."


def explorer(runs: Mapping[str, Run], first: tuple[str, int]) -> Callable[..., Any]:
    """Return the builder of the panel for one trained run of each scheme.

    first: the scheme and window that it opens with, measured at once. All others are measured when asked for.
    """
    pieces = windows(corpus()[1], 12, REACH + 1, np.random.default_rng(5))

    def measure(scheme: str, window: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the loss in bins of 8 positions, (64,), and the last layer's weights on one text."""
        model = runs[scheme].decoder()
        losses = token_losses(model, pieces, window=window).mean(axis=0).reshape(-1, 8).mean(axis=1)
        weights = forward(model, pieces[:1, :-1], window=window)[2][-1][0]
        return losses, np.where(weights > 0, np.maximum(weights, 1e-4), np.nan).astype(np.float32)

    def build(fig: Figure, redraw: Callable[[], None]) -> Callable[..., str]:
        later = Later(measure, redraw)
        later.now(*first)
        later.now(first[0], REACH)
        fig.set_size_inches(10, 4.5)
        left = fig.add_axes((0.075, 0.14, 0.5, 0.74))
        right = fig.add_axes((0.665, 0.14, 0.32, 0.74))
        middles = np.arange(4, REACH, 8)
        (full,) = left.plot(middles, 0 * middles + 2.0, color=QUIET, lw=1.6)
        (line,) = left.plot(middles, 0 * middles + 2.0, color=ACCENT)
        end = left.axvline(REACH, color=ACCENT, ls="--")
        left.axvline(LENGTH, color="k", lw=1)
        left.text(LENGTH - 4, 4.7, "trained up to here", va="top", ha="right", rotation=90)
        left.set(xlim=(0, REACH + 4), ylim=(1.3, 4.8), xlabel="position", ylabel="loss (nats)")
        left.set_title("Loss with this window, and with all keys (grey)")
        image = right.imshow(np.ones((REACH, REACH)), norm=LogNorm(1e-4, 1), aspect="auto")
        cut = [right.axhline(REACH, color=ACCENT, ls="--"), right.axvline(REACH, color=ACCENT, ls="--")]
        right.set(xlabel="key", ylabel="query", xticks=[0, 256, 512], yticks=[0, 256, 512])
        right.set(xlim=(0, REACH + 4), ylim=(REACH + 4, 0))
        right.set_title("Who looks where, last layer")

        def update(scheme: str, length: int, window: float, head: int) -> str:
            window = round(window)
            name = f"{SCHEME_NAMES[scheme]}, {length} characters, window of {window} keys, head {head}"
            cut[0].set_ydata([length, length])
            cut[1].set_xdata([length, length])
            end.set_xdata([length, length])
            measured, with_all = later.get(scheme, window), None
            if measured is not None:
                with_all = later.get(scheme, REACH)
            full.set_visible(with_all is not None)
            line.set_visible(measured is not None)
            image.set_visible(measured is not None)
            if with_all is not None:
                full.set_ydata(with_all[0])
            if measured is None:
                return f"{name}: being measured."
            losses, weights = measured
            line.set_ydata(np.where(middles <= length, losses, np.nan))
            image.set_data(weights[head - 1])
            mean, trained = losses[: length // 8].mean(), losses[: LENGTH // 8].mean()
            return (
                f"{name}: mean loss {mean:.2f} nats, against {trained:.2f} for the first {LENGTH} characters."
            )

        return update

    return build
