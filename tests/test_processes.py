"""A pool of processes of our own: as many as there are cores, what can be sent to them, and their end."""

import concurrent.futures
import multiprocessing
import os
import subprocess
import sys
import time

import pytest

import __main__
from helpers import processes, sweeping, training
from helpers.schemes import Alibi, spec
from helpers.training import Settings

glibc = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only glibc can be told")


@pytest.mark.parametrize("error", [ImportError, NotImplementedError, OSError, ValueError])
def test_where_there_are_no_processes_there_is_no_pool(monkeypatch, error):
    def none_here(*args, **kwargs):
        raise error("no processes on this system")

    monkeypatch.setattr(concurrent.futures, "ProcessPoolExecutor", none_here)
    assert processes.local_processes(2) is None


def test_no_more_processes_than_models_or_cores(monkeypatch):
    for cores, wanted, count in ((4, 2, 2), (2, 7, 2), (None, 3, 1)):
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        pool = processes.local_processes(wanted)
        assert pool._max_workers == count
        pool.shutdown()


@pytest.mark.parametrize("function", [training.run, sweeping.train_one])
def test_what_can_be_sent(monkeypatch, function):
    mine = type("Mine", (Alibi,), {"__module__": "__main__"})
    theirs = ["rope", Alibi, spec("rope", base=10), spec(Alibi), ("rope", spec("none", window=3))]
    own = [mine, spec(mine), ("rope", mine), ("rope", spec(mine))]
    for scheme in theirs:
        assert processes.can_be_sent(function, Settings(scheme))
        assert not processes.can_be_sent(lambda settings: None, Settings(scheme))
    for scheme in own:
        assert not processes.can_be_sent(function, Settings(scheme))
    monkeypatch.setattr(__main__, "Mine", mine, raising=False)
    for scheme in own:
        assert not processes.can_be_sent(function, Settings(scheme))


# memory


def test_keep_memory_tells_whether_it_could():
    assert isinstance(processes.keep_memory(), bool)
    assert processes.keep_memory() is processes.keep_memory()  # it can be asked for again and again


@pytest.mark.parametrize("platform", ["win32", "darwin", "emscripten"])
def test_keep_memory_asks_only_linux(monkeypatch, platform):
    def never(name):
        raise AssertionError("there is nothing to ask here")

    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(processes.ctypes, "CDLL", never)
    assert processes.keep_memory() is False


class Library:
    """A C library whose mallopt answers in turn; without answers, it has none."""

    def __init__(self, *answers):
        self.asked = []
        if answers:
            self.mallopt = lambda option, value: (self.asked.append(option), answers[len(self.asked) - 1])[1]


@pytest.mark.parametrize(
    ("library", "kept"),
    [(Library(), False), (Library(0, 0), False), (Library(1, 0), False), (Library(1, 1), True)],
    ids=["none", "refuses", "refuses one", "takes both"],
)
def test_keep_memory_with_another_c_library(monkeypatch, library, kept):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(processes.ctypes, "CDLL", lambda name: library)
    assert processes.keep_memory() is kept


def test_keep_memory_where_no_library_can_be_opened(monkeypatch):
    def refused(name):
        raise OSError("no such library")

    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(processes.ctypes, "CDLL", refused)
    assert processes.keep_memory() is False


@glibc
def test_memory_that_is_kept_is_not_faulted_in_again():
    """The second array of a size finds the pages of the first one; else each of its pages costs a fault."""
    code = (
        "import resource, numpy as np; from helpers import processes\n"
        "kept = processes.keep_memory()\n"
        "np.ones(2**22)\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n"
        "np.ones(2**22)\n"
        "print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    kept, faults = done.stdout.split()
    assert kept == "False" or int(faults) < 100  # else hundreds, even of huge pages


# the end


def ended(pids, seconds):
    """Are all of these children gone before this time is over?"""
    until = time.monotonic() + seconds
    while (left := {child.pid for child in multiprocessing.active_children()} & set(pids)) and (
        time.monotonic() < until
    ):
        time.sleep(0.01)
    return not left


def test_end_now_waits_for_nobody():
    pool = processes.local_processes(1)
    pid = pool.submit(os.getpid).result(60)
    busy, waiting = pool.submit(time.sleep, 60), [pool.submit(time.sleep, 60) for _ in range(3)]
    until = time.monotonic() + 60
    while not busy.running() and time.monotonic() < until:
        time.sleep(0.01)
    assert pid != os.getpid()
    began = time.monotonic()
    processes.end_now(pool)
    assert time.monotonic() - began < 2
    assert ended({pid}, 2)
    assert waiting[-1].cancelled()
    with pytest.raises(RuntimeError):
        pool.submit(time.sleep, 0)


@pytest.mark.parametrize("used", [False, True])
def test_end_now_of_a_pool_that_does_nothing(used):
    pool = processes.local_processes(1)
    if used:
        assert pool.submit(abs, -3).result(60) == 3
    processes.end_now(pool)
    processes.end_now(pool)  # and once more
    with pytest.raises(RuntimeError):
        pool.submit(abs, -3)


def test_end_now_of_a_pool_without_processes():
    pool = concurrent.futures.ThreadPoolExecutor(1)
    assert pool.submit(abs, -3).result() == 3
    processes.end_now(pool)
    with pytest.raises(RuntimeError):
        pool.submit(abs, -3)
