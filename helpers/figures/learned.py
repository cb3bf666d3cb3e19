"""Pictures of notebook 03: what training moves, a real table, its circles, and gaps between its rows."""

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from helpers.drawing import still
from helpers.figures import ACCENT, QUIET, SCHEME_COLOURS, SIGNED, number
from helpers.learned import interpolation_r2

FILL = SCHEME_COLOURS["learned"]
FIRST_ROW = 20  # the first row that the circles are computed from


@still(10, 3.4)
def growing(fig: Figure, tables: dict[int, np.ndarray]) -> str:
    """Draw how alike each pair of rows is (cosine), for tables (n_rows, d_model) by steps of training."""
    axes = fig.subplots(1, len(tables), sharey=True)
    found = []
    for ax, (steps, table) in zip(axes, tables.items(), strict=True):
        unit = table / np.linalg.norm(table, axis=1, keepdims=True)
        image = ax.imshow(unit @ unit.T, vmin=-0.6, vmax=0.6, **SIGNED)
        ax.set_title(f"{steps} steps" if steps else "at first")
        ax.set(xlabel="row", xticks=[0, 32, 63], yticks=[0, 32, 63])
        found.append(f"{number(float((unit[1:] * unit[:-1]).sum(axis=1).mean()), 2)} after {steps}")
    axes[0].set_ylabel("row")
    fig.colorbar(image, ax=axes, label="cosine", shrink=0.85)
    return f"Mean likeness of neighbouring rows by steps of training: {', '.join(found)}."


@still(10, 4.0)
def rows_moved(fig: Figure, moved: dict[str, np.ndarray]) -> str:
    """Draw how far each row moved, (n_rows,), for each way to take a step."""
    axes = fig.subplots(1, len(moved), sharey=True)
    for ax, (name, distances) in zip(axes, moved.items(), strict=True):
        rows = np.arange(len(distances))
        ax.barh(rows, distances, color=[ACCENT if d > 0 else QUIET for d in distances], height=0.7)
        still_rows = rows[distances == 0]
        ax.plot(np.zeros(len(still_rows)), still_rows, "|", color=QUIET, ms=9, mew=2)
        ax.set(xlim=(0, None), xlabel="moved by")
        ax.set_title(name)
        ax.axhspan(3.5, 7.5, color="#EEEEEE", zorder=0)
    axes[0].set(ylabel="row", yticks=rows)
    axes[0].invert_yaxis()
    counts = ", ".join(f"{name}: {(d > 0).sum()} of {len(d)} rows" for name, d in moved.items())
    return f"Rows that moved in two steps that used rows 0 to 3 only. {counts}."


@still(10, 4.0)
def row_norms(fig: Figure, table: np.ndarray) -> str:
    """Draw the length of each row of a table, (n, d)."""
    ax = fig.subplots()
    norms = np.linalg.norm(table, axis=1)
    ax.plot(norms, "o", ms=4, color=FILL)
    ax.set(xlabel="position", ylabel="length of the row", ylim=(0, 1.08 * norms.max()))
    ax.annotate(f"row 0: {norms[0]:.2f}", (0, norms[0]), (18, norms[0]), va="center")
    ax.annotate(f"row 127: {norms[127]:.2f}", (127, norms[127]), (140, 1.05), arrowprops={"arrowstyle": "-"})
    ax.annotate("the last three rows", (509, norms[509]), (392, 1.3), arrowprops={"arrowstyle": "-"})
    ax.set_title("Most rows have nearly one length, and a few stand out")
    return f"Row lengths of the real table: row 0 {norms[0]:.2f}, row 127 {norms[127]:.2f}, most near 0.45."


