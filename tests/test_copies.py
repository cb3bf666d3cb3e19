"""The learner's copies: whole or not there, never overwritten, and told about after an update."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import notebook

from helpers import __main__ as course
from helpers import copies

WITHOUT_LINKS = pytest.mark.parametrize("links", [True, False], ids=["with links", "without links"])
# The step at which it is killed is chosen, not the time: before the nth touch of a file.
KILLED_AT = """
import os, signal, sys
from pathlib import Path
from helpers.copies import create_file

target, stop, links = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "True"
steps = 0

def kill(event, arguments):
    global steps
    if event in ("open", "os.link", "os.rename", "os.remove") and str(target.parent) in str(arguments[0]):
        steps += 1
        if steps == stop:
            os.kill(os.getpid(), signal.SIGKILL)

def refuse(*_):
    raise PermissionError("no links here")

if not links:
    os.link = refuse
sys.addaudithook(kill)
create_file(target, b"content")
"""


def names(folder):
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def copy(root):
    return copies.copy_notebooks(root / "notebooks", root / "my")


def found(**kinds):
    return {"copied": [], "renewed": [], "newer": [], "unknown": [], "broken": []} | kinds


def refuse_links(*_):
    raise PermissionError("no links here")


def test_first_start_copies_every_notebook_and_nothing_else(checkout):
    assert copy(checkout) == found(copied=[course.FIRST_NOTEBOOK, "01_second.ipynb"])
    assert names(checkout / "my") == [course.FIRST_NOTEBOOK, "01_second.ipynb"]
    assert (checkout / "my" / "01_second.ipynb").read_bytes() == notebook("second")
    assert copy(checkout) == found()


def test_edits_stay_and_missing_notebooks_are_copied(checkout):
    copy(checkout)
    (checkout / "my" / "01_second.ipynb").write_bytes(notebook("edited"))
    (checkout / "my" / course.FIRST_NOTEBOOK).unlink()
    assert copy(checkout) == found(copied=[course.FIRST_NOTEBOOK])
    assert (checkout / "my" / "01_second.ipynb").read_bytes() == notebook("edited")


def test_copies_of_read_only_notebooks_can_be_saved(checkout):
    original = checkout / "notebooks" / "01_second.ipynb"
    original.chmod(0o444)
    copy(checkout)
    assert (checkout / "my" / "01_second.ipynb").stat().st_mode & 0o200


@WITHOUT_LINKS
def test_a_file_that_appears_meanwhile_is_not_replaced(tmp_path, monkeypatch, links):
    target = tmp_path / "a.ipynb"
    publish = copies.publish
    if not links:
        monkeypatch.setattr(os, "link", refuse_links)

    def publish_late(partial, name):
        target.write_bytes(b"from another process")
        publish(partial, name)

    monkeypatch.setattr(copies, "publish", publish_late)
    assert copies.create_file(target, b"ours") is False
    assert target.read_bytes() == b"from another process"
    assert os.listdir(tmp_path) == ["a.ipynb"]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such kill, and its own way to publish")
@WITHOUT_LINKS
def test_a_copy_that_is_killed_at_any_step_is_whole_after_the_next_start(tmp_path, links):
    target = tmp_path / "a.ipynb"
    for stop in range(1, 20):
        arguments = [sys.executable, "-c", KILLED_AT, str(target), str(stop), str(links)]
        ended = subprocess.run(arguments).returncode
        assert not target.exists() or target.read_bytes() in (b"", b"content")
        copies.create_file(target, b"content")
        assert target.read_bytes() == b"content", f"killed before step {stop}"
        target.unlink()
        if ended == 0:
            break
        assert ended == -9
    assert 3 < stop < 19


@WITHOUT_LINKS
def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch, links):
    def disk_full(_):
        raise OSError(28, "No space left on device")

    if not links:
        monkeypatch.setattr(os, "link", refuse_links)
    monkeypatch.setattr(os, "fsync", disk_full)
    with pytest.raises(OSError, match="No space"):
        copies.create_file(tmp_path / "a.ipynb", b"content")
    assert os.listdir(tmp_path) == []


def write(content):
    return lambda path: path.write_bytes(content)


BROKEN = {
    "half of it": write(notebook("whole")[:-9]),
    "a list": write(b"[1]"),
    "no cells": write(b"{}"),
    "no text": write(b"\xff\xfe\x00"),
    "too deep": write(b"[" * 200_000),
    "a folder": Path.mkdir,
}
if os.name != "nt":
    BROKEN["a link to nowhere"] = lambda path: path.symlink_to(path.with_name("nowhere"))
    BROKEN["a pipe"] = os.mkfifo


@pytest.mark.parametrize("make", list(BROKEN.values()), ids=list(BROKEN))
def test_what_is_no_notebook_is_named_with_the_way_out(checkout, started, capsys, make):
    broken = checkout / "my" / "01_second.ipynb"
    broken.parent.mkdir()
    make(broken)
    before = os.lstat(broken)
    assert course.main(["lab"]) == 7
    printed = capsys.readouterr().out
    assert f"{broken} can't be opened as a notebook: give it another name and start again" in printed
    after = os.lstat(broken)
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert not (checkout / "my" / "nowhere").exists()
    broken.rename(broken.with_name("kept"))
    assert course.main(["lab"]) == 7
    assert broken.read_bytes() == notebook("second")
    assert "can't be opened" not in capsys.readouterr().out


def update(checkout, text):
    (checkout / "notebooks" / "01_second.ipynb").write_bytes(notebook(text))


def test_after_an_update_an_untouched_copy_is_renewed_and_a_changed_one_is_told_of(checkout):
    copy(checkout)
    mine = checkout / "my" / "01_second.ipynb"
    update(checkout, "second, 2")
    assert copy(checkout) == found(renewed=["01_second.ipynb"])
    assert mine.read_bytes() == notebook("second, 2")
    mine.write_bytes(notebook("edited"))
    assert copy(checkout) == found()
    update(checkout, "second, 3")
    assert copy(checkout) == copy(checkout) == found(newer=["01_second.ipynb"])
    update(checkout, "second, 2")  # taken back
    assert copy(checkout) == found()
    assert mine.read_bytes() == notebook("edited")


@pytest.mark.parametrize("record", [None, b"{", b"[]", b'{"01_second.ipynb": 3}', b"\xff"])
def test_without_a_good_record_nothing_is_renewed_and_it_is_said_what_may_be(checkout, record):
    copy(checkout)
    kept = checkout / "my" / copies.RECORD
    kept.unlink() if record is None else kept.write_bytes(record)
    update(checkout, "second, 2")
    kind = "newer" if record and b"3" in record else "unknown"
    assert copy(checkout) == found(**{kind: ["01_second.ipynb"]})
    assert (checkout / "my" / "01_second.ipynb").read_bytes() == notebook("second")


def test_what_is_saved_while_a_copy_is_renewed_stays(checkout, monkeypatch):
    copy(checkout)
    mine = checkout / "my" / "01_second.ipynb"
    update(checkout, "second, 2")
    monkeypatch.setattr(os, "fsync", lambda _: mine.write_bytes(notebook("saved just now")))
    assert copy(checkout)["renewed"] == []
    assert mine.read_bytes() == notebook("saved just now")


@pytest.mark.skipif(os.name == "nt", reason="Windows lets only some users make links")
def test_a_link_is_not_replaced_by_a_newer_notebook(checkout):
    copy(checkout)
    mine, elsewhere = checkout / "my" / "01_second.ipynb", checkout / "elsewhere.ipynb"
    mine.rename(elsewhere)
    mine.symlink_to(elsewhere)
    update(checkout, "second, 2")
    assert copy(checkout) == found(newer=["01_second.ipynb"])
    assert mine.is_symlink()


def git(folder, *arguments):
    who = ["-c", "user.name=Someone", "-c", "user.email=someone@example.com"]
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_an_update_across_two_commits(checkout, started, monkeypatch, capsys):
    git(checkout, "init")
    git(checkout, "add", "notebooks")
    git(checkout, "commit", "-m", "one version")
    learners = checkout / "learner's"
    git(checkout, "clone", ".", str(learners))
    monkeypatch.setattr(course, "ROOT", learners)
    course.main(["lab"])
    mine = learners / "my" / "01_second.ipynb"
    mine.write_bytes(notebook("edited"))
    course.main(["lab"])
    assert "newer" not in capsys.readouterr().out

    update(checkout, "second, 2")
    (checkout / "notebooks" / course.FIRST_NOTEBOOK).write_bytes(notebook("start, 2"))
    git(checkout, "commit", "-am", "a newer version")
    git(learners, "pull")
    course.main(["lab"])
    lines = capsys.readouterr().out.splitlines()
    assert f"Brought up to date, as you had not changed it: {course.FIRST_NOTEBOOK}." in lines
    assert lines[-1].startswith("01_second.ipynb has a newer version in the course: make fresh, or python -m")
    assert course.main(["fresh"]) == 0
    beside = learners / "my" / "01_second-fresh.ipynb"
    assert str(beside) in capsys.readouterr().out
    assert beside.read_bytes() == notebook("second, 2")
    assert mine.read_bytes() == notebook("edited")

    course.main(["lab"])
    course.main(["fresh"])
    printed = capsys.readouterr().out
    assert "01_second.ipynb has" not in printed
    assert "No notebook has a newer version" in printed
    assert names(mine.parent) == [course.FIRST_NOTEBOOK, "01_second-fresh.ipynb", "01_second.ipynb"]


def test_several_newer_notebooks_are_one_sentence():
    one, three = found(newer=["a"]), found(newer=["a", "c"], unknown=["b"])
    assert course.sentences_about(one, "my")[1].startswith("a has a newer version in the course: ")
    (sentence,) = course.sentences_about(three, "my")[1:]
    assert sentence.startswith("a, b and c may have newer versions in the course: ")
    assert sentence.endswith("puts them beside yours.")


def test_a_fresh_copy_stands_beside_the_learners_own(checkout, capsys):
    copy(checkout)
    (checkout / "my" / "01_second.ipynb").write_bytes(notebook("edited"))
    assert course.main(["fresh", "1", "0"]) == 0
    assert course.main(["fresh", "01_second"]) == 0
    printed = capsys.readouterr().out
    assert (checkout / "my" / "01_second.ipynb").read_bytes() == notebook("edited")
    for name in ("01_second-fresh.ipynb", "01_second-fresh-2.ipynb"):
        assert (checkout / "my" / name).read_bytes() == notebook("second")
        assert name in printed
    assert (checkout / "my" / "00_start_here-fresh.ipynb").read_bytes() == notebook("start")


@pytest.mark.parametrize("wanted", ["", "7", "second", "../notes"])
def test_a_fresh_copy_of_nothing_is_one_plain_sentence(checkout, capsys, wanted):
    assert course.main(["fresh", wanted]) == 1
    printed = capsys.readouterr().err
    assert "00_start_here, 01_second" in printed
    assert printed.count("\n") == 1
    assert not (checkout / "my").exists()
