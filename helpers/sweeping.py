"""Train many models at once, keep each that is finished, and find it again next time (notebook 06)."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from tqdm.auto import tqdm

from helpers import cache, processes
from helpers.schemes import Spec
from helpers.training import Run, Settings, run
from helpers.transformer import Decoder

Found = dict[Settings, Run | None]
_DIED = (
    "A process that trained was ended from outside, most often because memory ran out. What is finished is "
    "kept: close other programs and run the cell again to go on."
)


def sweep(settings: Sequence[Settings], executor: Executor | None = None) -> list[Run]:
    """Train all of these models, or find them among those trained before; in the order of settings.

    executor: any concurrent.futures.Executor; by default a process for each core, one thread each. What
    can't be sent to a process (a scheme defined in a notebook) trains right here.
    On an interrupt or an error, what is finished is kept, and the next call goes on from there. Raises
    RuntimeError if a process was ended from outside.
    """
    found: Found = {one: _find(one) for one in settings}
    missing = [one for one in found if found[one] is None]
    if missing:
        _train(found, missing, executor)
    return [found[one] for one in settings]


def _train(found: Found, missing: Sequence[Settings], executor: Executor | None) -> None:
    away = [one for one in missing if processes.can_be_sent(run, one)]
    own = processes.local_processes(len(away)) if away and executor is None else None
    pool = executor or own
    futures: dict[Future, Settings] = {}
    with _tickets(missing) as tickets:
        bar = tqdm(total=sum(one.all_steps for one in missing), unit="step", desc=_count(missing))
        try:
            for one in away if pool else ():
                futures[pool.submit(train_one, one, tickets.get(one))] = one
            for one in missing:
                if one not in futures.values():
                    _keep(
                        found, train_one(one, tickets.get(one), lambda: _show(bar, found, missing, tickets))
                    )
                    _show(bar, found, missing, tickets)
            while any(found[one] is None for one in futures.values()):
                waiting = [future for future, one in futures.items() if found[one] is None]
                for future in wait(waiting, timeout=0.5, return_when=FIRST_COMPLETED).done:
                    _keep(found, future.result())
                _show(bar, found, missing, tickets)
        except BaseException as error:
            for future, one in futures.items():  # whatever the others finished meanwhile
                if found[one] is None and future.done() and not future.cancelled() and not future.exception():
                    _keep(found, future.result())
            if isinstance(error, KeyboardInterrupt):
                print(_stopped(found))
            if isinstance(error, BrokenExecutor):
                raise RuntimeError(_DIED) from None
            raise
        finally:
            for future in futures:
                future.cancel()
            if own:
                processes.end_now(own)
            bar.close()


def train_one(
    settings: Settings, ticket: str | None = None, on_ticket: Callable[[], None] | None = None
) -> Run:
    """Train and evaluate one model. Twice a second, the steps done are written to the file `ticket`."""
    last = time.monotonic()

    def on_step(step: int, model: Decoder) -> None:
        nonlocal last
        if ticket and time.monotonic() - last > 0.5:
            last = time.monotonic()
            with suppress(OSError):  # the sweep may be gone, and its folder with it
                cache.write_atomically(Path(ticket), str(step).encode())
            if on_ticket:
                on_ticket()

    return run(settings, on_step)


@contextmanager
def _tickets(missing: Sequence[Settings]) -> Iterator[dict[Settings, str]]:
    """Give each model a file for its progress; none where there is no place for files, which stops nobody."""
    try:
        folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    except OSError:
        yield {}
        return
    with folder as name:
        yield {one: os.path.join(name, str(place)) for place, one in enumerate(missing)}


def _show(bar: tqdm, found: Found, missing: Sequence[Settings], tickets: dict[Settings, str]) -> None:
    """Bring the bar to the number of steps done, as the tickets say; one that can't be read says nothing."""
    done = sum(one.all_steps for one in missing if found[one])
    for one in missing:
        if not found[one] and one in tickets:
            with suppress(OSError, ValueError):
                done += int(Path(tickets[one]).read_text())
    bar.update(max(done - bar.n, 0))


def _count(missing: Sequence[Settings]) -> str:
    return "1 model" if len(missing) == 1 else f"{len(missing)} models"


def _stopped(found: Found) -> str:
    finished = sum(_has_a_name(one) and what is not None for one, what in found.items())
    nameless = any(not _has_a_name(one) for one in found)
    anew = "; what a notebook itself defines begins anew" if nameless else ""
    return f"Stopped: {finished} of {len(found)} models are ready and kept. Run the cell to go on{anew}."


def _find(settings: Settings) -> Run | None:
    """Return the kept run of these settings, if there is one that fits."""
    if not _has_a_name(settings):
        return None
    path = path_of(settings)
    arrays = cache.load(path)
    if arrays is None:
        return None
    groups: dict[str, dict] = {"parameters": {}, "scores": {}}
    for name, array in arrays.items():
        group, _, rest = name.partition("/")
        if rest:
            groups.setdefault(group, {})[rest] = array
    built = {name: array.shape for name, array in settings.new_decoder().parameters.items()}
    same = {name: array.shape for name, array in groups["parameters"].items()} == built
    losses = arrays.get("losses")
    if not same or not groups["scores"] or losses is None or losses.shape != (settings.all_steps,):
        print(f"The kept model {path.name} is not what its settings build; it is made anew.")
        return None
    return Run(settings, groups["parameters"], losses, groups["scores"])


def _keep(found: Found, one: Run) -> None:
    found[one.settings] = one
    if _has_a_name(one.settings):
        arrays = {f"parameters/{name}": array for name, array in one.parameters.items()}
        arrays |= {f"scores/{name}": array for name, array in one.scores.items()}
        try:
            cache.save(path_of(one.settings), {"losses": one.losses, **arrays})
        except OSError as error:  # no place to keep it is no reason to lose it
            print(f"The model can't be kept for next time in {cache.folder()}: {error.strerror or error}.")


def path_of(settings: Settings) -> Path:
    """Return where the model of these settings is kept, whether or not it is there."""
    return cache.path_of(asdict(settings), *_names(settings.scheme))


def _names(scheme: object) -> list[object]:
    """Return the schemes that settings ask for: names, or classes from a notebook."""
    if isinstance(scheme, Spec):
        return [scheme.scheme]
    return [name for one in scheme for name in _names(one)] if isinstance(scheme, tuple) else [scheme]


def _has_a_name(settings: Settings) -> bool:
    """Only such models are kept: the code of a class from a notebook can not be hashed, and may change."""
    return all(isinstance(name, str) for name in _names(settings.scheme))
