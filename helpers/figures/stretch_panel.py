"""The panel of notebook 07: a method and its settings, the angles that it uses, and what the loss says."""

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from helpers import results, stretching
from helpers.context_extension import RotaryScaling
from helpers.figures import ACCENT, QUIET, number
from helpers.figures.context_extension import METHOD_NAMES
from helpers.live import Later
from helpers.measures import BIN
from helpers.stretching import FACTORS, FINE_TUNED, METHODS, PAIRS, turns
from helpers.text import LENGTH, REACH

_PAIRS = np.arange(PAIRS)
_ONE_PAIR = "one pair alone"
PANEL_METHODS = [
    (METHOD_NAMES["unscaled"], "unscaled"),
    (METHOD_NAMES["interpolation"], "interpolation"),
    (METHOD_NAMES["ntk"], "ntk"),
    ("by parts", "by_parts"),
    ("YaRN", "yarn"),
    (_ONE_PAIR, _ONE_PAIR),
]


def _chosen(method: str, factor: float, low: float, high: float, pair: int) -> RotaryScaling:
    if method == _ONE_PAIR:
        return stretching.change_pairs([pair], factor)
    thresholds = (low, high) if method in ("by_parts", "yarn") else ()
    return METHODS[method](factor, *thresholds)


def _shipped() -> list[tuple[RotaryScaling, np.ndarray]]:
    """Return all settings that were measured on five models, with their mean losses, (64,)."""
    settings = [(stretching.unscaled(), results.stretched("unscaled/as it is")[:, 0])]
    for method, scale in METHODS.items():
        losses = results.stretched(f"{method}/as it is")
        settings += [(scale(factor), losses[:, place]) for place, factor in enumerate(FACTORS)]
    alone = results.stretched("one pair")
    settings += [(stretching.change_pairs([pair], 4), alone[:, pair]) for pair in range(PAIRS)]
    return [(scaling, losses.mean(axis=0)) for scaling, losses in settings]


def _same(one: RotaryScaling, other: RotaryScaling) -> bool:
    """Return whether two settings, perhaps of different methods, come to the same angles."""
    frequencies_agree = np.allclose(one.inv_freq, other.inv_freq, rtol=1e-9, atol=0)
    return frequencies_agree and bool(np.isclose(one.attention_factor, other.attention_factor))


