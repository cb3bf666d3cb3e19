"""The notebooks as static slides: web pages that open from a disk, without a network or a kernel.

They are made from the stored notebooks and have the slides and the sizes of lecture mode; where that has a
panel, they have its picture. reveal.js and MathJax are laid beside them from two packages that carry them.
"""

import html
import importlib.util
import re
import shutil
from pathlib import Path

import json5
import nbformat
from nbconvert import SlidesExporter

LECTURE = Path(__file__).resolve().parent / "lecture"
STYLES = LECTURE / "settings" / "@deathbeds" / "jupyterlab-fonts" / "fonts.jupyterlab-settings"
# Of each package, what the pages load: under these names beside them.
CARRIED = {
    "reveal.js": ("sphinx_revealjs", "_static/revealjs/dist/reveal.js"),
    "reveal.css": ("sphinx_revealjs", "_static/revealjs/dist/reveal.css"),
    "reveal-LICENSE.txt": ("sphinx_revealjs", "_static/revealjs/LICENSE"),
    "mathjax.js": ("sphinx-mathjax-offline", "static/mathjax/tex-svg.js"),
}


def css(text):
    """Return lecture mode's styles as a style sheet, with a slide of reveal.js for a slide of the deck."""
    styles = {**json5.loads(text)["styles"], ":root": {"--unit": "1px"}}  # reveal.js scales the whole slide
    rules = (
        f"{selector} {{ {'; '.join(f'{name}: {value}' for name, value in rule.items())} }}"
        for selector, rule in styles.items()
    )
    return "\n".join(rules).replace(".jp-Deck", ".reveal")


def prepare(notebook):
    """Name the pictures for those who can't see them, and link slides to slides."""
    for cell in notebook.cells:
        # A link to a place in another notebook becomes one to its slide.
        cell.source = re.sub(r"(\]\(\d\d_\w+)\.ipynb", r"\1.html", cell.source)
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                output.metadata["alt"] = output.data.get("text/plain", "")
                output.metadata["panel"] = "live(" in cell.source
    return notebook


def title(notebook):
    """Return a notebook's first heading."""
    return re.search(r"^# (.+)", notebook.cells[0].source, re.M)[1]


def export(notebooks, folder):
    """Write slides of each notebook and an index into a folder, and return the index's path.

    notebooks: paths of .ipynb files with slide marks and stored output.
    """
    exporter = SlidesExporter(
        template_file="slides.html.j2", extra_template_paths=[str(LECTURE)], reveal_scroll=False
    )
    beside = folder / "lib"
    beside.mkdir(parents=True, exist_ok=True)
    for name, (package, path) in CARRIED.items():
        where = importlib.util.find_spec(package).submodule_search_locations[0]
        shutil.copyfile(Path(where) / path, beside / name)
    (beside / "course.css").write_text(css(STYLES.read_text(encoding="utf-8")), encoding="utf-8")
    entries = []
    for path in notebooks:
        notebook = prepare(nbformat.read(path, as_version=4))
        page, _ = exporter.from_notebook_node(notebook, {"metadata": {"name": title(notebook)}})
        (folder / f"{path.stem}.html").write_text(page, encoding="utf-8")
        entries.append(f'<li><a href="{path.stem}.html">{html.escape(title(notebook))}</a></li>')
    index = folder / "index.html"
    template = (LECTURE / "index.html").read_text(encoding="utf-8")
    index.write_text(template.replace("ENTRIES", "\n".join(entries)), encoding="utf-8")
    return index
