"""The table that closes the course: how far each scheme reads, what it costs, who uses it (notebook 07)."""

import json
import time
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from helpers import results, training
from helpers.schemes import SCHEMES, Shaw
from helpers.training import LENGTH, REACH, RECALL_DISTANCES
from helpers.transformer import Decoder, forward, new_decoder

MULTIPLES = (1, 2, 4, 8)


def _decoder(scheme: str, n_positions: int = LENGTH) -> Decoder:
    return new_decoder(scheme, len(training.corpus()[2]), n_positions=n_positions)


def holds_to(scheme: str, within: float = 0.1, name: str = "all") -> np.ndarray:
    """Return, for each seed, the longest multiple of the trained length at which no more than this is lost.

    within: nats. name: what was measured, as in helpers.training.evaluate. From MULTIPLES, or 0, (n_seeds,).
    """
    holds = np.stack([results.lost(scheme, LENGTH * m, name) <= within for m in MULTIPLES])
    unbroken = np.logical_and.accumulate(holds, axis=0)
    return np.array((0, *MULTIPLES))[unbroken.sum(axis=0)]


def recall_at(scheme: str, distance: int) -> np.ndarray:
    """Return the share of a string repeated at this distance that is predicted, (n_seeds,)."""
    return results.measured(scheme, "accuracy")[:, RECALL_DISTANCES.index(distance)]


def n_parameters(scheme: str) -> int:
    """Return how many numbers the scheme adds to the course's decoder."""
    return sum(array.size for array in _decoder(scheme).scheme.parameters.values())


def extra_operations(
    scheme: str, n_keys: int, d_model: int = 64, n_heads: int = 4, n_layers: int = 2
) -> float:
    """Return the additions and multiplications that a scheme adds, per token and layer, with n_keys keys.

    Tables, slopes and angles are taken as computed before; layers share a sum at the embeddings.
    """
    rows = 2 * (LENGTH // 2) + 1
    return {
        "none": 0,
        "sinusoidal": d_model / n_layers,
        "learned": d_model / n_layers,
        "shaw": 2 * rows * d_model + n_heads * n_keys,  # a product with each row, then a sum per key
        "t5": n_heads * n_keys,
        "rope": 6 * d_model,  # a pair: 4 products and 2 sums; d/2 pairs; queries and keys
        "alibi": n_heads * n_keys,
    }[scheme]


def layer_operations(n_keys: int, d_model: int = 64, d_hidden: int = 256) -> float:
    """Return the additions and multiplications of one decoder layer per token, with no scheme."""
    return 2 * (4 * d_model * d_model + 2 * d_model * d_hidden) + 4 * n_keys * d_model


def time_ratios(rounds: int = 15) -> dict[str, float]:
    """Return how long reading takes with each scheme, compared with none: medians of rounds side by side."""
    tokens = training.windows(training.corpus()[1], 8, REACH, np.random.default_rng(0))
    models = {scheme: _decoder(scheme, REACH) for scheme in SCHEMES}
    for model in models.values():
        if isinstance(model.scheme, Shaw):
            model.scheme.clip = LENGTH // 2  # the table of the course, whatever the length
            model.scheme.parameters["key_table"] = model.scheme.parameters["key_table"][: LENGTH + 1]
    times: dict[str, list[float]] = {scheme: [] for scheme in models}
    for _ in range(rounds):
        for scheme, model in models.items():
            start = time.perf_counter()
            forward(model, tokens)
            times[scheme].append(time.perf_counter() - start)
    ratios = np.array(list(times.values())) / np.array(times["none"])
    return dict(zip(times, np.median(ratios, axis=1).tolist(), strict=True))


@cache
def _shipped() -> dict[str, Any]:
    return json.loads((files("helpers") / "data" / "models.json").read_text(encoding="utf-8"))


def models() -> list[dict[str, Any]]:
    """Return known models: model, family (a name in SCHEMES), scheme in words, source, numbers if known."""
    return _shipped()["models"]


def users(scheme: str) -> list[str]:
    """Return the names of the models of a family."""
    return [model["model"] for model in models() if model["family"] == scheme]


def phi3() -> dict[str, Any]:
    """Return the published LongRoPE factors of Phi-3-mini-128k, and what they are for."""
    return _shipped()["phi3"]
