"""How the course starts: which notebooks are copied, and how JupyterLab is called."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from helpers import __main__ as course

SECONDS_TO_START = 90


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A small course: its root, with two notebooks in it."""
    notebooks = tmp_path / "notebooks"
    notebooks.mkdir()
    (notebooks / course.FIRST_NOTEBOOK).write_bytes(b"start")
    (notebooks / "01_second.ipynb").write_bytes(b"second")
    (notebooks / "notes.txt").write_bytes(b"not a notebook")
    monkeypatch.setattr(course, "ROOT", tmp_path)
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


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def copy(root):
    return course.copy_missing(root / "notebooks", root / "my")


def test_first_start_copies_every_notebook_and_nothing_else(checkout):
    assert copy(checkout) == [course.FIRST_NOTEBOOK, "01_second.ipynb"]
    assert names(checkout / "my") == [course.FIRST_NOTEBOOK, "01_second.ipynb"]
    assert (checkout / "my" / "01_second.ipynb").read_bytes() == b"second"


def test_edits_stay_and_only_missing_notebooks_are_copied(checkout):
    copy(checkout)
    (checkout / "my" / "01_second.ipynb").write_bytes(b"edited")
    (checkout / "my" / course.FIRST_NOTEBOOK).unlink()
    (checkout / "notebooks" / "01_second.ipynb").write_bytes(b"a newer version")
    assert copy(checkout) == [course.FIRST_NOTEBOOK]
    assert (checkout / "my" / "01_second.ipynb").read_bytes() == b"edited"
    assert copy(checkout) == []


def test_copies_of_read_only_notebooks_can_be_saved(checkout):
    original = checkout / "notebooks" / "01_second.ipynb"
    original.chmod(0o444)
    copy(checkout)
    assert (checkout / "my" / "01_second.ipynb").stat().st_mode & 0o200


def test_a_folder_of_that_name_is_left_alone(checkout):
    taken = checkout / "my" / "01_second.ipynb"
    taken.mkdir(parents=True)
    assert copy(checkout) == [course.FIRST_NOTEBOOK]
    assert taken.is_dir()


@pytest.mark.skipif(os.name == "nt", reason="Windows lets only some users make links")
def test_a_link_of_that_name_is_left_alone_even_when_it_leads_nowhere(checkout):
    (checkout / "my").mkdir()
    taken = checkout / "my" / "01_second.ipynb"
    taken.symlink_to(checkout / "nowhere.ipynb")
    assert copy(checkout) == [course.FIRST_NOTEBOOK]
    assert taken.is_symlink()
    assert not (checkout / "nowhere.ipynb").exists()


def test_a_fresh_copy_stands_beside_the_learners_own(checkout, capsys):
    copy(checkout)
    (checkout / "my" / "01_second.ipynb").write_bytes(b"edited")
    assert course.main(["fresh", "1"]) == 0
    assert course.main(["fresh", "01_second"]) == 0
    assert (checkout / "my" / "01_second.ipynb").read_bytes() == b"edited"
    for name in ("01_second-fresh.ipynb", "01_second-fresh-2.ipynb"):
        assert (checkout / "my" / name).read_bytes() == b"second"
        assert name in capsys.readouterr().out or name.endswith("-2.ipynb")


@pytest.mark.parametrize("wanted", ["", "7", "second", "../notes"])
def test_a_fresh_copy_of_nothing_is_one_plain_sentence(checkout, capsys, wanted):
    assert course.main(["fresh", wanted]) == 1
    printed = capsys.readouterr().err
    assert "00_start_here, 01_second" in printed
    assert printed.count("\n") == 1
    assert not (checkout / "my").exists()


