"""Training (notebook 06): settings, batches, the learning rate, the optimiser, and one run."""

import copy
import itertools
import math
import warnings
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from helpers import measures, processes, recall, rope, sweeping, text, training
from helpers.learned import PositionOutOfRange
from helpers.schemes import SCHEMES, Alibi, Learned, spec
from helpers.text import LENGTH, corpus
from helpers.training import Run, Settings
from helpers.transformer import cross_entropy, forward, loss_and_gradients, new_decoder

everyone = pytest.mark.parametrize("scheme", list(SCHEMES))
TRAINED = ("learned", "shaw", "t5")  # these have weights of their own


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
    monkeypatch.setattr(recall, "DISTANCES", (16, 24))
    monkeypatch.setattr(recall, "REACH", 80)


def same_arrays(one, other):
    assert one.keys() == other.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name])
    return True


# settings


def test_the_steps_of_recall_are_counted_only_where_it_is_trained():
    assert Settings("none", steps=7, recall_steps=5).all_steps == 7
    assert Settings("none", task="recall", steps=7, recall_steps=5).all_steps == 12
    assert Settings("none").all_steps == 600


@pytest.mark.parametrize(
    "scheme",
    ["rope", Alibi, spec("rope", base=10, window=3), (spec("rope"), spec("none")), ("rope", Alibi)],
    ids=str,
)
def test_settings_are_found_by_what_they_say(scheme):
    """A sweep keeps runs by their settings, which nobody changes meanwhile."""
    settings = Settings(scheme, 3)
    assert {settings: 1}[Settings(scheme, 3)] == 1
    assert settings != Settings(scheme, 4)
    with pytest.raises(FrozenInstanceError):
        settings.seed = 4


@everyone
@pytest.mark.parametrize("seed", [0, 3])
def test_new_decoder_is_the_decoder_of_the_settings(scheme, seed):
    made = Settings(scheme, seed).new_decoder()
    assert same_arrays(made.parameters, new_decoder(scheme, 62, n_positions=LENGTH, seed=seed).parameters)
    assert type(made.scheme) is SCHEMES[scheme]
    assert made.n_heads == 4
    assert [layer.window for layer in made.layers] == [None, None]


