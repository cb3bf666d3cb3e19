"""What the browser tests share, and interrupts that reach the tests."""

import os
import signal

import pytest
from lab import chromium, find_chromium

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
