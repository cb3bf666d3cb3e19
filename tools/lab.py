"""The real JupyterLab, or Notebook 7, in headless Chromium on copies of notebooks, for tests and tools."""

import json
import re
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nbformat
from playwright.sync_api import Browser, Page, sync_playwright

from helpers import __main__ as course

CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SECONDS_TO_START = 60
SECONDS_TO_RUN = 900
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


def find_chromium() -> str | None:
    """Return the path of an installed Chromium, or None."""
    return next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start a headless Chromium."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=CHROMIUM_ARGUMENTS)
        yield browser
        browser.close()


class Lab:
    """A JupyterLab server on copies of the notebooks, in a temporary folder that is gone with it.

    windowing: one of JupyterLab's windowing modes; "none" draws the cells that are out of view as well.
    lecture: show the notebooks as slides, with the settings of `python -m helpers lecture`.
    notebook7: Notebook 7 instead, one notebook a page.
    """

    def __init__(
        self,
        notebooks: list[Path],
        *,
        windowing: str | None = None,
        lecture: bool = False,
        notebook7: bool = False,
    ) -> None:
        self._notebooks, self._windowing = notebooks, windowing
        self._lecture, self.notebook7 = lecture, notebook7

    def __enter__(self) -> "Lab":
        self.folder = Path(tempfile.mkdtemp(prefix="course-lab-"))
        self.work = self.folder / "work"
        self.work.mkdir()
        for notebook in self._notebooks:
            shutil.copyfile(notebook, self.work / notebook.name)
        self.token = secrets.token_hex()
        self._start()
        self._wait_until_it_answers()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()  # the server ends its kernels first
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self) -> None:
        # Nothing of the user's own Jupyter is read or written.
        settings = self.folder / "settings"
        if self._lecture:
            shutil.copytree(course.LECTURE_SETTINGS, settings)
        if self._windowing is not None:
            tracker = settings / "@jupyterlab" / "notebook-extension" / "tracker.jupyterlab-settings"
            tracker.parent.mkdir(parents=True, exist_ok=True)
            tracker.write_text(json.dumps({"windowingMode": self._windowing}), encoding="utf-8")
        environment = course.lab_environment() | {
            "JUPYTERLAB_SETTINGS_DIR": str(settings),
            "JUPYTERLAB_WORKSPACES_DIR": str(self.folder / "workspaces"),
            "JUPYTER_CONFIG_DIR": str(self.folder / "config"),
            "JUPYTER_DATA_DIR": str(self.folder / "data"),
            "JUPYTER_RUNTIME_DIR": str(self.folder / "runtime"),
            "IPYTHONDIR": str(self.folder / "ipython"),
        }
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        application = "JupyterNotebookApp" if self.notebook7 else "LabApp"
        arguments = [
            "--no-browser",
            f"--ServerApp.port={port}",
            "--ServerApp.port_retries=0",
            f"--IdentityProvider.token={self.token}",
            f"--{application}.expose_app_in_browser=True",
        ]
        command = course.lab_command(self.work, arguments)
        if self.notebook7:
            command[command.index("jupyterlab")] = "notebook"
        with (self.folder / "log.txt").open("wb") as log:
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches the test, which then ends the server
            )

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + SECONDS_TO_START
        request = urllib.request.Request(
            f"{self.url}/api/status", headers={"Authorization": f"token {self.token}"}
        )
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                urllib.request.urlopen(request, timeout=5).close()
                return
            except OSError:
                time.sleep(0.1)  # not listening yet
        log = (self.folder / "log.txt").read_text(encoding="utf-8", errors="replace")
        self.__exit__()
        raise RuntimeError(f"JupyterLab did not answer within {SECONDS_TO_START} seconds:\n{log}")

    def open(self, page: Page, name: str) -> None:
        """Show one notebook, alone in the page, with the file browser closed and a kernel that is ready."""
        place = "notebooks" if self.notebook7 else f"lab/workspaces/{Path(name).stem}/tree"
        page.goto(f"{self.url}/{place}/{name}?token={self.token}")
        page.wait_for_function("() => window.jupyterapp", timeout=60_000)
        page.evaluate("() => jupyterapp.restored")
        page.locator(".jp-NotebookPanel:visible").wait_for()
        if not self.notebook7:
            page.evaluate("() => jupyterapp.shell.collapseLeft()")
        wait_for_idle(page, SECONDS_TO_START)


def wait_for_idle(page: Page, seconds: float) -> None:
    """Wait until the kernel of the notebook shown is connected and has nothing to do."""
    page.wait_for_function(
        "() => jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'",
        timeout=seconds * 1000,
    )


def run_all(page: Page, seconds: float = SECONDS_TO_RUN) -> None:
    """Run all cells, and wait until they are done and their widgets stand in the page."""
    # Not awaited inside the page: there nothing would end the wait.
    page.evaluate(
        """() => {
            window.courseRan = false;
            jupyterapp.commands.execute("notebook:run-all-cells").finally(() => { window.courseRan = true; });
        }"""
    )
    page.wait_for_function("() => window.courseRan", timeout=seconds * 1000)
    wait_for_idle(page, seconds)
    wait_for_pictures(page)


def run_for_the_panel(page: Page, notebook: Path) -> None:
    """Run the imports, the training that is kept, and the panel, without what trains anew each time."""
    for number, cell in enumerate(nbformat.read(notebook, as_version=4).cells):
        if cell.cell_type != "code":
            continue
        if re.search(r"^import |^runs = ", cell.source, re.MULTILINE):
            assert run_code(page, cell.source) == []
        if re.search(r"^live\(", cell.source, re.MULTILINE):
            page.evaluate(
                """(number) => {
                    jupyterapp.shell.currentWidget.content.activeCellIndex = number;
                    return jupyterapp.commands.execute("notebook:run-cell");
                }""",
                number,
            )
    wait_for_idle(page, SECONDS_TO_RUN)
    wait_for_pictures(page)


def wait_for_pictures(page: Page) -> None:
    """Wait until every output that should hold widgets does, and every picture is loaded."""
    page.wait_for_function(
        """(mime) => {
            const panel = jupyterapp.shell.currentWidget;
            const filled = panel.content.widgets.every((cell) => {
                const outputs = cell.model.outputs?.toJSON() ?? [];
                const views = outputs.filter((output) => output.data?.[mime]).length;
                return cell.node.querySelectorAll(".jp-OutputArea-output > .jupyter-widgets").length >= views;
            });
            const images = [...panel.node.querySelectorAll(".jp-OutputArea img")];
            return filled && images.every((image) => image.complete && image.naturalWidth > 0);
        }""",
        arg=WIDGET_VIEW,
    )


def errors_in_cells(page: Page) -> list[str]:
    """Return what went wrong in the cells of the notebook shown, one line an error."""
    return page.evaluate(
        """() => jupyterapp.shell.currentWidget.content.widgets.flatMap((cell, number) =>
            (cell.model.outputs?.toJSON() ?? [])
                .filter((output) => output.output_type === "error")
                .map((output) => `cell ${number + 1}: ${output.ename}: ${output.evalue}`))"""
    )


def run_code(page: Page, code: str) -> list[str]:
    """Run code in the notebook's kernel without a cell, and return the error, if there was one."""
    return page.evaluate(
        """async (code) => {
            const kernel = jupyterapp.shell.currentWidget.sessionContext.session.kernel;
            const { content } = await kernel.requestExecute({ code, store_history: false }).done;
            return content.status === "ok" ? [] : [`${content.ename}: ${content.evalue}`];
        }""",
        code,
    )
