"""Stretch the RoPE models of notebook 06 to eight times their length, and measure it (notebook 07).

The models were trained on LENGTH = 64 characters, with heads of width 16: eight pairs, of which the fastest
turned 10 times in training and the slowest 0.003 times. So thresholds are lower than a paper's.
"""

import hashlib
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits
from tqdm.auto import tqdm

from helpers import arguments, cache, context_extension, results, rope, training
from helpers.context_extension import RotaryScaling
from helpers.schemes import Rope
from helpers.training import LENGTH, REACH, Run, Settings
from helpers.transformer import Decoder, linear, loss_and_gradients, rms_norm, split_heads

HEAD_DIM = 16
PAIRS = HEAD_DIM // 2
FACTORS = (2, 4, 8)
LOW_TURNS, HIGH_TURNS = 0.5, 4.0  # thresholds for a context of 64, where the papers have 1 and 32
FINE_TUNED = ("unscaled", "interpolation", "ntk", "by_parts", "yarn")
STALE_LENGTHS = (96, 128, 192, 256, 512)
BIN = 8  # losses are kept as means over 8 positions
# What makes the numbers of stretched models, beside what made the models themselves.
CODE = ("stretching.METHODS", "stretching.fine_tune", "stretching.stale_and_fresh", "stretching.change_pairs")

_TUNING = Settings("rope", steps=50, batch=16, warm_up=5)


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


def change_pairs(pairs: list[int], factor: float) -> RotaryScaling:
    """Return the angles of training with only these pairs divided by factor; factor inf stops them."""
    inv_freq = unscaled().inv_freq
    inv_freq[pairs] /= factor
    return RotaryScaling(inv_freq, 1.0)


def turns(inv_freq: np.ndarray, length: int = LENGTH) -> np.ndarray:
    """Return how often each pair turns within length positions, (n_pairs,)."""
    return length * inv_freq / (2 * np.pi)


def stretched(run: Run, scaling: RotaryScaling) -> Decoder:
    """Return the model with other angles."""
    model = run.decoder()
    model.scheme.inv_freq, model.scheme.attention_factor = scaling
    return model


def pieces(count: int = 96) -> np.ndarray:
    """Return up to 96 pieces of held-out text, (count, REACH + 1), those of helpers.training.evaluate."""
    return training.windows(training.corpus()[1], 96, REACH + 1, np.random.default_rng(2026))[:count]


def losses(model: Decoder, count: int = 96, **options: object) -> np.ndarray:
    """Return the mean loss of held-out text in bins of 8 positions, (64,); options as for forward."""
    by_position = training.token_losses(model, pieces(count), **options).mean(axis=0)
    return by_position.reshape(-1, BIN).mean(axis=1)


class FineTuned(NamedTuple):
    """The loss of each step, (50,), and the loss afterwards in bins of 8 positions, (64,)."""

    steps: np.ndarray
    losses: np.ndarray


def code_version() -> str:
    """Return a hash of the code and the shipped weights that all numbers of stretched models depend on."""
    weights = hashlib.sha256((files("helpers") / "data" / "rope_models.npz").read_bytes()).hexdigest()
    return f"{cache.code_version('rope', *CODE)} {weights}"


def fine_tune(method: str, seed: int, factor: float = 8, show: bool = False) -> FineTuned:
    """Train a stretched model for 50 steps on texts of 512 characters, or find that it was done before.

    method: a name in METHODS. seed: which of the five models, 0 to 4. show: a progress bar.
    It runs in this process and can be interrupted; then nothing of it is kept.
    """
    method = arguments.choice("method", method, tuple(METHODS))
    seed = arguments.whole_number("seed", seed)
    runs = results.rope_models()
    if seed >= len(runs):
        raise ValueError(f"seed must be one of the {len(runs)} models, 0 to {len(runs) - 1}, but got {seed}")
    code = code_version()
    path = cache.path_of(
        {"task": "fine-tuning", "scheme": method, "seed": seed, "factor": factor, "more": code}
    )
    found = cache.load(path)
    if found is None:
        with threadpool_limits(1, user_api="blas"):
            tuned = _fine_tune(stretched(runs[seed], METHODS[method](factor)), seed, show)
        found = tuned._asdict()
        try:
            cache.save(path, found)
        except OSError as error:
            print(f"This can't be kept for next time in {path.parent}: {error.strerror or error}.")
    return FineTuned(**found)


def _fine_tune(model: Decoder, seed: int, show: bool) -> FineTuned:
    rng = np.random.default_rng([seed, 3])
    text, _, _ = training.corpus()
    memory: dict[str, np.ndarray] = {}
    steps = np.zeros(_TUNING.steps)
    for step, rate in enumerate(tqdm(training.learning_rates(_TUNING), unit="step", disable=not show)):
        piece = training.windows(text, _TUNING.batch, REACH + 1, rng)
        steps[step], gradients = loss_and_gradients(model, piece[:, :-1], piece[:, 1:])
        training.adamw(
            model.parameters, gradients, memory, step + 1, float(rate), weight_decay=_TUNING.weight_decay
        )
    return FineTuned(steps, losses(model))


# --- What the first layer asks for ---


def first_queries_and_keys(run: Run, length: int, count: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Return the first layer's queries and keys of held-out text before they turn, (count, 4, length, 16)."""
    model = run.decoder()
    x = model.parameters["embedding"][pieces(count)[:, :length]]
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
        out = np.empty_like(x)
        for row, position in enumerate(positions):
            out[..., row : row + 1, :] = rope.rotate(
                x[..., row : row + 1, :], [position], dynamic(position + 1).inv_freq
            )
        return out


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
    stale = StaleRope(4 * HEAD_DIM, 4, LENGTH, np.random.default_rng(0))
    last = rope.rotate(q[..., -1:, :], [length - 1], *now)
    right = last @ rope.rotate(k, positions, *now).swapaxes(-1, -2)
    wrong = last @ stale.rotate(k, positions).swapaxes(-1, -2)
    error = (wrong - right)[..., 0 if nearest is None else -nearest :]
    return float(np.sqrt(np.mean(error**2)) / right.std())


def stale_and_fresh(run: Run, lengths: tuple[int, ...] = STALE_LENGTHS) -> np.ndarray:
    """Return the loss of the last 16 characters of texts of these lengths, (2, n_lengths).

    First with every key turned by the base of its own moment, then with all of them turned anew.
    """
    fresh, stale = run.decoder(), run.decoder()
    stale.scheme = StaleRope(stale.scheme.d_model, stale.n_heads, LENGTH, np.random.default_rng(0))
    result = np.zeros((2, len(lengths)))
    for place, length in enumerate(lengths):
        text = pieces()[:, : length + 1]
        fresh.scheme.inv_freq = dynamic(length).inv_freq
        for row, model in enumerate((stale, fresh)):
            result[row, place] = training.token_losses(model, text)[:, -16:].mean()
    return result
