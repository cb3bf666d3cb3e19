"""Divide notebooks into slides: `python tools/lay_out_slides.py [NOTEBOOK ...]`, without a name all of them.

Opens each in lecture mode, measures every cell, and writes slide marks so that no slide is fuller than the
screen. A section begins a slide, a picture has one for itself, the other cells come one after the other;
exercises and imports are left out. Of a cell that is higher than a slide only the output is shown, or its
text is set dense. All slides stand in one row: jupyterlab-deck 0.2.0 skips a subslide of a single cell.
"""

import re
import sys
from pathlib import Path

import nbformat
from lab import Lab, chromium, run_all

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
SLIDE = {"width": 1280, "height": 720}
ROOM = 690  # what the margins of a slide leave of its height
TAGS = {"code": "output-only", "markdown": "dense"}  # what makes a cell lower


def measure(page) -> list[float]:
    """Return the height of every cell of the notebook shown, which is one long slide."""
    return page.evaluate(
        """() => [...document.querySelectorAll(".jp-Deck .jp-Cell")]
            .map((cell) => cell.getBoundingClientRect().height)"""
    )


def make_lower(page, notebook, heights) -> None:
    """Tag the cells that are higher than a slide, and measure what that makes of them."""
    for number, (cell, height) in enumerate(zip(notebook.cells, heights, strict=True)):
        tags = set(cell.metadata.get("tags", []))
        if height <= ROOM or "exercise" in tags:
            continue
        page.evaluate(
            """([number, tag]) => {
                document.querySelectorAll(".jp-Deck .jp-Cell")[number].classList.add(`celltag_${tag}`);
            }""",
            [number, TAGS[cell.cell_type]],
        )
        cell.metadata["tags"] = sorted(tags | {TAGS[cell.cell_type]})
    heights[:] = measure(page)


def begins_section(cell) -> bool:
    return cell.cell_type == "markdown" and bool(re.search("^##? ", cell.source, re.MULTILINE))


def only_imports(cell) -> bool:
    lines = cell.source.splitlines()
    return cell.cell_type == "code" and all(re.match(r"(import|from)\b|[)\s]|$", line) for line in lines)


def is_picture(cell) -> bool:
    return any("image/png" in output.get("data", {}) for output in cell.get("outputs", []))


def opens_slide(cells, heights, number: int, used: float) -> bool:
    """Say whether a cell begins a new slide, when so much of the last one is used."""
    cell = cells[number]
    if (
        begins_section(cell)
        or is_picture(cell)
        or is_picture(cells[number - 1])
        or cell.source.startswith("**Predict first")
    ):
        return True
    if used + heights[number] > ROOM:
        return True
    # What leads to a cell of code stays with it, where both have room on a new slide and not on this one.
    following = cells[number + 1] if number + 1 < len(cells) else None
    if (
        cell.cell_type == "markdown"
        and following
        and following.cell_type == "code"
        and not is_picture(following)
    ):
        both = heights[number] + heights[number + 1]
        return used + both > ROOM >= both
    return False


def lay_out(cells, heights) -> list[str]:
    """Return the slide type of every cell."""
    types, used = [], 0.0
    for number, (cell, height) in enumerate(zip(cells, heights, strict=True)):
        kind = "fragment"
        if "exercise" in cell.metadata.get("tags", []) or only_imports(cell) or height > ROOM:
            kind = "skip"
        elif opens_slide(cells, heights, number, used):
            kind, used = "slide", 0.0
        if kind != "skip":
            used += height
        types.append(kind)
    return types


def mark(path: Path, notebook, types) -> None:
    """Write a notebook with these slide types; None takes a mark away."""
    for cell, kind in zip(notebook.cells, types, strict=True):
        cell.metadata.pop("slideshow", None)
        if kind is not None:
            cell.metadata["slideshow"] = {"slide_type": kind}
    path.write_bytes(nbformat.writes(notebook).rstrip("\n").encode("utf-8") + b"\n")


def main(names: list[str]) -> int:
    paths = [NOTEBOOKS / Path(name).name for name in names] or sorted(NOTEBOOKS.glob("*.ipynb"))
    with Lab(paths, lecture=True, windowing="none") as lab, chromium() as browser:
        for path in paths:
            copy = lab.work / path.name
            notebook = nbformat.read(copy, as_version=4)
            for cell in notebook.cells:
                tags = [tag for tag in cell.metadata.pop("tags", []) if tag not in TAGS.values()]
                if tags:
                    cell.metadata["tags"] = tags
            mark(copy, notebook, [None] * len(notebook.cells))
            page = browser.new_page(viewport=SLIDE)
            lab.open(page, path.name)
            page.locator(".jp-Deck").wait_for()
            run_all(page)
            heights = measure(page)
            make_lower(page, notebook, heights)
            page.close()
            types = lay_out(notebook.cells, heights)
            mark(path, notebook, types)
            too_high = [
                f"{number + 1} ({height:.0f})" for number, height in enumerate(heights) if height > ROOM
            ]
            print(f"{path.name}: {types.count('slide')} slides; too high: cells {too_high or 'none'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