@pytest.mark.parametrize("links", [True, False], ids=["with links", "without links"])
def test_a_file_that_appears_meanwhile_is_not_replaced(tmp_path, monkeypatch, links):
    target = tmp_path / "a.ipynb"
    publish = course.publish
    if not links:
        monkeypatch.setattr(os, "link", refuse_links)

    def publish_late(partial, name):
        target.write_bytes(b"from another process")
        publish(partial, name)

    monkeypatch.setattr(course, "publish", publish_late)
    assert course.create_file(target, b"ours") is False
    assert target.read_bytes() == b"from another process"
    assert names(tmp_path) == ["a.ipynb"]


def refuse_links(*_):
    raise PermissionError("no links here")


def test_without_links_the_copy_is_whole_too(checkout, monkeypatch):
    monkeypatch.setattr(os, "link", refuse_links)
    copy(checkout)
    assert names(checkout / "my") == [course.FIRST_NOTEBOOK, "01_second.ipynb"]
    assert (checkout / "my" / course.FIRST_NOTEBOOK).read_bytes() == b"start"


@pytest.mark.skipif(os.name == "nt", reason="the way for file systems without links is not taken on Windows")
def test_a_failed_copy_leaves_nothing_behind(checkout, monkeypatch):
    def disk_full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "link", refuse_links)
    monkeypatch.setattr(Path, "read_bytes", disk_full)
    (checkout / "my").mkdir()
    with pytest.raises(OSError, match="No space"):
        course.create_file(checkout / "my" / "a.ipynb", b"content")
    assert names(checkout / "my") == []


