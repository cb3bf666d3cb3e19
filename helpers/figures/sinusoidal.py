"""Pictures of notebook 02: counting, the table of waves, its similarities, and what a base does to them."""

from collections.abc import Callable
from functools import cache

import numpy as np
from matplotlib.figure import Figure

from helpers.drawing import still
from helpers.figures import ACCENT, QUIET, SCHEME_COLOURS, SIGNED, number
from helpers.sinusoidal import offset_share, sinusoidal_encoding, wavelengths

ROUNDING = 1e-8  # errors below it are drawn there: their digits differ between processors
BLUE = SCHEME_COLOURS["sinusoidal"]
SHADES = ("#08306B", "#0B559F", "#2474B7", "#4A92C8")  # fast waves dark, slow ones lighter


@still(10, 4.2)
def counting(fig: Figure, bits: np.ndarray, waves: np.ndarray) -> str:
    """Draw the binary digits of the numbers 0 to n - 1, (n, b), beside waves of the same rhythm, (n, b)."""
    axes = fig.subplots(2, 1, sharex=True)
    titles = (
        "Counting in binary: each digit flips half as often",
        "Waves: the same rhythms without the jumps",
    )
    looks = ("digit", {"cmap": "cividis"}), ("wave", SIGNED)
    for ax, table, title, (name, look) in zip(axes, (bits, waves), titles, looks, strict=True):
        ax.imshow(table.T, aspect="auto", **look)
        ax.set_yticks(range(table.shape[1]), [f"{name} {b}" for b in range(table.shape[1])])
        ax.set_title(title)
        ax.spines[:].set_visible(False)
    axes[1].set_xlabel("number")
    return f"The numbers 0 to {len(bits) - 1} as binary digits, and as waves of 2, 4, 8, … numbers per turn."


@still(10, 4.6)
def table(fig: Figure, encoding: np.ndarray) -> str:
    """Draw a table, (n, d_model), positions to the right and dimensions downwards."""
    ax = fig.subplots()
    image = ax.imshow(encoding.T, aspect="auto", vmin=-1, vmax=1, **SIGNED)
    ax.set(xlabel="position", ylabel="dimension")
    ax.set_title("One column per position: fast waves on top, slow ones below")
    fig.colorbar(image, ax=ax, ticks=[-1, 0, 1], label="value")
    n, d_model = encoding.shape
    return f"The sinusoidal table of {n} positions and {d_model} dimensions, values from −1 to 1."


@still(10, 4.3)
def similarity(fig: Figure, matrix: np.ndarray) -> str:
    """Draw the similarities of all pairs of positions, (n, n), and the middle row against its offset."""
    left, right = fig.subplots(1, 2, width_ratios=[1, 1.35])
    image = left.imshow(matrix)
    left.set(xlabel="position", ylabel="position")
    left.set_title("Constant along diagonals")
    fig.colorbar(image, ax=left, shrink=0.8)
    middle = len(matrix) // 2
    offsets = np.arange(len(matrix)) - middle
    right.plot(offsets, matrix[middle], color=BLUE)
    right.set(xlabel=f"offset from position {middle}", ylabel="similarity", ylim=(0, 1.08))
    right.set_title("Highest at 0, but no steady fall")
    right.axvline(0, color=QUIET, lw=1, ls=":")
    return (
        f"Similarity of every pair of {len(matrix)} positions: it depends on their offset alone, and ripples."
    )


@still(10, 4.3)
def shift_error(fig: Figure, positions: np.ndarray, errors: dict[str, np.ndarray]) -> str:
    """Draw the error of several ways to shift a row, each (n,), against the position (log axes)."""
    ax = fig.subplots()
    looks = {"color": ACCENT, "ls": "-"}, {"color": BLUE, "ls": "--"}
    for (name, error), look in zip(errors.items(), looks, strict=True):
        ax.loglog(positions, np.maximum(error, ROUNDING), **look)
        ax.text(
            positions[-1] * 1.15,
            max(error[-1], ROUNDING),
            name,
            color=look["color"],
            va="center",
            weight="bold",
        )
    ax.axvspan(1, 99, color="#EEEEEE", zorder=0)
    ax.text(1.15, 3, "positions used for the fit", color=QUIET, va="center")
    ax.set(xlabel="position", ylabel="largest error", xlim=(1, positions[-1] * 9), ylim=(3e-9, 9))
    ax.set_title("Fitted pair by pair, the shift holds everywhere")
    return "Error of two fitted shifts: pair by pair it stays below 1e-8, over the whole table it grows."


