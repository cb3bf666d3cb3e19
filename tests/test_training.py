"""Training and sweeps (notebook 06): the data, the optimiser, evaluation, and many models at once."""

import concurrent.futures
import contextlib
import hashlib
import itertools
import lzma
import math
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import Executor, Future
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

import __main__
from helpers import cache, processes, training
from helpers.schemes import SCHEMES, Alibi
from helpers.training import LENGTH, Run, Settings, sweep
from helpers.transformer import cross_entropy, forward, loss_and_gradients, new_decoder

DATA = Path(training.__file__).parent / "data"
everyone = pytest.mark.parametrize("scheme", list(SCHEMES))
posix = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no process groups with signals")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A cache folder of the test's own."""
    monkeypatch.setenv("COURSE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(autouse=True)
def one_thread():
    """As in a sweep: on matrices this small, two threads are slower, and far slower on a busy machine."""
    with threadpool_limits(1, user_api="blas"):
        yield


@pytest.fixture
def light(monkeypatch):
    """Few and short texts for the evaluation: only in this process, since others import their own helpers."""
    windows = training.windows
    monkeypatch.setattr(training, "windows", lambda text, count, *rest: windows(text, min(count, 16), *rest))
    monkeypatch.setattr(training, "REACH", 80)
    monkeypatch.setattr(training, "STARTS", (0, 16))
    monkeypatch.setattr(training, "RECALL_DISTANCES", (16, 24))


# the text


def stated(of):
    """The checksum that the data's README states."""
    readme = (DATA / "README.md").read_text(encoding="utf-8")
    return re.search(rf"\| {re.escape(of)}[^|]*\| `([0-9a-f]{{64}})` \|", readme).group(1)


def whole_text():
    train, held_out, letters = training.corpus()
    return "".join(letters[number] for number in np.concatenate([train, held_out]))


def test_corpus_is_the_text_that_the_readme_describes():
    assert hashlib.sha256((DATA / "tragedies.txt.xz").read_bytes()).hexdigest() == stated(
        "`tragedies.txt.xz`"
    )
    assert hashlib.sha256(whole_text().encode("ascii")).hexdigest() == stated("the text")
    assert lzma.decompress((DATA / "tragedies.txt.xz").read_bytes()).decode() == whole_text()


def test_corpus_has_the_62_symbols_of_the_readme():
    _, _, letters = training.corpus()
    symbols = {"\n", *" !',-.:;?", *(chr(n) for n in range(65, 91)), *(chr(n) for n in range(97, 123))}
    assert letters == "".join(sorted(symbols))
    assert len(letters) == 62


def test_the_last_tenth_is_held_out_and_never_overlaps():
    train, held_out, _ = training.corpus()
    assert len(train) + len(held_out) == 690_761
    assert len(train) == 690_761 * 9 // 10
    assert not np.shares_memory(train, held_out)
    assert train.min() == 0
    assert train.max() == 61
    assert held_out.max() <= 61


def test_no_sentence_of_the_held_out_text_was_trained_on():
    """The plays repeat no passage as long as a trained piece, so the held-out loss measures new text."""
    text = whole_text()
    edge = len(training.corpus()[0])
    pieces = [text[at : at + LENGTH + 1] for at in range(edge, len(text) - LENGTH, 50)]
    assert not [piece for piece in pieces if piece in text[:edge]]


def test_windows_are_pieces_of_the_text():
    text = np.arange(100, 110)
    pieces = training.windows(text, 300, 4, np.random.default_rng(0))
    assert pieces.shape == (300, 4)
    np.testing.assert_array_equal(pieces, pieces[:, :1] + np.arange(4))
    assert set(pieces[:, 0]) == set(range(100, 107))  # both ends are reached, and nothing beyond
    np.testing.assert_array_equal(training.windows(text, 2, 10, np.random.default_rng(0)), [text, text])


@pytest.mark.parametrize("distance", [1, 8, 24, 65, 100])
def test_recall_windows_repeat(distance):
    pieces = training.recall_windows(50, distance, 65, np.random.default_rng(0))
    assert pieces.shape == (50, 65)
    np.testing.assert_array_equal(
        pieces[:, distance:], pieces[:, :-distance] if distance < 65 else pieces[:, :0]
    )
    assert set(np.unique(pieces)) <= set(range(16))
    assert len(np.unique(pieces[:, 0])) > 8
    assert distance < 8 or len({piece.tobytes() for piece in pieces}) == 50


def test_windows_are_the_seeds():
    train, _, _ = training.corpus()

    def drawn(seed):
        rng = np.random.default_rng(seed)
        return training.windows(train, 5, 9, rng), training.recall_windows(5, 8, 9, rng)

    for one, same, other in zip(drawn(1), drawn(1), drawn(2), strict=True):
        np.testing.assert_array_equal(one, same)
        assert (one != other).any()


@pytest.mark.parametrize("task", ["text", "recall"])
def test_batches_are_the_seeds(task):
    settings = Settings("rope", 7, task, steps=4, batch=3)
    batches = list(training.batches(settings))
    assert [batch.shape for batch in batches] == [(3, LENGTH + 1)] * 4
    for other in (settings, replace(settings, scheme="none", learning_rate=1.0)):  # all schemes read the same
        np.testing.assert_array_equal(list(training.batches(other)), batches)
    assert (np.array(list(training.batches(replace(settings, seed=8)))) != batches).any(axis=(1, 2)).all()
    assert len({batch.tobytes() for batch in batches}) == 4
    longer = list(training.batches(replace(settings, steps=6)))
    np.testing.assert_array_equal(longer[:4], batches)


def test_batches_of_text_come_from_the_training_part():
    train = training.corpus()[0].astype(np.uint8).tobytes()
    for batch in training.batches(Settings("none", steps=3, batch=4)):
        for piece in batch:
            assert piece.astype(np.uint8).tobytes() in train


def test_batches_of_recall_have_distances_from_8_to_32():
    distances = set()
    for batch in training.batches(Settings("none", task="recall", steps=300, batch=4)):
        fits = [d for d in range(1, 64) if (batch[:, d:] == batch[:, :-d]).all()]
        distances.add(fits[0])
    assert distances == set(range(8, 33))


# learning rate and optimiser


@pytest.mark.parametrize(("steps", "warm_up"), [(600, 50), (10, 1), (30, 50), (1, 50)])
def test_learning_rates(steps, warm_up):
    rates = training.learning_rates(Settings("none", steps=steps, warm_up=warm_up, learning_rate=0.5))
    assert rates.shape == (steps,)
    for step in range(steps):
        expected = 0.5 * min(1, (step + 1) / warm_up) * (1 + math.cos(math.pi * step / steps)) / 2
        assert abs(rates[step] - expected) < 1e-15


def test_learning_rates_rise_then_fall_to_nothing():
    rates = training.learning_rates(Settings("none"))
    peak = rates.argmax()
    assert 45 <= peak < 50
    assert (np.diff(rates[: peak + 1]) > 0).all()
    assert (np.diff(rates[peak:]) < 0).all()
    assert 0.97 * 3e-3 < rates[peak] <= 3e-3
    assert 0 < rates[-1] < 1e-3 * rates[peak]


def test_adamw_equals_the_plain_formula():
    rng = np.random.default_rng(0)
    shapes = {"0.qkv": (3, 4), "norm": (4,), "scheme.table": (5, 2), "embedding": (2, 3)}
    start = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    weights, memory = {name: array.copy() for name, array in start.items()}, {}
    slow = {name: array.tolist() for name, array in ((n, a.ravel()) for n, a in start.items())}
    means, sizes = ({name: [0.0] * a.size for name, a in start.items()} for _ in range(2))
    for step in range(1, 8):
        gradients = {name: rng.normal(size=shape) for name, shape in shapes.items()}
        rate, decay = 0.1 / step, 0.2
        before = {name: array.copy() for name, array in gradients.items()}
        training.adamw(weights, gradients, memory, step, rate, decay)
        for name in shapes:
            np.testing.assert_array_equal(gradients[name], before[name])
            for i, g in enumerate(gradients[name].ravel().tolist()):
                means[name][i] = 0.9 * means[name][i] + 0.1 * g
                sizes[name][i] = 0.98 * sizes[name][i] + 0.02 * g * g
                mean, unbias = means[name][i] / (1 - 0.9**step), math.sqrt(1 - 0.98**step)
                if name in ("0.qkv", "embedding"):  # matrices only, and no table of positions
                    slow[name][i] -= rate * decay * slow[name][i]
                # The tiny number is added before the size is unbiased: the faster order of Adam's section 2.
                slow[name][i] -= rate * mean / ((math.sqrt(sizes[name][i]) + 1e-8) / unbias)
            np.testing.assert_allclose(weights[name].ravel(), slow[name], rtol=0, atol=1e-12)


def test_adamw_changes_weights_in_place_and_keeps_their_precision():
    weights = {"w": np.ones((2, 2), np.float32)}
    same, memory = weights["w"], {}
    training.adamw(weights, {"w": np.full((2, 2), 3, np.float32)}, memory, 1, 0.1, 0.0)
    assert weights["w"] is same
    assert {array.dtype for array in (same, *memory.values())} == {np.dtype(np.float32)}
    np.testing.assert_allclose(same, 0.9, rtol=1e-6)  # the first step is as long as the rate


def test_adamw_without_gradient_only_decays():
    weights = {"w": np.ones((2, 2)), "gain": np.ones(2), "scheme.table": np.ones((2, 2))}
    training.adamw(weights, {name: np.zeros_like(a) for name, a in weights.items()}, {}, 1, 0.1, 0.5)
    np.testing.assert_allclose(weights["w"], 0.95)
    assert (weights["gain"] == 1).all()
    assert (weights["scheme.table"] == 1).all()


# training


@everyone
def test_a_short_training_lowers_the_loss(scheme):
    settings = Settings(scheme, steps=20, batch=8, warm_up=3, learning_rate=1e-2)
    model, losses = training.train(settings)
    assert losses.shape == (20,)
    assert abs(losses[0] - math.log(62)) < 0.8
    assert losses[-3:].mean() < losses[0] - 0.7
    fresh = new_decoder(scheme, 62, seed=0)
    for name, array in model.parameters.items():
        assert array.dtype == np.float32
        assert (array != fresh.parameters[name]).any()
    for name, array in model.scheme.parameters.items():
        assert model.parameters[f"scheme.{name}"] is array


@pytest.mark.parametrize("task", ["text", "recall"])
def test_the_same_seed_gives_the_same_weights(task):
    settings = Settings("shaw", 3, task, steps=3, batch=2)
    (one, losses), (same, same_losses) = training.train(settings), training.train(settings)
    other, _ = training.train(replace(settings, seed=4))
    np.testing.assert_array_equal(losses, same_losses)
    for name, array in one.parameters.items():
        np.testing.assert_array_equal(array, same.parameters[name])
        if array.ndim == 2:
            assert (array != other.parameters[name]).any()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_training_begins_with_the_new_decoder_of_its_seed(seed):
    begun = []
    settings = Settings("shaw", seed, steps=1, batch=1)
    training.train(
        settings,
        lambda step, model: begun.append({name: array.copy() for name, array in model.parameters.items()}),
    )
    for name, array in new_decoder("shaw", 62, n_positions=LENGTH, seed=seed).parameters.items():
        np.testing.assert_array_equal(begun[0][name], array)


def test_training_reads_the_loss_of_the_next_letter():
    """The first loss is that of the untrained model, and the last one is before the last step."""
    settings = Settings("rope", steps=2, batch=2)
    seen = []
    _, losses = training.train(settings, lambda step, model: seen.append(next_loss(settings, step, model)))
    np.testing.assert_allclose(losses, seen[:2], rtol=1e-5)


def next_loss(settings, step, model):
    pieces = list(training.batches(replace(settings, steps=3)))[step]
    return cross_entropy(forward(model, pieces[:, :-1])[0], pieces[:, 1:])[0].mean()


def test_on_step_is_called_before_the_first_step_and_after_each():
    seen = []
    settings = Settings("t5", steps=3, batch=2)
    training.train(settings, lambda step, model: seen.append((step, model.parameters["norm"].copy())))
    assert [step for step, _ in seen] == [0, 1, 2, 3]
    assert (seen[0][1] == 1).all()
    assert all((later != earlier).any() for (_, earlier), (_, later) in itertools.pairwise(seen))


@pytest.mark.parametrize("furthest", [0, 3, 448])
def test_starts_are_random_up_to_the_furthest(monkeypatch, furthest):
    asked = []

    def noted(model, tokens, targets, start):
        asked.append(start)
        return 0.0, {name: np.zeros_like(array) for name, array in model.parameters.items()}

    monkeypatch.setattr(training, "loss_and_gradients", noted)
    settings = Settings("sinusoidal", steps=100, batch=1, random_start=furthest)
    training.train(settings)
    training.train(settings)
    assert asked[:100] == asked[100:]
    assert min(asked) >= 0
    assert max(asked) <= furthest
    assert max(asked) >= 0.9 * furthest
    assert furthest != 3 or set(asked) == {0, 1, 2, 3}


def test_a_class_trains_like_its_name():
    one, other = (training.train(Settings(scheme, steps=2, batch=2))[1] for scheme in ("alibi", Alibi))
    np.testing.assert_array_equal(one, other)


# evaluation


@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_token_losses(chunk):
    model = new_decoder("rope", 62)
    pieces = training.windows(training.corpus()[1], 7, 20, np.random.default_rng(0))
    found = training.token_losses(model, pieces, chunk, window=5, start=2)
    assert found.shape == (7, 19)
    logits, _, _ = forward(model, pieces[:, :-1], window=5, start=2)
    np.testing.assert_allclose(found, cross_entropy(logits, pieces[:, 1:])[0], rtol=0, atol=1e-5)


@everyone
def test_evaluate_on_text(scheme, light):
    model, _ = training.train(Settings(scheme, steps=2, batch=2))
    scores = training.evaluate(model, "text")
    again = training.evaluate(model, "text")
    assert {name: array.shape for name, array in scores.items()} == {
        "all": (80,),
        "window": (80,),
        "sharpened": (80,),
        "start": (2,),
    }
    for name, array in scores.items():
        assert np.isfinite(array).all()
        assert ((array > 1) & (array < 10)).all()
        np.testing.assert_array_equal(array, again[name])  # the same pieces for all
    for name in ("window", "sharpened"):  # up to the trained length, nothing is different
        np.testing.assert_allclose(scores[name][:LENGTH], scores["all"][:LENGTH], rtol=0, atol=1e-5)
        assert (scores[name][LENGTH:] != scores["all"][LENGTH:]).any()
    moved = abs(scores["start"][1] - scores["start"][0])
    assert (moved > 1e-4) == (scheme in ("sinusoidal", "learned"))


def test_evaluate_reads_only_the_held_out_text(monkeypatch, light):
    _, held_out, _ = training.corpus()
    drawn, windows = [], training.windows

    def noted(text, *args):
        drawn.append(text)
        return windows(text, *args)

    monkeypatch.setattr(training, "windows", noted)
    monkeypatch.setattr(training, "token_losses", lambda model, pieces, **options: pieces[:, 1:])
    training.evaluate(new_decoder("none", 62), "text")
    assert drawn
    assert all(text is held_out for text in drawn)


def test_evaluate_of_recall_has_a_share_for_each_distance(light):
    scores = training.evaluate(new_decoder("none", 62), "recall")
    assert list(scores) == ["accuracy"]
    assert scores["accuracy"].shape == (2,)
    assert ((scores["accuracy"] >= 0) & (scores["accuracy"] < 0.3)).all()  # untrained


@pytest.mark.parametrize(("shift", "perfect"), [(0, True), (1, False), (-1, False)])
def test_recall_is_one_for_whoever_looks_back_the_right_distance(monkeypatch, shift, perfect):
    def looks_back(model, tokens):
        distance = tokens.shape[1] // 2
        sources = np.clip(np.arange(tokens.shape[1]) + 1 - distance + shift, 0, tokens.shape[1] - 1)
        return np.eye(62)[tokens[:, sources]], None, None

    monkeypatch.setattr(training, "forward", looks_back)
    accuracy = training.evaluate(new_decoder("none", 62), "recall")["accuracy"]
    assert (accuracy == 1).all() if perfect else (accuracy < 0.2).all()


# one run


@pytest.mark.parametrize("scheme", ["learned", "shaw", "t5", "rope"])
def test_run_keeps_the_schemes_parameters_as_they_were(monkeypatch, light, scheme):
    monkeypatch.setattr(training, "SNAPSHOTS", (0, 2, 3))
    one = training.run(Settings(scheme, steps=3, batch=2))
    fresh = new_decoder(scheme, 62)
    for name, array in fresh.scheme.parameters.items():
        np.testing.assert_array_equal(one.scores[f"{name} after 0"], array)
        assert (one.scores[f"{name} after 2"] != array).any()
        np.testing.assert_array_equal(one.scores[f"{name} after 3"], one.parameters[f"scheme.{name}"])
    assert len(one.scores) == 4 + 3 * len(fresh.scheme.parameters)


def test_run_tells_how_far_it_is(monkeypatch, light, tmp_path):
    clock, told = iter(range(1000)), []
    monkeypatch.setattr(training.time, "monotonic", lambda: next(clock))
    ticket = tmp_path / "ticket"
    training.run(Settings("none", steps=3, batch=2), str(ticket), lambda: told.append(ticket.read_text()))
    assert told == ["0", "1", "2", "3"]


def test_run_uses_one_thread_and_gives_the_others_back(monkeypatch, light):
    def threads():
        return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}

    def noted(*args):
        during.append(threads())
        return new_decoder("none", 62), np.zeros(1)

    during = []
    monkeypatch.setattr(training, "train", noted)
    with threadpool_limits(2, user_api="blas"):
        before = threads()
        training.run(Settings("none"))
        assert threads() == before
    assert during == [{1}]