@pytest.mark.parametrize("n_heads", [1, 2, 8])
def test_new_decoder_has_the_number_of_heads(n_heads):
    made = Settings("shaw", n_heads=n_heads).new_decoder()
    assert made.n_heads == made.scheme.n_heads == n_heads
    assert made.parameters["scheme.key_table"].shape == (65, 64 // n_heads)
    assert forward(made, np.zeros((1, 5), int)).weights[0].shape == (1, n_heads, 5, 5)


@pytest.mark.parametrize("length", [32, 128])
def test_new_decoder_has_positions_for_the_length(length):
    made = Settings("learned", length=length).new_decoder()
    assert made.parameters["scheme.table"].shape == (length, 64)
    assert made.scheme.n_positions == length
    forward(made, np.zeros((1, length), int))
    with pytest.raises(PositionOutOfRange):
        forward(made, np.zeros((1, length + 1), int))


@pytest.mark.parametrize(("name", "count"), [("tragedies", 62), ("novels", 76)])
def test_new_decoder_knows_the_letters_of_the_text(name, count):
    made = Settings("none", text=name).new_decoder()
    assert len(made.parameters["embedding"]) == count == len(corpus(name).letters)
    assert made.parameters["unembedding"].shape[1] == count


def test_new_decoder_takes_a_spec():
    made = Settings(spec("rope", base=100, window=3), 5).new_decoder()
    assert made.scheme.base == 100
    np.testing.assert_array_equal(made.scheme.inv_freq, rope.inverse_frequencies(16, 100))
    assert [layer.window for layer in made.layers] == [3, 3]
    assert same_arrays(made.parameters, Settings("rope", 5).new_decoder().parameters)


def test_new_decoder_takes_a_scheme_for_each_layer():
    made = Settings((spec("rope", window=32), "learned"), length=16).new_decoder()
    assert [type(layer.scheme) for layer in made.layers] == [SCHEMES["rope"], Learned]
    assert [layer.window for layer in made.layers] == [32, None]
    assert [name for name in made.parameters if "scheme." in name] == ["1.scheme.table"]
    assert made.parameters["1.scheme.table"].shape == (16, 64)


# batches


@pytest.mark.parametrize("task", ["text", "recall"])
def test_batches_are_the_seeds(task):
    settings = Settings("rope", 7, task, steps=4, batch=3)
    batches = list(training.batches(settings))
    assert [batch.shape for batch in batches] == [(3, LENGTH + 1)] * 4
    for other in (
        settings,
        replace(
            settings, scheme="none", learning_rate=1.0, position_rate=3.0, n_heads=2
        ),  # all read the same
        replace(settings, task="text", recall_steps=9),  # the text comes first, whichever the task
    ):
        np.testing.assert_array_equal(list(training.batches(other)), batches)
    assert (np.array(list(training.batches(replace(settings, seed=8)))) != batches).any(axis=(1, 2)).all()
    assert len({batch.tobytes() for batch in batches}) == 4
    longer = list(training.batches(replace(settings, steps=6)))
    np.testing.assert_array_equal(longer[:4], batches)


@pytest.mark.parametrize("name", ["tragedies", "novels"])
@pytest.mark.parametrize("length", [64, 128])
def test_batches_come_from_the_training_part(name, length):
    train = corpus(name).train.astype(np.uint8).tobytes()
    for batch in training.batches(Settings("none", steps=3, batch=4, text=name, length=length)):
        assert batch.shape == (4, length + 1)
        for piece in batch:
            assert piece.astype(np.uint8).tobytes() in train


# learning rate and optimiser


@pytest.mark.parametrize(("steps", "warm_up"), [(600, 50), (10, 1), (30, 50), (1, 50)])
def test_learning_rates(steps, warm_up):
    rates = training.learning_rates(0.5, steps, warm_up)
    assert rates.shape == (steps,)
    for step in range(steps):
        expected = 0.5 * min(1, (step + 1) / warm_up) * (1 + math.cos(math.pi * step / steps)) / 2
        assert abs(rates[step] - expected) < 1e-15


def test_learning_rates_rise_then_fall_to_nothing():
    rates = training.learning_rates(3e-3, 600, 50)
    peak = rates.argmax()
    assert 45 <= peak < 50
    assert (np.diff(rates[: peak + 1]) > 0).all()
    assert (np.diff(rates[peak:]) < 0).all()
    assert 0.97 * 3e-3 < rates[peak] <= 3e-3
    assert 0 < rates[-1] < 1e-3 * rates[peak]


@pytest.mark.parametrize("steps", [0, 1, 20])
def test_learning_rates_need_no_warm_up(steps):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rates = training.learning_rates(0.5, steps, 0)
    assert rates.shape == (steps,)
    assert np.isfinite(rates).all()
    assert (rates[:1] == 0.5).all()
    assert (np.diff(rates) < 0).all()


def test_training_follows_the_learning_rates_of_its_settings(monkeypatch):
    asked, adamw = [], training.adamw

    def noted(parameters, gradients, state, step, rate, decay, position_rate):
        asked.append((step, rate, decay, position_rate))
        adamw(parameters, gradients, state, step, rate, decay, position_rate)

    monkeypatch.setattr(training, "adamw", noted)
    more = {"learning_rate": 0.02, "warm_up": 3, "weight_decay": 0.5, "position_rate": 7.0}
    training.train(Settings("none", steps=5, batch=1, **more))
    rates = training.learning_rates(0.02, 5, 3)
    assert asked == [(step + 1, rates[step], 0.5, 7.0) for step in range(5)]


def test_adamw_equals_the_plain_formula():
    rng = np.random.default_rng(0)
    shapes = {
        "0.qkv": (3, 4),
        "norm": (4,),
        "scheme.table": (5, 2),
        "1.scheme.rows": (2, 2),
        "embedding": (2, 3),
    }
    start = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    weights, state = {name: array.copy() for name, array in start.items()}, {}
    slow = {name: array.tolist() for name, array in ((n, a.ravel()) for n, a in start.items())}
    means, sizes = ({name: [0.0] * a.size for name, a in start.items()} for _ in range(2))
    for step in range(1, 8):
        gradients = {name: rng.normal(size=shape) for name, shape in shapes.items()}
        rate, decay = 0.1 / step, 0.2
        before = {name: array.copy() for name, array in gradients.items()}
        training.adamw(weights, gradients, state, step, rate, decay)
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
            m, v = state[name]
            np.testing.assert_allclose(m.ravel(), means[name], rtol=0, atol=1e-12)
            np.testing.assert_allclose(v.ravel(), sizes[name], rtol=0, atol=1e-12)


def test_adamw_changes_weights_in_place_and_keeps_their_precision():
    weights = {"w": np.ones((2, 2), np.float32), "scheme.w": np.ones((2, 2), np.float32)}
    same, own, state = weights["w"], weights["scheme.w"], {}
    gradients = {name: np.full((2, 2), 3, np.float32) for name in weights}
    training.adamw(weights, gradients, state, 1, 0.1, 0.0, 3.0)
    assert weights["w"] is same
    assert weights["scheme.w"] is own
    arrays = [same, own, *(array for pair in state.values() for array in pair)]
    assert {array.dtype for array in arrays} == {np.dtype(np.float32)}
    np.testing.assert_allclose(same, 0.9, rtol=1e-6)  # the first step is as long as the rate
    np.testing.assert_allclose(own, 0.7, rtol=1e-6)


def test_adamw_without_gradient_only_decays():
    weights = {"w": np.ones((2, 2)), "gain": np.ones(2)}
    weights |= {"scheme.table": np.ones((2, 2)), "1.scheme.table": np.ones((2, 2))}
    training.adamw(weights, {name: np.zeros_like(a) for name, a in weights.items()}, {}, 1, 0.1, 0.5, 10.0)
    np.testing.assert_allclose(weights["w"], 0.95)
    for name in ("gain", "scheme.table", "1.scheme.table"):
        assert (weights[name] == 1).all()


@pytest.mark.parametrize("faster", [0.0, 0.5, 10.0])
def test_position_rate_multiplies_only_the_steps_of_the_schemes_own_weights(faster):
    rng = np.random.default_rng(0)
    shapes = {
        "0.qkv": (3, 4),
        "norm": (4,),
        "scheme.table": (5, 2),
        "1.scheme.rows": (3,),
        "embedding": (2, 3),
    }
    start = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    usual, other = ({name: array.copy() for name, array in start.items()} for _ in range(2))
    of_usual, of_other = {}, {}
    for step in range(1, 5):
        gradients = {name: rng.normal(size=shape) for name, shape in shapes.items()}
        training.adamw(usual, gradients, of_usual, step, 0.01, 0.2)
        training.adamw(other, gradients, of_other, step, 0.01, 0.2, faster)
    for name in shapes:
        factor = faster if "scheme." in name else 1
        assert (usual[name] != start[name]).all()
        np.testing.assert_allclose(
            other[name] - start[name], factor * (usual[name] - start[name]), rtol=0, atol=1e-14
        )
        for one, same in zip(of_usual[name], of_other[name], strict=True):
            np.testing.assert_array_equal(one, same)


# training


@everyone
def test_a_short_training_lowers_the_loss(scheme):
    settings = Settings(scheme, steps=20, batch=8, warm_up=3, learning_rate=1e-2)
    model, losses = training.train(settings)
    assert losses.shape == (20,)
    assert abs(losses[0] - math.log(62)) < 0.8
    assert losses[-3:].mean() < losses[0] - 0.7
    fresh = new_decoder(scheme, 62, seed=0)
    assert model.parameters.keys() == fresh.parameters.keys()
    for name, array in model.parameters.items():
        assert array.dtype == np.float32
        assert (array != fresh.parameters[name]).any()


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
    training.train(settings, lambda step, model: begun.append(copy.deepcopy(model.parameters)))
    assert same_arrays(begun[0], settings.new_decoder().parameters)
    assert same_arrays(begun[0], new_decoder("shaw", 62, n_positions=LENGTH, seed=seed).parameters)


@pytest.mark.parametrize(
    "settings",
    [
        Settings("rope", steps=2, batch=2),
        Settings("learned", steps=2, batch=2, length=32),
        Settings("shaw", steps=2, batch=2, n_heads=2, text="novels"),
        Settings((spec("t5", window=8), "none"), steps=2, batch=2),
    ],
    ids=str,
)
def test_training_reads_the_loss_of_the_next_letter(settings):
    """The first loss is that of the untrained model, and the last one is before the last step."""
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


@pytest.mark.parametrize(
    "same", [Alibi, spec("alibi"), spec(Alibi, slope_factor=1), (Alibi, "alibi")], ids=str
)
def test_a_scheme_trains_alike_however_it_is_asked_for(same):
    one, other = (training.train(Settings(scheme, steps=2, batch=2))[1] for scheme in ("alibi", same))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("scheme", TRAINED)
def test_position_rate_makes_the_schemes_own_weights_learn_faster(scheme):
    """In one step, and in nothing else: the next one follows from it."""
    settings = Settings(scheme, steps=1, batch=2)
    begun = settings.new_decoder().parameters
    slow, fast = (training.train(replace(settings, position_rate=rate))[0].parameters for rate in (1.0, 10.0))
    for name, array in begun.items():
        if name.startswith("scheme."):
            moved = fast[name] - array
            assert abs(moved).max() > 0
            np.testing.assert_allclose(moved, 10 * (slow[name] - array), rtol=1e-3, atol=1e-5)
        else:
            np.testing.assert_array_equal(fast[name], slow[name])


# one run


@pytest.mark.parametrize("scheme", ["learned", "shaw", "t5", "rope"])
def test_run_keeps_the_schemes_weights_as_they_were(monkeypatch, light, scheme):
    monkeypatch.setattr(training, "SNAPSHOTS", (0, 2, 3))
    one = training.run(Settings(scheme, steps=3, batch=2))
    fresh = new_decoder(scheme, 62)
    own = {
        name.removeprefix("scheme."): array for name, array in fresh.parameters.items() if "scheme." in name
    }
    assert bool(own) == (scheme in TRAINED)
    for name, array in own.items():
        np.testing.assert_array_equal(one.scores[f"{name} after 0"], array)
        assert (one.scores[f"{name} after 2"] != array).any()
        np.testing.assert_array_equal(one.scores[f"{name} after 3"], one.parameters[f"scheme.{name}"])
    assert len(one.scores) == 5 + 3 * len(own)


def test_run_keeps_the_weights_of_every_layers_scheme(monkeypatch, light):
    monkeypatch.setattr(training, "SNAPSHOTS", (0,))
    settings = Settings(("shaw", "shaw"), steps=1, batch=1)
    kept = [array for name, array in training.run(settings).scores.items() if "after 0" in name]
    own = {name: array for name, array in settings.new_decoder().parameters.items() if "scheme." in name}
    assert len(own) == 2
    for array in own.values():
        assert any(np.array_equal(array, one) for one in kept)


def test_run_is_what_train_and_evaluate_give(light):
    settings = Settings("shaw", 4, steps=3, batch=2, length=32, n_heads=2, text="novels")
    one = training.run(settings)
    model, losses = training.train(settings)
    assert one.settings == settings
    assert same_arrays(one.parameters, model.parameters)
    np.testing.assert_array_equal(one.losses, losses)
    scores = training.evaluate(model, "text", length=32, name="novels")
    assert same_arrays({name: one.scores[name] for name in scores}, scores)
    assert one.scores.keys() - scores.keys() == {"key_table after 0"}


def test_run_of_recall_answers_both_questions(light):
    """The model first reads text, then is trained further; all that is measured is of the last model."""
    settings = Settings("shaw", 4, "recall", steps=3, recall_steps=2, batch=4)
    seen, begun = [], []

    def noted(step, model):
        seen.append(step)
        if step == 3:
            begun.append(copy.deepcopy(model))

    one = training.run(settings, noted)
    assert seen == [0, 1, 2, 3, 4, 5]
    assert one.losses.shape == (5,) == (settings.all_steps,)
    model, losses = training.train(settings)
    assert same_arrays(begun[0].parameters, model.parameters)
    more = recall.train(settings, model)
    assert same_arrays(one.parameters, model.parameters)
    np.testing.assert_array_equal(one.losses, [*losses, *more])
    scores = training.evaluate(model, "text") | training.evaluate(model, "recall")
    assert same_arrays({name: one.scores[name] for name in scores}, scores)
    assert one.scores.keys() - scores.keys() == {"key_table after 0"}


def test_run_tells_each_step(light):
    seen = []
    training.run(Settings("none", steps=3, batch=2), lambda step, model: seen.append(step))
    assert seen == [0, 1, 2, 3]


@pytest.mark.parametrize("task", ["text", "recall"])
def test_run_uses_one_thread_and_gives_the_others_back(monkeypatch, light, task):
    def threads():
        return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}

    def noted(result):
        return lambda *args, **options: (during.append(threads()), result)[1]

    during = []
    monkeypatch.setattr(training, "train", noted((new_decoder("none", 62), np.zeros(1))))
    monkeypatch.setattr(recall, "train", noted(np.zeros(1)))
    monkeypatch.setattr(training, "evaluate", noted({}))
    with threadpool_limits(2, user_api="blas"):
        before = threads()
        training.run(Settings("none", task=task))
        assert threads() == before
    assert during == [{1}] * {"text": 2, "recall": 4}[task]