@still(10, 4.4)
def bases(fig: Figure, profiles: dict[float, np.ndarray]) -> str:
    """Draw similarity against distance, (n,), for each base."""
    ax = fig.subplots()
    for (base, profile), shade in zip(profiles.items(), ("#2E7AB3", "#1F5A94", "#08306B"), strict=True):
        ax.plot(profile, color=shade)
        name, lift = f"base {number(base)}", 0.03 if base > 1e5 else -0.03  # two ends are close together
        ax.text(len(profile) + 0.5, profile[-1] + lift, name, color=shade, va="center", weight="bold")
    ax.set(xlabel="distance", ylabel="similarity", ylim=(-0.25, 1.05), xlim=(0, len(profile) * 1.2))
    ax.set_title("A larger base keeps distant positions more alike")
    ends = ", ".join(f"{profile[-1]:.2f} at base {number(base)}" for base, profile in profiles.items())
    return f"Similarity at distance {len(profile) - 1}: {ends}."


def explorer(fig: Figure) -> Callable[..., str]:
    """Build the main panel: waves, table, similarity matrix and the similarity to one position."""
    fig.set_size_inches(10, 5.1)
    waves_at = fig.add_axes((0.075, 0.57, 0.335, 0.355))
    table_at = fig.add_axes((0.075, 0.115, 0.335, 0.345))
    matrix_at = fig.add_axes((0.61, 0.535, 0.365, 0.39))
    profile_at = fig.add_axes((0.61, 0.115, 0.365, 0.255))
    waves_at.set_title("Waves of four dimensions")
    table_at.set_title("The table")
    matrix_at.set_title("Similarity of all pairs (bright: alike)")
    profile_at.set_title("Similarity to the reference")

    waves_at.set(ylim=(-0.4, 9.2), yticks=[], xticklabels=[])
    lines = [waves_at.plot([], [], color=shade, lw=1.6)[0] for shade in SHADES]
    names = [waves_at.text(0, 0, "", va="center", fontsize=12) for _ in SHADES]
    heat = table_at.imshow(np.zeros((2, 2)), aspect="auto", vmin=-1, vmax=1, **SIGNED)
    table_at.set(xlabel="position", ylabel="dimension")
    marks = [
        ax.axvline(0, color="k" if ax is table_at else ACCENT, ls=style, lw=2)
        for ax in (waves_at, table_at)
        for style in ("-", "--")
    ]
    matrix = matrix_at.imshow(np.zeros((2, 2)), aspect="auto", vmin=0, vmax=1)
    matrix_at.set(xlabel="position", ylabel="position")
    row = matrix_at.axhline(0, color=ACCENT, lw=2)
    spot = matrix_at.plot([0], [0], "o", ms=10, mfc="none", mec=ACCENT, mew=2.5, clip_on=False)[0]
    profile_at.set(ylim=(-0.55, 1.1), yticks=[0, 0.5, 1], xlabel="offset from the reference position")
    (curve,) = profile_at.plot([], [], color=BLUE)
    at_offset = profile_at.axvline(0, color=ACCENT, ls="--", lw=2)
    (dot,) = profile_at.plot([0], [0], "o", ms=10, color=ACCENT)

    def update(base: float, d_model: int, positions: int, reference: int, offset: int) -> str:
        encoding = sinusoidal_encoding(positions, d_model, base)
        similarities = encoding @ encoding.T / (d_model / 2)
        fine = np.linspace(0, positions - 1, 900)
        turns = wavelengths(d_model, base)
        for k, (line, name) in enumerate(zip(lines, names, strict=True)):
            pair = k * d_model // 8
            line.set_data(fine, np.sin(2 * np.pi * fine / turns[pair]) + 8 - 2.5 * k)
            name.set_position((positions * 1.02, 8 - 2.5 * k))
            name.set_text(f"dim {2 * pair}\nλ = {number(turns[pair], 2)}")
        heat.set_data(encoding.T)
        heat.set_extent((-0.5, positions - 0.5, d_model - 0.5, -0.5))
        matrix.set_data(similarities)
        matrix.set_extent((-0.5, positions - 0.5, positions - 0.5, -0.5))
        waves_at.set_xlim(0, positions - 1)
        profile_at.set_xlim(-positions, positions)
        other = reference + offset
        for mark, place in zip(marks, (reference, other, reference, other), strict=True):
            mark.set_xdata([place, place])
        row.set_ydata([reference, reference])
        spot.set_data([other], [reference])
        curve.set_data(np.arange(positions) - reference, similarities[reference])
        value = similarities[reference, other]
        at_offset.set_xdata([offset, offset])
        dot.set_data([offset], [value])
        return (
            f"Base {number(base)}, {d_model} dimensions, {positions} positions: the slowest wave takes "
            f"{number(turns[-1])} positions per turn. Positions {reference} and {other}, offset {offset}, "
            f"have similarity {number(value)}."
        )

    return update


