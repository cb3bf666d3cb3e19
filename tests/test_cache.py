"""Keeping trained models: whole or not at all, and nothing that is found there is trusted."""

import errno
import io
import os
import pickle
import re
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from helpers import cache

SETTINGS = {"scheme": "rope", "seed": 3, "task": "text", "steps": 600, "learning_rate": 3e-3}
ARRAYS = {
    "losses": np.linspace(4, 2, 5),
    "parameters/0.qkv": np.arange(6, dtype=np.float32).reshape(2, 3),
    "scores/empty": np.zeros((0, 4)),
    "scores/one": np.array(7),
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A cache folder of the test's own, which does not exist yet."""
    monkeypatch.setenv("COURSE_CACHE", str(tmp_path / "deep" / "cache"))
    return tmp_path / "deep" / "cache"


@pytest.fixture
def path(folder):
    return cache.path_of(SETTINGS)


def same(found, arrays=ARRAYS):
    """Are these the arrays that were kept, with their names, shapes, kinds and numbers?"""
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        np.testing.assert_array_equal(found[name], array)
    return True


def npz(**arrays):
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def packed(members):
    """A zip of files by name."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)
    return stream.getvalue()


def whole(arrays=ARRAYS):
    return npz(digest=np.array(cache._digest(arrays)), **arrays)


# where


def test_the_folder_is_the_one_that_is_set(folder):
    assert cache.folder() == folder


@pytest.mark.parametrize("value", [None, ""])
def test_without_a_choice_it_is_the_systems_folder(monkeypatch, value):
    monkeypatch.delenv("COURSE_CACHE") if value is None else monkeypatch.setenv("COURSE_CACHE", value)
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda name: f"/caches/{name}")
    assert cache.folder() == Path("/caches/positional-encodings-course")


def test_path_lies_in_the_folder_and_says_what_it_is(path, folder):
    assert path.parent == folder
    assert re.fullmatch(r"text_rope-3-[0-9a-f]{20}\.npz", path.name)
    assert not folder.exists()  # asking makes nothing


def test_the_same_settings_in_any_order_have_the_same_path(path):
    assert cache.path_of(dict(reversed(SETTINGS.items()))) == path


@pytest.mark.parametrize(
    "other",
    [
        {"scheme": "alibi"},
        {"seed": 4},
        {"task": "recall"},
        {"steps": 601},
        {"learning_rate": 3.1e-3},
        {"x": 0},
    ],
    ids=str,
)
def test_other_settings_have_another_path(path, other):
    assert cache.path_of(SETTINGS | other) != path


def test_other_code_has_another_path(path, monkeypatch):
    monkeypatch.setattr(cache, "code_version", lambda *schemes, more: "0" * 64)
    assert cache.path_of(SETTINGS) != path


def test_the_path_is_the_same_in_another_process(path):
    code = f"from helpers import cache; print(cache.path_of({SETTINGS!r}))"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert found.stdout.strip() == str(path)


# the version of the code (what counts in it: test_versions.py)


def test_the_text_is_in_the_version_however_it_is_packed(monkeypatch):
    before = cache.code_version()
    monkeypatch.setattr(cache, "text_version", lambda: "another text")
    assert cache.code_version() != before


def test_each_scheme_has_a_version_of_its_own():
    every = {scheme: cache.code_version(scheme) for scheme in cache.SCHEMES}
    assert len({*every.values(), cache.code_version()}) == len(every) + 1


def test_a_new_scheme_leaves_the_old_ones_as_they_are(monkeypatch, path):
    every = {scheme: cache.code_version(scheme) for scheme in cache.SCHEMES}
    monkeypatch.setattr(cache, "SCHEMES", {**cache.SCHEMES, "another": cache.SCHEMES["alibi"]})
    assert {scheme: cache.code_version(scheme) for scheme in every} == every
    assert cache.path_of(SETTINGS) == path


# round trip


def test_what_is_kept_is_found(path, folder, capsys):
    assert cache.load(path) is None
    cache.save(path, ARRAYS)
    assert same(cache.load(path))
    assert [file.name for file in folder.iterdir()] == [path.name]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64", ">f4", "bool", "<U5"])
def test_every_kind_of_array_is_found(path, dtype):
    arrays = {"a": np.array([[0, 1, 2], [3, 4, 5]]).astype(dtype)}
    cache.save(path, arrays)
    assert same(cache.load(path), arrays)


def test_any_memory_layout_is_found(path):
    square = np.arange(12.0).reshape(3, 4)
    arrays = {
        "turned": square.T,
        "strided": square[:, ::2],
        "back": square[::-1],
        "fortran": np.asfortranarray(square),
    }
    cache.save(path, arrays)
    assert same(cache.load(path), arrays)


def test_saving_again_replaces(path, folder):
    cache.save(path, ARRAYS)
    cache.save(path, {"losses": np.zeros(2)})
    assert same(cache.load(path), {"losses": np.zeros(2)})
    assert len(list(folder.iterdir())) == 1


def test_saving_changes_nothing(path):
    arrays = {name: array.copy() for name, array in ARRAYS.items()}
    cache.save(path, arrays)
    assert same(arrays)


# whole or not at all


class Full(io.RawIOBase):
    """A disk that is full after half of the bytes."""

    def __init__(self, handle):
        self.file = open(handle, "wb")  # noqa: SIM115

    def write(self, content):
        self.file.write(content[: len(content) // 2])
        self.file.flush()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self):
        self.file.close()
        super().close()


def interrupted(*args, **kwargs):
    raise KeyboardInterrupt


def refused(*args, **kwargs):
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


FAILURES = {
    "disk full": (cache.os, "fdopen", lambda handle, mode: Full(handle), OSError),
    "can't be moved": (cache.os, "replace", refused, PermissionError),
    "interrupt": (cache.os, "replace", interrupted, KeyboardInterrupt),
    "no temporary file": (cache.tempfile, "mkstemp", refused, PermissionError),
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("older", [False, True])
def test_a_failing_write_leaves_things_as_they_were(path, folder, monkeypatch, failure, older):
    folder.mkdir(parents=True)
    if older:
        cache.save(path, ARRAYS)
    module, name, broken, error = FAILURES[failure]
    with monkeypatch.context() as patch:
        patch.setattr(module, name, broken)
        with pytest.raises(error):
            cache.write_atomically(path, b"new " * 1000)
    assert [file.name for file in folder.iterdir()] == ([path.name] if older else [])
    if older:
        assert same(cache.load(path))
    cache.save(path, {"losses": np.ones(3)})  # and the next one succeeds
    assert same(cache.load(path), {"losses": np.ones(3)})


def test_nobody_sees_half_a_file(path, folder, monkeypatch):
    """While the new file is written, the old one is still there and whole."""
    cache.save(path, ARRAYS)
    replace, seen = os.replace, []

    def look_then_replace(source, target):
        seen.append((same(cache.load(path)), Path(source).parent == folder, Path(source).stat().st_size))
        replace(source, target)

    monkeypatch.setattr(cache.os, "replace", look_then_replace)
    cache.write_atomically(path, b"new " * 1000)
    assert seen == [(True, True, 4000)]
    assert path.read_bytes() == b"new " * 1000


def test_a_killed_writer_harms_nothing(path, folder):
    """A process that ends while it writes may leave a .part, which is never taken for a model."""
    cache.save(path, ARRAYS)
    (folder / f"{path.name}abc.part").write_bytes(whole()[:100])
    assert same(cache.load(path))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows replaces no file that is being read")
def test_writers_at_the_same_time(path, folder):
    """Several processes that write the same file: in the end, it is one of theirs, and whole."""
    code = (
        "import sys; import numpy as np; from pathlib import Path; from helpers import cache\n"
        "for _ in range(60): cache.save(Path(sys.argv[1]), {'losses': np.full(5000, int(sys.argv[2]))})"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, path, str(number)]) for number in range(2)]
    found = []
    while any(writer.poll() is None for writer in writers):
        found.append(cache.load(path))
    assert [writer.wait() for writer in writers] == [0, 0]
    for arrays in [cache.load(path), *(arrays for arrays in found if arrays is not None)]:
        assert len(set(arrays["losses"])) == 1
        assert len(arrays["losses"]) == 5000
    assert [file.name for file in folder.iterdir()] == [path.name]


# damaged files


def flipped(place):
    content = bytearray(whole())
    content[place] ^= 0x10
    return bytes(content)


INSIDE = whole().index(ARRAYS["parameters/0.qkv"].tobytes())
DAMAGED = {
    "empty": b"",
    "one byte": b"P",
    "half": whole()[: len(whole()) // 2],
    "without its last byte": whole()[:-1],
    "without its first byte": whole()[1:],
    "a flipped number": flipped(INSIDE + 5),
    "zeros": bytes(5000),
    "text": "Die Welt ist schön.\nNext line.\n".encode(),
    "a web page": b"<!DOCTYPE html><html><body>404: not found</body></html>",
    "an archive of something else": packed({"readme.txt": b"hello"}),
    "an archive with a wrong kind of digest": packed({"digest.npy": b"hello"}),
    "an empty archive": packed({}),
    "a single array": (lambda stream: (np.save(stream, np.ones(3)), stream.getvalue())[1])(io.BytesIO()),
    "a pickle": pickle.dumps({"losses": [1, 2, 3]}),
    "pickled arrays": npz(digest=np.array("0" * 64), losses=np.array([{"a": 1}, None], dtype=object)),
    "a pickled digest": npz(digest=np.array({"a": 1}, dtype=object), losses=np.ones(3)),
    "no digest": npz(losses=np.ones(3)),
    "a wrong digest": npz(digest=np.array("0" * 64), **ARRAYS),
    "the digest of others": npz(digest=np.array(cache._digest({"losses": np.ones(2)})), losses=np.ones(3)),
    "an array too few": npz(
        digest=np.array(cache._digest(ARRAYS)), **{n: a for n, a in ARRAYS.items() if n != "losses"}
    ),
    "an array too many": npz(digest=np.array(cache._digest(ARRAYS)), **ARRAYS, more=np.ones(1)),
    "another name": npz(digest=np.array(cache._digest({"a": np.ones(3)})), b=np.ones(3)),
    "another shape": npz(digest=np.array(cache._digest({"a": np.ones((2, 3))})), a=np.ones((3, 2))),
    "another kind": npz(digest=np.array(cache._digest({"a": np.zeros(3)})), a=np.zeros(3, np.int64)),
}


def is_said(path, printed):
    """One printed sentence that names the file and says what happens."""
    assert printed.startswith("The kept model ")
    assert path.name in printed
    assert printed.endswith("it is made anew.\n")
    assert printed.count("\n") == 1
    return True


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_file_is_said_and_ignored(path, folder, capfd, damage):
    folder.mkdir(parents=True)
    path.write_bytes(DAMAGED[damage])
    assert cache.load(path) is None
    printed = capfd.readouterr()
    assert is_said(path, printed.out)
    assert printed.err == ""
    cache.save(path, ARRAYS)  # made anew
    assert same(cache.load(path))
    assert capfd.readouterr().out == ""


def test_nobody_is_told_to_unpickle(path, folder, capsys):
    """NumPy's own message proposes to load the file "unsafely"."""
    folder.mkdir(parents=True)
    for damage in ("a pickle", "pickled arrays", "a pickled digest", "text"):
        path.write_bytes(DAMAGED[damage])
        cache.load(path)
        printed = capsys.readouterr().out
        assert "allow_pickle" not in printed
        assert "unsafe" not in printed


def test_nothing_in_a_file_is_run(path, folder, tmp_path, capsys):
    class Trap:
        def __reduce__(self):
            return Path.touch, (tmp_path / "run",)

    folder.mkdir(parents=True)
    for content in (
        pickle.dumps(Trap()),
        npz(digest=np.array("0" * 64), losses=np.array([Trap()], dtype=object)),
        npz(digest=np.array(Trap(), dtype=object), losses=np.ones(3)),
    ):
        path.write_bytes(content)
        assert cache.load(path) is None
        assert is_said(path, capsys.readouterr().out)
    assert not (tmp_path / "run").exists()


@pytest.mark.filterwarnings("ignore")  # half a header may be odd Python, about which the parser warns
def test_whichever_byte_is_flipped_no_wrong_number_comes_out(path, folder, capsys):
    """Some bytes of a zip mean nothing (its times): then the arrays are whole. Else the damage is said."""
    folder.mkdir(parents=True)
    arrays = {"losses": np.linspace(4, 2, 5), "w": np.ones((2, 3), np.float32)}
    content, told = whole(arrays), 0
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :])
        found = cache.load(path)
        printed = capsys.readouterr().out
        if found is None:
            assert is_said(path, printed)
            told += 1
        else:
            assert same(found, arrays)
            assert printed == ""
    assert told > len(content) / 2


