"""Stretch the RoPE models of notebook 06 to eight times their length, and measure it (notebook 07).

The models were trained on LENGTH = 64 characters, with heads of width 16: eight pairs, of which the fastest
turned 10 times in training and the slowest, at base 10,000, 0.003 times. So thresholds are lower than a
paper's.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.resources import files
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits
from tqdm.auto import tqdm

from helpers import arguments, cache, context_extension, measures, processes, results, rope, text, training
from helpers.context_extension import RotaryScaling
from helpers.schemes import Rope
from helpers.steps import linear, rms_norm, split_heads
from helpers.text import LENGTH, REACH
from helpers.training import Run
from helpers.transformer import Decoder, loss_and_gradients

HEAD_DIM = 16
PAIRS = HEAD_DIM // 2
FACTORS = (2, 4, 8)
LOW_TURNS, HIGH_TURNS = 0.5, 4.0  # thresholds for a context of 64, where the papers have 1 and 32
FINE_TUNED = ("unscaled", "interpolation", "ntk", "by_parts", "yarn")
STALE_LENGTHS = (96, 128, 192, 256, 512)
TUNING_STEPS, TUNING_BATCH, TUNING_WARM_UP = 50, 16, 5
TUNING_RATE = 3e-3
# What makes the numbers of stretched models, beside what made the models themselves.
CODE = (
    "stretching.METHODS",
    "stretching._fine_tune",
    "stretching.stretched",
    "stretching.change_pairs",
    "stretching.stale_and_fresh",
    "stretching.TUNING_RATE",
)


def unscaled(factor: float = 1) -> RotaryScaling:
    """Return the angles of training, whatever the factor."""
    return context_extension.unscaled(HEAD_DIM)


def interpolation(factor: float) -> RotaryScaling:
    """Position interpolation."""
    return context_extension.position_interpolation(HEAD_DIM, factor=factor)


def ntk(factor: float) -> RotaryScaling:
    """NTK-aware scaling."""
    return context_extension.ntk_aware(HEAD_DIM, factor=factor)


def ntk_twice(factor: float) -> RotaryScaling:
    """NTK-aware scaling with twice the factor, as people recommend in practice; factor 1 stays 1."""
    return ntk(factor if factor == 1 else 2 * factor)


def by_parts(factor: float, low: float = LOW_TURNS, high: float = HIGH_TURNS) -> RotaryScaling:
    """NTK by parts, its thresholds in turns within the trained length."""
    turns = {"low_rotations": low, "high_rotations": high}
    return context_extension.ntk_by_parts(HEAD_DIM, trained_length=LENGTH, factor=factor, **turns)


def by_parts_paper(factor: float) -> RotaryScaling:
    """NTK by parts with the paper's thresholds, 1 and 32 turns."""
    return by_parts(factor, 1, 32)


def llama3(factor: float) -> RotaryScaling:
    """Llama 3's rule with its own thresholds, 1 and 4 turns."""
    return context_extension.llama3(HEAD_DIM, trained_length=LENGTH, factor=factor)


def yarn(factor: float, low: float = LOW_TURNS, high: float = HIGH_TURNS) -> RotaryScaling:
    """YaRN, as its code has it, temperature included."""
    betas = {"beta_slow": low, "beta_fast": high}
    return context_extension.yarn(HEAD_DIM, trained_length=LENGTH, factor=factor, **betas)


METHODS: Mapping[str, Callable[..., RotaryScaling]] = {
    "unscaled": unscaled,
    "interpolation": interpolation,
    "ntk": ntk,
    "ntk_twice": ntk_twice,
    "by_parts_paper": by_parts_paper,
    "llama3": llama3,
    "by_parts": by_parts,
    "yarn": yarn,
}


def change_pairs(pairs: list[int], factor: float, base: float = 10_000.0) -> RotaryScaling:
    """Return the angles of training with only these pairs divided by factor; factor inf stops them."""
    inv_freq = context_extension.unscaled(HEAD_DIM, base).inv_freq
    inv_freq[pairs] /= factor
    return RotaryScaling(inv_freq, 1.0)


def turns(inv_freq: np.ndarray, length: int = LENGTH) -> np.ndarray:
    """Return how often each pair turns within length positions, (n_pairs,)."""
    return length * inv_freq / (2 * np.pi)


def stretched(run: Run, scaling: RotaryScaling) -> Decoder:
    """Return the model with other angles."""
    return run.decoder().changed(inv_freq=scaling.inv_freq, attention_factor=scaling.attention_factor)


def losses(model: Decoder, count: int = measures.PIECES, **options: object) -> np.ndarray:
    """Return the mean loss of test text in bins of 8 positions, (64,); options as for forward.

    count: how many of the pieces that all models share are read.
    """
    by_position = measures.token_losses(model, measures.shared_pieces()[:count], **options).mean(axis=0)
    return by_position.reshape(-1, measures.BIN).mean(axis=1)


class FineTuned(NamedTuple):
    """The loss of each step, (50,), and the loss afterwards in bins of 8 positions, (64,)."""

    steps: np.ndarray
    losses: np.ndarray


def code_version() -> str:
    """Return a hash of the code and the shipped weights that all numbers of stretched models depend on."""
    weights = hashlib.sha256((files("helpers") / "data" / "rope_models.npz").read_bytes()).hexdigest()
    return f"{cache.code_version('rope', more=CODE)} {weights}"


