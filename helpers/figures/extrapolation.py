"""Pictures of notebook 06: the tries of the race, losses past the trained length, recall, attention."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from helpers import race
from helpers.drawing import still
from helpers.figures import (
    ACCENT,
    QUIET,
    SCHEME_COLOURS,
    SCHEME_INKS,
    SCHEME_NAMES,
    SCHEME_STYLES,
    apart,
    number,
)
from helpers.measures import BIN
from helpers.schemes import SCHEMES
from helpers.text import LENGTH, REACH

LENGTHS = (64, 128, 256, 512)
_CHOSEN_STYLE = (0, (2, 1))  # of a scheme whose usual form is drawn as well
_KNOBS = {
    "weight_decay": "weight decay",
    "amplitude": "waves times",
    "position_rate": "own rate times",
    "base": "base",
    "slope_factor": "slopes times",
}


def scheme_of(line: str) -> str:
    """Return the scheme of a line of the race."""
    return line.partition(",")[0]


def name_of(line: str) -> str:
    """Return what a line of the race is called; where there are two of a scheme, with what they differ in."""
    scheme, _, more = line.partition(", ")
    if more not in ("", "usual"):
        return f"{SCHEME_NAMES[scheme]}, {more}"
    if scheme not in race.USUAL:
        return SCHEME_NAMES[scheme]
    facts, value = SCHEMES[scheme].facts, race.lines()[line].knob
    return f"{facts.label}, {_KNOBS[facts.knob].replace(' times', ' ×')} {number(value)}"


def _look(line: str) -> dict[str, Any]:
    scheme = scheme_of(line)
    twice = scheme in race.USUAL and scheme == line
    return {"color": SCHEME_COLOURS[scheme], "ls": _CHOSEN_STYLE if twice else SCHEME_STYLES[scheme]}


def _ink(line: str) -> str:
    return SCHEME_INKS[scheme_of(line)]


def _band(ax: Axes, x: np.ndarray, curves: np.ndarray, colour: str, alpha: float = 0.2) -> None:
    """Fill from the smallest to the largest seed of curves, (n_seeds, n)."""
    ax.fill_between(x, curves.min(axis=0), curves.max(axis=0), color=colour, alpha=alpha, lw=0)


def _label_ends(ax: Axes, x: float, ends: Mapping[str, float], gap: float) -> None:
    """Write each line's name beside its end."""
    for line, place in apart(ends, gap).items():
        ax.text(x, place, name_of(line), color=_ink(line), va="center", weight="bold")


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


@still(10, 6.6)
def tries(fig: Figure) -> str:
    """Draw the loss at the trained length of every try, against the rate: a small chart for each scheme."""
    axes = fig.subplots(2, 4, sharex=True)
    for ax, scheme in zip(axes.flat, SCHEMES, strict=False):
        _tries_of(ax, scheme)
    note = axes.flat[-1]
    note.axis("off")
    said = "ring: chosen", "colour: the usual value", "of the scheme's own knob", "greys: other values of it"
    for place, words in enumerate(said):
        note.text(0, 0.8 - 0.18 * place, words, transform=note.transAxes)
    fig.supxlabel("learning rate, thousandths", fontsize=13)
    fig.supylabel("loss at 64 on the choosing play (nats)", fontsize=13)
    found = []
    for scheme in SCHEMES:
        best, loss = (
            race.chosen(scheme),
            race.tried(scheme, "choosing")[race.tried(scheme, "seed") == 0].min(),
        )
        knob = _KNOBS[SCHEMES[scheme].facts.knob]
        found.append(
            f"{SCHEME_NAMES[scheme]} {loss:.2f} at rate {number(best.rate)}, {knob} {number(best.knob)}"
        )
    return f"Loss at the trained length of every try; the lowest: {'; '.join(found)}."


