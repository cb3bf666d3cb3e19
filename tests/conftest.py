"""What the browser tests share, a small course to start, and interrupts that reach the tests."""

import json
import os
import signal

import pytest
from lab import chromium, find_chromium

from helpers import __main__ as course

# In the background of a script interrupts are ignored, and all children inherit that: not for the tests.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
WINDOW = {"width": 1280, "height": 720}


@pytest.fixture(scope="module")
def browser():
    if find_chromium() is None:
        if os.environ.get("COURSE_REQUIRE_BROWSER") == "1":
            pytest.fail("Chromium is not installed, and COURSE_REQUIRE_BROWSER=1 asks for it")
        pytest.skip("Chromium is not installed")
    with chromium() as browser:
        yield browser.new_context(viewport=WINDOW)  # one for all, so that JupyterLab is loaded from its cache


def notebook(text):
    """Return the bytes of a small notebook."""
    cell = {"cell_type": "markdown", "id": "a", "metadata": {}, "source": text}
    return json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode()


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A small course: its root, with two notebooks in it. Nothing of the user's own Jupyter is touched."""
    notebooks = tmp_path / "notebooks"
    notebooks.mkdir()
    (notebooks / course.FIRST_NOTEBOOK).write_bytes(notebook("start"))
    (notebooks / "01_second.ipynb").write_bytes(notebook("second"))
    (notebooks / "notes.txt").write_bytes(b"not a notebook")
    monkeypatch.setattr(course, "ROOT", tmp_path)
    for name in ("CONFIG", "DATA", "RUNTIME"):
        monkeypatch.setenv(f"JUPYTER_{name}_DIR", str(tmp_path / "jupyter" / name))
    return tmp_path


@pytest.fixture
def started(monkeypatch):
    """The command lines and environments that would have been started; none is."""
    calls = []

    def run(command, environment):
        calls.append((command, environment))
        return 7

    monkeypatch.setattr(course, "run", run)
    return calls