def explorer() -> Callable[..., Any]:
    """Return the builder of the panel: method, factor, thresholds, pair, fine-tuned or not."""
    shipped, window = _shipped(), results.stretched("window").mean(axis=0)
    run = results.rope_models()[0]
    # What a free setting is measured on, and so what it must be compared with: one model, 8 texts.
    few_plain = stretching.losses(run.decoder(), count=8)
    few_window = stretching.losses(run.decoder(), count=8, window=LENGTH)

    def look_up(scaling: RotaryScaling) -> np.ndarray | None:
        return next((losses for known, losses in shipped if _same(known, scaling)), None)

    def measure(inv_freq: tuple[float, ...], attention_factor: float) -> np.ndarray:
        scaling = RotaryScaling(np.array(inv_freq), attention_factor)
        return stretching.losses(stretching.stretched(run, scaling), count=8)

    def at_end(losses: np.ndarray) -> np.ndarray:
        """Return the loss of the last 16 characters of texts of 16, 24, ... characters."""
        return (losses[1:] + losses[:-1]) / 2

    def build(fig: Figure, redraw: Callable[[], None]) -> Callable[..., str]:
        later = Later(measure, redraw)
        fig.set_size_inches(10, 4.3)
        left = fig.add_axes((0.06, 0.15, 0.25, 0.73))
        middle = fig.add_axes((0.39, 0.15, 0.25, 0.73))
        right = fig.add_axes((0.72, 0.15, 0.265, 0.73))
        old = stretching.unscaled().inv_freq
        (ratio,) = left.plot(_PAIRS, np.ones(PAIRS), "o-", color=ACCENT, ms=8)
        ring = {"marker": "o", "ms": 16, "mfc": "none", "mec": "k", "mew": 1.6, "ls": "none"}
        (chosen_ratio,) = left.plot([0], [1], **ring)
        left.axhline(1, color=QUIET, lw=1)
        left.set_yscale("log", base=2)
        left.set_yticks([1, 1 / 2, 1 / 4, 1 / 8, 1 / 16], ["1", "1/2", "1/4", "1/8", "1/16"])
        left.set(ylim=(1 / 18, 1.15), xticks=_PAIRS, xlabel="pair")
        left.set_title("New over old frequency")

        middle.plot(_PAIRS, turns(old), "_", color=QUIET, ms=18, mew=3)
        (used,) = middle.plot(_PAIRS, turns(old), "o", color=ACCENT, ms=8)
        (unseen,) = middle.plot(_PAIRS, turns(old), "x", color="k", ms=12, mew=2.2)
        (chosen_turns,) = middle.plot([0], [1], **ring)
        thresholds = [middle.axhline(1, color=QUIET, lw=1.2, ls=":") for _ in range(2)]
        middle.text(7.4, 60, "dotted: thresholds", ha="right", color=QUIET)
        middle.set_yscale("log")
        middle.set(ylim=(1e-3, 300), xticks=_PAIRS, xlabel="pair")
        middle.set_title("Turns (dashes: trained)")

        lengths = np.arange(2 * BIN, REACH + 1, BIN)
        start = slice(2, None)
        (plain,) = right.plot(lengths[start], at_end(shipped[0][1])[start], color=QUIET, lw=1.6)
        (floor,) = right.plot(lengths[start], at_end(window)[start], "k:", lw=2.5)
        (line,) = right.plot(lengths[start], at_end(window)[start], color=ACCENT)
        right.axvline(LENGTH, color="k", lw=1)
        note = right.text(70, 4.32, "", va="top", color=ACCENT)
        right.set_xscale("log", base=2)
        right.set_xticks([32, 64, 128, 256, 512], ["32", "64", "128", "256", "512"])
        right.set(ylim=(1.7, 4.4), xlabel="length of the text")
        right.set_title("End loss (dots: 64 keys)")

        def update(method: str, factor: float, low: float, high: float, pair: int, fine_tuned: bool) -> str:
            scaling = _chosen(method, factor, low, high, pair)
            ratio.set_ydata(scaling.inv_freq / old)
            reached = turns(scaling.inv_freq, LENGTH * factor)
            used.set_ydata(reached)
            new_land = (turns(old) < 1) & (reached > 1.001 * turns(old))
            unseen.set_ydata(np.where(new_land, 2.6 * reached, np.nan))  # above its dot

            chosen_ratio.set_data([pair], [scaling.inv_freq[pair] / old[pair]])
            chosen_turns.set_data([pair], [reached[pair]])
            for line_at, threshold in zip(thresholds, (low, high), strict=True):
                line_at.set_ydata([threshold, threshold])
            name = dict(map(reversed, PANEL_METHODS))[method]
            crossed = ", ".join(map(str, _PAIRS[new_land]))
            untrained = f"untrained angles for pairs {crossed}" if crossed else "no untrained angles"
            seen = (
                f"{name}, factor {number(factor)}, thresholds {number(low)} and {number(high)} turns: "
                f"{untrained}. Pair {pair} turned {number(turns(old)[pair], 2)} "
                f"times in training, now {number(reached[pair], 2)}"
            )

            losses, source = look_up(scaling), "mean of five models"
            note.set_text("50 more steps" if fine_tuned else "no more training")
            in_grid = method in FINE_TUNED and _same(scaling, METHODS[method](8)) and np.isclose(factor, 8)
            if fine_tuned and in_grid:
                losses = results.stretched(f"{method}/fine-tuned").mean(axis=0)
                source += " after 50 steps of fine-tuning"
            elif fine_tuned:
                source += ", not fine-tuned: that was done at factor 8 only, with thresholds 0.5 and 4"
                note.set_text("not fine-tuned here")
            free = losses is None
            plain.set_ydata(at_end(few_plain if free else shipped[0][1])[start])
            floor.set_ydata(at_end(few_window if free else window)[start])
            if free:
                losses = later.get(tuple(scaling.inv_freq), scaling.attention_factor)
                source = source.replace("mean of five models", "one model, 8 texts")
            line.set_visible(losses is not None)
            if losses is None:
                return f"{seen}. Its loss is being measured."
            line.set_ydata(at_end(losses)[start])
            curve = at_end(losses)
            at = min(round(LENGTH * factor) // BIN, len(losses)) - 2
            return (
                f"{seen}. Loss {losses[: LENGTH // BIN].mean():.2f} over the first 64 characters and "
                f"{curve[at]:.2f} at the end of {lengths[at]} ({source}); there "
                f"{at_end(few_window if free else window)[at]:.2f} with 64 keys."
            )

        return update

    return build
