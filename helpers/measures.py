"""What notebooks 06 and 07 measure on a trained decoder, on pieces of text that all models share."""

import numpy as np

from helpers import arguments, text
from helpers.text import LENGTH, REACH, corpus
from helpers.transformer import Decoder, cross_entropy, forward

BIN = 8  # losses are kept as means over 8 positions
PIECES, BLOCKS = 64, 8  # so many pieces of the test text, in so many blocks for intervals
STARTS = (0, 16, 64, 448)  # where the pieces of the start test begin


def token_losses(model: Decoder, pieces: np.ndarray, chunk: int = 8, **options: object) -> np.ndarray:
    """Return the loss of each token but the first, (count, length - 1); options as for forward."""
    losses = []
    for first in range(0, len(pieces), chunk):
        piece = pieces[first : first + chunk]
        logits = forward(model, piece[:, :-1], **options).logits
        losses.append(cross_entropy(logits, piece[:, 1:])[0])
    return np.concatenate(losses)


def binned(losses: np.ndarray) -> np.ndarray:
    """Return losses (PIECES, REACH) as means of blocks and bins, (BLOCKS, REACH // BIN)."""
    return losses.reshape(BLOCKS, -1, losses.shape[1] // BIN, BIN).mean(axis=(1, 3))


def shared_pieces(length: int = REACH, count: int = PIECES, name: str = "tragedies") -> np.ndarray:
    """Return pieces of the test text that don't overlap, (count, length + 1)."""
    return text.even_pieces(corpus(name).test, count, length + 1)


def evaluate(
    model: Decoder, task: str = "text", *, length: int = LENGTH, name: str = "tragedies"
) -> dict[str, np.ndarray]:
    """Return what a task measures, by name, float32: see of_text and helpers.recall.of_recall.

    length: of the pieces that the model was trained on; name: of their text.
    """
    if arguments.choice("task", task, ("text", "recall")) == "recall":
        from helpers import recall  # which is built on this module

        return recall.of_recall(model, length=length, name=name)
    return of_text(model, length=length, name=name)


def of_text(model: Decoder, *, length: int = LENGTH, name: str = "tragedies") -> dict[str, np.ndarray]:
    """Return what is measured on text, by name, float32.

    "choosing": the mean loss of pieces of the trained length from the text that settings are chosen by.
    "all", "window", "sharpened": losses in nats, (BLOCKS, REACH // BIN), with all keys, with as many as in
        training, and with scores that grow with the logarithm of the number of keys.
    "start": (4,), the mean loss of pieces of the trained length whose first position is one of STARTS.
    """
    pieces, short = shared_pieces(name=name), shared_pieces(length, 512, name)
    choosing = text.even_pieces(corpus(name).choose, 512, length + 1)
    found = {
        "choosing": token_losses(model, choosing, chunk=64).mean(),
        "all": binned(token_losses(model, pieces)),
        "window": binned(token_losses(model, pieces, window=length)),
        "sharpened": binned(token_losses(model, pieces, sharpen_beyond=length)),
        "start": np.array([token_losses(model, short, chunk=64, start=at).mean() for at in STARTS]),
    }
    return {key: np.asarray(value, np.float32) for key, value in found.items()}


def last_losses(model: Decoder, length: int, window: int | None, count: int = 8) -> float:
    """Return the mean loss of the last 64 characters of `count` pieces of the test text of this length."""
    return float(token_losses(model, shared_pieces(length, count), chunk=1, window=window)[:, -64:].mean())
