"""Train the decoders of notebook 06 in minutes, and evaluate them beyond the length they were trained on.

The text is five tragedies (origin and licence: helpers/data/README.md), its last tenth held out. The recall
task is a random string that comes twice: the second time, every letter can be known by looking back.
"""

import lzma
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, wait
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits
from tqdm.auto import tqdm

from helpers import cache as kept
from helpers import processes
from helpers.transformer import Decoder, cross_entropy, forward, loss_and_gradients, new_decoder

LENGTH = 64  # what the models are trained on
REACH = 512  # how far they are tested
STARTS = (0, 16, 64, 448)  # where the window of the start test begins
RECALL_DISTANCES = (16, 24, 32, 48, 64, 96, 128, 192, 256)  # trained on 8 to 32
RECALL_LETTERS = 16
RECALL_STEPS = 1000
SNAPSHOTS = (0, 50, 150, 600)  # after how many steps the scheme's own parameters are kept

OnStep = Callable[[int, Decoder], None]


@dataclass(frozen=True)
class Settings:
    """One training run. scheme: a name in SCHEMES, or a class of that form; task: "text" or "recall"."""

    scheme: str | type
    seed: int = 0
    task: str = "text"
    steps: int = 600
    batch: int = 32
    learning_rate: float = 3e-3
    warm_up: int = 50
    weight_decay: float = 0.01
    random_start: int = 0  # above 0: each batch starts at a random position up to this one


# --- Data ---


@cache
def corpus() -> tuple[np.ndarray, np.ndarray, str]:
    """Return the training text and the held-out text as letter numbers, (n,), and the letters in order."""
    packed = (files("helpers") / "data" / "tragedies.txt.xz").read_bytes()
    text = lzma.decompress(packed).decode()
    letters = "".join(sorted(set(text)))
    numbers = np.searchsorted(np.array(list(letters)), np.array(list(text)))
    edge = len(numbers) * 9 // 10
    return numbers[:edge], numbers[edge:], letters


def windows(text: np.ndarray, count: int, length: int, rng: np.random.Generator) -> np.ndarray:
    """Return count random pieces of text, (count, length)."""
    starts = rng.integers(0, len(text) - length + 1, count)
    return text[starts[:, None] + np.arange(length)]


def recall_windows(count: int, distance: int, length: int, rng: np.random.Generator) -> np.ndarray:
    """Return random strings of `distance` letters out of 16, repeated up to length: (count, length)."""
    strings = rng.integers(0, RECALL_LETTERS, (count, distance))
    return strings[:, np.arange(length) % distance]