# many runs: what is found again, and in which order


class Now(Executor):
    """An executor that runs everything at once, in this process, and notes what it was asked for."""

    def __init__(self):
        self.asked = []

    def submit(self, function, /, *args, **kwargs):
        self.asked.append(args[0])
        future = Future()
        try:
            future.set_result(function(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def quick(settings, ticket=None, on_ticket=None):
    """Stands in for training.run: numbers that tell the settings, and where it ran."""
    where = {"pid": np.array(os.getpid()), "thread": np.array(threading.get_ident())}
    return Run(settings, {"w": np.full((2, 2), settings.seed)}, np.full(settings.steps, settings.seed), where)


def together(settings, ticket=None, on_ticket=None):
    """Ends only when two processes have begun, and tells what they are like."""
    folder = Path(os.environ["COURSE_CACHE"]) / "begun"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / str(os.getpid())).touch()
    until = time.monotonic() + 60
    while len(list(folder.iterdir())) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    about = {
        "method": multiprocessing.get_start_method(allow_none=True) or "",
        "child": multiprocessing.parent_process() is not None,
        "deaf": signal.getsignal(signal.SIGINT) == signal.SIG_IGN,
        "pid": os.getpid(),
    }
    return Run(settings, {}, np.zeros(settings.steps), {name: np.array(one) for name, one in about.items()})


def asleep(settings, ticket=None, on_ticket=None):
    """Ends at once for seed 0 and, as far as a test is concerned, never for the others."""
    time.sleep(30 if settings.seed else 0)
    return quick(settings)


def failing(settings, ticket=None, on_ticket=None):
    if settings.seed:
        raise ValueError("this one fails")
    return quick(settings)


THREE = [Settings("none", 2), Settings("none", 0), Settings("none", 1)]


def never(*args, **kwargs):
    raise AssertionError("nothing shall be trained here")


def whole_files(folder):
    """The kept models' names, after a check that each is whole and nothing else lies there."""
    found = sorted(file.name for file in folder.iterdir())
    assert all(cache.load(folder / name) for name in found)
    return found


def equal_runs(one, other):
    assert one.settings == other.settings
    np.testing.assert_array_equal(one.losses, other.losses)
    for group in ("parameters", "scores"):
        mine, theirs = getattr(one, group), getattr(other, group)
        assert mine.keys() == theirs.keys()
        for name, array in mine.items():
            assert array.dtype == theirs[name].dtype
            np.testing.assert_array_equal(array, theirs[name])
    return True


@everyone
def test_a_kept_model_is_found_as_it_was(scheme, light, folder):
    settings = [Settings(scheme, 5, task, steps=2, batch=2) for task in ("text", "recall")]
    trained = sweep(settings, Now())
    assert len(whole_files(folder)) == 2
    for one, found in zip(trained, sweep(settings, Now()), strict=True):
        assert equal_runs(one, found)
        text = training.corpus()[1][None, :100]
        model, _ = training.train(one.settings)
        if scheme == "learned":
            model.scheme.beyond = "repeat"
        logits = forward(found.decoder(), text, start=3)[0]
        np.testing.assert_allclose(logits, forward(model, text, start=3)[0], rtol=0, atol=1e-4)


def test_a_decoder_that_is_read_can_go_on_training(light):
    """Its scheme holds the same arrays as the decoder, so that a step reaches both."""
    (found,) = sweep([Settings("shaw", 5, steps=2, batch=2)], Now())
    model = found.decoder()
    assert model.scheme.parameters["key_table"] is model.parameters["scheme.key_table"]
    np.testing.assert_array_equal(model.parameters["scheme.key_table"], found.parameters["scheme.key_table"])
    assert not np.shares_memory(model.parameters["scheme.key_table"], found.parameters["scheme.key_table"])
    loss_and_gradients(model, np.zeros((1, 4), int), np.zeros((1, 4), int))


def test_the_second_time_nothing_is_trained(monkeypatch, capsys):
    monkeypatch.setattr(training, "run", quick)
    first = sweep(THREE, Now())
    monkeypatch.setattr(training, "run", never)
    monkeypatch.setattr(processes, "local_processes", never)
    monkeypatch.setattr(training, "tqdm", never)
    for one, found in zip(first, sweep(THREE), strict=True):
        assert equal_runs(one, found)
    sweep(THREE, Now())
    assert capsys.readouterr().out == ""


def test_results_are_in_the_order_of_the_settings(monkeypatch):
    monkeypatch.setattr(training, "run", quick)
    sweep(THREE[1:2], Now())  # one of them is there already
    asked = [THREE[2], THREE[0], THREE[1], THREE[0]]
    pool = Now()
    assert [one.settings for one in sweep(asked, pool)] == asked
    assert pool.asked == [THREE[2], THREE[0]]  # once each, and only what is missing


def test_results_are_in_order_whichever_ends_first(monkeypatch):
    class Backwards(Now):
        """Ends the last one first."""

        def submit(self, function, /, *args):
            self.asked.append((Future(), function, args))
            if len(self.asked) == 3:
                threading.Thread(target=self.end).start()
            return self.asked[-1][0]

        def end(self):
            for future, function, args in reversed(self.asked):
                time.sleep(0.05)
                future.set_result(function(*args))

    monkeypatch.setattr(training, "run", quick)
    assert [one.settings for one in sweep(THREE, Backwards())] == THREE


def test_no_settings_no_runs():
    assert sweep([]) == []


def test_other_settings_are_trained(monkeypatch):
    monkeypatch.setattr(training, "run", quick)
    sweep(THREE, Now())
    for change in (
        {"seed": 9},
        {"steps": 599},
        {"task": "recall"},
        {"random_start": 1},
        {"weight_decay": 0.0},
    ):
        pool = Now()
        sweep([replace(THREE[0], **change)], pool)
        assert len(pool.asked) == 1


def test_after_a_change_of_code_all_is_trained(monkeypatch):
    monkeypatch.setattr(training, "run", quick)
    sweep(THREE, Now())
    monkeypatch.setattr(cache, "code_version", lambda scheme: "another")
    pool = Now()
    sweep(THREE, pool)
    assert pool.asked == THREE


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "text"])
def test_a_damaged_model_is_said_and_trained_again(monkeypatch, folder, capsys, damage):
    monkeypatch.setattr(training, "run", quick)
    sweep(THREE, Now())
    path = folder / next(name for name in whole_files(folder) if name.startswith("text-none-1-"))
    content = path.read_bytes()
    middle = content.index(np.full((2, 2), 1).tobytes())
    spoiled = content[:middle] + b"\x07" + content[middle + 1 :]
    path.write_bytes({"flipped": spoiled, "cut": content[:-50], "empty": b"", "text": b"hello"}[damage])
    pool = Now()
    assert [one.settings for one in sweep(THREE, pool)] == THREE
    assert pool.asked == [THREE[2]]
    assert path.name in capsys.readouterr().out
    assert len(whole_files(folder)) == 3


