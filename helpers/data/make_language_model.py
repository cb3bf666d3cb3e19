"""Measure what a published model does with a page that stands far away (notebook 08), and ship it.

Needs the model, which `python -m helpers model` fetches. language_model.npz holds "tokens", (12, FIRST +
SECOND), four passages of each of three texts; "nothing", (12,), the loss of the second page without a first;
for each of `conditions` that loss with it, (12,); and "sink/GAP", (12, 30), how much of its attention the
second page pays token 0, by layer. For the panel, of PAGES: "by token/PAGE/GAP/WAY", (SECOND - 1,), losses
of a page that repeats the first, and "writes/PAGE/GAP/WAY", what the model writes. About half an hour.
"""

import json
import sys
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from helpers import cache, far_page, fetch_model, processes
from helpers.far_page import (
    COPY_GAPS,
    FACTORS,
    FAR,
    FIRST,
    GAPS,
    PAGES,
    PAIRS,
    PANEL_GAPS,
    SECOND,
    WAYS,
    Condition,
    scaled,
    second_losses,
    stand,
)
from helpers.language_model import decode, encode, forward, generate, losses, open_model
from helpers.text import corpus

SINK_GAPS = (0, 4000, 7600, FAR)
PROSE = Path(__file__).with_name("passages.txt")  # from the course's own pages, which the model can't know


def conditions() -> list[Condition]:
    """Return all that is measured, each once."""
    found = [Condition(gap, copy=copy) for gap in GAPS for copy in (False, True)]
    found += [Condition(FAR, pairs=tuple(range(start, start + 4))) for start in range(0, PAIRS, 4)]
    found += [Condition(FAR, pairs=tuple(range(start, PAIRS))) for start in (16, 20, 22, 24, 28)]
    found += [Condition(FAR, pairs=tuple(range(stop))) for stop in (16, 20, 22, 24, 28)]
    ways = [("as trained",), ("slowed", 22, 31, 2.1), ("ntk", 2.5)]
    found += [Condition(FAR, way, sink=sink) for way in ways for sink in ("far", "near", "absent")]
    found += [Condition(FAR, ways[1], sink=sink) for sink in ("token 1", "token 100")]
    found += [Condition(0, sink="absent"), Condition(7600, sink="near")]
    slow = [(16, 31), (20, 31), (24, 31), (22, 23), (24, 25), (20, 21)]
    found += [Condition(FAR, ("slowed", *one, 2.1), sink="near") for one in slow]
    found += [Condition(0, ("slowed", *one, np.inf)) for one in ((16, 31), (20, 31), (24, 31))]
    third = [(20, 31), (22, 31), (24, 31)]
    found += [Condition(32_000, ("slowed", *one, 4.15), sink="near") for one in third]
    found += [Condition(FAR, ("slowed", 22, 31, 2.1), sink="near", copy=True)]
    for factor in FACTORS:
        found += [Condition(gap, ("by parts", factor), copy=True) for gap in COPY_GAPS]
    found += [Condition(gap, ("by parts", factor)) for factor in (2, 8, 16) for gap in (0, FAR)]
    for name in ("interpolation", "ntk", "yarn"):
        found += [Condition(gap, (name, 8), copy=True) for gap in (0, FAR)]
    return list(dict.fromkeys(found))


def passages() -> np.ndarray:
    """Return the tokens of four passages of each of three texts, (12, FIRST + SECOND)."""
    model, texts = open_model(fetch_model.find()), []
    for name in ("novels", "tragedies"):
        part = corpus(name)
        letters = np.array([*part.letters])
        for quarter in range(4):
            start = int((quarter + 0.5) * len(part.test) / 4)
            texts.append("".join(letters[part.test[start : start + 3000]]))
    texts += PROSE.read_text(encoding="utf-8").split("\n\f\n")
    return np.stack([encode(model, text)[: FIRST + SECOND] for text in texts])


def measure(tokens: np.ndarray) -> dict[str, np.ndarray]:
    """Return what is measured on one passage, by name."""
    model = open_model(fetch_model.find())
    with threadpool_limits(1, user_api="blas"):
        page = forward(model, tokens[:FIRST], last=1).cache
        alone = forward(model, tokens[FIRST:], last=1, keep=False)
        found = {"nothing": losses(model, alone.states[:-1], tokens[FIRST + 1 :]).mean()}
        for one in conditions():
            second = tokens[:SECOND] if one.copy else tokens[FIRST:]
            found[one.name()] = second_losses(model, page, second, one).mean()
        for gap in SINK_GAPS:
            weights = far_page.read(model, page, tokens[FIRST:], Condition(gap), look=range(30)).weights
            found[f"sink/{gap}"] = np.array([weights[layer][:, :, 0].mean() for layer in range(30)])
    return found


def show(tokens: np.ndarray) -> dict[str, np.ndarray]:
    """Return what the panel shows of one passage, by gap and way."""
    model, found = open_model(fetch_model.find()), {}
    with threadpool_limits(1, user_api="blas"):
        page = forward(model, tokens[:FIRST], last=1).cache
        for gap in PANEL_GAPS:
            for name, way in WAYS.items():
                one = way._replace(gap=gap)
                by_token = second_losses(model, page, tokens[:SECOND], one)
                where = {"positions": FIRST + np.arange(12), "cache": stand(page, one)}
                done = generate(model, tokens[:12], 24, **where, scaling=scaled(*one.scaling))
                found[f"by token/{gap}/{name}"] = by_token.astype(np.float16)
                found[f"writes/{gap}/{name}"] = np.array(decode(model, done.tokens))
    return found


def main(folder: Path) -> None:
    """Measure everything, and write the file into folder."""
    tokens = passages()
    with processes.local_processes(len(tokens)) as pool:
        panel = [pool.submit(show, tokens[place]) for place in PAGES.values()]
        each = list(pool.map(measure, tokens))
    stored = {"tokens": tokens.astype(np.int32)}
    stored |= {name: np.stack([one[name] for one in each]).astype(np.float32) for name in each[0]}
    for place, shown in zip(PAGES.values(), panel, strict=True):
        for name, value in shown.result().items():
            kind, rest = name.split("/", 1)
            stored[f"{kind}/{place}/{rest}"] = value
    about = {"versions": {"python": sys.version.split()[0], "numpy": np.__version__}}
    stored["about"] = np.array(json.dumps(about, sort_keys=True))
    cache.ship(folder / "language_model.npz", stored)


if __name__ == "__main__":
    main(Path(__file__).parent)