def fine_tune(
    method: str, seed: int, factor: float = 8, show: bool = False, rate: float = TUNING_RATE
) -> FineTuned:
    """Train a stretched model for 50 steps on texts of 512 characters, or find that it was done before.

    method: a name in METHODS. seed: which of the five models, 0 to 4. show: a progress bar. rate: the
    highest.
    It runs in this process and can be interrupted; then nothing of it is kept.
    """
    method = arguments.choice("method", method, tuple(METHODS))
    seed = arguments.whole_number("seed", seed)
    factor = arguments.real_number("factor", factor, positive=True)
    rate = arguments.real_number("rate", rate, positive=True)
    runs = results.rope_models()
    if seed >= len(runs):
        raise ValueError(f"seed must be one of the {len(runs)} models, 0 to {len(runs) - 1}, but got {seed}")
    about = {"task": "fine-tuning", "scheme": method, "seed": seed, "factor": factor, "rate": rate}
    path = cache.path_of({**about, "more": code_version()}, "rope")
    found = cache.load(path)
    if found is None:
        processes.keep_memory()
        with threadpool_limits(1, user_api="blas"):
            tuned = _fine_tune(stretched(runs[seed], METHODS[method](factor)), seed, rate, show)
        found = tuned._asdict()
        try:
            cache.save(path, found)
        except OSError as error:
            print(f"This can't be kept for next time in {path.parent}: {error.strerror or error}.")
    return FineTuned(**found)


def _fine_tune(model: Decoder, seed: int, rate: float, show: bool) -> FineTuned:
    rng = np.random.default_rng([seed, 3])
    train, state = text.corpus().train, {}
    steps = np.zeros(TUNING_STEPS)
    rates = training.learning_rates(rate, TUNING_STEPS, TUNING_WARM_UP)
    for step, now in enumerate(tqdm(rates, unit="step", disable=not show)):
        piece = text.random_pieces(train, TUNING_BATCH, REACH + 1, rng)
        steps[step], gradients = loss_and_gradients(model, piece[:, :-1], piece[:, 1:])
        training.adamw(model.parameters, gradients, state, step + 1, float(now), weight_decay=0.01)
    return FineTuned(steps, losses(model))


# --- What the first layer asks for ---


def first_queries_and_keys(run: Run, length: int, count: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Return the first layer's queries and keys of held-out text before they turn, (count, 4, length, 16)."""
    model = run.decoder()
    x = model.parameters["embedding"][measures.shared_pieces()[:count, :length]]
    normed, _ = rms_norm(x, model.parameters["0.norm_1"])
    projected, _ = linear(normed, model.parameters["0.qkv"])
    q, k, _ = split_heads(projected, model.n_heads)
    return q, k


def strengths(run: Run) -> np.ndarray:
    """Return how many units of score each pair can give or take, on average over heads, (PAIRS,).

    That is the length of its part of a query times that of a key, over sqrt(head_dim).
    """
    q, k = first_queries_and_keys(run, LENGTH)
    lengths = [np.hypot(x[..., 0::2], x[..., 1::2]).mean(axis=(0, 2)) for x in (q, k)]
    return (lengths[0] * lengths[1]).mean(axis=0) / HEAD_DIM**0.5


# --- Dynamic NTK and the keys it left behind ---


class StaleRope(Rope):
    """Dynamic NTK as a careless cache has it: each key stays turned by the base of the moment it came."""

    def rotate(self, x: np.ndarray, positions: np.ndarray) -> np.ndarray:
        rows = [
            rope.rotate(x[..., row : row + 1, :], [position], dynamic(position + 1).inv_freq)
            for row, position in enumerate(positions)
        ]
        return np.concatenate(rows, axis=-2)


def dynamic(length: int) -> RotaryScaling:
    """Return dynamic NTK's angles for a text that is now length characters long."""
    return context_extension.dynamic_ntk(HEAD_DIM, trained_length=LENGTH, length=int(length))


def stale_score_error(run: Run, length: int, nearest: int | None = None) -> float:
    """Return how far the last query's scores of the first layer are off with stale keys.

    It is the root mean square of the difference, for all keys or the nearest ones, divided by the spread of
    all right scores.
    """
    q, k = first_queries_and_keys(run, length)
    now, positions = dynamic(length), np.arange(length)
    stale = StaleRope(4 * HEAD_DIM, 4, LENGTH)
    last = rope.rotate(q[..., -1:, :], [length - 1], *now)
    right = last @ rope.rotate(k, positions, *now).swapaxes(-1, -2)
    wrong = last @ stale.rotate(k, positions).swapaxes(-1, -2)
    error = (wrong - right)[..., 0 if nearest is None else -nearest :]
    return float(np.sqrt(np.mean(error**2)) / right.std())


def stale_and_fresh(run: Run, lengths: tuple[int, ...] = STALE_LENGTHS) -> np.ndarray:
    """Return the loss of the last 16 characters of texts of these lengths, (2, n_lengths).

    First with every key turned by the base of its own moment, then with all of them turned anew.
    """
    fresh = run.decoder()
    scheme = StaleRope(4 * HEAD_DIM, 4, LENGTH)
    stale = replace(fresh, layers=tuple(layer._replace(scheme=scheme) for layer in fresh.layers))
    result = np.zeros((2, len(lengths)))
    for place, length in enumerate(lengths):
        piece = measures.shared_pieces()[:, : length + 1]
        for row, model in enumerate((stale, fresh.changed(inv_freq=dynamic(length).inv_freq))):
            result[row, place] = measures.token_losses(model, piece)[:, -16:].mean()
    return result