def _tries_of(ax: Axes, scheme: str) -> None:
    """Draw the tries of one scheme with the first seed, a line for each value of its knob."""
    facts, ink = SCHEMES[scheme].facts, SCHEME_INKS[scheme]
    first = race.tried(scheme, "seed") == 0
    pairs = zip(race.tries(scheme), race.tried(scheme, "choosing"), first, strict=True)
    losses = {one: float(loss) for one, loss, is_first in pairs if is_first}
    knobs = sorted({one.knob for one in losses})
    colours = {knob: str(0.7 - 0.6 * place / len(knobs)) for place, knob in enumerate(knobs)}
    colours[facts.usual] = facts.colour
    ends = {}
    for knob in knobs:
        mine = sorted((one.rate, loss) for one, loss in losses.items() if one.knob == knob)
        rates, values = zip(*mine, strict=True)
        ax.plot(rates, values, "o-", color=colours[knob], ms=5, lw=1.8)
        ends[knob] = values[-1]
    best = race.chosen(scheme)
    ax.plot(best.rate, losses[best], "o", ms=14, mfc="none", mec="k", mew=1.8)
    ax.margins(y=0.15)
    for knob, place in apart(ends, 0.1 * np.ptp(ax.get_ylim())).items():
        usual = knob == facts.usual
        look = {"color": ink if usual else colours[knob], "weight": "bold" if usual else "normal"}
        ax.text(0.055, place, number(knob), va="center", fontsize=11, **look)
    ax.set_title(f"{facts.label}\n{_KNOBS[facts.knob]}", color=ink)
    ax.set_xscale("log")
    ax.set_xticks([0.005, 0.02], ["5", "20"])
    ax.minorticks_off()
    ax.set_xlim(0.002, 0.14)


@still(10, 4.6)
def near_ties(fig: Figure, within: float = 0.02) -> str:
    """Draw the loss at positions 448 to 511 of every try, with all keys: full dots for near ties at home.

    within: nats at the trained length, on the text to choose by, from the best try of the scheme.
    """
    ax = fig.subplots()
    ends = {}
    for row, scheme in enumerate(SCHEMES):
        first = race.tried(scheme, "seed") == 0
        home, end = race.tried(scheme, "choosing")[first], race.tried(scheme, "all")[first, -8:].mean(axis=1)
        window = race.tried(scheme, "window")[first, -8:].mean(axis=1)
        near = home <= home.min() + within
        ax.plot(end[~near], np.full((~near).sum(), row), "o", ms=7, mfc="w", color=SCHEME_COLOURS[scheme])
        ax.plot(
            end[near], np.full(near.sum(), row), "o", ms=11, color=SCHEME_COLOURS[scheme], mec="k", mew=0.6
        )
        ax.plot(window[near].min(), row, "|", ms=26, mew=3, color="k")
        ends[scheme] = (float(end[near].min()), float(end[near].max()))
    ax.set_yticks(range(len(SCHEMES)), [SCHEME_NAMES[scheme] for scheme in SCHEMES])
    ax.set_ylim(len(SCHEMES) - 0.5, -0.7)
    ax.set(xlabel="loss at positions 448 to 511 (nats)")
    ax.set_title(f"Full: all tries within {within} nats of the best at 64 (bar: with 64 keys)")
    found = ", ".join(f"{SCHEME_NAMES[s]} {low:.2f} to {high:.2f}" for s, (low, high) in ends.items())
    return f"Loss at positions 448 to 511 of all tries within {within} nats of the best at 64: {found}."