def test_run_keeps_its_memory(monkeypatch, light):
    """Half of a step's time in a notebook's own kernel: helpers/processes.py."""
    asked = []
    monkeypatch.setattr(processes, "keep_memory", lambda: asked.append(True))
    monkeypatch.setattr(training, "train", lambda *args: (asked.append(False), 1 / 0))
    with pytest.raises(ZeroDivisionError):
        training.run(Settings("none"))
    assert asked == [True, False]


# the decoder of a run


def a_run(scheme, **more):
    settings = Settings(scheme, 5, steps=2, batch=2, **more)
    model, losses = training.train(settings)
    return Run(settings, model.parameters, losses, {})


@everyone
def test_the_decoder_of_a_run_is_what_was_trained(scheme):
    found, tokens = a_run(scheme), corpus().test[None, :60]
    assert same_arrays(found.decoder().parameters, found.parameters)
    model, _ = training.train(found.settings)
    np.testing.assert_array_equal(forward(found.decoder(), tokens)[0], forward(model, tokens)[0])


def test_the_decoder_of_a_run_has_the_sizes_and_windows_of_its_settings():
    scheme = (spec("rope", base=100, window=3), spec("shaw", clip=4))
    made = a_run(scheme, n_heads=2, length=32, text="novels").decoder()
    assert made.n_heads == 2
    assert [layer.window for layer in made.layers] == [3, None]
    assert made.layers[0].scheme.base == 100
    assert made.layers[1].scheme.clip == 4
    assert made.layers[1].scheme.n_positions == 32
    assert len(made.parameters["embedding"]) == 76


