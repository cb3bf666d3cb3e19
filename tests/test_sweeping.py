"""Many models at once (notebook 06): what is found again, in which order, where it trains, and interrupts."""

import contextlib
import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import BrokenExecutor, Executor, Future
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import __main__
from helpers import cache, measures, processes, recall, sweeping, text, training
from helpers.schemes import SCHEMES, Alibi, spec
from helpers.sweeping import path_of, sweep
from helpers.text import corpus
from helpers.training import Run, Settings
from helpers.transformer import forward, loss_and_gradients

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
    even_pieces = text.even_pieces

    def fewer(part, count, length):
        return even_pieces(part, min(count, 16), min(length, 81))

    monkeypatch.setattr(text, "even_pieces", fewer)
    monkeypatch.setattr(measures, "STARTS", (0, 16))
    monkeypatch.setattr(recall, "DISTANCES", (16, 24))
    monkeypatch.setattr(recall, "REACH", 80)


# what stands in for training: another process finds these by their names


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
    """Stands in for train_one: numbers that tell the settings, and where it ran."""
    where = {"pid": np.array(os.getpid()), "thread": np.array(threading.get_ident())}
    weights = {name: np.full_like(a, settings.seed) for name, a in settings.new_decoder().parameters.items()}
    return Run(settings, weights, np.full(settings.all_steps, settings.seed), where)


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
    }
    one = quick(settings)
    return replace(one, scores=one.scores | {name: np.array(value) for name, value in about.items()})


def asleep(settings, ticket=None, on_ticket=None):
    """Ends at once for seed 0 and, as far as a test is concerned, never for the others."""
    time.sleep(30 if settings.seed else 0)
    return quick(settings)


def failing(settings, ticket=None, on_ticket=None):
    if settings.seed:
        raise ValueError("this one fails")
    return quick(settings)


train_one = sweeping.train_one


def lightly(settings, ticket=None, on_ticket=None):
    """Trains as train_one does, and measures next to nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "evaluate", little)
        return train_one(settings, ticket, on_ticket)


def little(model, task, *, length, name):
    return {task: measures.token_losses(model, measures.shared_pieces(length, 2, name))}


THREE = [Settings("none", 2), Settings("none", 0), Settings("none", 1)]


def never(*args, **kwargs):
    raise AssertionError("nothing shall be trained here")


def whole_files(folder):
    """The kept models' names, after a check that each is whole and nothing else lies there."""
    found = sorted(file.name for file in folder.iterdir())
    assert all(cache.load(folder / name) for name in found)
    return found


def names_of(settings):
    """The names under which these are kept."""
    return sorted(path_of(one).name for one in settings)


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


# what is found again


@everyone
def test_a_kept_model_is_found_as_it_was(scheme, light, folder):
    small = {"steps": 2, "batch": 2, "recall_steps": 2}
    settings = [Settings(scheme, 5, task, **small) for task in ("text", "recall")]
    trained = sweep(settings, Now())
    assert whole_files(folder) == names_of(settings)
    for one, found in zip(trained, sweep(settings, Now()), strict=True):
        assert equal_runs(one, found)
        tokens = corpus().test[None, :100]
        model, _ = training.train(one.settings)
        if one.settings.task == "recall":
            recall.train(one.settings, model)
        if scheme == "learned":
            model = model.changed(beyond="repeat")
        logits = forward(found.decoder(), tokens, start=3)[0]
        np.testing.assert_allclose(logits, forward(model, tokens, start=3)[0], rtol=0, atol=1e-4)


SPECS = [
    spec("rope", base=10),
    spec("none", window=3),
    (spec("rope", window=32), spec("none")),
    ("shaw", spec("rope", base=1_000_000)),
    ("learned", "t5"),
]


@pytest.mark.parametrize("scheme", SPECS, ids=str)
def test_a_model_of_specs_is_kept_and_found_as_it_was(monkeypatch, light, folder, scheme):
    settings = Settings(scheme, 5, steps=2, batch=2)
    (trained,) = sweep([settings], Now())
    assert whole_files(folder) == names_of([settings])
    monkeypatch.setattr(sweeping, "train_one", never)
    (found,) = sweep([Settings(scheme, 5, steps=2, batch=2)])
    assert equal_runs(trained, found)
    tokens = corpus().test[None, :60]
    model, _ = training.train(settings)
    np.testing.assert_allclose(forward(found.decoder(), tokens)[0], forward(model, tokens)[0], atol=1e-4)


