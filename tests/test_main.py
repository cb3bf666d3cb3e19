"""How the course starts: what it says of the learner's copies, and how JupyterLab is called."""

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
import zmq
from jupyter_client import BlockingKernelClient

from helpers import __main__ as course

SECONDS_TO_START = 90


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


def test_where_no_program_can_become_another_ctrl_c_is_left_to_jupyter(monkeypatch):
    class Interrupted:
        """A program that ends at the second Ctrl-C."""

        presses = 0

        def wait(self):
            self.presses += 1
            if self.presses < 3:
                raise KeyboardInterrupt
            return 5

    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: Interrupted())
    assert course.wait_for(["jupyter"], {}) == 5


@pytest.mark.skipif(os.name == "nt", reason="Windows can't turn one program into another")
def test_what_ends_the_command_ends_jupyter():
    """However it is killed: there is one process, not one that would be left over."""
    inner = "import os; print(os.getpid(), flush=True); os.kill(os.getpid(), 9)"
    outer = (
        "import os, sys; from helpers.__main__ import run\n"
        f"run([sys.executable, '-c', {inner!r}], os.environ)"
    )
    with subprocess.Popen([sys.executable, "-c", outer], stdout=subprocess.PIPE, text=True) as process:
        printed = process.communicate(timeout=60)[0]
    assert int(printed) == process.pid
    assert process.returncode == -9


@pytest.mark.parametrize(
    ("arguments", "open_to_all"),
    [
        ([], False),
        (["--ip", "127.0.0.2", "--no-browser"], False),
        (["--ip=localhost"], False),
        (["--ip", "::1"], False),
        (["--ip", "0.0.0.0"], True),
        (["--no-browser", "--ServerApp.ip=192.168.1.7"], True),
        (["--ip=*"], True),
        (["--ip="], True),
        (["--ip", "::"], True),
        (["--ip=my-computer.example.com"], True),
    ],
    ids=str,
)
def test_opening_the_server_to_the_network_is_warned_of(checkout, started, capsys, arguments, open_to_all):
    assert course.main(["lab", *arguments]) == 7
    printed = capsys.readouterr().out
    assert printed.count("opens the server to the network") == open_to_all
    assert started[0][0][-len(arguments) :] == arguments or not arguments


@pytest.mark.parametrize("setting", ["CONFIG", "DATA", "RUNTIME"])
def test_a_folder_that_jupyter_cannot_write_is_one_plain_sentence(
    checkout, started, monkeypatch, capsys, setting
):
    """A file stands where a folder should: unlike a read-only folder, that stops an administrator as well."""
    inside = checkout / "notebooks" / "notes.txt" / "folder"
    monkeypatch.setenv(f"JUPYTER_{setting}_DIR", str(inside))
    assert course.main(["lab"]) == 1
    printed = capsys.readouterr()
    assert printed.err.startswith(f"Jupyter can't write to {inside} (")
    assert printed.err.count("\n") == 1
    assert started == []


def test_without_a_home_folder_there_is_one_plain_sentence(checkout, started, monkeypatch, capsys):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("jupyter_core.paths.jupyter_config_dir", no_home)
    assert course.main(["lab"]) == 1
    assert capsys.readouterr().err.startswith("Jupyter can't write to your home folder (Could not determine")
    assert started == []


def start_quietly(folder, **environment):
    """Run `lab` for a course in this folder in a process of its own, without a server; return how it went."""
    code = """if True:
        import sys
        from pathlib import Path
        from helpers import __main__ as course
        course.ROOT = Path(sys.argv[1])
        course.run = lambda *_: 0
        sys.exit(course.main(["lab"]))
    """
    command = [sys.executable, "-c", code, folder]
    return subprocess.run(command, env=os.environ | environment, capture_output=True)


def test_letters_that_the_terminal_lacks_are_replaced(checkout):
    folder = checkout / "日本 Łódź"
    shutil.copytree(checkout / "notebooks", folder / "notebooks")
    ran = start_quietly(folder, PYTHONIOENCODING="cp1252:strict")
    assert ran.returncode == 0, ran.stderr
    assert b"?? ?\xf3d?" in ran.stdout
    assert (folder / "my" / "01_second.ipynb").is_file()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere all names of files are in Unicode")
def test_a_folder_whose_name_is_not_in_utf_8_is_one_plain_sentence(checkout):
    folder = os.fsencode(checkout) + b"/caf\xe9"
    shutil.copytree(os.fsencode(checkout / "notebooks"), folder + b"/notebooks")
    ran = start_quietly(folder, PYTHONUTF8="1")
    assert ran.returncode == 1
    assert ran.stderr.startswith(b"Jupyter needs names in UTF-8, and ")
    assert ran.stderr.count(b"\n") == 1


def test_jupyter_reads_names_in_utf_8_in_any_locale(checkout, started, monkeypatch):
    monkeypatch.delenv("PYTHONUTF8", raising=False)
    course.main(["lab"])
    monkeypatch.setenv("PYTHONUTF8", "0")
    course.main(["lab"])
    assert [environment["PYTHONUTF8"] for _, environment in started] == ["1", "0"]


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


def listen(connection_file):
    """Return what a kernel prints, and what is heard on its port by one who does not know its keys."""
    connection = json.loads(connection_file.read_text())
    client = BlockingKernelClient(connection_file=str(connection_file))
    client.load_connection_file()
    client.hb_channel.time_to_dead = 30  # a busy machine may let a kernel wait for more than the usual second
    client.start_channels()
    ours, theirs = [], []
    with zmq.Context() as context, context.socket(zmq.SUB) as stranger:
        stranger.subscribe(b"")
        stranger.connect(f"tcp://127.0.0.1:{connection['iopub_port']}")
        try:
            client.wait_for_ready(timeout=60)
            for _ in range(5):  # so that a stranger who is late in connecting hears one of them
                client.execute_interactive(
                    "print('a secret')",
                    timeout=60,
                    output_hook=lambda message: ours.append(message["content"].get("text", "").strip()),
                )
                while stranger.poll(200):
                    theirs.append(stranger.recv_multipart())
        finally:
            client.stop_channels()
            stranger.close(linger=0)
    return ours, theirs


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
    for name in ("__init__.py", "__main__.py", "copies.py", "contents.py"):
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
        request = urllib.request.Request(f"{server}/api/kernels?token=a-test-token", data=b"{}")
        with urllib.request.urlopen(request, timeout=60) as response:
            kernel = json.load(response)["id"]
        ours, theirs = listen(Path(own["JUPYTER_RUNTIME_DIR"]) / f"kernel-{kernel}.json")
        assert "a secret" in ours
        assert theirs == [], "another user of this computer could read what the kernel prints"
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=30)
        finally:
            process.kill()
    assert answer(f"{server}/api/status") is None, "the server outlived the command"
