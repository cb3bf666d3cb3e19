"""What is measured on text: losses in bins and blocks, on pieces that all models share, of the right part."""

import copy

import numpy as np
import pytest
from bad_input import refuses
from threadpoolctl import threadpool_limits

from helpers import measures, recall, text, training
from helpers.learned import PositionOutOfRange
from helpers.measures import BIN, BLOCKS, PIECES
from helpers.schemes import SCHEMES
from helpers.text import LENGTH, REACH, corpus
from helpers.training import Run, Settings
from helpers.transformer import cross_entropy, forward, new_decoder

everyone = pytest.mark.parametrize("scheme", list(SCHEMES))


@pytest.fixture(autouse=True)
def one_thread():
    """As in a sweep: on matrices this small, two threads are slower, and far slower on a busy machine."""
    with threadpool_limits(1, user_api="blas"):
        yield


@pytest.fixture
def light(monkeypatch):
    """Few and short texts for the evaluation."""
    even_pieces = text.even_pieces

    def fewer(part, count, length):
        return even_pieces(part, min(count, 16), min(length, 81))

    monkeypatch.setattr(text, "even_pieces", fewer)
    monkeypatch.setattr(measures, "STARTS", (0, 16))


def trained(scheme):
    """A decoder after two steps, ready to read."""
    settings = Settings(scheme, steps=2, batch=2)
    model, losses = training.train(settings)
    return Run(settings, model.parameters, losses, {}).decoder()


# the parts


@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_token_losses(chunk):
    model = new_decoder("rope", 62)
    pieces = text.random_pieces(corpus().test, 7, 20, np.random.default_rng(0))
    found = measures.token_losses(model, pieces, chunk, window=5, start=2)
    assert found.shape == (7, 19)
    logits, _, _ = forward(model, pieces[:, :-1], window=5, start=2)
    np.testing.assert_allclose(found, cross_entropy(logits, pieces[:, 1:])[0], rtol=0, atol=1e-5)


