"""The task of recall (notebook 06): strings that come twice, how it is trained, and what counts."""

import copy
import itertools

import numpy as np
import pytest
from bad_input import NOT_A_NUMBER, cases, refuses
from threadpoolctl import threadpool_limits

from helpers import measures, recall, training
from helpers.recall import CONTROL, DISTANCES, HOME, STRING, recall_pieces
from helpers.schemes import SCHEMES, spec
from helpers.steps import cross_entropy
from helpers.text import LENGTH, REACH, corpus
from helpers.training import Run, Settings
from helpers.transformer import Read, forward, loss_and_gradients, new_decoder

everyone = pytest.mark.parametrize("scheme", list(SCHEMES))
both = pytest.mark.parametrize("name", ["tragedies", "novels"])


@pytest.fixture(autouse=True)
def one_thread():
    """As in a sweep: on matrices this small, two threads are slower, and far slower on a busy machine."""
    with threadpool_limits(1, user_api="blas"):
        yield


@pytest.fixture
def near(monkeypatch):
    """Short pieces and few distances."""
    monkeypatch.setattr(recall, "REACH", 80)
    monkeypatch.setattr(recall, "DISTANCES", (16, 40))


def words(pieces, letters):
    return ["".join(letters[number] for number in piece) for piece in pieces]


# strings that come twice


@both
@pytest.mark.parametrize("length", [31, 64, 128])
def test_a_string_of_different_small_letters_comes_twice(name, length):
    letters = corpus(name).letters
    distances = np.arange(16, length - 14)  # all that there are
    pieces, _ = recall_pieces(distances, length, letters, np.random.default_rng(0))
    assert pieces.shape == (len(distances), length + 1)
    for distance, word in zip(distances, words(pieces, letters), strict=True):
        string = word[-16:]
        assert len(set(string)) == 16
        assert string.islower()
        assert string.isalpha()
        first = length + 1 - 16 - distance
        assert word[first : first + 16] == string
        around = word[:first] + word[first + 16 : -16]
        assert len(around) == length + 1 - 32  # as many capitals at every distance
        assert around == "" or (around.isupper() and around.isalpha())


@both
def test_strings_and_what_stands_around_them_are_random(name):
    letters = corpus(name).letters
    pieces, _ = recall_pieces(np.full(1000, 20), 64, letters, np.random.default_rng(0))
    found = words(pieces, letters)
    assert len(set(found)) == 1000
    for kind in (str.islower, str.isupper):  # every letter stands at every place
        every = {letter for letter in letters if kind(letter)}
        places = range(65 - 16, 65) if kind is str.islower else [*range(29), *range(45, 49)]
        assert all({word[place] for word in found} == every for place in places)


@pytest.mark.parametrize("distance", [16, 20, 49])
@pytest.mark.parametrize("length", [64])
def test_exactly_the_second_letter_and_on_counts(distance, length):
    """The first letter of a string can't be known; each further one can, by who finds the one before it."""
    letters = corpus().letters
    pieces, counted = recall_pieces(np.full(5, distance), length, letters, np.random.default_rng(0))
    assert counted.dtype == bool
    assert counted.shape == (5, length)
    expected = np.zeros((5, length), bool)
    expected[:, -15:] = True
    np.testing.assert_array_equal(counted, expected)
    targets, inputs = pieces[:, 1:], pieces[:, :-1]
    np.testing.assert_array_equal(targets[counted].reshape(5, 15), pieces[:, -15:])
    for row, place in np.argwhere(counted):
        earlier = np.flatnonzero(inputs[row, :place] == inputs[row, place])
        assert earlier.tolist() == [place - distance]  # one place only, so that one look is enough
        assert inputs[row, place - distance + 1] == targets[row, place]