def test_a_learner_folder_that_cannot_be_made_is_one_plain_sentence(checkout, started, capsys):
    (checkout / "my").write_text("a file, not a folder")
    assert course.main(["lab"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("The notebooks could not be copied to ")
    assert printed.err.count("\n") == 1
    assert started == []


def test_one_line_says_what_was_copied_and_where(checkout, started, capsys):
    course.main(["lab"])
    course.main(["lab"])
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(f"Copied 2 notebooks to {checkout / 'my'}")
    assert second.startswith(f"Your copies of the notebooks are in {checkout / 'my'}")


def test_other_arguments_are_passed_on_in_their_order(checkout, started):
    extra = ["--no-browser", "--port", "8899", "--ServerApp.token=x", "--debug", "-y"]
    assert course.main(["lab", *extra]) == 7
    command, _ = started[0]
    assert command[:3] == [sys.executable, "-m", "jupyterlab"]
    assert command[-len(extra) :] == extra
    assert f"--ServerApp.root_dir={checkout / 'my'}" in command
    assert f"--LabApp.default_url=/lab/tree/{course.FIRST_NOTEBOOK}" in command


def test_without_the_first_notebook_jupyter_opens_its_launcher(checkout, started):
    (checkout / "notebooks" / course.FIRST_NOTEBOOK).unlink()
    course.main(["lab"])
    assert not any("default_url" in argument for argument in started[0][0])


def test_only_root_allows_root(checkout, started, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0, raising=False)
    course.main(["lab"])
    monkeypatch.setattr(os, "geteuid", lambda: 1000, raising=False)
    course.main(["lab"])
    monkeypatch.delattr(os, "geteuid")  # as on Windows
    course.main(["lab"])
    assert ["--allow-root" in command for command, _ in started] == [True, False, False]


def test_kernels_find_the_helpers_beside_the_notebooks(checkout, started, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    monkeypatch.delenv("JUPYTER_CONFIG_PATH", raising=False)
    course.main(["lab"])
    _, environment = started[0]
    assert environment["PYTHONPATH"].split(os.pathsep) == [str(checkout), "elsewhere"]
    assert environment["JUPYTER_CONFIG_PATH"] == str(course.JUPYTER_CONFIG)
    assert "JUPYTER_CONFIG_PATH" not in os.environ


def test_an_installed_copy_without_notebooks_says_so(checkout, started, capsys):
    shutil.rmtree(checkout / "notebooks")
    assert course.main(["lab"]) == 1
    assert "start the course from a full checkout" in capsys.readouterr().err
    assert not (checkout / "my").exists()
    assert started == []


def test_missing_jupyterlab_says_so(checkout, started, monkeypatch, capsys):
    monkeypatch.setattr(course.importlib.util, "find_spec", lambda _: None)
    assert course.main(["lab"]) == 1
    assert "JupyterLab is not installed" in capsys.readouterr().err
    assert started == []


@pytest.mark.parametrize("arguments", [[], ["labs"], ["--port", "8899"]])
def test_wrong_commands_are_refused(arguments, started):
    with pytest.raises(SystemExit) as stop:
        course.main(arguments)
    assert stop.value.code == 2
    assert started == []


def test_ctrl_c_is_left_to_jupyter(monkeypatch):
    class Interrupted:
        """A program that ends at the second Ctrl-C."""

        presses = 0

        def wait(self):
            self.presses += 1
            if self.presses < 3:
                raise KeyboardInterrupt
            return 0

    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: Interrupted())
    assert course.run(["jupyter"], {}) == 0


def test_the_exit_code_is_that_of_jupyter():
    assert course.run([sys.executable, "-c", "raise SystemExit(5)"], dict(os.environ)) == 5


def answer(url):
    """Return status and text of a page, or None while no one answers."""
    try:
        with urllib.request.urlopen(url, timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, ""
    except OSError:
        return None


def wait_for(url, process):
    deadline = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < deadline and process.poll() is None:
        if reply := answer(url):
            return reply
        time.sleep(0.2)
    return None


@pytest.mark.skipif(os.name == "nt", reason="Windows cannot ask a program to end")
def test_the_real_server_starts_on_loopback_and_ends(tmp_path):
    (tmp_path / "helpers").mkdir()
    for name in ("__init__.py", "__main__.py"):
        shutil.copy(Path(course.__file__).with_name(name), tmp_path / "helpers")
    shutil.copytree(course.JUPYTER_CONFIG, tmp_path / "helpers" / course.JUPYTER_CONFIG.name)
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / course.FIRST_NOTEBOOK).write_text(
        json.dumps({"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5})
    )
    # Nothing of the user's own Jupyter is read or written.
    own = {
        name: str(tmp_path / "jupyter" / name)
        for name in (
            "JUPYTER_CONFIG_DIR",
            "JUPYTER_DATA_DIR",
            "JUPYTER_RUNTIME_DIR",
            "JUPYTERLAB_SETTINGS_DIR",
            "JUPYTERLAB_WORKSPACES_DIR",
        )
    }
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "helpers", "lab", "--no-browser"]
    command += ["--port", str(port), "--ServerApp.port_retries=0"]
    log = tmp_path / "log.txt"
    with log.open("wb") as file:
        process = subprocess.Popen(
            command,
            cwd=tmp_path,
            env={**os.environ, **own, "JUPYTER_TOKEN": "a-test-token"},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    server = f"http://127.0.0.1:{port}"
    try:
        reply = wait_for(f"{server}/api/status?token=a-test-token", process)
        assert reply is not None, log.read_text()
        assert reply[0] == 200, log.read_text()
        assert answer(f"{server}/api/contents")[0] == 403, "it must ask for the token"
        if sys.platform == "linux":  # where each address of the loopback range is there without set-up
            assert answer(f"http://127.0.0.2:{port}/api/status") is None, "it listens on other addresses too"
        _, contents = answer(f"{server}/api/contents?token=a-test-token")
        assert [entry["name"] for entry in json.loads(contents)["content"]] == [course.FIRST_NOTEBOOK]
        _, page = answer(f"{server}/lab/tree/{course.FIRST_NOTEBOOK}?token=a-test-token")
        settings = json.loads(page.split('type="application/json">')[1].split("</script>")[0])
        assert "@jupyterlab/apputils-extension:announcements" in settings["disabledExtensions"]
        assert settings["extensionManager"]["can_install"] is False
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=30)
        finally:
            process.kill()
    assert answer(f"{server}/api/status") is None, "the server outlived the command"