def test_models_of_other_specs_are_others():
    schemes = [
        "rope",
        "none",
        *SPECS,
        spec("rope", base=100),
        spec("rope", window=3),
        (spec("none"), spec("rope", window=32)),
        ("t5", "learned"),
    ]
    assert len({path_of(Settings(scheme)) for scheme in schemes}) == len(schemes)


@pytest.mark.parametrize(
    ("one", "same"),
    [
        (Settings("rope", learning_rate=1), Settings("rope", learning_rate=1.0)),
        (Settings("learned", position_rate=10), Settings("learned", position_rate=10.0)),
        (Settings(spec("rope", base=10_000)), Settings(spec("rope", base=1e4))),
    ],
    ids=["rate", "position rate", "option"],
)
def test_equal_settings_have_the_same_path(one, same):
    """Numbers read back from a file are floats, those of a list of tries may not be."""
    assert one == same
    assert path_of(one) == path_of(same)


def test_path_of_makes_nothing(folder):
    assert path_of(Settings("none")).parent == folder
    assert not folder.exists()


def test_a_decoder_that_is_read_can_go_on_training(light):
    """A step reaches the decoder, and leaves what was found as it is."""
    sweep([Settings("shaw", 5, steps=2, batch=2)], Now())
    (found,) = sweep([Settings("shaw", 5, steps=2, batch=2)], Now())
    model = found.decoder()
    np.testing.assert_array_equal(model.parameters["scheme.key_table"], found.parameters["scheme.key_table"])
    assert not np.shares_memory(model.parameters["scheme.key_table"], found.parameters["scheme.key_table"])
    loss_and_gradients(model, np.zeros((1, 4), int), np.zeros((1, 4), int))


def test_the_second_time_nothing_is_trained(monkeypatch, capsys):
    monkeypatch.setattr(sweeping, "train_one", quick)
    first = sweep(THREE, Now())
    monkeypatch.setattr(sweeping, "train_one", never)
    monkeypatch.setattr(processes, "local_processes", never)
    monkeypatch.setattr(sweeping, "tqdm", never)
    for one, found in zip(first, sweep(THREE), strict=True):
        assert equal_runs(one, found)
    sweep(THREE, Now())
    assert capsys.readouterr().out == ""


def test_results_are_in_the_order_of_the_settings(monkeypatch):
    monkeypatch.setattr(sweeping, "train_one", quick)
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

    monkeypatch.setattr(sweeping, "train_one", quick)
    assert [one.settings for one in sweep(THREE, Backwards())] == THREE


def test_no_settings_no_runs():
    assert sweep([]) == []


@pytest.mark.parametrize(
    "change",
    [
        {"scheme": "rope"},
        {"scheme": spec("none", window=3)},
        {"seed": 9},
        {"steps": 599},
        {"batch": 31},
        {"task": "recall"},
        {"random_start": 1},
        {"weight_decay": 0.0},
        {"learning_rate": 1.1e-2},
        {"warm_up": 49},
        {"position_rate": 2.0},
        {"length": 128},
        {"n_heads": 2},
        {"text": "novels"},
    ],
    ids=str,
)
def test_other_settings_are_trained(monkeypatch, change):
    monkeypatch.setattr(sweeping, "train_one", quick)
    sweep(THREE, Now())
    pool = Now()
    sweep([replace(THREE[0], **change)], pool)
    assert len(pool.asked) == 1


@pytest.mark.parametrize("change", [{"recall_steps": 2999}, {"recall_rate": 4e-3}], ids=str)
def test_other_settings_of_recall_are_trained(monkeypatch, change):
    monkeypatch.setattr(sweeping, "train_one", quick)
    settings = Settings("none", task="recall")
    sweep([settings], Now())
    pool = Now()
    sweep([settings, replace(settings, **change)], pool)
    assert pool.asked == [replace(settings, **change)]


def test_after_a_change_of_code_all_is_trained(monkeypatch):
    monkeypatch.setattr(sweeping, "train_one", quick)
    sweep(THREE, Now())
    monkeypatch.setattr(cache, "code_version", lambda *schemes, more=(): "another")
    pool = Now()
    sweep(THREE, pool)
    assert pool.asked == THREE


@pytest.mark.parametrize("scheme", [*SPECS, "rope"], ids=str)
@pytest.mark.parametrize("task", ["text", "recall"])
def test_each_model_depends_on_its_own_schemes_and_task(monkeypatch, scheme, task):
    """A change to RoPE costs no ALiBi model, and one to recall no model that only reads."""
    asked = []
    monkeypatch.setattr(
        cache, "code_version", lambda *schemes, more=(): (asked.append((schemes, tuple(more))), "one")[1]
    )
    path_of(Settings(scheme, task=task))
    parts = [scheme] if isinstance(scheme, str) or hasattr(scheme, "options") else scheme
    names = {part if isinstance(part, str) else part.scheme for part in parts}
    ((schemes, more),) = asked
    assert set(schemes) == names
    assert more == (("recall.train", "recall.of_recall") if task == "recall" else ())