def test_distances_may_differ_from_piece_to_piece():
    distances = np.array([16, 49, 30, 16])
    pieces, counted = recall_pieces(distances, 64, corpus().letters, np.random.default_rng(0))
    for piece, distance in zip(pieces, distances, strict=True):
        np.testing.assert_array_equal(piece[-16:], piece[-16 - distance : 65 - distance])
    assert (counted.sum(axis=1) == 15).all()


def test_no_distances_no_pieces():
    pieces, counted = recall_pieces(np.zeros(0, int), 64, corpus().letters, np.random.default_rng(0))
    assert pieces.shape == (0, 65)
    assert counted.shape == (0, 64)


@pytest.mark.parametrize(
    ("distances", "length"),
    [([15], 64), ([50], 64), ([0], 64), ([-16], 64), ([16, 50], 64), ([15, 49], 64), ([17], 31), ([16], 30)],
)
def test_distances_out_of_range(distances, length):
    """Two strings must not overlap, and both must lie in the piece."""
    wrong = np.array(distances)
    message = refuses(
        lambda: recall_pieces(wrong, length, corpus().letters, np.random.default_rng(0)),
        ValueError,
        "distances",
        str(wrong),
    )
    assert f"from 16 to {length - 15}" in message


@pytest.mark.parametrize("distances", [*cases(NOT_A_NUMBER, without=("bool", "list")), np.array([20.0])])
def test_distances_of_a_wrong_kind(distances):
    with pytest.raises(TypeError, match="distances must be an array of integers"):
        recall_pieces(distances, 64, corpus().letters, np.random.default_rng(0))


def test_distances_that_are_no_row():
    with pytest.raises(ValueError, match="distances must have 1 dimension"):
        recall_pieces(np.full((2, 2), 20), 64, corpus().letters, np.random.default_rng(0))


