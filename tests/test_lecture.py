"""Every notebook as slides, live and static: nothing is cut off, all can be read, the sliders work."""

import re
from pathlib import Path
from urllib.parse import unquote

import nbformat
import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import WINDOW, notebook
from lab import Lab, errors_in_cells, run_all, run_for_the_panel, wait_for_idle, wait_for_pictures

from helpers import __main__ as course
from helpers.slides import css, export

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
PATHS = sorted(NOTEBOOKS.glob("*.ipynb"))
NAMES = [path.stem for path in PATHS]
SMALLEST, SHORTEST = 17.99, 115  # pixels of text and of a slider's way, on a slide of 720
TRAINING = "06_extrapolation"
PROJECTOR = {"width": 1920, "height": 1080}
DECK = ".jp-Deck .jp-Cell.jp-deck-mod-visible"
REVEAL = ".reveal section.present:not(.stack) .jp-Cell"
# What is wrong with the slide shown: it is higher than the window, something in it is wider than its place,
# or its text is too small.
FAULTS = """([cells, smallest, shortest]) => {
    const faults = new Set(), unit = window.innerHeight / 720;
    const shown = [...document.querySelectorAll(cells)];
    if (!shown.length) faults.add("nothing is shown");
    const boxes = shown.map((cell) => cell.getBoundingClientRect());
    const top = Math.min(...boxes.map((box) => box.top));
    const bottom = Math.max(...boxes.map((box) => box.bottom));
    if (top < 0 || bottom > window.innerHeight) faults.add(`the slide goes from ${top} to ${bottom}`);
    for (const element of shown.flatMap((cell) => [...cell.querySelectorAll("*")])) {
        const box = element.getBoundingClientRect(), name = `${element.tagName} ${element.className}`;
        if (!box.width || element.closest("mjx-container, details:not([open]) > :not(summary)")) continue;
        if (box.right > window.innerWidth + 1) faults.add(`${name} ends at ${box.right}`);
        if (element.matches("pre, table, .cm-scroller") && element.scrollWidth > element.clientWidth + 2)
            faults.add(`${name} is cut: ${element.clientWidth} of ${element.scrollWidth}`);
        const words = [...element.childNodes].filter((node) => node.nodeType === 3);
        const text = words.map((node) => node.data.trim());
        const size = parseFloat(getComputedStyle(element).fontSize);
        if (element.matches(".noUi-base") && box.width < shortest * unit)
            faults.add(`a slider has a way of ${box.width} pixels`);
        if (text.join("") && size < smallest * unit)
            faults.add(`${name} has text of ${size} pixels: ${text[0]}`);
    }
    return [...faults];
}"""
SHOWN = f"""() => [...document.querySelectorAll(".jp-Deck .jp-Cell")]
    .flatMap((cell, number) => cell.matches({DECK!r}) ? [number] : [])"""

pytestmark = pytest.mark.browser


def steps(path):
    """Return what is shown after each step through a notebook, as lists of cells, by its marks."""
    shown = []
    for number, cell in enumerate(nbformat.read(path, as_version=4).cells):
        kind = cell.metadata.get("slideshow", {}).get("slide_type")
        assert kind in ("slide", "fragment", "skip"), f"{path.name}, cell {number + 1}: mark it"
        if kind != "skip":
            shown.append([number] if kind == "slide" else [*shown[-1], number])
    return shown


def slides(path):
    """Return the cells of every slide when all of it is shown."""
    found = steps(path)
    return [now for now, later in zip(found, [*found[1:], []], strict=True) if now != later[:-1]]


def wait_until_shown(page, cells):
    page.wait_for_function(
        f"(cells) => JSON.stringify(({SHOWN})()) === JSON.stringify(cells)", arg=cells, timeout=10_000
    )


def faults(page, cells):
    return page.evaluate(FAULTS, [cells, SMALLEST, SHORTEST])


def go_to(page, cell):
    page.evaluate("(cell) => { jupyterapp.shell.currentWidget.content.activeCellIndex = cell; }", cell)


@pytest.fixture(scope="module")
def lecture():
    with Lab(PATHS, lecture=True) as lab:
        yield lab