# what is not trusted


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "text"])
def test_a_damaged_model_is_said_and_trained_again(monkeypatch, folder, capsys, damage):
    monkeypatch.setattr(sweeping, "train_one", quick)
    sweep(THREE, Now())
    path = path_of(THREE[2])
    content = path.read_bytes()
    middle = content.index(np.full((2, 64), 1, np.float32).tobytes())
    spoiled = content[:middle] + b"\x07" + content[middle + 1 :]
    path.write_bytes({"flipped": spoiled, "cut": content[:-50], "empty": b"", "text": b"hello"}[damage])
    pool = Now()
    assert [one.settings for one in sweep(THREE, pool)] == THREE
    assert pool.asked == [THREE[2]]
    printed = capsys.readouterr().out
    assert path.name in printed
    assert printed.count("\n") == 1
    assert whole_files(folder) == names_of(THREE)


# How a file may be whole, and yet not what its settings build.
OTHERS = {
    "a weight too few": lambda arrays: arrays.pop("parameters/0.qkv"),
    "a weight too many": lambda arrays: arrays.update({"parameters/more": np.zeros(2)}),
    "another name": lambda arrays: arrays.update({"parameters/1.qvk": arrays.pop("parameters/1.qkv")}),
    "the weights of a scheme": lambda arrays: arrays.update({"parameters/scheme.table": np.zeros((64, 64))}),
    "another shape": lambda arrays: arrays.update({"parameters/embedding": np.zeros((76, 64))}),
    "turned": lambda arrays: arrays.update({"parameters/0.up": arrays["parameters/0.up"].T}),
    "no weights": lambda arrays: [
        arrays.pop(name) for name in list(arrays) if name.startswith("parameters/")
    ],
    "a loss too few": lambda arrays: arrays.update({"losses": np.zeros(599)}),
    "a loss too many": lambda arrays: arrays.update({"losses": np.zeros(601)}),
    "losses of another shape": lambda arrays: arrays.update({"losses": np.zeros((600, 1))}),
    "no losses": lambda arrays: arrays.pop("losses"),
    "no scores": lambda arrays: [arrays.pop(name) for name in list(arrays) if name.startswith("scores/")],
    "nothing": lambda arrays: arrays.clear(),
    "something else": lambda arrays: (arrays.clear(), arrays.update({"a": np.zeros(1)})),
}


@pytest.mark.parametrize("other", OTHERS)
def test_a_whole_file_that_its_settings_do_not_build_is_said_and_trained_anew(
    monkeypatch, folder, capsys, other
):
    monkeypatch.setattr(sweeping, "train_one", quick)
    first = sweep(THREE, Now())
    path = path_of(THREE[2])
    arrays = cache.load(path)
    OTHERS[other](arrays)
    cache.save(path, arrays)
    pool = Now()
    for one, found in zip(first, sweep(THREE, pool), strict=True):
        assert equal_runs(one, found)
    assert pool.asked == [THREE[2]]
    sentence = f"The kept model {path.name} is not what its settings build; it is made anew.\n"
    assert capsys.readouterr().out == sentence
    assert whole_files(folder) == names_of(THREE)
    pool = Now()  # what was made anew is kept in its place
    sweep(THREE, pool)
    assert pool.asked == []


@pytest.mark.parametrize(
    ("settings", "others"),
    [
        (Settings("none"), Settings("none", text="novels")),
        (Settings("learned"), Settings("learned", length=128)),
        (Settings("shaw"), Settings("shaw", n_heads=2)),
        (Settings("none"), Settings("none", task="recall")),
        (Settings("none", steps=5), Settings("none", steps=6)),
        (Settings("shaw"), Settings(("shaw", "shaw"))),
    ],
    ids=str,
)
def test_the_model_of_other_settings_is_not_taken(monkeypatch, capsys, settings, others):
    monkeypatch.setattr(sweeping, "train_one", quick)
    sweep([settings, others], Now())
    path_of(settings).write_bytes(path_of(others).read_bytes())
    pool = Now()
    sweep([settings, others], pool)
    assert pool.asked == [settings]
    assert "is not what its settings build; it is made anew." in capsys.readouterr().out


# what can't be kept or told