def test_pieces_are_the_seeds():
    one, same, other = (
        recall_pieces(np.full(5, 20), 64, corpus().letters, np.random.default_rng(seed))[0]
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


def test_the_distances_that_are_tested_are_legal():
    for distances, length in ((DISTANCES, REACH), (HOME, LENGTH)):
        assert all(STRING <= distance <= length + 1 - STRING for distance in distances)
        assert list(distances) == sorted(set(distances))
    assert HOME[-1] > CONTROL  # else the window would not be too short


# how it is trained


def small(scheme="none", **more):
    return Settings(scheme, 3, "recall", **({"steps": 1, "batch": 6, "recall_steps": 4} | more))


@pytest.fixture
def drawn(monkeypatch):
    """What training drew: pieces of text, and strings with their distances and what counts."""
    noted = {"text": [], "strings": []}
    of_text, of_strings = recall.random_pieces, recall.recall_pieces

    def text(*args):
        noted["text"].append(of_text(*args))
        return noted["text"][-1]

    def strings(distances, *args):
        noted["strings"].append((distances, *of_strings(distances, *args)))
        return noted["strings"][-1][1:]

    monkeypatch.setattr(recall, "random_pieces", text)
    monkeypatch.setattr(recall, "recall_pieces", strings)
    return noted


@both
@pytest.mark.parametrize("length", [64, 40])
def test_half_is_text_to_train_on_and_half_is_strings(drawn, name, length):
    settings = small(text=name, length=length)
    recall.train(settings, settings.new_decoder())
    train = corpus(name).train.astype(np.uint8).tobytes()
    assert len(drawn["text"]) == len(drawn["strings"]) == 4
    for pieces in drawn["text"]:
        assert pieces.shape == (3, length + 1)
        assert all(piece.astype(np.uint8).tobytes() in train for piece in pieces)
    for _, pieces, _ in drawn["strings"]:
        assert pieces.shape == (3, length + 1)
        assert all(word[-16:].islower() for word in words(pieces, corpus(name).letters))
    assert len({pieces.tobytes() for pieces in drawn["text"]}) == 4


@pytest.mark.parametrize(("length", "furthest"), [(64, 49), (40, 25)])
def test_all_distances_that_fit_are_trained(monkeypatch, drawn, length, furthest):
    monkeypatch.setattr(recall, "adamw", lambda *args: None)
    settings = small(length=length, recall_steps=60, batch=20)
    model = new_decoder("none", 62, d_model=4, n_heads=1, n_layers=1, d_hidden=4)
    recall.train(settings, model)
    distances = np.concatenate([distances for distances, *_ in drawn["strings"]])
    assert set(distances) == set(range(16, furthest + 1))


def test_training_is_the_seeds(drawn):
    settings = small("shaw")
    for one in (settings, settings, small("rope"), small("shaw", learning_rate=1.0)):
        recall.train(one, one.new_decoder())
    other = Settings("shaw", 4, "recall", steps=1, batch=6, recall_steps=4)
    recall.train(other, other.new_decoder())
    for kind, part in (("text", lambda one: one), ("strings", lambda one: one[1])):
        noted = [part(one) for one in drawn[kind]]
        for later in (4, 8, 12):  # all models of a seed read the same
            np.testing.assert_array_equal(noted[:4], noted[later : later + 4])
        assert (np.array(noted[:4]) != noted[16:]).any(axis=(1, 2)).all()


@everyone
def test_the_loss_is_the_mean_of_text_and_of_what_can_be_recalled(drawn, scheme):
    settings, seen = small(scheme, recall_steps=2), []
    model = settings.new_decoder()

    def note(step, model):
        seen.append(copy.deepcopy(model))

    note(1, model)
    losses = recall.train(settings, model, note)
    assert losses.shape == (2,)
    for step, before in enumerate(seen[:2]):
        pieces, (_, strings, counted) = drawn["text"][step], drawn["strings"][step]
        of_text = cross_entropy(forward(before, pieces[:, :-1]).logits, pieces[:, 1:])[0].mean()
        of_strings = cross_entropy(forward(before, strings[:, :-1]).logits, strings[:, 1:])[0][counted].mean()
        assert abs(losses[step] - (of_text + of_strings) / 2) < 1e-5


@pytest.mark.parametrize("scheme", ["shaw", "rope", ("learned", "t5")], ids=str)
def test_a_step_follows_both_gradients_alike(drawn, scheme):
    settings = small(scheme, recall_steps=1, warm_up=1, position_rate=5.0, recall_rate=0.01, weight_decay=0.3)
    model = settings.new_decoder()
    recall.train(settings, model)
    expected = settings.new_decoder()
    pieces, (_, strings, counted) = drawn["text"][0], drawn["strings"][0]
    _, of_text = loss_and_gradients(expected, pieces[:, :-1], pieces[:, 1:])
    _, of_strings = loss_and_gradients(expected, strings[:, :-1], strings[:, 1:], counted=counted)
    gradients = {name: (of_text[name] + of_strings[name]) / 2 for name in of_text}
    training.adamw(expected.parameters, gradients, {}, 1, 0.01, 0.3, 5.0)
    begun = settings.new_decoder().parameters
    for name, array in expected.parameters.items():
        assert (array != begun[name]).any()
        # The first step of Adam goes by the sign alone, so a gradient near 0 may go either way.
        near_zero = abs(gradients[name]) < 1e-6
        np.testing.assert_allclose(
            np.where(near_zero, 0, model.parameters[name]), np.where(near_zero, 0, array), rtol=0, atol=1e-4
        )


def test_rates_decay_and_position_rate_are_those_of_the_settings(monkeypatch):
    asked = []

    def noted(parameters, gradients, state, step, rate, decay, position_rate):
        asked.append((step, rate, decay, position_rate))

    monkeypatch.setattr(recall, "adamw", noted)
    settings = small(recall_rate=0.02, warm_up=2, weight_decay=0.5, position_rate=7.0, learning_rate=1.0)
    recall.train(settings, settings.new_decoder())
    rates = training.learning_rates(0.02, 4, 2)
    assert asked == [(step + 1, rates[step], 0.5, 7.0) for step in range(4)]


def test_the_model_is_trained_in_place_and_keeps_its_precision():
    settings = small("shaw")
    model = settings.new_decoder()
    arrays, begun = dict(model.parameters), copy.deepcopy(model.parameters)
    recall.train(settings, model)
    for name, array in arrays.items():
        assert model.parameters[name] is array
        assert array.dtype == np.float32
        assert (array != begun[name]).any()


def test_steps_are_counted_on_from_those_of_the_text():
    settings, seen = small("t5", steps=7, recall_steps=3), []
    recall.train(settings, settings.new_decoder(), lambda step, model: seen.append((step, model)))
    assert [step for step, _ in seen] == [8, 9, 10]
    assert seen[0][1] is seen[1][1]


def test_on_step_is_called_after_each_step():
    settings, seen = small("t5"), []
    model = settings.new_decoder()
    begun = model.parameters["norm"].copy()
    recall.train(settings, model, lambda step, model: seen.append(model.parameters["norm"].copy()))
    assert all((later != earlier).any() for earlier, later in itertools.pairwise([begun, *seen]))


@pytest.mark.parametrize("batch", [0, 1])
def test_a_batch_that_can_not_be_halved(batch):
    settings = small(batch=batch)
    refuses(lambda: recall.train(settings, settings.new_decoder()), ValueError, "batch", batch)


# what is recalled


def looks_back(shift):
    """Stands in for forward: a model that finds where a letter stood before, and says what came next there.

    With a shift, it looks so many places beside that.
    """

    def read(model, tokens, **options):
        n = tokens.shape[1]
        logits = np.zeros((*tokens.shape, 62))
        weights = np.zeros((len(tokens), 2, n, n))
        for row, piece in enumerate(tokens):
            for place in range(n):
                for earlier in np.flatnonzero(piece[:place] == piece[place])[:1]:
                    source = min(max(earlier + 1 + shift, 0), n - 1)
                    logits[row, place, piece[source]] = 1
                    weights[row, 1, place, source] = 1
        return Read(logits, None, [np.zeros_like(weights), weights])

    return read


@pytest.mark.parametrize(("shift", "perfect"), [(0, True), (1, False), (-1, False)])
@pytest.mark.parametrize(("distance", "length"), [(16, 64), (48, 64), (30, 80)])
def test_recall_is_one_for_whoever_looks_back_the_right_distance(
    monkeypatch, shift, perfect, distance, length
):
    monkeypatch.setattr(recall, "forward", looks_back(shift))
    share, weight = recall.recall(None, distance, length, count=8)
    assert (share, weight) == (1, 1) if perfect else (share < 0.2 and weight < 0.2)


def test_recall_is_the_share_of_counted_letters(monkeypatch):
    """Whoever knows only the string's last five letters knows a third of the fifteen."""
    right = looks_back(0)

    def forgets(model, tokens, **options):
        read = right(model, tokens)
        read.logits[:, :-5] = 0
        read.weights[-1][:, :, :-5] = 0
        return read

    monkeypatch.setattr(recall, "forward", forgets)
    share, weight = recall.recall(None, 20, 64, count=8)
    assert abs(share - 1 / 3) < 1e-12
    assert abs(weight - 1 / 3) < 1e-12


def test_the_weight_is_that_of_the_best_head_of_the_last_layer(monkeypatch):
    right = looks_back(0)

    def heads(model, tokens, **options):
        read = right(model, tokens)
        one = read.weights[-1][:, 1]
        last = np.stack([0.2 * one, 0.6 * one, np.zeros_like(one)], axis=1)
        return read._replace(weights=[np.stack([one] * 3, axis=1), last])

    monkeypatch.setattr(recall, "forward", heads)
    assert abs(recall.recall(None, 20, 64, count=8)[1] - 0.6) < 1e-12


def test_the_weight_is_what_attention_gives_the_letter_that_comes_next():
    """A window that ends just before the right key hides it; one key more, and it is seen."""
    model = new_decoder("none", 62)
    assert recall.recall(model, 20, 64, count=8, window=19)[1] == 0
    seen = recall.recall(model, 20, 64, count=8, window=20)[1]
    assert 0.01 < seen < 0.5


@both
def test_recall_asks_the_same_strings_of_all_models(monkeypatch, name):
    asked = []

    def noted(model, tokens, **options):
        asked.append((tokens.copy(), options))
        n = tokens.shape[1]
        return Read(np.zeros((*tokens.shape, 76)), None, [np.zeros((len(tokens), 1, n, n))])

    monkeypatch.setattr(recall, "forward", noted)
    for _ in range(2):
        recall.recall(None, 20, 40, 16, name, window=7, sharpen_beyond=64)
    assert len(asked) == 16
    first, again = (np.concatenate([tokens for tokens, _ in part]) for part in (asked[:8], asked[8:]))
    np.testing.assert_array_equal(first, again)
    assert first.shape == (16, 40)
    assert all(word[-15:].islower() for word in words(first, corpus(name).letters))
    assert all(options == {"window": 7, "sharpen_beyond": 64} for _, options in asked)


def test_evaluate_of_recall_has_a_share_for_each_distance(near):
    scores = training.evaluate(new_decoder("none", 62), "recall")
    shapes = {"home": (3,), "recall": (2,), "right key": (2,), "control": ()}
    assert {name: array.shape for name, array in scores.items()} == shapes
    for array in scores.values():
        assert array.dtype == np.float32
        assert ((array >= 0) & (array < 0.3)).all()  # untrained


def test_each_number_is_what_it_is_said_to_be(monkeypatch):
    asked = []

    def noted(model, distance, length, name, **options):
        asked.append((distance, length, name, options))
        return distance / 1000 + length / 10_000 + bool(options), -distance / 1000

    monkeypatch.setattr(recall, "recall", noted)
    found = recall.of_recall("model", length=64, name="novels")
    np.testing.assert_allclose(found["home"], np.array([16, 32, 48]) / 1000 + 0.0064, rtol=1e-6)
    distances = np.array([16, 32, 48, 64, 96, 128, 192, 256, 384, 496])
    np.testing.assert_allclose(found["recall"], distances / 1000 + 0.0512, rtol=1e-6)
    np.testing.assert_allclose(found["right key"], -distances / 1000, rtol=1e-6)
    np.testing.assert_allclose(found["control"], 0.048 + 0.0064 + 1, rtol=1e-6)
    assert {name for *_, name, _ in asked} == {"novels"}
    assert [one for one in asked if one[3]] == [(48, 64, "novels", {"window": CONTROL})]


def test_evaluating_changes_nothing(near):
    settings = Settings("learned", steps=1, batch=2)
    model, losses = training.train(settings)
    model = Run(settings, model.parameters, losses, {}).decoder()
    before = copy.deepcopy(model.parameters)
    for array in model.parameters.values():
        array.setflags(write=False)
    once, again = (measures.evaluate(model, "recall") for _ in range(2))
    for name, array in once.items():
        np.testing.assert_array_equal(array, again[name])
    for name, array in before.items():
        np.testing.assert_array_equal(model.parameters[name], array)


@pytest.mark.parametrize("scheme", ["alibi", spec("rope", base=100), ("shaw", "none")], ids=str)
def test_text_and_then_strings_train_end_to_end(near, monkeypatch, scheme):
    """From the settings to what is measured, by the door that sweeps use."""
    monkeypatch.setattr(measures, "of_text", lambda model, **more: {"choosing": np.zeros(())})
    one = training.run(small(scheme, steps=3, recall_steps=3))
    assert one.losses.shape == (6,)
    assert np.isfinite(one.losses).all()
    assert {"choosing", "home", "recall", "right key", "control"} <= one.scores.keys()