@pytest.fixture
def page(browser):
    """A window of its own; at the end nothing may have gone wrong in it."""
    page = browser.new_page()
    problems = []
    page.on("console", lambda message: message.type == "error" and problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(f"uncaught: {error}"))
    yield page
    page.close()
    assert not problems, "\n".join(problems)


def open_deck(lecture, page, path):
    lecture.open(page, path.name)
    page.locator(".jp-Deck").wait_for()


@pytest.mark.parametrize("path", PATHS, ids=NAMES)
def test_every_live_slide_can_be_read(lecture, page, path):
    open_deck(lecture, page, path)
    if path.stem == TRAINING:
        run_for_the_panel(page, path)
    else:
        run_all(page)
    assert errors_in_cells(page) == []
    for cells in slides(path):
        go_to(page, cells[-1])
        wait_until_shown(page, cells)
        assert faults(page, DECK) == [], f"the slide of cells {cells}, counted from 0"
        if page.locator(f"{DECK} .noUi-base").count():
            page.set_viewport_size(PROJECTOR)
            page.wait_for_function("(height) => window.innerHeight === height", arg=PROJECTOR["height"])
            assert faults(page, DECK) == [], (
                f"the panel of cell {cells[0]}, counted from 0, on a large screen"
            )
            page.set_viewport_size(WINDOW)


@pytest.mark.parametrize("keys", [("Space", "Shift+Space"), ("PageDown", "PageUp")])
def test_keys_show_one_cell_after_the_other(lecture, page, keys):
    path = NOTEBOOKS / "01_order_blindness.ipynb"
    open_deck(lecture, page, path)
    go_to(page, 0)
    forward, back = keys
    shown = steps(path)
    for cells in shown[1:]:
        page.keyboard.press(forward)
        wait_until_shown(page, cells)
    page.keyboard.press(back)
    wait_until_shown(page, shown[-2])


def test_a_slider_works_on_a_slide(lecture, page):
    path = NOTEBOOKS / "04_rope.ipynb"
    open_deck(lecture, page, path)
    page.keyboard.press("Control+Shift+Enter")
    wait_until_shown(page, slides(path)[-1])
    wait_until_shown(page, [0])  # all has run
    wait_for_idle(page, 120)
    wait_for_pictures(page)
    panel = next(
        number
        for number, cell in enumerate(nbformat.read(path, as_version=4).cells)
        if cell.cell_type == "code" and cell.source.startswith("live(")
    )
    go_to(page, panel)
    wait_until_shown(page, [panel])
    cell = page.locator(DECK)
    image, caption = cell.locator(".widget-image"), cell.locator(".widget-html-content")
    handle, track = cell.locator(".noUi-handle").first, cell.locator(".noUi-base").first

    def follows(move):
        before = image.get_attribute("src"), caption.text_content()
        move()
        page.wait_for_function(
            "([image, caption, src, words]) => image.src !== src && caption.textContent !== words",
            arg=[image.element_handle(), caption.element_handle(), *before],
        )

    def drag():
        start, way = handle.bounding_box(), track.bounding_box()
        y = start["y"] + start["height"] / 2
        page.mouse.move(start["x"] + start["width"] / 2, y)
        page.mouse.down()
        page.mouse.move(way["x"] + 0.8 * way["width"], y, steps=8)
        page.mouse.up()

    follows(drag)
    assert faults(page, DECK) == []
    # The arrows are the slider's while it has the focus; Space is the slide's.
    handle.focus()
    follows(lambda: page.keyboard.press("ArrowLeft"))
    assert page.evaluate(SHOWN) == [panel]
    page.keyboard.press("Space")
    wait_until_shown(page, next(cells for cells in slides(path) if cells[0] > panel)[:1])


