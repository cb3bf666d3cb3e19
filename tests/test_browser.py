"""The notebooks in the real JupyterLab and in Notebook 7: every cell runs, every control moves its picture.

Works on copies in a temporary folder. Skipped where Chromium is missing, unless COURSE_REQUIRE_BROWSER=1.
"""

from pathlib import Path

import nbformat
import pytest
from axe_playwright_python.sync_playwright import Axe
from lab import (
    WIDGET_VIEW,
    Lab,
    errors_in_cells,
    run_all,
    run_for_the_panel,
    wait_for_idle,
    wait_for_pictures,
)

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
PATHS = sorted(NOTEBOOKS.glob("*.ipynb"))
PANEL = ".jp-NotebookPanel:not(.lm-mod-hidden) .widget-vbox:has(> .widget-image)"
# The picture is another one than before (a new source) and can be seen; so is its caption, which names it.
HAS_CHANGED = """([panel, source, caption]) => {
    const image = panel.querySelector(".widget-image");
    const words = panel.querySelector(".widget-html-content").textContent;
    return image.src !== source && image.complete && image.naturalWidth > 0
        && getComputedStyle(image).visibility === "visible" && words !== caption && words === image.title;
}"""
SECONDS_FOR_A_CHANGE = 10
# Accessibility faults that no Python can reach, by axe's rule: what their elements match, and whose they are.
BEYOND_REACH = {
    "aria-input-field-name": ".noUi-handle",  # ipywidgets names no slider handle (its label stands beside it)
    "image-alt": ".jp-RenderedImage > img",  # JupyterLab shows no alt text ("What you see" says it in words)
}
# Notebook 7.6.5 says this at every start, of an empty notebook, too.
NOTEBOOK_7_SAYS = "uncaught: Cannot read properties of undefined (reading 'schema')"

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def lab(request, browser):
    """JupyterLab, or Notebook 7 where a test asks for it."""
    with Lab(PATHS, notebook7=getattr(request, "param", "") == "Notebook 7") as lab:
        yield lab


@pytest.fixture
def page(browser, lab):
    """A window of its own; at the end nothing may have gone wrong in it."""
    page = browser.new_page()
    problems = []
    page.on("console", lambda message: message.type == "error" and problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(f"uncaught: {error}"))
    # The course works offline: nothing may be asked from elsewhere.
    page.on(
        "request",
        lambda request: (
            request.url.startswith((lab.url, f"blob:{lab.url}", "data:", lab.url.replace("http", "ws")))
            or problems.append(f"asked for {request.url}")
        ),
    )
    yield page
    page.close()
    if lab.notebook7:
        problems = [problem for problem in problems if problem != NOTEBOOK_7_SAYS]
    assert not problems, "\n".join(problems)


class Picture:
    """A panel in the page. Each move waits until the picture and its caption have followed."""

    def __init__(self, page, panel):
        self.page, self.panel = page, panel
        self.image = panel.locator(".widget-image")
        self.caption = panel.locator(".widget-html-content")

    def follows(self, what, move):
        """Make a move, and wait until the picture, its caption and its name have followed."""
        source, caption = self.image.get_attribute("src"), self.caption.text_content()
        size = self.size()
        move()
        self.page.wait_for_function(
            HAS_CHANGED,
            arg=[self.panel.element_handle(), source, caption],
            timeout=SECONDS_FOR_A_CHANGE * 1000,
        )
        assert self.size() == size, f"{what}: the picture's place changed its size"

    def size(self):
        box = self.image.bounding_box()
        return box["width"], box["height"]

    def move_by_keyboard(self, control):
        """Move a control and, where it can be, back: what it turned off may be needed by the next one."""
        what = control.text_content()
        if control.locator(".noUi-handle").count():
            handle = control.locator(".noUi-handle")
            handle.focus()
            low, high, now = (
                float(handle.get_attribute(f"aria-value{part}")) for part in ("min", "max", "now")
            )
            assert low < high, f"{what}: it has one value only"
            keys = ["PageUp", "PageDown"] if now < high else ["PageDown", "PageUp"]
            for key in keys:
                self.follows(f"{what}: {key}", lambda key=key: handle.press(key))
        elif control.locator("select").count():
            select = control.locator("select")
            now = select.input_value()
            options = select.locator("option").evaluate_all("(options) => options.map((o) => o.value)")
            other = next(option for option in options if option != now)
            for option in (other, now):
                self.follows(f"{what}: {option}", lambda option=option: select.select_option(option))
        else:
            box = control.locator("input[type=checkbox]")
            for _ in range(2):
                box.focus()
                self.follows(f"{what}: Space", lambda: box.press("Space"))

    def walk_by_tab(self):
        """Go from each control to the next with the Tab key alone; each has its words beside it."""
        controls = self.panel.locator(".widget-hbox .noUi-handle, select, input[type=checkbox]").all()
        controls[0].focus()
        for control in controls[1:]:
            for _ in range(3):  # a slider's number can be typed, and is a stop of its own
                self.page.keyboard.press("Tab")
                if control.evaluate("(control) => control === document.activeElement"):
                    break
            else:
                pytest.fail("Tab does not reach a control")
        for control in self.panel.locator("> .widget-hbox > *").all():
            label = control.locator(".widget-label:visible, .widget-label-basic:visible").first
            assert label.text_content().strip()

    def drag(self, control):
        """Drag a slider's handle to about a third of its way and let it go."""
        track, handle = control.locator(".noUi-base"), control.locator(".noUi-handle")
        handle.scroll_into_view_if_needed()
        start, way = handle.bounding_box(), track.bounding_box()
        x, y = start["x"] + start["width"] / 2, start["y"] + start["height"] / 2
        share = 0.35 if (x - way["x"]) / way["width"] > 0.5 else 0.65

        def move():
            self.page.mouse.move(x, y)
            self.page.mouse.down()
            self.page.mouse.move(way["x"] + share * way["width"], y, steps=12)
            self.page.mouse.up()

        self.follows("mouse", move)


