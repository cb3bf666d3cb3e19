"""Photograph a notebook as a learner sees it: `python tools/screenshot.py NOTEBOOK FOLDER [--size 1280x720]`.

Opens a copy in the real JupyterLab (file browser closed), runs all cells, and writes to FOLDER
    cell-07.png         every output that holds a picture or a widget, by the number of its cell, from 1
    page-01.png ...     the whole notebook from top to bottom, one window after the other
With --set NAME=VALUE, given as often as you like, the controls of that name are moved first in every panel.
"""

import argparse
import ast
import re
import sys
from pathlib import Path

from lab import Lab, chromium, errors_in_cells, find_chromium, run_all, run_code, wait_for_pictures
from playwright.sync_api import Page

# Panels are moved in the kernel, so that any value can be had.
MOVE = """
import gc as _gc
from helpers.live import Panel as _Panel
for _panel in [_thing for _thing in _gc.get_objects() if issubclass(type(_thing), _Panel)]:
    _panel.set(**{{_name: _value for _name, _value in {values!r}.items() if _name in _panel.controls}})
"""


def photograph(page: Page, folder: Path) -> None:
    """Save the outputs one by one, then the page from top to bottom."""
    # What floats over the cells would be on the pictures.
    page.add_style_tag(content=".jp-Toolbar.jp-cell-toolbar { display: none !important }")
    cells = page.locator(".jp-NotebookPanel:visible .jp-Cell")
    for number in range(cells.count()):
        output = cells.nth(number).locator(".jp-OutputArea").first
        if output.locator(".jp-OutputArea-output :is(img, svg, .jupyter-widgets)").count():
            output.screenshot(path=folder / f"cell-{number + 1:02}.png")

    scroller = page.locator(".jp-NotebookPanel:visible .jp-WindowedPanel-outer")
    height, window = scroller.evaluate(
        """(node) => {
            const last = [...node.querySelectorAll(".jp-Cell")].at(-1).getBoundingClientRect().bottom;
            return [last - node.getBoundingClientRect().top + node.scrollTop, node.clientHeight];
        }"""
    )
    for piece in range(max(1, -int(-height // window))):
        scroller.evaluate("(node, top) => { node.scrollTop = top }", piece * window)
        scroller.screenshot(path=folder / f"page-{piece + 1:02}.png")


def parse(argv: list[str] | None) -> argparse.Namespace:
    def size(text: str) -> dict[str, int]:
        width, height = text.split("x")
        return {"width": int(width), "height": int(height)}

    def setting(text: str) -> tuple[str, object]:
        name, value = text.split("=", 1)
        try:
            return name, ast.literal_eval(value)
        except (ValueError, SyntaxError):
            return name, value  # a word, as in a drop-down

    parser = argparse.ArgumentParser(description="Photograph a notebook as a learner sees it.")
    parser.add_argument("notebook", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", type=size, default="1280x720", help="of the window (default: 1280x720)")
    parser.add_argument("--set", type=setting, action="append", default=[], metavar="NAME=VALUE")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Photograph one notebook; the exit code is 1 if a cell failed or the browser reported an error."""
    args = parse(argv)
    if find_chromium() is None:
        print("Chromium is not installed.", file=sys.stderr)
        return 1
    args.folder.mkdir(parents=True, exist_ok=True)
    for old in args.folder.glob("*.png"):
        if re.fullmatch(r"(cell|page)-\d+\.png", old.name):
            old.unlink()

    with Lab([args.notebook], windowing="none") as lab, chromium() as browser:
        page = browser.new_page(viewport=args.size)
        problems: list[str] = []
        page.on("console", lambda message: message.type == "error" and problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        lab.open(page, args.notebook.name)
        run_all(page)
        problems += errors_in_cells(page)
        if args.set:
            problems += run_code(page, MOVE.format(values=dict(args.set)))
            wait_for_pictures(page)
        photograph(page, args.folder)
    print("\n".join([*problems, f"{len(list(args.folder.glob('*.png')))} pictures in {args.folder}"]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