def test_a_wrong_key_changes_nothing(lecture, page):
    """A presenter's remote sends B for black, and a lecturer leans on the keyboard."""
    path = NOTEBOOKS / "05_relative_bias.ipynb"
    open_deck(lecture, page, path)
    go_to(page, 2)
    page.keyboard.press("Space")
    before = page.evaluate("() => JSON.stringify(jupyterapp.shell.currentWidget.model.toJSON().cells)")
    shown = page.evaluate(SHOWN)
    for key in [*"abcdkjmrvxyz123456", "d", "d", "Enter", "Shift+A", "Shift+B", "Shift+M", "Shift+Z"]:
        page.keyboard.press(key)
    after = page.evaluate("() => JSON.stringify(jupyterapp.shell.currentWidget.model.toJSON().cells)")
    assert after == before
    assert page.evaluate(SHOWN) == shown
    page.keyboard.press("Space")
    wait_until_shown(page, steps(path)[steps(path).index(shown) + 1])


def test_a_folded_text_leaves_the_keys_alone(lecture, page):
    path = NOTEBOOKS / "04_rope.ipynb"
    open_deck(lecture, page, path)
    cells = nbformat.read(path, as_version=4).cells
    folded = next(n for n, cell in enumerate(cells) if "<summary>Explain it" in cell.source)
    go_to(page, folded)
    page.locator(f"{DECK} summary").first.click()
    place = next(n for n, shown in enumerate(steps(path)) if folded == shown[-1])
    for key, cell in (("PageDown", place + 1), ("Space", place + 2), ("PageUp", place + 1)):
        page.keyboard.press(key)
        wait_until_shown(page, steps(path)[cell])


def test_the_show_ends_and_goes_on(lecture, page):
    path = NOTEBOOKS / "01_order_blindness.ipynb"
    open_deck(lecture, page, path)
    go_to(page, 8)
    page.keyboard.press("F4")
    page.locator(".jp-Deck").wait_for(state="detached")
    page.keyboard.press("F4")
    page.locator(".jp-Deck").wait_for()
    wait_until_shown(page, next(cells for cells in steps(path) if cells[-1] == 8))
    page.keyboard.press("Home")
    wait_until_shown(page, [0])


@pytest.fixture(scope="module")
def static(tmp_path_factory):
    """A folder of static slides, and the notebooks' cells that must be on them."""
    folder = tmp_path_factory.mktemp("slides")
    assert export(PATHS, folder) == folder / "index.html"
    return folder


@pytest.mark.parametrize("path", PATHS, ids=NAMES)
def test_static_slides_open_without_a_network(static, page, path):
    asked = []

    def refuse(route):
        asked.append(route.request.url)
        route.abort()

    page.route(re.compile("^(?!file:|data:)"), refuse)
    page.goto((static / f"{path.stem}.html").as_uri())
    page.wait_for_function("() => window.Reveal?.isReady() && window.MathJax?.startup?.promise")
    page.evaluate("() => MathJax.startup.promise")
    source = "".join(cell.source for cell in nbformat.read(path, as_version=4).cells)
    formulas = page.locator("mjx-container svg")
    assert (formulas.count() > 0) == ("$" in source)
    found = slides(path)
    assert page.evaluate("() => Reveal.getTotalSlides()") == len(found)
    for number, cells in enumerate(found):
        page.evaluate("(number) => Reveal.slide(number, 0, Infinity)", number)
        assert page.locator(REVEAL).count() == len(cells)
        assert faults(page, REVEAL) == [], f"the slide of cells {cells}, counted from 0"
        if number in (0, 2, len(found) - 1):
            wcag = {"runOnly": ["wcag2a", "wcag2aa"], "preload": False}
            violations = Axe().run(page, options=wcag).response["violations"]
            assert [(one["id"], one["nodes"][0]["html"]) for one in violations] == []
    for image in page.locator("img").all():
        assert len(image.get_attribute("alt")) > 20
    assert asked == []


def test_static_slides_lead_to_each_other(static):
    for file in static.glob("*.html"):
        text = file.read_text(encoding="utf-8")
        links = re.findall(r'(?:href|src)="([^"]+)"', text)
        assert links
        for link in links:
            target, _, anchor = unquote(link).partition("#")
            if target.startswith(("data:", "https:")):
                continue
            other = static / target if target else file
            assert other.is_file(), link
            if anchor and "/" not in anchor:
                assert f'id="{anchor}"' in unquote(other.read_text(encoding="utf-8")), f"{file.name}: {link}"


