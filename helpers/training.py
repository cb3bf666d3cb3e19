"""Train the decoders of notebook 06 in seconds: settings, AdamW, and one training run.

What is measured on a trained model stands in helpers/measures.py, many runs at once in helpers/sweeping.py.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from helpers import arguments, processes, text
from helpers.doors import Parameters, Scheme
from helpers.measures import evaluate, token_losses
from helpers.schemes import Spec
from helpers.text import LENGTH, REACH, corpus
from helpers.transformer import Decoder, loss_and_gradients, new_decoder

__all__ = [
    "LENGTH",
    "REACH",
    "Run",
    "Settings",
    "adamw",
    "corpus",
    "evaluate",
    "run",
    "sweep",
    "token_losses",
    "train",
]

SNAPSHOTS = (0, 50, 150, 600)  # after how many steps the scheme's own weights are kept

OnStep = Callable[[int, Decoder], None]


@dataclass(frozen=True)
class Settings:
    """One training run.

    scheme: a name in SCHEMES, a class of that form, a Spec, or a tuple of these for each layer.
    task: "text", or "recall" for recall_steps more at the rate recall_rate (helpers/recall.py).
    position_rate: by how much faster than the rest the scheme's own weights learn.
    random_start: above 0, each batch starts at a random position up to this one.
    """

    scheme: str | type[Scheme] | Spec | tuple
    seed: int = 0
    task: str = "text"
    steps: int = 600
    batch: int = 32
    learning_rate: float = 1e-2
    warm_up: int = 50
    weight_decay: float = 0.01
    position_rate: float = 1.0
    random_start: int = 0
    length: int = LENGTH
    n_heads: int = 4
    text: str = "tragedies"
    recall_steps: int = 3000
    recall_rate: float = 3e-3

    @property
    def all_steps(self) -> int:
        return self.steps + (self.recall_steps if self.task == "recall" else 0)

    def new_decoder(self) -> Decoder:
        """Return the untrained decoder of these settings."""
        vocabulary, sizes = (
            len(corpus(self.text).letters),
            {"n_positions": self.length, "n_heads": self.n_heads},
        )
        return new_decoder(self.scheme, vocabulary, seed=self.seed, **sizes)


def batches(settings: Settings) -> Iterator[np.ndarray]:
    """Yield one batch a step, (batch, length + 1): inputs and, moved by one, targets."""
    rng = np.random.default_rng([settings.seed, 1])
    for _ in range(settings.steps):
        yield text.random_pieces(corpus(settings.text).train, settings.batch, settings.length + 1, rng)


def learning_rates(highest: float, steps: int, warm_up: int) -> np.ndarray:
    """Return the rate of each step, (steps,): a linear warm-up, then half a cosine down to zero."""
    step = np.arange(steps)
    warm = np.minimum(1, (step + 1) / max(warm_up, 1))
    return highest * warm * 0.5 * (1 + np.cos(np.pi * step / steps))


def adamw(
    parameters: Parameters,
    gradients: Parameters,
    state: dict[str, tuple[np.ndarray, np.ndarray]],
    step: int,
    rate: float,
    weight_decay: float,
    position_rate: float = 1.0,
    betas: tuple[float, float] = (0.9, 0.98),
) -> None:
    """Take one AdamW step (Loshchilov and Hutter 2017, arXiv:1711.05101) in place. Steps count from 1.

    state keeps for each weight the running means of its gradient, m, and of its square, v. Both start at zero
    and are too small at first; the correction is the one number `unbias`, in the shorter form that Kingma and
    Ba (2014, arXiv:1412.6980) give at the end of their section 2. A scheme's own weights learn at the rate
    times position_rate; they, and the gains of norms, are not pulled to zero.
    """
    unbias = math.sqrt(1 - betas[1] ** step) / (1 - betas[0] ** step)
    for name, weight in parameters.items():
        gradient = gradients[name]
        m, v = state.setdefault(name, (np.zeros_like(weight), np.zeros_like(weight)))
        m += (1 - betas[0]) * (gradient - m)
        v += (1 - betas[1]) * (np.square(gradient) - v)
        positions = "scheme." in name
        if weight.ndim == 2 and not positions:
            weight *= 1 - rate * weight_decay
        weight -= (rate * (position_rate if positions else 1.0) * unbias) * m / (np.sqrt(v) + 1e-8)


def train(settings: Settings, on_step: OnStep = lambda step, model: None) -> tuple[Decoder, np.ndarray]:
    """Return the trained decoder and the loss at each step, (steps,).

    on_step(step, model) is called before the first step, with step 0, and after each one.
    """
    model, state = settings.new_decoder(), {}
    losses = np.zeros(settings.steps)
    starts = np.random.default_rng([settings.seed, 2]).integers(0, settings.random_start + 1, len(losses))
    rates = learning_rates(settings.learning_rate, settings.steps, settings.warm_up)
    decay, position_rate = settings.weight_decay, settings.position_rate
    on_step(0, model)
    for step, (piece, rate) in enumerate(zip(batches(settings), rates, strict=True)):
        losses[step], gradients = loss_and_gradients(model, piece[:, :-1], piece[:, 1:], int(starts[step]))
        adamw(model.parameters, gradients, state, step + 1, float(rate), decay, position_rate)
        on_step(step + 1, model)
    return model, losses


@dataclass(frozen=True)
class Run:
    """A trained model: what it was trained with, its weights, the loss of each step, and what it scored."""

    settings: Settings
    parameters: Parameters
    losses: np.ndarray
    scores: dict[str, np.ndarray]

    def decoder(self) -> Decoder:
        """Return the model with weights of its own, ready to read: a learned table repeats its last row."""
        untrained = self.settings.new_decoder()
        weights = {name: array.copy() for name, array in self.parameters.items()}
        model = Decoder(weights, untrained.layers, untrained.n_heads)
        has_table = any(hasattr(layer.scheme, "beyond") for layer in model.layers)
        return model.changed(beyond="repeat") if has_table else model


def run(settings: Settings, on_step: OnStep = lambda step, model: None) -> Run:
    """Train and evaluate one model; on_step as for train."""
    arguments.choice("task", settings.task, ("text", "recall"))
    snapshots = {}

    def watch(step: int, model: Decoder) -> None:
        if step in SNAPSHOTS:
            for name, array in model.parameters.items():
                if "scheme." in name:
                    snapshots[f"{name.removeprefix('scheme.')} after {step}"] = array.copy()
        on_step(step, model)

    processes.keep_memory()
    with threadpool_limits(1, user_api="blas"):  # on matrices this small, two threads are slower than one
        model, losses = train(settings, watch)
        if settings.task == "recall":
            from helpers import recall  # which trains on what is trained here

            losses = np.concatenate([losses, recall.train(settings, model, on_step)])
        done = Run(settings, model.parameters, losses, snapshots)
        more = {"length": settings.length, "name": settings.text}
        scores = {
            k: v
            for task in {"text", settings.task}
            for k, v in evaluate(done.decoder(), task, **more).items()
        }
    return Run(settings, model.parameters, losses, snapshots | scores)


def sweep(settings: Sequence[Settings], executor: Executor | None = None) -> list[Run]:
    """Train all of these models, or find them among those trained before: see helpers.sweeping.sweep."""
    from helpers import sweeping  # which trains by this module

    return sweeping.sweep(settings, executor)
