"""No dead link inside the course: files exist, and headings are there. Nothing is asked from a network."""

import re
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

import nbformat
import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [*sorted(ROOT.glob("notebooks/*.ipynb")), *sorted(ROOT.glob("*.md")), ROOT / "helpers/data/README.md"]
LINK = re.compile(
    r"(?<!\\)\]\(([^()\s]*(?:\([^()\s]*\)[^()\s]*)*)\)|<(?:a|img)\b[^>]*\b(?:href|src)=\"([^\"]+)\""
)
CODE = re.compile(r"```.*?```|`[^`\n]*`|\$\$.*?\$\$|\$[^$\n]*\$", re.DOTALL)
OUTSIDE = re.compile(r"[a-z][a-z+.-]*:", re.IGNORECASE)


def text_of(path):
    if path.suffix != ".ipynb":
        return path.read_text(encoding="utf-8")
    cells = nbformat.read(path, as_version=4).cells
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def links(path):
    """Return what a page links to within the course."""
    found = [one or other for one, other in LINK.findall(CODE.sub("", text_of(path)))]
    return [link for link in found if not OUTSIDE.match(link)]


def anchors(path):
    """Return the names that JupyterLab gives to the headings of a page."""
    headings = re.findall(
        r"^#+ +(.*?)\s*$", re.sub(r"```.*?```", "", text_of(path), flags=re.DOTALL), re.MULTILINE
    )
    return {heading.replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", PAGES, ids=[path.name for path in PAGES])
def test_links_lead_somewhere(path):
    dead = []
    for link in links(path):
        file, _, anchor = unquote(link).partition("#")
        target = path.parent / file if file else path
        if not target.is_file() or (anchor and anchor not in anchors(target)):
            dead.append(link)
    assert not dead


def test_notebooks_link_within_their_folder():
    """Learners work on copies in my/, where nothing else of the course stands."""
    for path in ROOT.glob("notebooks/*.ipynb"):
        assert not [link for link in links(path) if "/" in link]


def test_each_notebook_is_linked_from_its_neighbours():
    paths = sorted(ROOT.glob("notebooks/*.ipynb"))
    for path, following in pairwise(paths):
        assert following.name in links(path)
        assert path.name in links(following) or path.name.startswith("00")


def test_the_checks_find_dead_links(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A heading\n[a](gone.ipynb) [b](#A-heading) [c](#Gone) `[d](code)` [e](https://x.org)")
    assert links(page) == ["gone.ipynb", "#A-heading", "#Gone"]
    assert anchors(page) == {"A-heading"}


def test_the_glossary_is_long_enough_and_each_term_has_a_place():
    text = text_of(ROOT / "notebooks" / "00_start_here.ipynb")
    glossary = text[text.index("## Glossary") :]
    rows = re.findall(r"^\| (?!term|---)(.+?) \| (.+?) \| \[.+?\]\((.+?)\) \|$", glossary, re.MULTILINE)
    assert len(rows) >= 30
    assert all("#" in link for _, _, link in rows)