@still(10, 4.6)
def circles(fig: Figure, real: dict[float, np.ndarray], walk: dict[float, np.ndarray]) -> str:
    """Draw rows in their planes, each complex (n,), named by period, for the real table and a random walk."""
    axes = fig.subplots(2, len(real), sharex=True, sharey=True)
    for line, (planes, colour) in zip(axes, ((real, FILL), (walk, SCHEME_COLOURS["none"])), strict=True):
        for ax, (period, plane) in zip(line, planes.items(), strict=True):
            ax.plot(plane.real, plane.imag, lw=0.5, color=colour, alpha=0.7)
            ax.plot(plane.real, plane.imag, "o", ms=2, color=colour)
            ax.set(xlim=(-1.7, 1.7), ylim=(-1.7, 1.7), aspect="equal", xticks=[], yticks=[])
            ax.set_xlabel(f"period {period:.0f}" if period >= 10 else f"period {period:.1f}")
            ax.spines[:].set_visible(False)
    fig.suptitle("Fast rings: only the real table has them", x=0.02, ha="left", weight="bold", fontsize=14)
    axes[0, 0].set_ylabel("real table")
    axes[1, 0].set_ylabel("random walk")
    fast = min(walk)
    return (
        f"Five planes of the real table, periods {', '.join(f'{p:.0f}' for p in real)}: rings. A random walk "
        f"has slow loops only, none with a period under {fast:.0f}."
    )


@still(10, 4.3)
def gaps_by_plane(fig: Figure, gaps: np.ndarray, whole: np.ndarray, planes: dict[float, np.ndarray]) -> str:
    """Draw R² of interpolated rows against the gap, (m,), for the whole table and each plane."""
    ax = fig.subplots()
    shades = ("#B8460A", "#A66300", "#7A6A00", "#4F6B1B", "#2F5F3A")  # fast to slow
    for place, (period, r2) in enumerate(planes.items()):
        ax.plot(gaps, r2, color=shades[place], lw=1.8)
        if place < 3:
            name = f"period {period:.0f}"
            ax.text(gaps[-1] + 0.2, r2[-1], name, color=shades[place], va="center", weight="bold")
    ax.text(gaps[-1] + 0.2, 1.08, "the slowest two", color="#2F5F3A", va="center", weight="bold")
    ax.plot(gaps, whole, color="k", lw=3.5)
    ax.text(gaps[-1] + 0.2, whole[-1], "whole table", va="center", weight="bold")
    ax.axhline(0, color=QUIET, lw=1, ls=":")
    ax.set(xlabel="gap between kept rows", ylabel="R² of the rows between", xlim=(gaps[0], gaps[-1] + 3.2))
    ax.set_title("The fastest circle spoils the thinned table")
    return f"R² of interpolated rows falls from {whole[0]:.2f} to {whole.min():.2f}, and not steadily."


def circle(tables: dict[str, tuple[np.ndarray, np.ndarray]]) -> Callable[..., Any]:
    """Return the builder of the circle panel; tables gives angles (m,) and planes (n, m) for each name."""

    def build(fig: Figure) -> Callable[..., str]:
        fig.set_size_inches(10, 4.6)
        left = fig.add_axes((0.02, 0.06, 0.4, 0.84))
        right = fig.add_axes((0.53, 0.15, 0.44, 0.75))
        left.set(xlim=(-1.75, 1.75), ylim=(-1.75, 1.75), aspect="equal")
        left.axis("off")
        left.set_title("Rows in one plane")
        (ring,) = left.plot([], [], "o", ms=3, color=FILL, alpha=0.6)
        (turn,) = left.plot([], [], color=ACCENT, lw=2)
        (old,) = left.plot([], [], "o", ms=12, mfc="white", mec="k", mew=2)
        (actual,) = left.plot([], [], "o", ms=13, color="k")
        (predicted,) = left.plot([], [], "X", ms=13, color=ACCENT, mec="white")
        legend = ((old, "row − offset"), (actual, "row"), (predicted, "predicted"))
        handles, names = zip(*legend, strict=True)
        spacing = {"handletextpad": 0.1, "columnspacing": 0.8}
        left.legend(handles, names, loc="lower center", ncols=3, bbox_to_anchor=(0.5, -0.07), **spacing)
        n = len(next(iter(tables.values()))[1])
        (errors_line,) = right.plot([], [], color=FILL)
        (here,) = right.plot([], [], "o", ms=11, color=ACCENT)
        right.axhline(1, color=QUIET, ls=":", lw=1.5)
        right.text(FIRST_ROW + n, 1.03, "as far off as the centre", ha="right", color=QUIET, fontsize=12)
        right.set(
            xlim=(FIRST_ROW, FIRST_ROW + n), ylim=(0, 2.6), xlabel="row", ylabel="distance to prediction"
        )
        right.set_title("Error of each row (radius 1)")

        def update(table: str, plane: int, offset: int, row: int) -> str:
            angles, all_planes = tables[table]
            z, angle = all_planes[:, plane], angles[plane]
            guess = z[: n - offset] * np.exp(1j * angle * offset)
            errors = np.abs(z[offset:] - guess)
            spread = np.abs(z[offset:] - z[offset:].mean())
            r2 = 1 - (errors**2).sum() / (spread**2).sum()
            place = max(row - FIRST_ROW, offset)
            path = z[place - offset] * np.exp(1j * angle * np.linspace(0, offset, 300))
            ring.set_data(z.real, z.imag)
            turn.set_data(path.real, path.imag)
            for mark, point in (
                (old, z[place - offset]),
                (actual, z[place]),
                (predicted, guess[place - offset]),
            ):
                mark.set_data([point.real], [point.imag])
            errors_line.set_data(np.arange(offset, n) + FIRST_ROW, errors)
            here.set_data([place + FIRST_ROW], [errors[place - offset]])
            return (
                f"{table}, plane {plane} with period {number(2 * np.pi / angle)}: row {place + FIRST_ROW}, "
                f"predicted from row {place + FIRST_ROW - offset}, offset {offset}, is off by "
                f"{number(errors[place - offset])} radii. Over all rows R² is {number(r2)}."
            )

        return update

    return build


