"""A pool of processes of our own for training, where the system has processes."""

import multiprocessing
import os
import pickle
import signal
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