def batches(settings: Settings) -> Iterator[np.ndarray]:
    """Yield one batch a step, (batch, LENGTH + 1): inputs and, moved by one, targets."""
    rng = np.random.default_rng([settings.seed, 1])
    train, _, _ = corpus()
    for _ in range(settings.steps):
        if settings.task == "text":
            yield windows(train, settings.batch, LENGTH + 1, rng)
        else:
            distance = int(rng.integers(8, LENGTH // 2 + 1))
            yield recall_windows(settings.batch, distance, LENGTH + 1, rng)


# --- Training ---


def learning_rates(settings: Settings) -> np.ndarray:
    """Return the rate of each step, (steps,): a linear warm-up, then half a cosine down to zero."""
    step = np.arange(settings.steps)
    warm = np.minimum(1, (step + 1) / settings.warm_up)
    return settings.learning_rate * warm * 0.5 * (1 + np.cos(np.pi * step / settings.steps))


def adamw(
    parameters: dict[str, np.ndarray],
    gradients: dict[str, np.ndarray],
    memory: dict[str, np.ndarray],
    step: int,
    rate: float,
    weight_decay: float,
    betas: tuple[float, float] = (0.9, 0.98),
) -> None:
    """Take one AdamW step (Loshchilov and Hutter 2017, arXiv:1711.05101) in place. Steps count from 1.

    Both means start at zero and are too small at first. The correction is the one number `unbias`, in the
    shorter form that Kingma and Ba (2014, arXiv:1412.6980) give at the end of their section 2.
    """
    for name, weight in parameters.items():
        gradient = gradients[name]
        mean = memory.setdefault(f"{name} mean", np.zeros_like(weight))
        size = memory.setdefault(f"{name} size", np.zeros_like(weight))
        mean += (1 - betas[0]) * (gradient - mean)
        size += (1 - betas[1]) * (gradient * gradient - size)
        if weight.ndim == 2 and not name.startswith("scheme."):  # no gain or position table is pulled to zero
            weight *= 1 - rate * weight_decay
        unbias = np.sqrt(1 - betas[1] ** step) / (1 - betas[0] ** step)
        weight -= (rate * unbias) * mean / (np.sqrt(size) + 1e-8)


def train(settings: Settings, on_step: OnStep = lambda step, model: None) -> tuple[Decoder, np.ndarray]:
    """Return the trained decoder and the loss at each step, (steps,).

    on_step(step, model) is called before the first step, with step 0, and after each one.
    """
    _, _, letters = corpus()
    model = new_decoder(settings.scheme, len(letters), n_positions=LENGTH, seed=settings.seed)
    memory: dict[str, np.ndarray] = {}
    losses = np.zeros(settings.steps)
    starts = np.random.default_rng([settings.seed, 2]).integers(0, settings.random_start + 1, settings.steps)
    on_step(0, model)
    for step, (piece, rate) in enumerate(zip(batches(settings), learning_rates(settings), strict=True)):
        losses[step], gradients = loss_and_gradients(model, piece[:, :-1], piece[:, 1:], int(starts[step]))
        adamw(model.parameters, gradients, memory, step + 1, float(rate), settings.weight_decay)
        on_step(step + 1, model)
    return model, losses


def token_losses(model: Decoder, pieces: np.ndarray, chunk: int = 8, **options: object) -> np.ndarray:
    """Return the loss of each token but the first, (count, length - 1); options as for forward."""
    losses = []
    for first in range(0, len(pieces), chunk):
        piece = pieces[first : first + chunk]
        logits, _, _ = forward(model, piece[:, :-1], **options)
        losses.append(cross_entropy(logits, piece[:, 1:])[0])
    return np.concatenate(losses)


# --- Evaluation ---


def evaluate(model: Decoder, task: str) -> dict[str, np.ndarray]:
    """Return what the task measures, by name, on pieces that all models share.

    text: loss in nats by position, (REACH,): "all" with all keys, "window" with the last 64, "sharpened" with
        scores that grow with the logarithm of the number of keys; and "start", (4,), the mean loss of pieces
        of 64 letters whose first position is one of STARTS.
    recall: "accuracy", (9,), the share of a repeated string that is predicted, by RECALL_DISTANCES.
    """
    if hasattr(model.scheme, "beyond"):
        model.scheme.beyond = "repeat"  # the learned table's work-around, chosen by its name
    _, held_out, _ = corpus()
    rng = np.random.default_rng(2026)
    if task == "recall":
        accuracy = []
        for distance in RECALL_DISTANCES:
            pieces = recall_windows(32, distance, 2 * distance + 1, rng)
            logits = np.concatenate([forward(model, part[:, :-1])[0] for part in np.split(pieces, 8)])
            accuracy.append((logits.argmax(-1) == pieces[:, 1:])[:, distance:].mean())
        return {"accuracy": np.array(accuracy)}
    pieces = windows(held_out, 96, REACH + 1, rng)
    short = windows(held_out, 512, LENGTH + 1, rng)
    return {
        "all": token_losses(model, pieces).mean(axis=0),
        "window": token_losses(model, pieces, window=LENGTH).mean(axis=0),
        "sharpened": token_losses(model, pieces, sharpen_beyond=LENGTH).mean(axis=0),
        "start": np.array([token_losses(model, short, chunk=64, start=start).mean() for start in STARTS]),
    }


# --- Many runs at once ---


@dataclass(frozen=True)
class Run:
    """A trained model: what it was trained with, its weights, the loss of each step, and what it scored."""

    settings: Settings
    parameters: dict[str, np.ndarray]
    losses: np.ndarray
    scores: dict[str, np.ndarray]

    def decoder(self) -> Decoder:
        """Return the model, ready to read."""
        _, _, letters = corpus()
        model = new_decoder(self.settings.scheme, len(letters), n_positions=LENGTH)
        for name, array in self.parameters.items():
            model.parameters[name][...] = array  # in place: the scheme holds the same arrays
        if hasattr(model.scheme, "beyond"):
            model.scheme.beyond = "repeat"
        return model


def run(settings: Settings, ticket: str | None = None, on_ticket: Callable[[], None] | None = None) -> Run:
    """Train and evaluate one model. Twice a second, the steps done are written to the file `ticket`."""
    last, scores = time.monotonic(), {}

    def on_step(step: int, model: Decoder) -> None:
        nonlocal last
        if step in SNAPSHOTS:
            for name, array in model.scheme.parameters.items():
                scores[f"{name} after {step}"] = array.copy()
        if ticket and time.monotonic() - last > 0.5:
            last = time.monotonic()
            with suppress(OSError):  # the sweep may be gone, and its folder with it
                kept.write_atomically(Path(ticket), str(step).encode())
            if on_ticket:
                on_ticket()

    with threadpool_limits(1, user_api="blas"):  # on matrices this small, two threads are slower than one
        model, losses = train(settings, on_step)
        scores |= evaluate(model, settings.task)
    return Run(settings, model.parameters, losses, scores)


def sweep(settings: Sequence[Settings], executor: Executor | None = None) -> list[Run]:
    """Train all of these models, or find them among those trained before; in the order of settings.

    executor: any concurrent.futures.Executor; by default a process for each core, one thread each. What
    can't be sent to a process (a scheme defined in a notebook) trains right here.
    On an interrupt, what is finished is kept, and the next call goes on from there.
    """
    found = {one: _find(one) for one in settings}
    missing = [one for one in found if found[one] is None]
    if not missing:
        return [found[one] for one in settings]
    away = [one for one in missing if processes.can_be_sent(run, one)]
    own = processes.local_processes(len(away)) if away and executor is None else None
    pool = executor or own
    futures = {}
    with tempfile.TemporaryDirectory() as folder:
        tickets = {one: str(Path(folder) / str(place)) for place, one in enumerate(missing)}
        bar = tqdm(total=sum(one.steps for one in missing), unit="step", desc=_count(missing))
        try:
            futures = {pool.submit(run, one, tickets[one]): one for one in away} if pool else {}
            for one in missing:
                if one not in futures.values():
                    _keep(found, run(one, tickets[one], lambda: _show(bar, found, tickets)))
                    _show(bar, found, tickets)
            while futures:
                for future in wait(futures, timeout=0.5, return_when=FIRST_COMPLETED).done:
                    _keep(found, future.result())
                    del futures[future]
                _show(bar, found, tickets)
        except KeyboardInterrupt:
            for future in futures:  # what others finished while a model trained here
                if future.done() and not future.cancelled() and future.exception() is None:
                    _keep(found, future.result())
            finished = sum(_has_a_name(one) and found[one] is not None for one in found)
            nameless = sum(not _has_a_name(one) for one in found)
            anew = "; what a notebook itself defines begins anew" if nameless else ""
            print(
                f"Stopped: {finished} of {len(found)} models are ready and kept. Run the cell to go on{anew}."
            )
            raise
        finally:
            for future in futures:
                future.cancel()
            if own:
                processes.end_now(own)
            bar.close()
    return [found[one] for one in settings]


def _count(missing: Sequence[Settings]) -> str:
    return "1 model" if len(missing) == 1 else f"{len(missing)} models"


def _show(bar: tqdm, found: dict[Settings, Run | None], tickets: dict[Settings, str]) -> None:
    """Bring the bar to the number of steps done, as the tickets say."""
    done = 0
    for one, ticket in tickets.items():
        path = Path(ticket)
        done += one.steps if found[one] else int(path.read_text() or 0) if path.exists() else 0
    bar.update(done - bar.n)


def _find(settings: Settings) -> Run | None:
    """Return the kept run of these settings, if there is one that fits."""
    if not _has_a_name(settings):
        return None
    arrays = kept.load(kept.path_of(asdict(settings)))
    if arrays is None:
        return None
    groups: dict[str, dict[str, np.ndarray]] = {"parameters": {}, "scores": {}}
    for name, array in arrays.items():
        group, _, rest = name.partition("/")
        if group in groups:
            groups[group][rest] = array
    return Run(settings, losses=arrays["losses"], **groups)


def _keep(found: dict[Settings, Run | None], one: Run) -> None:
    found[one.settings] = one
    if _has_a_name(one.settings):
        arrays = {f"parameters/{name}": array for name, array in one.parameters.items()}
        arrays |= {f"scores/{name}": array for name, array in one.scores.items()}
        try:
            kept.save(kept.path_of(asdict(one.settings)), {"losses": one.losses, **arrays})
        except OSError as error:  # no place to keep it is no reason to lose it
            print(f"The model can't be kept for next time in {kept.folder()}: {error.strerror or error}.")


def _has_a_name(settings: Settings) -> bool:
    """Only such models are kept: the code of a class from a notebook can not be hashed, and may change."""
    return isinstance(settings.scheme, str)