@pytest.mark.filterwarnings("ignore")
def test_wherever_a_file_is_cut_it_is_noticed(path, folder, capsys):
    folder.mkdir(parents=True)
    content = whole({"losses": np.linspace(4, 2, 5)})
    for length in range(0, len(content), 3):
        path.write_bytes(content[:length])
        assert cache.load(path) is None
        assert is_said(path, capsys.readouterr().out)


def test_a_folder_in_its_place_is_said(path, capsys):
    path.mkdir(parents=True)
    assert cache.load(path) is None
    assert is_said(path, capsys.readouterr().out)


def test_a_link_to_nowhere_is_no_model(path, folder):
    folder.mkdir(parents=True)
    path.symlink_to(folder / "gone")
    assert cache.load(path) is None
    cache.save(path, ARRAYS)
    assert same(cache.load(path))


def test_an_unreadable_file_is_said(path, capsys, monkeypatch):
    cache.save(path, ARRAYS)
    path.chmod(0)
    if os.access(path, os.R_OK):  # root may read everything
        monkeypatch.setattr("builtins.open", refused)
        monkeypatch.setattr("io.open", refused)
    found = cache.load(path)
    monkeypatch.undo()
    path.chmod(stat.S_IRUSR | stat.S_IWUSR)
    assert found is None
    assert is_said(path, capsys.readouterr().out)