@pytest.mark.parametrize(
    "in_the_way", ["a file for the cache folder", "a folder for the model", "no right to write"]
)
def test_models_that_cannot_be_kept_are_still_returned(monkeypatch, folder, in_the_way):
    """Minutes of training are not thrown away for want of a place to keep them."""
    monkeypatch.setattr(training, "run", quick)
    if in_the_way.startswith("a file"):
        folder.write_text("")
    elif in_the_way.startswith("a folder"):
        sweep(THREE[:1], Now())
        (path,) = folder.iterdir()
        path.unlink()
        path.mkdir()
    else:
        mkstemp = tempfile.mkstemp

        def refused(*args, **kwargs):
            if Path(kwargs.get("dir") or "/").is_relative_to(folder):
                raise PermissionError(13, "Permission denied")
            return mkstemp(*args, **kwargs)

        monkeypatch.setattr(cache.tempfile, "mkstemp", refused)
    assert [one.settings for one in sweep(THREE, Now())] == THREE


def test_nothing_is_left_in_the_temporary_folder(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(training, "run", quick)
    sweep(THREE, Now())
    monkeypatch.setattr(training, "run", failing)
    with pytest.raises(ValueError, match="this one fails"):
        sweep([Settings("rope", 1)], Now())
    assert list((tmp_path / "temporary").iterdir()) == []


class Bar:
    """Stands in for tqdm, and notes what it shows."""

    made = None

    def __init__(self, total, unit, desc):
        Bar.made, self.total, self.desc, self.n, self.closed = self, total, desc, 0, False

    def update(self, more):
        assert more >= 0
        self.n += more

    def close(self):
        self.closed = True


@pytest.mark.parametrize("here", [False, True])
def test_the_bar_counts_the_steps_of_what_is_missing(monkeypatch, here):
    """A bar that ends short of its total turns red in a notebook."""
    monkeypatch.setattr(training, "run", quick)
    monkeypatch.setattr(training, "tqdm", Bar)
    monkeypatch.setattr(processes, "local_processes", lambda wanted: None)
    sweep(THREE[:1], Now())
    sweep(THREE, None if here else Now())
    assert (Bar.made.total, Bar.made.desc, Bar.made.closed) == (1200, "2 models", True)
    assert Bar.made.n == 1200


# many runs: in this process


@pytest.mark.parametrize("reachable", [True, False])
def test_a_scheme_of_the_notebook_trains_right_here(monkeypatch, folder, reachable):
    """Another process can't find what was defined in a notebook, whose namespace is called __main__."""
    mine = type("Mine", (Alibi,), {"__module__": "__main__"})
    if reachable:
        monkeypatch.setattr(__main__, "Mine", mine, raising=False)
    monkeypatch.setattr(training, "run", quick)
    pool, settings = Now(), [Settings("none", 1), Settings(mine, 2), Settings("rope", 3)]
    found = sweep(settings, pool)
    assert [one.settings for one in found] == settings
    assert pool.asked == [settings[0], settings[2]]
    assert found[1].scores["pid"] == os.getpid()
    assert len(whole_files(folder)) == 2  # code that may change is not kept
    pool = Now()
    assert sweep(settings, pool)[1].settings == settings[1]
    assert pool.asked == []


def test_a_scheme_of_the_notebook_alone_starts_no_process(monkeypatch):
    class Mine(Alibi):
        pass

    monkeypatch.setattr(training, "run", quick)
    monkeypatch.setattr(processes, "local_processes", never)
    (found,) = sweep([Settings(Mine)])
    assert found.scores["pid"] == os.getpid()


def test_a_scheme_of_the_notebook_truly_trains(light):
    mine = type("Mine", (Alibi,), {"__module__": "__main__"})
    own, named = sweep([Settings(kind, steps=2, batch=2) for kind in (mine, "alibi")], Now())
    np.testing.assert_array_equal(own.losses, named.losses)
    np.testing.assert_array_equal(own.scores["all"], named.scores["all"])
    assert own.decoder().parameters.keys() == named.decoder().parameters.keys()


def test_without_processes_all_trains_right_here(monkeypatch, folder):
    monkeypatch.setattr(training, "run", quick)
    monkeypatch.setattr(processes, "local_processes", lambda wanted: None)
    found = sweep(THREE)
    assert [one.settings for one in found] == THREE
    assert {int(one.scores["pid"]) for one in found} == {os.getpid()}
    assert len(whole_files(folder)) == 3


@pytest.mark.parametrize("error", [ImportError, NotImplementedError, OSError, ValueError])
def test_where_there_are_no_processes_there_is_no_pool(monkeypatch, error):
    def none_here(*args, **kwargs):
        raise error("no processes on this system")

    monkeypatch.setattr(concurrent.futures, "ProcessPoolExecutor", none_here)
    assert processes.local_processes(2) is None


def test_what_can_be_sent(monkeypatch):
    mine = type("Mine", (Alibi,), {"__module__": "__main__"})
    assert processes.can_be_sent(training.run, Settings("rope"))
    assert processes.can_be_sent(training.run, Settings(Alibi))
    assert not processes.can_be_sent(lambda settings: None, Settings("rope"))
    assert not processes.can_be_sent(training.run, Settings(mine))
    monkeypatch.setattr(__main__, "Mine", mine, raising=False)
    assert not processes.can_be_sent(training.run, Settings(mine))


# many runs: in processes of their own


@pytest.fixture
def pools(monkeypatch):
    """The pools that sweep made, and the ids of their processes, noted while it waits."""
    made, local_processes, wait = [], processes.local_processes, training.wait

    def noted(wanted):
        made.append(local_processes(wanted))
        made[-1].wanted, made[-1].pids = wanted, set()
        return made[-1]

    def noting(futures, **options):
        for pool in made:
            pool.pids |= set(pool._processes or {})
        return wait(futures, **options)

    monkeypatch.setattr(processes, "local_processes", noted)
    monkeypatch.setattr(training, "wait", noting)
    return made


def ended(pids, seconds=2.0):
    """Are all of these children gone before this time is over?"""
    until = time.monotonic() + seconds
    while (left := {child.pid for child in multiprocessing.active_children()} & set(pids)) and (
        time.monotonic() < until
    ):
        time.sleep(0.01)
    return not left


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core, one process")
def test_by_default_processes_are_used(monkeypatch, folder, pools):
    monkeypatch.setattr(training, "run", together)
    found = sweep([Settings("none", 0), Settings("none", 1)])
    pids = {int(one.scores["pid"]) for one in found}
    assert len(pids) == 2
    assert pids == pools[0].pids
    assert os.getpid() not in pids
    for one in found:
        assert one.scores["method"] == "spawn"
        assert one.scores["child"]
        assert one.scores["deaf"]  # an interrupt is the kernel's business
    assert ended(pids)


def test_no_more_processes_than_models_or_cores(monkeypatch):
    for cores, wanted, count in ((4, 2, 2), (2, 7, 2), (None, 3, 1)):
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        pool = processes.local_processes(wanted)
        assert pool._max_workers == count
        pool.shutdown()


def test_processes_give_what_this_process_gives(folder):
    settings = [Settings(scheme, 4, "recall", steps=3) for scheme in ("rope", "shaw")]
    found = sweep(settings)
    for one in found:
        with threadpool_limits(1, user_api="blas"):
            model, losses = training.train(one.settings)
        np.testing.assert_allclose(one.losses, losses, rtol=1e-6)
        assert one.scores["accuracy"].shape == (9,)
        for name, array in model.parameters.items():
            np.testing.assert_allclose(one.parameters[name], array, rtol=0, atol=1e-5)
    assert len(whole_files(folder)) == 2


def test_an_error_in_a_process_reaches_the_caller(monkeypatch, folder, pools):
    monkeypatch.setattr(training, "run", failing)
    with pytest.raises(ValueError, match="this one fails"):
        sweep([Settings("none", 1)])
    assert ended(pools[0].pids)
    monkeypatch.setattr(training, "run", quick)
    assert len(sweep([Settings("none", 1)])) == 1  # and the next one has a pool of its own


# interrupts


@pytest.fixture
def interrupt_after_one(monkeypatch, pools):
    """An interrupt while sweep waits, once a model is finished and kept."""
    wait, finished = training.wait, []

    def wait_or_interrupt(futures, **options):
        if finished:
            finished.clear()  # one interrupt only
            raise KeyboardInterrupt
        result = wait(futures, **options)
        finished.extend(result.done)
        return result

    monkeypatch.setattr(training, "wait", wait_or_interrupt)


@pytest.mark.usefixtures("interrupt_after_one")
def test_an_interrupt_keeps_what_is_finished_and_ends_the_rest(monkeypatch, folder, pools, capsys):
    settings = [Settings("none", seed) for seed in (0, 1, 2, 3)]
    monkeypatch.setattr(training, "run", asleep)
    with pytest.raises(KeyboardInterrupt):
        sweep(settings)
    assert pools[0].pids
    assert ended(pools[0].pids, 2.0)
    printed = capsys.readouterr().out
    assert printed == "Stopped: 1 of 4 models are ready and kept. Run the cell to go on.\n"
    assert [name[:11] for name in whole_files(folder)] == ["text-none-0"]
    monkeypatch.setattr(training, "run", quick)
    pool = Now()
    assert [one.settings for one in sweep(settings, pool)] == settings
    assert pool.asked == settings[1:]


def test_an_interrupt_while_one_trains_here_keeps_what_others_finished(monkeypatch, folder, capsys):
    """A scheme of the notebook trains here while processes train the others, which may be finished first."""

    class Mine(Alibi):
        pass

    def interrupted_here(settings, ticket=None, on_ticket=None):
        if settings.scheme is Mine:
            raise KeyboardInterrupt
        return quick(settings)

    monkeypatch.setattr(training, "run", interrupted_here)
    monkeypatch.setattr(processes, "can_be_sent", lambda function, one: isinstance(one.scheme, str))
    with pytest.raises(KeyboardInterrupt):
        sweep([*THREE, Settings(Mine)], Now())
    assert len(whole_files(folder)) == 3
    # It does not promise to go on with what it can't keep.
    assert capsys.readouterr().out == (
        "Stopped: 3 of 4 models are ready and kept. Run the cell to go on; "
        "what a notebook itself defines begins anew.\n"
    )


def test_an_interrupt_cancels_what_waits_in_the_callers_executor(monkeypatch, tmp_path):
    class Waiting(Now):
        def submit(self, function, /, *args):
            self.asked.append(Future())
            return self.asked[-1]

    def interrupt(futures, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "wait", interrupt)
    pool = Waiting()
    with pytest.raises(KeyboardInterrupt):
        sweep(THREE, pool)
    assert all(future.cancelled() for future in pool.asked)


def test_a_run_that_outlives_its_sweep_leaves_nothing_behind(light, tmp_path):
    """The caller's executor may still be training when the sweep was interrupted and its folder is gone."""
    gone = tmp_path / "gone"
    clock = iter(range(1000))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training.time, "monotonic", lambda: next(clock))
        with contextlib.suppress(OSError):  # whether it goes on or gives up is all the same
            training.run(Settings("none", steps=2, batch=2), str(gone / "0"))
    assert not gone.exists()