def test_the_styles_become_a_style_sheet():
    text = """{ // a remark
        "styles": { ":root": { "--unit": "1vh" }, ".jp-Deck p": { "margin": "0", "color": "red" } } }"""
    assert css(text) == ":root { --unit: 1px }\n.reveal p { margin: 0; color: red }"


def test_a_lecture_needs_a_notebook_and_the_extra(monkeypatch, capsys):
    assert course.main(["lecture", "9"]) == 1
    assert "none of 00_start_here" in capsys.readouterr().err
    monkeypatch.setattr(course.importlib.util, "find_spec", lambda name: None)
    for command in (["lecture", "04"], ["slides"]):
        assert course.main(command) == 1
        assert "extra: make" in capsys.readouterr().err


def test_a_lecture_starts_the_same_way_each_time(tmp_path, monkeypatch, capsys):
    """It leaves the learner's own settings alone, opens her copy, and passes other arguments on."""
    monkeypatch.setattr(course, "ROOT", tmp_path)
    own = a_copy_of_rope(tmp_path, notebook("made long ago"))
    started = []

    def run(command, environment):
        settings = Path(environment["JUPYTERLAB_SETTINGS_DIR"])
        started.append((command, environment, sorted(path.name for path in settings.rglob("*"))))
        (settings / "changed by her").touch()
        return 7

    monkeypatch.setattr(course, "run", run)
    monkeypatch.delenv("COURSE_PIXEL_RATIO", raising=False)
    assert course.main(["lecture", "04", "--no-browser"]) == 7
    command, environment, settings = started[0]
    assert "--LabApp.default_url=/lab/tree/04_rope.ipynb" in command
    assert command[-1] == "--no-browser"
    assert environment["COURSE_PIXEL_RATIO"] == "2"
    assert "plugin.jupyterlab-settings" in settings
    assert own.read_bytes() == notebook("made long ago")
    assert "before the course had slides" in capsys.readouterr().out
    # A killed lecture leaves nothing that stays: the next one begins in the same place, from the start.
    assert Path(environment["JUPYTERLAB_SETTINGS_DIR"]).is_relative_to(own.parent / ".lecture")
    assert course.main(["lecture", "04", "--no-browser"]) == 7
    assert started[0] == started[1]


def a_copy_of_rope(root, content):
    """Make a course of one notebook and a learner's copy of it, and return the copy."""
    (root / "notebooks").mkdir()
    (root / "notebooks" / "04_rope.ipynb").write_bytes(PATHS[4].read_bytes())
    (root / "my").mkdir()
    (root / "my" / "04_rope.ipynb").write_bytes(content)
    return root / "my" / "04_rope.ipynb"


@pytest.mark.parametrize("kind", ["a folder", "half of it"])
def test_a_lecture_on_a_broken_copy_says_so(tmp_path, monkeypatch, capsys, kind):
    monkeypatch.setattr(course, "ROOT", tmp_path)
    own = a_copy_of_rope(tmp_path, notebook("whole")[:-9])
    if kind == "a folder":
        own.unlink()
        own.mkdir()
    monkeypatch.setattr(course, "run", lambda *_: pytest.fail("it must not start"))
    assert course.main(["lecture", "04"]) == 1
    printed = capsys.readouterr()
    assert f"{own} can't be opened as a notebook" in printed.out
    assert "slides" not in printed.out + printed.err


@pytest.mark.parametrize(("command", "taken"), [(["lecture", "04"], "my/.lecture"), (["slides"], "build")])
def test_slides_that_cannot_be_written_are_one_plain_sentence(tmp_path, monkeypatch, capsys, command, taken):
    monkeypatch.setattr(course, "ROOT", tmp_path)
    a_copy_of_rope(tmp_path, PATHS[4].read_bytes())
    (tmp_path / taken).write_text("a file, not a folder")
    monkeypatch.setattr(course, "run", lambda *_: pytest.fail("it must not start"))
    assert course.main(command) == 1
    printed = capsys.readouterr().err
    assert str(tmp_path / taken) in printed
    assert printed.count("\n") == 1