N_SCORES = 100


def projections(fig: Figure) -> Callable[..., str]:
    """Build the second panel: scores between positions under W from identity (t = 0) to random (t = 1)."""
    fig.set_size_inches(10, 4.3)
    left = fig.add_axes((0.07, 0.15, 0.35, 0.72))
    right = fig.add_axes((0.54, 0.15, 0.44, 0.72))
    image = left.imshow(np.zeros((N_SCORES, N_SCORES)), vmin=-3, vmax=3, aspect="auto", **SIGNED)
    left.set(xlabel="key position", ylabel="query position")
    left.set_title("Scores (red high, blue low)")
    right.set(xlim=(-0.03, 1.03), ylim=(0, 1.08), xlabel="t: from identity (0) to random (1)", ylabel="share")
    right.set_title("Share that the offset explains")
    mixes = np.linspace(0, 1, 21)
    (curve,) = right.plot(mixes, np.zeros(21), color=BLUE)
    (dot,) = right.plot([0], [0], "o", ms=12, color=ACCENT)
    right.axhline(2 / N_SCORES, color=QUIET, ls=":", lw=1.5)
    right.text(0.02, 2 / N_SCORES + 0.015, "chance", color=QUIET, fontsize=12)

    def update(t: float, seed: int) -> str:
        scores = mixed_scores(t, seed)
        image.set_data((scores - scores.mean()) / scores.std())
        curve.set_ydata(_shares(seed, tuple(mixes)))
        share = offset_share(scores)
        dot.set_data([t], [share])
        return (
            f"With t = {t:.2f} and seed {seed}, the offset explains {share:.0%} of the variance of the "
            f"scores between {N_SCORES} positions."
        )

    return update


def mixed_scores(t: float, seed: int, n: int = N_SCORES, d_model: int = 64) -> np.ndarray:
    """Return scores between positions, (n, n), with W_q and W_k from identity (t = 0) to random (t = 1)."""
    encoding = sinusoidal_encoding(n, d_model)
    random_pair = np.random.default_rng(seed).normal(size=(2, d_model, d_model)) / np.sqrt(d_model)
    w_q, w_k = (1 - t) * np.eye(d_model) + t * random_pair
    return (encoding @ w_q) @ (encoding @ w_k).T / np.sqrt(d_model)


@cache
def _shares(seed: int, mixes: tuple[float, ...]) -> np.ndarray:
    return np.array([offset_share(mixed_scores(t, seed)) for t in mixes])