# real kernels: processes that run a small script, as a notebook does

ENDLESS = """
import sys
from helpers import training
settings = [training.Settings("none", 0, "recall", steps=1), training.Settings("none", 1, steps=1_000_000)]
training.sweep(settings)
"""
SHORT = """
from helpers import training
found = training.sweep([training.Settings("none", seed, "recall", steps=2) for seed in (0, 1)])
print([float(value) for one in found for value in [*one.losses, *one.scores["accuracy"]]])
"""


def kernel(code):
    """A process in a session of its own, as Jupyter starts a kernel, so that a signal reaches its group."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", code], start_new_session=True, **pipes)


def group_runs(pid):
    """Does any process of this group still run? One that has ended may long wait to be reaped."""
    try:
        os.killpg(pid, 0)
    except (ProcessLookupError, PermissionError):  # macOS permits no signal to those that have ended
        return False
    states = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, group, *_ = stat.read_text(errors="replace").rpartition(")")[2].split()
            states += [state] if int(group) == pid else []
    return any(state not in "ZX" for state in states) if Path("/proc/self/stat").exists() else True


def group_is_gone(pid, seconds):
    """Does no process of this group run any more, before this time is over?"""
    until = time.monotonic() + seconds
    while running := group_runs(pid):
        if time.monotonic() > until:
            break
        time.sleep(0.01)
    return not running


def wait_for_a_model(folder, process):
    until = time.monotonic() + 120
    while not list(folder.glob("recall-none-0-*.npz")):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < until
        time.sleep(0.02)
    time.sleep(0.7)  # let it wait for the other one again


@pytest.fixture
def started():
    """What the test started: ended at the latest with it."""
    processes_of_the_test = []
    yield processes_of_the_test
    for process in processes_of_the_test:
        if process.poll() is None or not group_is_gone(process.pid, 0.1):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@posix
@pytest.mark.parametrize("to", ["its group, as Jupyter does", "itself"])
def test_a_real_interrupt_ends_all_within_two_seconds(folder, started, to):
    process = kernel(ENDLESS)
    started.append(process)
    wait_for_a_model(folder, process)
    began = time.monotonic()
    (os.kill if to == "itself" else os.killpg)(process.pid, signal.SIGINT)
    printed, errors = process.communicate(timeout=60)
    assert time.monotonic() - began < 2
    assert group_is_gone(process.pid, 2 - (time.monotonic() - began))
    assert process.returncode != 0
    assert "Stopped: 1 of 2 models are ready and kept. Run the cell to go on." in printed
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert errors.count("Traceback") == 1  # no worker cries out too
    assert len(whole_files(folder)) == 1


@posix
def test_workers_end_when_their_kernel_is_killed(folder, started):
    process = kernel(ENDLESS)
    started.append(process)
    wait_for_a_model(folder, process)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(60)
    assert group_is_gone(process.pid, 10)
    assert len(whole_files(folder)) == 1


@posix
def test_two_sweeps_at_once_do_not_disturb_each_other(folder, started):
    """Two notebooks train the same models at the same time, while a third one is interrupted."""
    stopped, *others = started[:] = [kernel(ENDLESS), kernel(SHORT), kernel(SHORT)]
    wait_for_a_model(folder, stopped)
    os.killpg(stopped.pid, signal.SIGINT)
    results = [process.communicate(timeout=120) for process in others]
    assert [process.returncode for process in others] == [0, 0], results
    assert results[0][0] == results[1][0] != ""
    stopped.communicate(timeout=60)
    names = [name[:13] for name in whole_files(folder)]
    assert names.count("recall-none-0") in (1, 2)  # of one step, if that was reached, and of two
    assert names.count("recall-none-1") == 1


# other people's executors


def test_dask_trains_on_its_workers(monkeypatch, folder):
    from distributed import Client, LocalCluster

    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    options["local_directory"] = str(folder.parent)
    settings = [Settings(scheme, 4, "recall", steps=3) for scheme in ("rope", "alibi")]
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        workers = set(client.run(os.getpid).values())
        with monkeypatch.context() as patch:
            patch.setattr(training, "run", together)
            pair = sweep([Settings("none", 0), Settings("none", 1)], client.get_executor())
        found = sweep(settings, client.get_executor())
        patience = sweep(settings, client.get_executor())
    assert {int(one.scores["pid"]) for one in pair} == workers
    assert len(workers) == 2
    for one, again in zip(found, patience, strict=True):
        with threadpool_limits(1, user_api="blas"):
            _, losses = training.train(one.settings)
        np.testing.assert_allclose(one.losses, losses, rtol=1e-6)
        assert equal_runs(one, again)
    (folder / "begun").rename(folder.parent / "begun")
    assert len(whole_files(folder)) == 4