@pytest.mark.parametrize(
    "in_the_way", ["a file for the cache folder", "a folder for the model", "no right to write"]
)
def test_models_that_cannot_be_kept_are_still_returned(monkeypatch, folder, in_the_way):
    """Minutes of training are not thrown away for want of a place to keep them."""
    monkeypatch.setattr(sweeping, "train_one", quick)
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
    monkeypatch.setattr(sweeping, "train_one", quick)
    sweep(THREE, Now())
    monkeypatch.setattr(sweeping, "train_one", failing)
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


@pytest.fixture
def bar(monkeypatch):
    monkeypatch.setattr(sweeping, "tqdm", Bar)
    return lambda: (Bar.made.total, Bar.made.desc, Bar.made.closed, Bar.made.n)


@pytest.mark.parametrize("here", [False, True])
@pytest.mark.parametrize(("task", "steps"), [("text", 600), ("recall", 3600)])
def test_the_bar_counts_the_steps_of_what_is_missing(monkeypatch, bar, here, task, steps):
    """A bar that ends short of its total turns red in a notebook."""
    monkeypatch.setattr(sweeping, "train_one", quick)
    monkeypatch.setattr(processes, "local_processes", lambda wanted: None)
    settings = [replace(one, task=task) for one in THREE]
    sweep(settings[:1], Now())
    sweep(settings, None if here else Now())
    assert bar() == (2 * steps, "2 models", True, 2 * steps)


def test_the_bar_of_one_model_says_so(monkeypatch, bar):
    monkeypatch.setattr(sweeping, "train_one", quick)
    sweep(THREE[:1], Now())
    assert bar() == (600, "1 model", True, 600)


def telling(notes):
    """Stands in for train_one: leaves these notes on its ticket, one after the other."""

    def trained(settings, ticket=None, on_ticket=None):
        for note in notes:
            Path(ticket).write_text(note)
            on_ticket()
        return quick(settings)

    return trained


@pytest.mark.parametrize(
    ("notes", "shown"),
    [
        (["0", "7", "300"], [0, 7, 300]),
        (["7", "", "9"], [7, 7, 9]),  # caught while it was written
        (["7", "hello", "9"], [7, 7, 9]),
        (["7", "5", "9"], [7, 7, 9]),  # a bar never goes back
    ],
    ids=str,
)
def test_the_bar_follows_the_tickets(monkeypatch, bar, notes, shown):
    seen, show = [], sweeping._show
    monkeypatch.setattr(sweeping, "_show", lambda *args: (show(*args), seen.append(Bar.made.n)))
    monkeypatch.setattr(processes, "local_processes", lambda wanted: None)
    monkeypatch.setattr(sweeping, "train_one", telling(notes))
    sweep(THREE[:1])
    assert seen == [*shown, 600]


@pytest.mark.parametrize("error", [PermissionError, FileNotFoundError, IsADirectoryError])
@pytest.mark.parametrize("here", [True, False])
def test_a_ticket_that_cannot_be_read_says_nothing_and_stops_nobody(
    monkeypatch, folder, bar, capsys, error, here
):
    read_text, refused = Path.read_text, []

    def unreadable(path, *args, **kwargs):
        if path.name.isdigit():  # a ticket's name is its place
            refused.append(path)
            raise error(13, "it can't be read")
        return read_text(path, *args, **kwargs)

    class Slow(Now):
        """Ends a while after it was asked, so that tickets are looked at before."""

        def submit(self, function, /, *args):
            future = Future()
            threading.Timer(0.8, lambda: future.set_result(quick(args[0]))).start()
            return future

    monkeypatch.setattr(Path, "read_text", unreadable)
    monkeypatch.setattr(processes, "local_processes", lambda wanted: None)
    monkeypatch.setattr(sweeping, "train_one", telling(["7", "8"]))
    assert [one.settings for one in sweep(THREE, None if here else Slow())] == THREE
    assert refused
    assert whole_files(folder) == names_of(THREE)
    assert bar() == (1800, "3 models", True, 1800)
    assert capsys.readouterr().out == ""