def gap(angles: np.ndarray, planes: np.ndarray, rows: np.ndarray) -> Callable[..., Any]:
    """Return the builder of the gap panel for rows (n, d), their planes, complex (n, m), and angles (m,)."""
    gaps = np.arange(2, 17)
    whole = [interpolation_r2(rows, int(g)) for g in gaps]
    by_plane = [[interpolation_r2(plane[:, None], int(g)) for g in gaps] for plane in planes.T]
    first, shown = 80, 64

    def build(fig: Figure) -> Callable[..., str]:
        fig.set_size_inches(10, 4.3)
        left = fig.add_axes((0.09, 0.15, 0.455, 0.74))
        right = fig.add_axes((0.645, 0.15, 0.335, 0.74))
        places = np.arange(first, first + shown)
        (line,) = left.plot(places + FIRST_ROW, np.zeros(shown), "-", color=FILL, lw=1.5)
        (dots,) = left.plot(places + FIRST_ROW, np.zeros(shown), "o", color=FILL, ms=5)
        (bridge,) = left.plot([], [], "--", color=ACCENT)
        (kept_dots,) = left.plot([], [], "o", color=ACCENT, ms=10)
        left.set(ylim=(-2, 2), xlim=(first + FIRST_ROW - 1, first + FIRST_ROW + shown), xlabel="row")
        left.set(ylabel="first coordinate of the plane")
        left.set_title("Kept rows and the lines between them")
        right.plot(gaps, whole, color="k", lw=3)
        right.text(16, 0.52, "whole table", ha="right", va="bottom", weight="bold")
        (plane_line,) = right.plot(gaps, gaps * 0.0, color=FILL)
        (dot,) = right.plot([], [], "o", ms=11, color=ACCENT)
        right.axhline(0, color=QUIET, lw=1, ls=":")
        right.set(xlabel="gap (rows)", ylim=(-1.5, 1.1), xticks=[2, 4, 6, 8, 12, 16])
        right.set_title("R² of the rows between")

        def update(gap: int, plane: int) -> str:
            wave = planes[:, plane].real
            kept = np.arange(0, len(wave), gap)
            seen = kept[(kept > first - gap) & (kept < first + shown + gap)]
            line.set_ydata(wave[places])
            dots.set_ydata(wave[places])
            bridge.set_data(seen + FIRST_ROW, wave[seen])
            kept_dots.set_data(seen + FIRST_ROW, wave[seen])
            plane_line.set_ydata(by_plane[plane])
            r2 = by_plane[plane][gap - 2]
            dot.set_data([gap], [r2])
            return (
                f"With a gap of {gap}, in plane {plane} with period {number(2 * np.pi / angles[plane])}, the "
                f"rows between are found with R² {number(r2)}; in the whole table with "
                f"{number(whole[gap - 2])}."
            )

        return update

    return build