def test_the_decoder_of_a_learned_run_repeats_its_last_row():
    found, tokens = a_run("learned", length=16), corpus().test[None, :10]
    model = found.decoder()
    assert model.scheme.beyond == "repeat"
    rows = model.parameters["scheme.table"]
    out = model.scheme.embed(np.zeros((1, 6, 64)), np.arange(12, 18), table=rows)[0][0]
    np.testing.assert_allclose(out, rows[[12, 13, 14, 15, 15, 15]])
    far = [forward(model, tokens, start=start).logits for start in (15, 16, 400)]
    np.testing.assert_array_equal(far[0], far[1])
    np.testing.assert_array_equal(far[1], far[2])
    assert np.isfinite(forward(model, corpus().test[None, :100]).logits).all()
    with pytest.raises(PositionOutOfRange):  # a new decoder still refuses
        forward(found.settings.new_decoder(), tokens, start=10)


@pytest.mark.parametrize(
    "scheme", [("learned", "none"), ("none", "learned"), ("learned", "learned")], ids=str
)
def test_every_learned_layer_repeats_its_last_row(scheme):
    found = a_run(scheme, length=16)
    assert np.isfinite(forward(found.decoder(), corpus().test[None, :40]).logits).all()


@everyone
def test_reading_with_the_decoder_changes_nothing_of_the_run(light, scheme):
    found = a_run(scheme)
    before = copy.deepcopy(found)
    model, other = found.decoder(), found.decoder()
    measures.evaluate(model, "text")
    vars(model.scheme).update(n_positions=3, beyond="refuse", base=7)
    assert other.scheme is not model.scheme
    assert other.scheme.n_positions == LENGTH
    assert found.settings == before.settings
    assert same_arrays(found.parameters, before.parameters)
    np.testing.assert_array_equal(found.losses, before.losses)
    assert same_arrays(found.decoder().parameters, before.parameters)