@pytest.fixture
def no_temporary_folder(monkeypatch):
    def refused(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryDirectory", refused)


@pytest.mark.usefixtures("no_temporary_folder")
@pytest.mark.parametrize("here", [True, False])
def test_without_a_temporary_folder_all_is_trained_and_kept(monkeypatch, folder, capsys, here):
    tickets = []

    def noted(settings, ticket=None, on_ticket=None):
        tickets.append(ticket)
        if on_ticket:
            on_ticket()
        return quick(settings)

    monkeypatch.setattr(sweeping, "train_one", noted)
    monkeypatch.setattr(processes, "local_processes", lambda wanted: None)
    assert [one.settings for one in sweep(THREE, None if here else Now())] == THREE
    assert tickets == [None] * 3
    assert whole_files(folder) == names_of(THREE)
    assert capsys.readouterr().out == ""


@pytest.mark.usefixtures("no_temporary_folder")
def test_without_a_temporary_folder_a_model_truly_trains(light, folder):
    sweep([Settings(scheme, steps=2, batch=2) for scheme in (type("Mine", (Alibi,), {}), "alibi")], Now())
    assert len(whole_files(folder)) == 1


@pytest.mark.usefixtures("no_temporary_folder")
@pytest.mark.parametrize("here", [True, False])
def test_without_a_temporary_folder_the_bar_still_ends_at_its_total(monkeypatch, bar, here):
    """It knows less on the way, but a bar that ends short of its total turns red in a notebook."""
    monkeypatch.setattr(sweeping, "train_one", quick)
    monkeypatch.setattr(processes, "local_processes", lambda wanted: None)
    sweep(THREE, None if here else Now())
    assert bar() == (1800, "3 models", True, 1800)


# one model of many


def test_train_one_tells_how_far_it_is(monkeypatch, light, tmp_path):
    clock, told = iter(range(1000)), []
    monkeypatch.setattr(sweeping.time, "monotonic", lambda: next(clock))
    ticket = tmp_path / "ticket"
    settings = Settings("none", steps=3, batch=2)
    one = sweeping.train_one(settings, str(ticket), lambda: told.append(ticket.read_text()))
    assert told == ["0", "1", "2", "3"]
    assert equal_runs(one, training.run(settings))


def test_train_one_counts_the_steps_of_recall_on(monkeypatch, light, tmp_path):
    clock, told = iter(range(1000)), []
    monkeypatch.setattr(sweeping.time, "monotonic", lambda: next(clock))
    ticket = tmp_path / "ticket"
    settings = Settings("none", task="recall", steps=2, recall_steps=2, batch=2)
    sweeping.train_one(settings, str(ticket), lambda: told.append(ticket.read_text()))
    assert told == ["0", "1", "2", "3", "4"]


def test_train_one_tells_it_twice_a_second(monkeypatch, light, tmp_path):
    clock, told = itertools.count(0, 0.2), []
    monkeypatch.setattr(sweeping.time, "monotonic", lambda: next(clock))
    ticket = tmp_path / "ticket"
    settings = Settings("none", steps=9, batch=1)
    sweeping.train_one(settings, str(ticket), lambda: told.append(int(ticket.read_text())))
    assert told[:1] == [2]
    assert 2 <= len(told) <= 4


def test_train_one_needs_no_ticket(light):
    settings = Settings("none", steps=1, batch=1)
    assert equal_runs(sweeping.train_one(settings), training.run(settings))


def test_a_run_that_outlives_its_sweep_leaves_nothing_behind(monkeypatch, light, tmp_path):
    """The caller's executor may still be training when the sweep was interrupted and its folder is gone."""
    gone, clock = tmp_path / "gone", iter(range(1000))
    monkeypatch.setattr(sweeping.time, "monotonic", lambda: next(clock))
    settings = Settings("none", steps=2, batch=2)
    assert sweeping.train_one(settings, str(gone / "0")).settings == settings
    assert not gone.exists()


# in this process


@pytest.mark.parametrize("reachable", [True, False])
@pytest.mark.parametrize(
    "form",
    [lambda mine: mine, spec, lambda mine: (spec("rope", window=3), mine), lambda mine: ("none", spec(mine))],
    ids=["class", "spec", "layer", "spec of a layer"],
)
def test_a_scheme_of_the_notebook_trains_right_here(monkeypatch, folder, reachable, form):
    """Another process can't find what was defined in a notebook, whose namespace is called __main__."""
    mine = type("Mine", (Alibi,), {"__module__": "__main__"})
    if reachable:
        monkeypatch.setattr(__main__, "Mine", mine, raising=False)
    monkeypatch.setattr(sweeping, "train_one", quick)
    pool, settings = Now(), [Settings("none", 1), Settings(form(mine), 2), Settings("rope", 3)]
    found = sweep(settings, pool)
    assert [one.settings for one in found] == settings
    assert pool.asked == [settings[0], settings[2]]
    assert found[1].scores["pid"] == os.getpid()
    assert whole_files(folder) == names_of([settings[0], settings[2]])  # code that may change is not kept
    pool = Now()
    assert sweep(settings, pool)[1].settings == settings[1]
    assert pool.asked == []


@pytest.mark.parametrize("form", [lambda mine: mine, spec, lambda mine: ("none", mine)])
def test_a_class_that_can_be_sent_is_not_kept_either(monkeypatch, folder, form):
    """It may stand in a file of somebody's own, whose code is not hashed."""
    monkeypatch.setattr(sweeping, "train_one", quick)
    for _ in range(2):
        pool = Now()
        sweep([Settings(form(Alibi))], pool)
        assert pool.asked == [Settings(form(Alibi))]
    assert not folder.exists()


def test_a_scheme_of_the_notebook_alone_starts_no_process(monkeypatch):
    class Mine(Alibi):
        pass

    monkeypatch.setattr(sweeping, "train_one", quick)
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
    monkeypatch.setattr(sweeping, "train_one", quick)
    monkeypatch.setattr(processes, "local_processes", lambda wanted: None)
    found = sweep(THREE)
    assert [one.settings for one in found] == THREE
    assert {int(one.scores["pid"]) for one in found} == {os.getpid()}
    assert whole_files(folder) == names_of(THREE)


# in processes of their own


@pytest.fixture
def pools(monkeypatch):
    """The pools that sweep made, and the ids of their processes, noted while it waits."""
    made, local_processes, wait = [], processes.local_processes, sweeping.wait

    def noted(wanted):
        made.append(local_processes(wanted))
        made[-1].wanted, made[-1].pids = wanted, set()
        return made[-1]

    def noting(futures, **options):
        for pool in made:
            pool.pids |= set(pool._processes or {})
        return wait(futures, **options)

    monkeypatch.setattr(processes, "local_processes", noted)
    monkeypatch.setattr(sweeping, "wait", noting)
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
    monkeypatch.setattr(sweeping, "train_one", together)
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


def test_processes_give_what_this_process_gives(monkeypatch, folder):
    settings = [
        Settings("rope", 4, steps=3, recall_steps=2),
        Settings(spec("shaw", clip=8), 4, "recall", steps=2, recall_steps=2, n_heads=2, text="novels"),
    ]
    monkeypatch.setattr(sweeping, "train_one", lightly)
    found = sweep(settings)
    for one, asked in zip(found, settings, strict=True):
        here = lightly(asked)
        assert one.settings == asked
        assert one.losses.shape == (asked.all_steps,)
        np.testing.assert_allclose(one.losses, here.losses, rtol=1e-6)
        for group, atol in (("parameters", 1e-5), ("scores", 1e-4)):
            mine, theirs = getattr(one, group), getattr(here, group)
            assert mine.keys() == theirs.keys()
            for name, array in mine.items():
                np.testing.assert_allclose(array, theirs[name], rtol=0, atol=atol)
    assert whole_files(folder) == names_of(settings)


def test_an_error_in_a_process_reaches_the_caller(monkeypatch, folder, pools):
    monkeypatch.setattr(sweeping, "train_one", failing)
    with pytest.raises(ValueError, match="this one fails"):
        sweep([Settings("none", 1)])
    assert ended(pools[0].pids)
    monkeypatch.setattr(sweeping, "train_one", quick)
    assert len(sweep([Settings("none", 1)])) == 1  # and the next one has a pool of its own


def test_an_error_keeps_what_is_finished(monkeypatch, folder, capsys):
    monkeypatch.setattr(sweeping, "train_one", failing)
    with pytest.raises(ValueError, match="this one fails"):
        sweep(THREE, Now())
    assert whole_files(folder) == names_of(THREE[1:2])
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(sweeping, "train_one", quick)
    pool = Now()
    assert [one.settings for one in sweep(THREE, pool)] == THREE
    assert pool.asked == [THREE[0], THREE[2]]


# processes that are ended from outside


class Dying(Now):
    """A pool in which a worker dies: some models are finished by then, and no other will ever be."""

    def __init__(self, finished, error=BrokenProcessPool):
        super().__init__()
        self.finished, self.error = finished, error

    def submit(self, function, /, *args, **kwargs):
        if args[0] in self.finished:
            return super().submit(function, *args, **kwargs)
        future = Future()
        future.set_exception(self.error("A process in the process pool was terminated abruptly"))
        return future


@pytest.mark.parametrize("error", [BrokenProcessPool, BrokenExecutor])
@pytest.mark.parametrize("finished", [[], THREE[:1], THREE[1:]], ids=len)
def test_a_dead_worker_leaves_what_is_finished(monkeypatch, folder, capsys, finished, error):
    monkeypatch.setattr(sweeping, "train_one", quick)
    with pytest.raises(RuntimeError) as caught:
        sweep(THREE, Dying(finished, error))
    assert str(caught.value) == sweeping._DIED
    assert not isinstance(caught.value, BrokenExecutor)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__  # a learner is told one thing only
    assert (whole_files(folder) if folder.exists() else []) == names_of(finished)
    assert capsys.readouterr().out == ""
    pool = Now()
    assert [one.settings for one in sweep(THREE, pool)] == THREE
    assert pool.asked == [one for one in THREE if one not in finished]


def test_the_sentence_says_what_happened_and_what_to_do():
    assert sweeping._DIED.count(".") == 2
    for word in ("ended from outside", "memory", "kept", "run the cell again"):
        assert word in sweeping._DIED


def test_a_dead_worker_harms_nothing_that_trains_here(monkeypatch, folder):
    """What the notebook itself defines trains meanwhile, and the others are kept."""
    mine = type("Mine", (Alibi,), {"__module__": "__main__"})
    monkeypatch.setattr(sweeping, "train_one", quick)
    with pytest.raises(RuntimeError, match="ended from outside"):
        sweep([*THREE, Settings(mine)], Dying(THREE[:2]))
    assert whole_files(folder) == names_of(THREE[:2])


@pytest.mark.parametrize("error", [BrokenProcessPool, KeyboardInterrupt])
@pytest.mark.parametrize("taken", [0, 1, 2])
def test_a_pool_that_takes_no_more(monkeypatch, folder, error, taken):
    """What it had finished is kept, and what it still holds is cancelled."""
    waits = Future()

    class Broken(Now):
        def submit(self, function, /, *args, **kwargs):
            if len(self.asked) == taken:
                raise error("the process pool is not usable")
            if len(self.asked) == 1:
                self.asked.append(args[0])
                return waits
            return super().submit(function, *args, **kwargs)

    monkeypatch.setattr(sweeping, "train_one", quick)
    with pytest.raises(RuntimeError if error is BrokenProcessPool else error) as caught:
        sweep(THREE, Broken())
    assert error is KeyboardInterrupt or str(caught.value) == sweeping._DIED
    assert (whole_files(folder) if folder.exists() else []) == names_of(THREE[: min(taken, 1)])
    assert waits.cancelled() == (taken == 2)


@posix
def test_a_killed_process_leaves_what_is_finished(monkeypatch, folder, pools):
    """As a system does that has no memory left: with the signal that nobody can refuse."""
    keep, settings = sweeping._keep, [Settings("none", seed) for seed in (0, 1, 2)]

    def keep_and_kill(found, one):
        keep(found, one)
        if len(pools[0]._processes or {}) and one.settings.seed == 0:
            os.kill(next(iter(pools[0]._processes)), signal.SIGKILL)

    monkeypatch.setattr(sweeping, "train_one", asleep)
    monkeypatch.setattr(sweeping, "_keep", keep_and_kill)
    began = time.monotonic()
    with pytest.raises(RuntimeError) as caught:
        sweep(settings)
    assert str(caught.value) == sweeping._DIED
    assert time.monotonic() - began < 25  # nobody waits for those that sleep
    assert ended(pools[0].pids)
    assert whole_files(folder) == names_of(settings[:1])


# interrupts


@pytest.fixture
def interrupt_after_one(monkeypatch, pools):
    """An interrupt while sweep waits, once a model is finished and kept."""
    wait, finished = sweeping.wait, []

    def wait_or_interrupt(futures, **options):
        if finished:
            finished.clear()  # one interrupt only
            raise KeyboardInterrupt
        result = wait(futures, **options)
        finished.extend(result.done)
        return result

    monkeypatch.setattr(sweeping, "wait", wait_or_interrupt)


@pytest.mark.usefixtures("interrupt_after_one")
def test_an_interrupt_keeps_what_is_finished_and_ends_the_rest(monkeypatch, folder, pools, capsys):
    settings = [Settings("none", seed) for seed in (0, 1, 2, 3)]
    monkeypatch.setattr(sweeping, "train_one", asleep)
    with pytest.raises(KeyboardInterrupt):
        sweep(settings)
    assert pools[0].pids
    assert ended(pools[0].pids, 2.0)
    printed = capsys.readouterr().out
    assert printed == "Stopped: 1 of 4 models are ready and kept. Run the cell to go on.\n"
    assert whole_files(folder) == names_of(settings[:1])
    monkeypatch.setattr(sweeping, "train_one", quick)
    pool = Now()
    assert [one.settings for one in sweep(settings, pool)] == settings
    assert pool.asked == settings[1:]


@pytest.mark.parametrize("form", [lambda mine: mine, spec, lambda mine: ("none", mine)])
def test_an_interrupt_while_one_trains_here_keeps_what_others_finished(monkeypatch, folder, capsys, form):
    """A scheme of the notebook trains here while processes train the others, which may be finished first."""

    class Mine(Alibi):
        pass

    def interrupted_here(settings, ticket=None, on_ticket=None):
        if settings.scheme == form(Mine):
            raise KeyboardInterrupt
        return quick(settings)

    monkeypatch.setattr(sweeping, "train_one", interrupted_here)
    monkeypatch.setattr(processes, "can_be_sent", lambda function, one: isinstance(one.scheme, str))
    with pytest.raises(KeyboardInterrupt):
        sweep([*THREE, Settings(form(Mine))], Now())
    assert whole_files(folder) == names_of(THREE)
    # It does not promise to go on with what it can't keep.
    assert capsys.readouterr().out == (
        "Stopped: 3 of 4 models are ready and kept. Run the cell to go on; "
        "what a notebook itself defines begins anew.\n"
    )


def test_an_interrupt_cancels_what_waits_in_the_callers_executor(monkeypatch):
    class Waiting(Now):
        def submit(self, function, /, *args):
            self.asked.append(Future())
            return self.asked[-1]

    def interrupt(futures, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(sweeping, "wait", interrupt)
    pool = Waiting()
    with pytest.raises(KeyboardInterrupt):
        sweep(THREE, pool)
    assert len(pool.asked) == 3
    assert all(future.cancelled() for future in pool.asked)


# real kernels: processes that run a small script, as a notebook does

FIRST = Settings("none", 0, steps=1)
ENDLESS = """
from helpers import training
training.sweep([training.Settings("none", 0, steps=1), training.Settings("none", 1, steps=1_000_000)])
"""
SHORT = """
from helpers import training
found = training.sweep([training.Settings("none", seed, steps=2) for seed in (0, 1)])
print([float(value) for one in found for value in [*one.losses, *one.scores["all"].ravel()]])
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


def wait_for_a_model(process):
    until = time.monotonic() + 120
    while not path_of(FIRST).exists():
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
    wait_for_a_model(process)
    began = time.monotonic()
    (os.kill if to == "itself" else os.killpg)(process.pid, signal.SIGINT)
    printed, errors = process.communicate(timeout=60)
    assert time.monotonic() - began < 2
    assert group_is_gone(process.pid, 2 - (time.monotonic() - began))
    assert process.returncode != 0
    assert "Stopped: 1 of 2 models are ready and kept. Run the cell to go on." in printed
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert errors.count("Traceback") == 1  # no worker cries out too
    assert whole_files(folder) == names_of([FIRST])


@posix
def test_workers_end_when_their_kernel_is_killed(folder, started):
    process = kernel(ENDLESS)
    started.append(process)
    wait_for_a_model(process)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(60)
    assert group_is_gone(process.pid, 10)
    assert whole_files(folder) == names_of([FIRST])


@posix
def test_two_sweeps_at_once_do_not_disturb_each_other(folder, started):
    """Two notebooks train the same models at the same time, while a third one is interrupted."""
    stopped, *others = started[:] = [kernel(ENDLESS), kernel(SHORT), kernel(SHORT)]
    wait_for_a_model(stopped)
    os.killpg(stopped.pid, signal.SIGINT)
    results = [process.communicate(timeout=240) for process in others]
    assert [process.returncode for process in others] == [0, 0], results
    assert results[0][0] == results[1][0] != ""
    stopped.communicate(timeout=60)
    assert whole_files(folder) == names_of([FIRST, *(Settings("none", seed, steps=2) for seed in (0, 1))])


# other people's executors


def test_dask_trains_on_its_workers(monkeypatch, folder):
    from distributed import Client, LocalCluster

    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    options["local_directory"] = str(folder.parent)
    settings = [Settings(scheme, 4, steps=3) for scheme in ("rope", spec("alibi", slope_factor=2))]
    with LocalCluster(**options) as cluster, Client(cluster) as client:
        workers = set(client.run(os.getpid).values())
        monkeypatch.setattr(sweeping, "train_one", together)
        pair = sweep([Settings("none", 0), Settings("none", 1)], client.get_executor())
        monkeypatch.setattr(sweeping, "train_one", lightly)
        found = sweep(settings, client.get_executor())
        patience = sweep(settings, client.get_executor())
    assert {int(one.scores["pid"]) for one in pair} == workers
    assert len(workers) == 2
    for one, again in zip(found, patience, strict=True):
        _, losses = training.train(one.settings)
        np.testing.assert_allclose(one.losses, losses, rtol=1e-6)
        assert equal_runs(one, again)
    (folder / "begun").rename(folder.parent / "begun")
    assert len(whole_files(folder)) == 4