@still(10, 5.4)
def loss_by_length(
    fig: Figure, losses: Mapping[str, np.ndarray], yours: Mapping[str, np.ndarray] | None = None
) -> str:
    """Draw the mean loss of texts against their length, with bands, from losses (n_seeds, 64) in bins of 8.

    losses: by line of the race. yours: one run each, (64,), dots.
    """
    ax = fig.subplots()
    counts = np.unique(np.geomspace(2, REACH // BIN, 40).astype(int))

    def of_length(values: np.ndarray) -> np.ndarray:
        return (values.cumsum(axis=1) / np.arange(1, values.shape[1] + 1))[:, counts - 1]

    ends = {}
    for line, values in losses.items():
        curves = of_length(values)
        ax.plot(counts * BIN, curves.mean(axis=0), **_look(line))
        _band(ax, counts * BIN, curves, SCHEME_COLOURS[scheme_of(line)])
        ends[line] = float(curves[:, -1].mean())
    for line, values in (yours or {}).items():
        dots = {"ms": 5, "color": SCHEME_COLOURS[scheme_of(line)], "mec": "k", "mew": 0.6}
        ax.plot(counts * BIN, of_length(values[None])[0], "o", **dots)
    ax.axvline(LENGTH, color=QUIET, lw=1.2)
    ax.text(LENGTH * 0.97, 3.75, "trained up to here", color=QUIET, ha="right", va="top")
    ax.set_xscale("log", base=2)
    ax.set_xticks([16, 32, *LENGTHS], ["16", "32", *map(str, LENGTHS)])
    _label_ends(ax, REACH * 1.06, ends, 0.105)
    ax.set(
        xlabel="length of the text (characters)", ylabel="mean loss (nats)", xlim=(16, 1800), ylim=(1.65, 3.8)
    )
    ax.set_title("Your models (dots) on our bands" if yours else "Past the trained length, models part ways")
    each = ", ".join(f"{name_of(line)} {end:.2f}" for line, end in ends.items())
    return f"Mean loss against length, five seeds. At {REACH}: {each}."


@still(10, 6.6)
def loss_by_position(
    fig: Figure, with_all: Mapping[str, np.ndarray], window: Mapping[str, np.ndarray]
) -> str:
    """Draw the loss in bins of 16 positions, with all keys and with the last 64: (n_seeds, 64) by line."""
    axes = fig.subplots(3, 3, sharex=True, sharey=True)
    middles = np.arange(8, REACH, 16)
    for ax, line in zip(axes.flat, with_all, strict=False):
        for losses, style in ((with_all[line], _look(line)), (window[line], {"color": "k", "ls": ":"})):
            bins = losses.reshape(len(losses), -1, 2).mean(axis=2)
            ax.plot(
                middles, bins.mean(axis=0), lw=2.2, **(style | ({"ls": "-"} if style["color"] != "k" else {}))
            )
            _band(ax, middles, bins, style["color"])
        ax.axvline(LENGTH, color=QUIET, lw=1)
        ax.set_title(name_of(line), color=_ink(line))
        ax.set(ylim=(1.7, 4.4), xlim=(0, REACH), xticks=[64, 256, 512])
    axes.flat[0].text(150, 4.2, "colour: all keys", va="top", color=QUIET)
    axes.flat[0].text(150, 3.75, "dots: last 64 keys", va="top")
    fig.supxlabel("position", fontsize=13)
    fig.supylabel("loss (nats)", fontsize=13)
    names = ", ".join(name_of(line) for line in with_all)
    return f"Loss by position, with all keys and with the last 64, five seeds, of {names}."


def _signed(value: float) -> str:
    """Return +1.20, −0.30 or, for what two digits can't tell from nothing, 0.00."""
    return f"{value:+.2f}".replace("-", "−") if abs(value) >= 0.005 else "0.00"


@still(10, 4.8)
def three_tests(fig: Figure, tests: Mapping[str, Mapping[str, np.ndarray]]) -> str:
    """Draw, for each test, the change of the loss of each line of the race, (n_seeds,): a dot a seed."""
    axes = fig.subplots(1, len(tests), sharey=True)
    patch = {"boxstyle": "square,pad=0.1", "fc": "w", "ec": "none"}
    for ax, (name, changes) in zip(axes, tests.items(), strict=True):
        for row, (line, values) in enumerate(changes.items()):
            ax.plot(
                values, np.full(len(values), row), "o", ms=8, color=SCHEME_COLOURS[scheme_of(line)], alpha=0.8
            )
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
        ax.set_xlim(low - 0.12 * (high - low), high + 0.42 * (high - low))
    axes[0].set_yticks(range(len(changes)), [name_of(line) for line in changes])
    axes[0].invert_yaxis()
    found = []
    for name, changes in tests.items():
        line = max(changes, key=lambda one: abs(changes[one].mean()))
        value = number(float(changes[line].mean()), 2)
        found.append(f"{name.replace(chr(10), ' ')}: {name_of(line)} {value}")
    return f"Change of the loss in three tests, largest for {'; '.join(found)}."


@still(10, 4.4)
def far_look(fig: Figure, looks: Mapping[str, np.ndarray], lengths: Sequence[int]) -> str:
    """Draw what all keys add to the loss of the last 64 characters, from (n_seeds, 2, n_lengths) by line."""
    ax = fig.subplots()
    ends = {}
    for line, values in looks.items():
        gap = values[:, 0] - values[:, 1]
        ax.plot(lengths, gap.mean(axis=0), marker="o", ms=7, **_look(line))
        ax.plot(lengths, gap.T, color=SCHEME_COLOURS[scheme_of(line)], lw=0.9, alpha=0.6)
        ends[line] = float(gap[:, -1].mean())
    ax.axhline(0, color="k", lw=1)
    ax.set_xscale("log", base=2)
    ax.set_xticks(lengths, [f"{n:,}" for n in lengths])
    _label_ends(ax, lengths[-1] * 1.03, ends, 0.012)
    ax.set_xlim(lengths[0] * 0.95, lengths[-1] * 1.55)
    ax.set(xlabel="length of the text (characters)", ylabel="all keys minus 64 keys (nats)")
    ax.set_title("The last 64 characters: what all keys add to the loss")
    each = ", ".join(f"{name_of(line)} {_signed(end)}" for line, end in ends.items())
    return f"All keys minus 64 keys, last 64 of {lengths[-1]:,} characters: {each}."


@still(10, 4.1)
def recall(
    fig: Figure, distances: Sequence[int], learned: Mapping[str, np.ndarray], others: Sequence[str]
) -> str:
    """Draw the share of a string that is recalled, (n_distances,), against the distance, by line.

    others: lines that did not learn the task, which are only named.
    """
    ax = fig.subplots()
    ends = {}
    for line, shares in learned.items():
        ax.plot(distances, shares, marker="o", ms=7, **_look(line))
        ends[line] = float(shares[-1])
    ax.axvspan(distances[0] * 0.9, 48, color="#EEEEEE", zorder=0)
    ax.text(distances[0] * 0.93, 1.03, "trained on", color=QUIET, va="bottom")
    _label_ends(ax, distances[-1] * 1.05, ends, 0.07)
    ax.set_xscale("log", base=2)
    ax.set_xticks(distances, [str(d) for d in distances])
    ax.set(xlabel="distance to the first time (characters)", ylabel="letters recalled", ylim=(0, 1.14))
    ax.set_xlim(distances[0] * 0.9, distances[-1] * 2.4)
    ax.set_title("Recall in texts of 512, for those that learned it at home")
    found = []
    for line, shares in learned.items():
        found.append(f"{name_of(line)} {shares[2]:.2f} at {distances[2]}, {shares[7]:.2f} at {distances[7]}")
    missing = ", ".join(name_of(line) for line in others)
    return f"Share of a string recalled: {'; '.join(found)}. Not learned: {missing}."


@still(10, 5.2)
def attention_maps(fig: Figure, maps: Mapping[str, np.ndarray]) -> str:
    """Draw attention weights, (n, n), of one head for two models, on one logarithmic colour scale."""
    axes = fig.subplots(1, 2, sharey=True)
    for ax, (name, weights) in zip(axes, maps.items(), strict=True):
        seen = np.where(weights > 0, np.maximum(weights, 1e-4), np.nan)
        image = ax.imshow(seen, norm=LogNorm(1e-4, 1), interpolation="antialiased")
        ax.axhline(LENGTH, color=ACCENT, lw=2)
        ax.set_title(name_of(name), color=_ink(name))
        ax.set_xlabel("key")
    axes[0].set_ylabel("query")
    fig.colorbar(image, ax=axes, label="weight", shrink=0.8)
    names = " and ".join(name_of(one) for one in maps)
    return f"Attention maps of {names} over {len(seen)} positions, trained on 64."
