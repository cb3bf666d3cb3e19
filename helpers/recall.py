"""The task of recall in notebook 06: a string of letters comes twice, and whoever looks back can know it.

It measures reach and nothing else: the letters of a string all differ, so that one is enough to find the
next; around it stand capitals, as many at every distance. A model that reads text is trained further on half
text, half strings, so that one model answers both questions.
"""

import numpy as np

from helpers import arguments
from helpers.steps import cross_entropy
from helpers.text import LENGTH, REACH, corpus, random_pieces
from helpers.training import OnStep, Settings, adamw, learning_rates
from helpers.transformer import Decoder, forward

STRING = 16  # how many letters are to be recalled
HOME = (16, 32, 48)  # distances that were trained, in pieces of the trained length
DISTANCES = (16, 32, 48, 64, 96, 128, 192, 256, 384, 496)  # and those that are tested in pieces of REACH
LEARNED = 0.9  # who recalls less at home is not asked how far it reaches
CONTROL = 16  # a window too short for what is farther


def recall_pieces(
    distances: np.ndarray, length: int, letters: str, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return strings that come twice, one for each distance: (count, length + 1), and what of them counts.

    A string is 16 different small letters. It ends the piece, and it stands `distance` places earlier, too,
    amid capitals: as many whatever the distance. No small letter stands anywhere else.
    counted (count, length): the targets that can be known by looking back, the string's second letter and on.
    Raises ValueError unless distances lie between 16 and length - 15.
    """
    distances = arguments.int_array("distances", distances, ndim=1)
    if distances.size and not STRING <= distances.min() <= distances.max() <= length + 1 - STRING:
        raise ValueError(f"distances must be from {STRING} to {length + 1 - STRING}, but got {distances}")
    kinds = str.islower, str.isupper
    small, capitals = (np.array([i for i, c in enumerate(letters) if test(c)]) for test in kinds)
    count = len(distances)
    strings = rng.permuted(np.tile(small, (count, 1)), axis=1)[:, :STRING]
    pieces = rng.choice(capitals, (count, length + 1))
    again = length + 1 - STRING + np.arange(STRING)
    pieces[np.arange(count)[:, None], again - distances[:, None]] = strings
    pieces[:, again] = strings
    counted = np.zeros((count, length), bool)
    counted[:, again[1:] - 1] = True
    return pieces, counted


def train(settings: Settings, model: Decoder, on_step: OnStep = lambda step, model: None) -> np.ndarray:
    """Train a model that reads text on half text, half strings, in place; return the loss of each step.

    The loss is the mean of that of text, where every character counts, and that of strings, where only what
    can be recalled does. Steps are counted on from those of the text.
    """
    if settings.batch < 2:
        raise ValueError(f"batch must be at least 2, half of it text, half strings, but got {settings.batch}")
    rng = np.random.default_rng([settings.seed, 4])
    prose, letters = corpus(settings.text).train, corpus(settings.text).letters
    half, length, state = settings.batch // 2, settings.length, {}
    losses = np.zeros(settings.recall_steps)
    rates = learning_rates(settings.recall_rate, settings.recall_steps, settings.warm_up)
    for step, rate in enumerate(rates):
        distances = rng.integers(STRING, length + 2 - STRING, half)
        strings, counted = recall_pieces(distances, length, letters, rng)
        pieces = np.concatenate([random_pieces(prose, half, length + 1, rng), strings])
        share = np.concatenate([np.full_like(counted, 1 / counted.size, float), counted / counted.sum()]) / 2

        read = forward(model, pieces[:, :-1])
        each, back = cross_entropy(read.logits, pieces[:, 1:])
        gradients = read.back(back(share.astype(each.dtype)))
        adamw(
            model.parameters,
            gradients,
            state,
            step + 1,
            float(rate),
            settings.weight_decay,
            settings.position_rate,
        )
        losses[step] = (each * share).sum()
        on_step(settings.steps + step + 1, model)
    return losses


def of_recall(model: Decoder, *, length: int = LENGTH, name: str = "tragedies") -> dict[str, np.ndarray]:
    """Return of the strings' letters the share that is predicted, float32.

    "home", (3,): in pieces of the trained length, at the distances of HOME. "recall", (10,): in pieces of
    REACH, at DISTANCES; "right key", (10,): the weight that the best head of the last layer gives the right
    key there.
    "control": at the last distance of HOME, with a window too short for it.
    """
    far = [recall(model, distance, REACH, name=name) for distance in DISTANCES]
    found = {
        "home": [recall(model, distance, length, name=name)[0] for distance in HOME],
        "recall": [share for share, _ in far],
        "right key": [weight for _, weight in far],
        "control": recall(model, HOME[-1], length, name=name, window=CONTROL)[0],
    }
    return {key: np.asarray(value, np.float32) for key, value in found.items()}


def recall(
    model: Decoder, distance: int, length: int, count: int = 64, name: str = "tragedies", **options: object
) -> tuple[float, float]:
    """Return the share of the strings' letters that is predicted, and the weight of the right key.

    The right key is the letter that comes next; of the heads of the last layer, the one that gives it most on
    average counts. options as for forward.
    """
    letters = corpus(name).letters
    pieces, counted = recall_pieces(np.full(count, distance), length, letters, np.random.default_rng(7))
    right, weights = 0, []
    for piece, counts in zip(np.split(pieces, 8), np.split(counted, 8), strict=True):
        read = forward(model, piece[:, :-1], **options)
        right += int(((read.logits.argmax(-1) == piece[:, 1:]) & counts).sum())
        queries = np.arange(length + 1 - STRING, length)
        weights.append(read.weights[-1][:, :, queries, queries - distance + 1].mean(axis=(0, 2)))
    return right / int(counted.sum()), float(np.mean(weights, axis=0).max())
