"""The table that closes the course: how far each scheme reads, what it costs, who uses it (notebook 07)."""

import json
import time
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from helpers import measures, results
from helpers.doors import Size
from helpers.schemes import SCHEMES, spec
from helpers.text import LENGTH, REACH, corpus
from helpers.transformer import Decoder, forward, new_decoder

MULTIPLES = (2, 4, 8)


def _decoder(scheme: str, n_positions: int = LENGTH) -> Decoder:
    asked = spec("shaw", clip=LENGTH // 2) if scheme == "shaw" else scheme  # the table of the course
    return new_decoder(asked, len(corpus().letters), n_positions=n_positions)


def excess(group: str, multiple: int) -> np.ndarray:
    """Return by how much the loss at the end of a longer text exceeds that of the whole trained length,
    (n_seeds,).

    The end is the last 64 characters of `multiple` times 64; the trained length is read alone, from position
    0.
    """
    end = LENGTH * multiple
    return results.loss_between(group, end - LENGTH, end) - results.loss_at(group, LENGTH)


def holds_to(group: str, within: float = 0.1) -> np.ndarray:
    """Return, for each seed, the longest of MULTIPLES at whose end no more than this is lost, or 1:
    (n_seeds,).

    within: nats, by `excess`.
    """
    holds = np.stack([excess(group, multiple) <= within for multiple in MULTIPLES])
    unbroken = np.logical_and.accumulate(holds, axis=0)
    return np.array((1, *MULTIPLES))[unbroken.sum(axis=0)]


def n_parameters(scheme: str) -> int:
    """Return how many numbers the scheme adds to the course's decoder."""
    return sum(array.size for name, array in _decoder(scheme).parameters.items() if "scheme." in name)


def extra_operations(
    scheme: str, n_keys: int, d_model: int = 64, n_heads: int = 4, n_layers: int = 2
) -> float:
    """Return the additions and multiplications that a scheme adds, per token and layer, with n_keys keys.

    Tables, slopes and angles are taken as computed before; layers share a sum at the embeddings.
    """
    return SCHEMES[scheme].facts.operations(Size(d_model, n_heads, n_layers, LENGTH, n_keys))


def layer_operations(n_keys: int, d_model: int = 64, d_hidden: int = 256) -> float:
    """Return the additions and multiplications of one decoder layer per token, with no scheme."""
    return 2 * (4 * d_model * d_model + 2 * d_model * d_hidden) + 4 * n_keys * d_model


def time_ratios(rounds: int = 15) -> dict[str, float]:
    """Return how long reading takes with each scheme, compared with none: medians of rounds side by side."""
    tokens = measures.shared_pieces(REACH - 1, 8)
    models = {scheme: _decoder(scheme, REACH) for scheme in SCHEMES}
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
