"""A pool of processes of our own for training, where the system has processes."""

import ctypes
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Executor


def local_processes(wanted: int) -> Executor | None:
    """Return a pool of at most as many processes as there are cores; None where there can be none.

    A kernel in a browser has none. Started with spawn: a fork would copy the kernel's threads half-alive.
    """
    # glibc gives the memory of every temporary array back and faults it in again: half of a step's time.
    os.environ.setdefault("MALLOC_TOP_PAD_", str(2**27))
    try:
        from concurrent.futures import ProcessPoolExecutor

        context = multiprocessing.get_context("spawn")
        count = min(wanted, os.cpu_count() or 1)
        return ProcessPoolExecutor(count, mp_context=context, initializer=_start_worker)
    except (ImportError, NotImplementedError, OSError, ValueError):
        return None


def keep_memory() -> bool:
    """Let this process keep the memory that it frees, where glibc can be told so; return whether it was.

    Else the memory of every temporary array goes back to the system and is faulted in again, which is half of
    the time of a training step in a notebook's own kernel.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    top_pad, mmap_threshold = -2, -3  # of malloc.h
    return bool(mallopt(top_pad, 2**27) and mallopt(mmap_threshold, 2**30))


def can_be_sent(function: Callable, *values: object) -> bool:
    """Return whether another process can run this. What was defined in a notebook can't be found there."""
    try:
        packed = pickle.dumps((function, values))
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
    return b"__main__" not in packed


def end_now(pool: Executor) -> None:
    """End a pool's own processes at once: a `with` block would first wait for what they are doing."""
    workers = list((getattr(pool, "_processes", None) or {}).values())
    manager = getattr(pool, "_executor_manager_thread", None)
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in workers:
        worker.terminate()
    if manager is not None:
        manager.join(1)  # else it may cry out over a pipe that Python closes when it ends


def _start_worker() -> None:
    """Leave interrupts, which reach all processes, to the kernel; and end when the kernel does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def end_with_parent() -> None:
        multiprocessing.parent_process().join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