def accessibility_faults(page):
    """Return what axe finds wrong in the outputs that stand in the page: (rule, html, if beyond reach)."""
    found = Axe().run(page, context=".jp-Notebook .jp-Cell-outputArea").response["violations"]
    return [
        (violation["id"], node["html"][:200], is_beyond_reach(page, violation["id"], node))
        for violation in found
        for node in violation["nodes"]
    ]


def is_beyond_reach(page, rule, node):
    target = page.locator(node["target"][-1]).first
    return target.evaluate(
        "(element, selector) => element.matches(selector)", BEYOND_REACH.get(rule, ":not(*)")
    )


def test_faults_beyond_reach_are_still_there(lab, page):
    """When one is gone, its line in BEYOND_REACH goes, too."""
    lab.open(page, "00_start_here.ipynb")
    run_all(page)
    page.locator(PANEL).first.scroll_into_view_if_needed()
    assert {rule for rule, _, _ in accessibility_faults(page)} == set(BEYOND_REACH)


@pytest.mark.parametrize("lab", ["JupyterLab", "Notebook 7"], indirect=True)
@pytest.mark.parametrize("path", PATHS, ids=[path.stem for path in PATHS])
def test_notebook(lab, page, path):
    lab.open(page, path.name)
    if path.stem == "06_extrapolation":
        run_for_the_panel(
            page, path
        )  # nbval runs all of it, and the models that are trained anew take minutes
    else:
        run_all(page)
    assert errors_in_cells(page) == []
    panels = page.locator(PANEL)
    for number in range(panels.count()):
        picture = Picture(page, panels.nth(number))
        picture.panel.scroll_into_view_if_needed()
        assert picture.image.get_attribute("title") == picture.caption.text_content()
        faults = [fault for fault in accessibility_faults(page) if not fault[-1]]
        assert not faults
        picture.walk_by_tab()
        controls = picture.panel.locator("> .widget-hbox > *")
        for control in controls.all():
            picture.move_by_keyboard(control)
        sliders = [control for control in controls.all() if control.locator(".noUi-handle").count()]
        if sliders:
            picture.drag(sliders[0])
    assert page.locator(".jupyter-widgets-error-widget").count() == 0
    assert page.get_by_text("Error displaying widget").count() == 0


def reload(page):
    page.reload()
    page.wait_for_function("() => window.jupyterapp", timeout=60_000)
    page.evaluate("() => jupyterapp.restored")
    page.locator(".jp-NotebookPanel:visible").wait_for()
    wait_for_idle(page, 60)
    wait_for_pictures(page)


def test_a_saved_panel_lives_as_long_as_its_kernel_and_is_a_picture_then(lab, page):
    lab.open(page, "00_start_here.ipynb")
    run_all(page)
    page.evaluate("() => jupyterapp.commands.execute('docmanager:save')")
    saved = nbformat.read(lab.work / "00_start_here.ipynb", as_version=4)
    outputs = [output for cell in saved.cells for output in cell.get("outputs", [])]
    pictures = [output.data for output in outputs if "image/png" in output.get("data", {})]
    assert pictures
    assert not any(WIDGET_VIEW in data for data in pictures)

    reload(page)  # the kernel runs on
    picture = Picture(page, page.locator(PANEL).first)
    picture.panel.scroll_into_view_if_needed()
    picture.move_by_keyboard(picture.panel.locator("> .widget-hbox > *").first)

    page.evaluate("() => jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    page.locator(".jupyter-widgets-disconnected").first.wait_for()  # the sign that notebook 00 explains
    wait_for_idle(page, 60)
    page.evaluate("() => jupyterapp.commands.execute('docmanager:save')")
    reload(page)
    assert page.locator(PANEL).count() == 0
    assert page.locator(".jp-RenderedImage img").count() == len(pictures)
    assert page.get_by_text("Error displaying widget").count() == 0


def test_the_first_move_waits_for_a_busy_kernel_and_later_ones_do_not(lab, page):
    """When JupyterLab no longer makes it wait, the sentence in notebook 00 goes, too."""
    lab.open(page, "00_start_here.ipynb")
    run_all(page)
    panel = page.locator(PANEL).first
    panel.scroll_into_view_if_needed()
    picture, handle = Picture(page, panel), panel.locator(".noUi-handle").first

    def move_while_busy(seconds):
        """Move a slider while a cell runs; say whether the picture followed before the cell had ended."""
        page.evaluate(
            """(seconds) => {
                const kernel = jupyterapp.shell.currentWidget.sessionContext.session.kernel;
                const code = `import time; time.sleep(${seconds})`;
                window.courseBusy = true;
                kernel.requestExecute({ code }).done.then(() => { window.courseBusy = false; });
            }""",
            seconds,
        )
        page.wait_for_function(
            "() => jupyterapp.shell.currentWidget.sessionContext.session.kernel.status === 'busy'"
        )
        handle.focus()
        picture.follows("a move while a cell runs", lambda: handle.press("PageUp"))
        busy = page.evaluate("() => window.courseBusy")
        page.wait_for_function("() => !window.courseBusy", timeout=60_000)
        return busy

    assert not move_while_busy(4)
    assert move_while_busy(12)
