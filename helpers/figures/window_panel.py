"""The panel of notebook 06: a trained model with a window of your choice, its loss and who looks where."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from helpers import measures
from helpers.figures import ACCENT, QUIET, SCHEME_NAMES
from helpers.live import Later
from helpers.text import LENGTH, REACH
from helpers.training import Run
from helpers.transformer import forward


def explorer(runs: Mapping[str, Run], first: tuple[str, int]) -> Callable[..., Any]:
    """Return the builder of the panel for one trained run of each scheme.

    first: the scheme and window that it opens with, measured at once. All others are measured when asked for.
    """
    pieces = measures.shared_pieces(count=12)

    def measure(scheme: str, window: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the loss in bins of 8 positions, (64,), and the last layer's weights on one text."""
        model = runs[scheme].decoder()
        losses = measures.token_losses(model, pieces, window=window).mean(axis=0).reshape(-1, 8).mean(axis=1)
        weights = forward(model, pieces[:1, :-1], window=window).weights[-1][0]
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
            if measured is None or with_all is None:
                return f"{name}: being measured."
            losses, weights = measured
            line.set_ydata(np.where(middles <= length, losses, np.nan))
            image.set_data(weights[head - 1])
            last = slice((length - LENGTH) // 8, length // 8)
            return (
                f"{name}: the last {LENGTH} characters have a loss of {losses[last].mean():.2f} nats, and "
                f"{with_all[0][last].mean():.2f} with all keys."
            )

        return update

    return build