def test_names_can_be_added_to_a_decoder_and_not_to_the_run():
    found = a_run("none")
    found.decoder().parameters["more"] = np.zeros(1)
    assert "more" not in found.parameters


def test_a_decoder_that_is_read_can_go_on_training():
    """A step reaches the decoder, and leaves the run, which tells what was trained, as it is."""
    found = a_run("shaw")
    before = copy.deepcopy(found.parameters)
    model = found.decoder()
    _, gradients = loss_and_gradients(model, np.zeros((1, 4), int), np.zeros((1, 4), int))
    training.adamw(model.parameters, gradients, {}, 1, 0.1, 0.0)
    assert (model.parameters["scheme.key_table"] != before["scheme.key_table"]).any()
    assert same_arrays(found.parameters, before)
    for name, array in found.parameters.items():
        assert not np.shares_memory(model.parameters[name], array)


# many runs


def test_sweep_hands_on_what_it_gets(monkeypatch):
    """Notebooks take it from here; helpers/sweeping.py does the work."""
    monkeypatch.setattr(sweeping, "sweep", lambda settings, executor: ("found", settings, executor))
    assert training.sweep([1, 2], "a pool") == ("found", [1, 2], "a pool")
    assert training.sweep([1]) == ("found", [1], None)


def test_what_notebooks_take_from_here_is_there():
    for name in training.__all__:
        assert hasattr(training, name)
    assert training.evaluate is measures.evaluate
    assert training.token_losses is measures.token_losses
    assert training.corpus is text.corpus
    assert (training.LENGTH, training.REACH) == (64, 512)