def test_binned_are_means_of_blocks_and_bins():
    losses = np.random.default_rng(0).normal(size=(PIECES, REACH))
    found = measures.binned(losses)
    assert found.shape == (BLOCKS, REACH // BIN) == (8, 64)
    for block in range(BLOCKS):
        for part in range(REACH // BIN):
            mean = losses[8 * block : 8 * block + 8, 8 * part : 8 * part + 8].mean()
            assert abs(found[block, part] - mean) < 1e-14
    assert abs(found.mean() - losses.mean()) < 1e-14  # every loss counts alike


def lies_in(piece, part):
    return piece.astype(np.uint8).tobytes() in part.astype(np.uint8).tobytes()


@pytest.mark.parametrize("name", ["tragedies", "novels"])
def test_shared_pieces_are_of_the_test_text(name):
    pieces = measures.shared_pieces(name=name)
    assert pieces.shape == (PIECES, REACH + 1)
    for piece in pieces[:: PIECES // 4]:
        assert lies_in(piece, corpus(name).test)
        assert not lies_in(piece, corpus(name).train)
        assert not lies_in(piece, corpus(name).choose)
    np.testing.assert_array_equal(pieces, measures.shared_pieces(name=name))  # the same for all models


def test_shared_pieces_do_not_overlap_and_reach_over_the_whole_text():
    np.testing.assert_array_equal(measures.shared_pieces(7, 5), text.even_pieces(corpus().test, 5, 8))


def test_blocks_are_neighbours_in_the_text():
    """For intervals, a block is a stretch of text: pieces are in its order."""
    numbered = text.even_pieces(np.arange(len(corpus().test)), PIECES, REACH + 1)
    assert (np.diff(numbered[:, 0]) > REACH).all()


# on text


@everyone
def test_evaluate_on_text(scheme, light):
    model = trained(scheme)
    scores = measures.evaluate(model, "text")
    again = measures.evaluate(model)
    assert {name: array.shape for name, array in scores.items()} == {
        "choosing": (),
        "all": (8, 10),
        "window": (8, 10),
        "sharpened": (8, 10),
        "start": (2,),
    }
    for name, array in scores.items():
        assert array.dtype == np.float32
        assert np.isfinite(array).all()
        assert ((array > 1) & (array < 10)).all()
        np.testing.assert_array_equal(array, again[name])  # the same pieces for all
    inside = LENGTH // BIN
    for name in ("window", "sharpened"):  # up to the trained length, nothing is different
        np.testing.assert_allclose(scores[name][:, :inside], scores["all"][:, :inside], rtol=0, atol=1e-5)
        assert (scores[name][:, inside:] != scores["all"][:, inside:]).any()
    moved = abs(scores["start"][1] - scores["start"][0])
    assert (moved > 1e-4) == (scheme in ("sinusoidal", "learned"))


@pytest.mark.parametrize("length", [64, 32])
@pytest.mark.parametrize("name", ["tragedies", "novels"])
def test_each_number_is_what_it_is_said_to_be(light, length, name):
    model = new_decoder("sinusoidal", len(corpus(name).letters), n_positions=length)
    scores = measures.evaluate(model, "text", length=length, name=name)
    losses = measures.token_losses
    pieces = text.even_pieces(corpus(name).test, 16, 81)
    short = text.even_pieces(corpus(name).test, 16, length + 1)
    choosing = text.even_pieces(corpus(name).choose, 16, length + 1)
    for key, expected in {
        "choosing": losses(model, choosing).mean(),
        "all": losses(model, pieces).reshape(8, 2, 10, 8).mean(axis=(1, 3)),
        "window": losses(model, pieces, window=length).reshape(8, 2, 10, 8).mean(axis=(1, 3)),
        "sharpened": losses(model, pieces, sharpen_beyond=length).reshape(8, 2, 10, 8).mean(axis=(1, 3)),
        "start": [losses(model, short).mean(), losses(model, short, start=16).mean()],
    }.items():
        np.testing.assert_allclose(scores[key], expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["tragedies", "novels"])
def test_settings_are_chosen_by_a_text_of_their_own(monkeypatch, light, name):
    """No number of the race is measured on what settings are chosen by, and nothing on what was trained."""
    train, choose, test, _ = corpus(name)
    drawn, fewer = [], text.even_pieces

    def noted(part, *args):
        drawn.append("choose" if part is choose else "test" if part is test else "another")
        return np.full_like(fewer(part, *args), part is choose)

    monkeypatch.setattr(text, "even_pieces", noted)
    monkeypatch.setattr(measures, "token_losses", lambda model, pieces, **options: pieces[:, 1:])
    scores = measures.evaluate(new_decoder("none", 62), "text", name=name)
    assert {name: set(np.unique(array)) for name, array in scores.items()} == {
        "choosing": {1},
        **{name: {0} for name in ("all", "window", "sharpened", "start")},
    }
    assert sorted(drawn) == ["choose", "test", "test"]
    assert not any(np.shares_memory(train, part) for part in (choose, test))


@everyone
@pytest.mark.parametrize("task", ["text", "recall"])
def test_evaluating_changes_nothing(monkeypatch, light, scheme, task):
    """A learned table that refuses would go on refusing, too: a decoder is asked, and not changed."""
    monkeypatch.setattr(recall, "DISTANCES", (16,))
    monkeypatch.setattr(recall, "HOME", (16,))
    monkeypatch.setattr(recall, "REACH", 80)
    model = trained(scheme)
    weights = {name: array.copy() for name, array in model.parameters.items()}
    facts = copy.deepcopy(vars(model.scheme))
    for array in model.parameters.values():
        array.setflags(write=False)
    measures.evaluate(model, task)
    assert model.parameters.keys() == weights.keys()
    for name, array in weights.items():
        np.testing.assert_array_equal(model.parameters[name], array)
    assert vars(model.scheme).keys() == facts.keys()
    for name, value in facts.items():
        np.testing.assert_array_equal(vars(model.scheme)[name], value)


def test_a_learned_table_is_evaluated_as_it_is(light):
    """What is done beyond the table is chosen where the decoder is made, and not by who measures."""
    with pytest.raises(PositionOutOfRange):
        measures.evaluate(new_decoder("learned", 62), "text")


@pytest.mark.parametrize("call", [measures.evaluate, training.evaluate])
def test_a_task_that_there_is_not(call):
    refuses(lambda: call(new_decoder("none", 62), "speech"), ValueError, "task", "speech")
    refuses(lambda: call(new_decoder("none", 62), None), TypeError, "task", None)


def test_evaluate_asks_who_knows_the_task(monkeypatch):
    monkeypatch.setattr(measures, "of_text", lambda model, **more: ("text", model, more))
    monkeypatch.setattr(recall, "of_recall", lambda model, **more: ("recall", model, more))
    for task in ("text", "recall"):
        usual = {"length": LENGTH, "name": "tragedies"}
        assert measures.evaluate("model", task) == (task, "model", usual)
        more = {"length": 128, "name": "novels"}
        assert measures.evaluate("model", task, **more) == (task, "model", more)


# longer texts


@pytest.mark.parametrize("window", [None, 64])
@pytest.mark.parametrize(("length", "count"), [(100, 3), (200, 2), (64, 2)])
def test_last_losses(length, count, window):
    model = new_decoder("alibi", 62)
    pieces = text.even_pieces(corpus().test, count, length + 1)
    logits = forward(model, pieces[:, :-1], window=window).logits
    expected = cross_entropy(logits, pieces[:, 1:])[0][:, -64:].mean()
    assert abs(measures.last_losses(model, length, window, count) - expected) < 1e-5