def test_a_failing_disk_is_said(path, capsys, monkeypatch):
    cache.save(path, ARRAYS)

    def broken(*args, **kwargs):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(np, "load", broken)
    assert cache.load(path) is None
    assert is_said(path, capsys.readouterr().out)


def test_a_model_that_does_not_fit_into_memory_is_said(path, folder, capsys):
    folder.mkdir(parents=True)
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (9999999999999,), }"
    header += b" " * (118 - 1 - len(header)) + b"\n"
    array = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    path.write_bytes(packed({"digest.npy": array, "losses.npy": array}))
    assert cache.load(path) is None
    assert is_said(path, capsys.readouterr().out)


def test_an_interrupt_is_never_taken_for_damage(path, monkeypatch):
    cache.save(path, ARRAYS)
    monkeypatch.setattr(np, "load", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cache.load(path)


# a folder that can't be used


def test_a_file_in_place_of_the_folder(path, folder):
    folder.parent.mkdir(parents=True)
    folder.write_text("I am a file")
    assert cache.load(path) is None  # nothing is kept there
    with pytest.raises(OSError):  # noqa: PT011
        cache.write_atomically(path, b"new")
    assert folder.read_text() == "I am a file"


def test_a_folder_that_may_not_be_written_to(path, folder, monkeypatch):
    cache.save(path, ARRAYS)
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    if os.access(folder, os.W_OK):  # root may write everywhere
        monkeypatch.setattr(cache.tempfile, "mkstemp", refused)
    assert same(cache.load(path))  # what is there can still be read
    with pytest.raises(PermissionError):
        cache.write_atomically(path, b"new")
    folder.chmod(stat.S_IRWXU)
    assert same(cache.load(path))
    assert [file.name for file in folder.iterdir()] == [path.name]


@pytest.mark.skipif(os.name == "nt", reason="Windows always has a folder for the user")
@pytest.mark.parametrize("home", [RuntimeError, "~/.cache"])
def test_a_user_without_a_home_keeps_models_among_temporary_files(monkeypatch, tmp_path, home):
    def user_cache_dir(name):
        if home is RuntimeError:
            raise RuntimeError("no home")
        return f"{home}/{name}"

    monkeypatch.delenv("COURSE_CACHE", raising=False)
    monkeypatch.setattr("platformdirs.user_cache_dir", user_cache_dir)
    monkeypatch.setattr(cache.tempfile, "gettempdir", lambda: str(tmp_path))
    assert cache.folder() == tmp_path / "positional-encodings-course"
