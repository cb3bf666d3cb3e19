"""The decoder of notebook 06: every gradient against central differences, what it may see, a slow loop."""

import math

import numpy as np
import pytest
from bad_input import frozen
from gradients import SEVEN, agrees

from helpers.doors import Scheme
from helpers.learned import PositionOutOfRange
from helpers.schemes import SCHEMES, Alibi, spec
from helpers.steps import (
    attend,
    cross_entropy,
    join_heads,
    linear,
    look_up,
    rms_norm,
    split_heads,
    split_one,
    squared_relu,
)
from helpers.transformer import forward, loss_and_gradients, new_decoder

VOCABULARY, BATCH, N = 7, 2, 6
SMALL = {"d_model": 8, "n_heads": 2, "n_layers": 2, "d_hidden": 12, "n_positions": 10}
OPTIONS = {"plain": {}, "start": {"start": 9}, "window": {"window": 3}, "sharpened": {"sharpen_beyond": 3}}
everyone = pytest.mark.parametrize("scheme", list(SCHEMES))


def decoder(scheme, dtype=np.float64, noise=0.2, **sizes):
    """A small decoder in which every weight is a number of its own: gains too, and T5's table."""
    model = new_decoder(scheme, VOCABULARY, **(SMALL | sizes), seed=1)
    rng = np.random.default_rng(2)
    for name, array in model.parameters.items():
        model.parameters[name] = (array + rng.normal(0, noise, array.shape)).astype(dtype)
    return model.changed(beyond="repeat") if hasattr(model.scheme, "beyond") else model


def tokens(n=N, batch=BATCH, seed=3):
    return frozen(np.random.default_rng(seed).integers(0, VOCABULARY, (batch, n)))


def losses(model, text, **options):
    return cross_entropy(forward(model, text[:, :-1], **options)[0], text[:, 1:])[0]


def d_mean(logits, targets):
    """The gradient of the mean loss by the logits."""
    return cross_entropy(logits, targets)[1](np.full(targets.shape, 1 / targets.size, logits.dtype))


def numbers(*shape, seed=4):
    return np.random.default_rng(seed).normal(size=shape)


# a new decoder


@everyone
def test_a_new_decoder_has_every_weight_by_name(scheme):
    model = new_decoder(scheme, 62, seed=0)
    shapes = {"embedding": (62, 64), "norm": (64,), "unembedding": (64, 62)}
    for layer in ("0.", "1."):
        shapes |= {f"{layer}norm_1": (64,), f"{layer}qkv": (64, 192), f"{layer}out": (64, 64)}
        shapes |= {f"{layer}norm_2": (64,), f"{layer}up": (64, 256), f"{layer}down": (256, 64)}
    own = {"learned": {"table": (64, 64)}, "shaw": {"key_table": (65, 16)}, "t5": {"table": (16, 4)}}
    joined = SCHEMES[scheme](64, 4, 64).new_weights(np.random.default_rng(0))  # of an eighth one
    found = own.get(scheme, {} if scheme in SEVEN else {name: array.shape for name, array in joined.items()})
    shapes |= {f"scheme.{name}": shape for name, shape in found.items()}
    assert {name: array.shape for name, array in model.parameters.items()} == shapes
    assert {array.dtype for array in model.parameters.values()} == {np.dtype(np.float32)}
    assert (model.n_heads, model.n_layers) == (4, 2)


@everyone
def test_every_parameter_counts(scheme):
    """An array that is given anew under its name is the one that is read and trained."""
    model = decoder(scheme)
    before = forward(model, tokens()).logits
    for name, array in [*model.parameters.items()]:
        model.parameters[name] = array + numbers(*array.shape, seed=9)
        assert np.abs(forward(model, tokens()).logits - before).max() > 1e-6, name
        model.parameters[name] = array
    np.testing.assert_array_equal(forward(model, tokens()).logits, before)


def test_schemes_differ_in_position_alone():
    """The same seed gives all schemes the same other weights."""
    plain = new_decoder("none", VOCABULARY, seed=5)
    for scheme in SCHEMES:
        other = new_decoder(scheme, VOCABULARY, seed=5)
        for name, array in plain.parameters.items():
            np.testing.assert_array_equal(other.parameters[name], array)


def test_the_seed_chooses_the_weights():
    one, same, other = (new_decoder("learned", VOCABULARY, seed=seed) for seed in (1, 1, 2))
    for name in ("embedding", "0.qkv", "scheme.table"):
        np.testing.assert_array_equal(one.parameters[name], same.parameters[name])
        assert (one.parameters[name] != other.parameters[name]).all()


def test_a_class_is_as_good_as_a_name():
    class Steeper(Alibi):
        def bias(self, q, query_positions, key_positions):
            return 2 * super().bias(q, query_positions, key_positions)

    logits = {kind: forward(decoder(kind), tokens())[0] for kind in ("alibi", Alibi, Steeper)}
    np.testing.assert_array_equal(logits["alibi"], logits[Alibi])
    assert np.abs(logits["alibi"] - logits[Steeper]).max() > 1e-3


def test_an_untrained_decoder_guesses():
    loss, _ = loss_and_gradients(new_decoder("none", VOCABULARY), tokens(30, 8), tokens(30, 8, seed=9))
    assert abs(loss - math.log(VOCABULARY)) < 0.7


# each step alone


@pytest.mark.parametrize("shape", [(5, 3), (2, 5, 3), (2, 3, 4, 3)])
def test_linear(shape):
    x, weight = numbers(*shape), numbers(3, 4)
    d_out = numbers(*shape[:-1], 4, seed=5)
    out, back = linear(x, weight)
    np.testing.assert_allclose(out, np.einsum("...i,ij->...j", x, weight), atol=1e-14)
    d_x, d_weight = back(d_out)
    agrees(lambda: (linear(x, weight)[0] * d_out).sum(), x, d_x, relative=1e-8)
    agrees(lambda: (linear(x, weight)[0] * d_out).sum(), weight, d_weight, relative=1e-8)


def test_look_up():
    table, asked, d_out = numbers(5, 3), np.array([[0, 4, 4], [2, 0, 4]]), numbers(2, 3, 3, seed=5)
    out, back = look_up(table, asked)
    np.testing.assert_array_equal(out[1, 0], table[2])
    agrees(lambda: (look_up(table, asked)[0] * d_out).sum(), table, back(d_out), relative=1e-8)


def test_rms_norm():
    x, gain, d_out = 3 * numbers(2, 5, 4), numbers(4, seed=6), numbers(2, 5, 4, seed=5)
    out, back = rms_norm(x, gain)
    for index in np.ndindex(2, 5):
        size = math.sqrt(sum(value**2 for value in x[index]) / 4)
        np.testing.assert_allclose(out[index], x[index] / size * gain, rtol=1e-5)
    d_x, d_gain = back(d_out)
    agrees(lambda: (rms_norm(x, gain)[0] * d_out).sum(), x, d_x, relative=1e-8)
    agrees(lambda: (rms_norm(x, gain)[0] * d_out).sum(), gain, d_gain, relative=1e-8)


def test_rms_norm_of_zeros_is_zero():
    out, back = rms_norm(np.zeros((1, 2, 4), np.float32), np.ones(4, np.float32))
    assert not out.any()
    assert np.isfinite(back(np.ones((1, 2, 4), np.float32))[0]).all()


def test_rms_norm_forgets_the_length():
    x = numbers(1, 3, 8)
    np.testing.assert_allclose(rms_norm(100 * x, np.ones(8))[0], rms_norm(x, np.ones(8))[0], rtol=1e-4)


def test_squared_relu():
    x, d_out = numbers(4, 5), numbers(4, 5, seed=5)
    out, back = squared_relu(x)
    np.testing.assert_array_equal(out, np.where(x > 0, x**2, 0))
    agrees(lambda: (squared_relu(x)[0] * d_out).sum(), x, back(d_out), relative=1e-8)
    np.testing.assert_array_equal(squared_relu(np.zeros(2))[1](np.ones(2)), [0, 0])


@pytest.mark.parametrize("bias_shape", [(5, 5), (3, 5, 5), (2, 3, 5, 5)])
def test_attend(bias_shape):
    q, k, v, d_out = (numbers(2, 3, 5, 4, seed=seed) for seed in range(4))
    bias = numbers(*bias_shape, seed=7)
    before = [array.copy() for array in (q, k, v, bias)]
    out, back, weights = attend(q, k, v, bias)
    scores = np.einsum("bhqd,bhkd->bhqk", q, k) / 2 + bias
    expected = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    np.testing.assert_allclose(weights, expected, rtol=1e-12)
    np.testing.assert_allclose(out, np.einsum("bhqk,bhkd->bhqd", expected, v), rtol=1e-11, atol=1e-13)
    *d_inputs, d_scores = back(d_out)

    def value():
        return (attend(q, k, v, bias)[0] * d_out).sum()

    for array, gradient in zip((q, k, v), d_inputs, strict=True):
        agrees(value, array, gradient)
    extra = tuple(range(4 - len(bias_shape)))
    agrees(value, bias, d_scores.sum(axis=extra))
    for array, was in zip((q, k, v, bias), before, strict=True):
        np.testing.assert_array_equal(array, was)


def test_attend_survives_large_scores():
    q = np.full((1, 1, 3, 4), 1e4, np.float32)
    out, back, weights = attend(q, q, q, np.triu(np.full((3, 3), -np.inf, np.float32), 1))
    np.testing.assert_allclose(weights[0, 0], np.tril(np.ones((3, 3))) / np.arange(1, 4)[:, None], rtol=1e-6)
    assert all(np.isfinite(array).all() for array in (out, *back(out)))


def test_cross_entropy():
    logits, targets = 3 * numbers(2, 5, 4), np.random.default_rng(5).integers(0, 4, (2, 5))
    before = logits.copy()
    found, back = cross_entropy(logits, targets)
    gradient = back(np.full(targets.shape, 1 / targets.size))
    for index in np.ndindex(2, 5):
        total = sum(math.exp(value) for value in logits[index])
        assert abs(found[index] + math.log(math.exp(logits[index][targets[index]]) / total)) < 1e-13
    np.testing.assert_array_equal(logits, before)
    agrees(lambda: cross_entropy(logits, targets)[0].mean(), logits, gradient, relative=1e-8)


def test_cross_entropy_of_extreme_logits():
    logits = np.array([[[1e4, -1e4, 0.0]]], np.float32)
    for target, loss in ((0, 0), (1, 2e4), (2, 1e4)):
        found, back = cross_entropy(logits, np.array([[target]]))
        assert found[0, 0] == loss
        assert np.isfinite(back(np.ones((1, 1), np.float32))).all()


def test_heads_come_apart_and_together():
    x = numbers(2, 5, 12)
    apart = split_one(x, 3)
    assert apart.shape == (2, 3, 5, 4)
    np.testing.assert_array_equal(apart[1, 2, 3], x[1, 3, 8:12])
    np.testing.assert_array_equal(join_heads(apart), x)
    for part, columns in zip(split_heads(x, 2), (slice(0, 4), slice(4, 8), slice(8, 12)), strict=True):
        np.testing.assert_array_equal(part, split_one(x[..., columns], 2))


# every gradient of every scheme


@pytest.mark.parametrize("option", ["plain", "start"])
@everyone
def test_gradients_of_every_weight(scheme, option):
    model, text, start = decoder(scheme), tokens(N + 1), OPTIONS[option].get("start", 0)
    _, gradients = loss_and_gradients(model, text[:, :-1], text[:, 1:], start)
    assert gradients.keys() == model.parameters.keys()

    def value():
        return losses(model, text, start=start).mean()

    rng = np.random.default_rng(6)
    for name, array in model.parameters.items():
        some = None if array.size <= 64 or option == "plain" else rng.choice(array.size, 40, replace=False)
        agrees(value, array, gradients[name], at=some)


@pytest.mark.parametrize(
    "options", [{"window": 3}, {"sharpen_beyond": 3}, {"window": 4, "sharpen_beyond": 2}], ids=str
)
@everyone
def test_gradients_with_a_window_or_sharpened(scheme, options):
    model, text = decoder(scheme), tokens(N + 1)
    logits, back, _ = forward(model, text[:, :-1], **options)
    gradients = back(d_mean(logits, text[:, 1:]))
    rng = np.random.default_rng(6)
    for name, array in model.parameters.items():
        some = None if array.size <= 20 else rng.choice(array.size, 20, replace=False)
        agrees(lambda: losses(model, text, **options).mean(), array, gradients[name], at=some)


@everyone
def test_gradients_at_the_size_that_is_trained(scheme):
    """The largest entry of each gradient and a few at random, in the decoder that notebook 06 trains."""
    model = decoder(scheme, noise=0.02, d_model=64, n_heads=4, d_hidden=256, n_positions=64)
    text = tokens(65, 1)
    _, gradients = loss_and_gradients(model, text[:, :-1], text[:, 1:])
    rng = np.random.default_rng(6)
    for name, array in model.parameters.items():
        some = [int(np.abs(gradients[name]).argmax()), *rng.choice(array.size, 2, replace=False)]
        agrees(lambda: losses(model, text).mean(), array, gradients[name], at=some)


@everyone
def test_loss_and_gradients_are_those_of_forward(scheme):
    model, text = decoder(scheme), tokens(N + 1)
    loss, gradients = loss_and_gradients(model, text[:, :-1], text[:, 1:], 2)
    logits, back, _ = forward(model, text[:, :-1], start=2)
    assert type(loss) is float
    np.testing.assert_allclose(loss, losses(model, text, start=2).mean(), rtol=1e-14)
    for name, gradient in back(d_mean(logits, text[:, 1:])).items():
        np.testing.assert_array_equal(gradient, gradients[name])


@everyone
def test_nothing_changes_the_weights_or_the_tokens(scheme):
    model = decoder(scheme)
    for array in model.parameters.values():
        array.setflags(write=False)  # so that a step that writes to a weight fails
    loss_and_gradients(model, tokens(), tokens(seed=8))


# the slow loop


def slow_logits(weights, text, n_heads, n_layers):
    """The logits after the last of these tokens, from the formulas, number by number: no position at all."""

    def norm(x, gain):
        size = math.sqrt(sum(value * value for value in x) / len(x) + 1e-6)
        return [value / size * g for value, g in zip(x, gain, strict=True)]

    def times(x, matrix):
        return [sum(x[i] * matrix[i][j] for i in range(len(x))) for j in range(len(matrix[0]))]

    stream = [list(weights["embedding"][token]) for token in text]
    width = len(stream[0])
    head = width // n_heads
    for layer in range(n_layers):
        mine = {name: weights[f"{layer}.{name}"] for name in ("norm_1", "qkv", "out", "norm_2", "up", "down")}
        rows = [times(norm(x, mine["norm_1"]), mine["qkv"]) for x in stream]
        after = []
        for i, x in enumerate(stream):
            mixed = []
            for h in range(n_heads):
                query = rows[i][h * head : (h + 1) * head]
                keys = [row[width + h * head : width + (h + 1) * head] for row in rows[: i + 1]]
                scores = [sum(a * b for a, b in zip(query, key, strict=True)) / head**0.5 for key in keys]
                total = sum(math.exp(score) for score in scores)
                shares = [math.exp(score) / total for score in scores]
                for d in range(2 * width + h * head, 2 * width + (h + 1) * head):
                    mixed.append(sum(share * rows[j][d] for j, share in enumerate(shares)))
            x = [a + b for a, b in zip(x, times(mixed, mine["out"]), strict=True)]
            wide = [max(value, 0) ** 2 for value in times(norm(x, mine["norm_2"]), mine["up"])]
            after.append([a + b for a, b in zip(x, times(wide, mine["down"]), strict=True)])
        stream = after
    return times(norm(stream[-1], weights["norm"]), weights["unembedding"])


@pytest.mark.parametrize("n", [1, 2, 5])
def test_forward_equals_the_slow_loop(n):
    model, text = decoder("none"), tokens(n)
    logits, _, _ = forward(model, text)
    weights = {name: array.tolist() for name, array in model.parameters.items()}
    for row in range(BATCH):
        expected = slow_logits(weights, text[row].tolist(), model.n_heads, model.n_layers)
        np.testing.assert_allclose(logits[row, -1], expected, rtol=0, atol=1e-12)


# who sees what


@everyone
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_later_token_never_changes_an_earlier_loss(scheme, options):
    model, text = decoder(scheme), tokens(N + 1)
    before = losses(model, text, **options)
    for place in range(1, N + 1):
        changed = text.copy()
        changed[:, place] = (changed[:, place] + 1) % VOCABULARY
        after = losses(model, changed, **options)
        np.testing.assert_array_equal(after[:, : place - 1], before[:, : place - 1])
        assert (after[:, place - 1] != before[:, place - 1]).all()  # the one that it is the answer to


@everyone
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_texts_of_a_batch_do_not_meet(scheme, options):
    model, text = decoder(scheme), tokens(batch=3)
    together = forward(model, text, **options)[0]
    for row in range(3):
        alone = forward(model, text[row : row + 1], **options)[0]
        np.testing.assert_allclose(together[row], alone[0], rtol=0, atol=1e-12)


@everyone
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_weights_sum_to_one_and_see_no_future(scheme, options):
    model = decoder(scheme, np.float32)
    logits, _, weights = forward(model, tokens(), **options)
    assert logits.shape == (BATCH, N, VOCABULARY)
    assert [layer.shape for layer in weights] == [(BATCH, 2, N, N)] * 2
    offsets = np.arange(N) - np.arange(N)[:, None]
    hidden = (offsets > 0) | (offsets <= -options.get("window", N))
    for layer in weights:
        np.testing.assert_allclose(layer.sum(axis=-1), 1, rtol=1e-6)
        assert not layer[..., hidden].any()
        assert (layer[..., ~hidden] > 0).all()


@pytest.mark.parametrize("scheme", ["none", "shaw", "t5", "rope", "alibi"])
@pytest.mark.parametrize("window", [1, 2, 5])
def test_a_window_is_as_good_as_a_shorter_text_in_one_layer(scheme, window):
    model, text = decoder(scheme, n_layers=1), tokens(9)
    windowed = forward(model, text, window=window)[0]
    for last in range(window, 10):
        alone = forward(model, text[:, last - window : last])[0]
        np.testing.assert_allclose(windowed[:, last - 1], alone[:, -1], rtol=0, atol=1e-12)


@everyone
@pytest.mark.parametrize(("window", "n_layers"), [(1, 2), (2, 2), (3, 2), (3, 3), (2, 1)])
def test_how_far_back_a_window_reaches_through_layers(scheme, window, n_layers):
    model, text = decoder(scheme, n_layers=n_layers), tokens(10)
    reach = n_layers * (window - 1)
    last = forward(model, text, window=window)[0][:, -1]
    for back in range(10):
        changed = text.copy()
        changed[:, 9 - back] = (changed[:, 9 - back] + 1) % VOCABULARY
        moved = np.abs(forward(model, changed, window=window)[0][:, -1] - last).max(axis=-1)
        assert (moved > 1e-9).all() if back <= reach else (moved == 0).all()


@everyone
def test_a_window_of_the_whole_text_changes_nothing(scheme):
    model = decoder(scheme)
    for window in (N, N + 1, 1000):
        np.testing.assert_array_equal(forward(model, tokens(), window=window)[0], forward(model, tokens())[0])


# where a text starts


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-5), (np.float64, 1e-12)])
@pytest.mark.parametrize("scheme", ["none", "shaw", "t5", "rope", "alibi"])
def test_the_start_is_nothing_to_relative_schemes(scheme, dtype, tolerance):
    model = decoder(scheme, dtype, noise=0.02, d_model=64, n_heads=4, d_hidden=256, n_positions=64)
    text = tokens(65)
    here = losses(model, text)
    for start in (1, 64, 448):
        there = losses(model, text, start=start)
        assert there.dtype == dtype
        np.testing.assert_allclose(there, here, rtol=0, atol=tolerance)


@pytest.mark.parametrize("scheme", ["sinusoidal", "learned"])
def test_the_start_matters_to_absolute_schemes(scheme):
    model = decoder(scheme)
    at_zero, at_two = (forward(model, tokens(), start=start)[0] for start in (0, 2))
    assert np.abs(at_two - at_zero).max(axis=(0, 2)).min() > 1e-3


@pytest.mark.parametrize("scheme", ["sinusoidal", "learned"])
def test_the_start_is_the_position_of_the_first_token(scheme):
    """The door is asked for exactly the positions start, start + 1, ..."""
    model, asked = decoder(scheme), []
    embed = model.scheme.embed

    def note(x, positions, **weights):
        asked.append(positions.tolist())
        return embed(x, positions, **weights)

    model.scheme.embed = note
    forward(model, tokens(), start=4)
    assert asked == [[4, 5, 6, 7, 8, 9]]


def test_learned_refuses_a_longer_text():
    model = decoder("learned").changed(beyond="refuse")
    forward(model, tokens(10))
    with pytest.raises(PositionOutOfRange):
        forward(model, tokens(11))
    with pytest.raises(PositionOutOfRange):
        forward(model, tokens(10), start=1)


def test_without_position_a_decoder_of_one_layer_sees_a_set():
    """In one layer, what comes before the last token may be shuffled; with positions it may not."""
    text = tokens(8)
    shuffled = np.concatenate([text[:, [3, 0, 6, 2, 5, 1, 4]], text[:, 7:]], axis=1)
    for scheme in SCHEMES:
        model = decoder(scheme, n_layers=1)
        moved = np.abs(forward(model, text)[0][:, -1] - forward(model, shuffled)[0][:, -1]).max()
        assert (moved < 1e-12) == (scheme == "none")


# sharper scores for more keys


@everyone
@pytest.mark.parametrize("options", [{}, {"start": 3}, {"window": 4}])
def test_sharpening_leaves_short_texts_unchanged(scheme, options):
    model = decoder(scheme, np.float32)
    np.testing.assert_array_equal(
        forward(model, tokens(), sharpen_beyond=N, **options)[0], forward(model, tokens(), **options)[0]
    )


@everyone
def test_sharpening_within_a_longer_text(scheme):
    model, text = decoder(scheme), tokens(10)
    plain, sharp = forward(model, text)[2][0], forward(model, text, sharpen_beyond=4)[2][0]
    np.testing.assert_array_equal(sharp[..., :4, :], plain[..., :4, :])
    for query in range(4, 10):
        seen = slice(query + 1)
        power = plain[..., query, seen] ** (math.log(query + 1) / math.log(4))
        expected = power / power.sum(-1, keepdims=True)
        np.testing.assert_allclose(sharp[..., query, seen], expected, rtol=1e-10, atol=1e-15)


def test_sharpening_counts_the_keys_in_the_window():
    model, text = decoder("rope"), tokens(10)
    np.testing.assert_array_equal(
        forward(model, text, window=4, sharpen_beyond=4)[0], forward(model, text, window=4)[0]
    )


# precision


@everyone
@pytest.mark.parametrize("options", [*OPTIONS.values(), {"window": 3, "sharpen_beyond": 2, "start": 1}])
def test_float32_stays_float32(scheme, options):
    model = decoder(scheme, np.float32)
    logits, back, weights = forward(model, tokens(), **options)
    found, d_logits = cross_entropy(logits, tokens(seed=8))[0], d_mean(logits, tokens(seed=8))
    arrays = [logits, found, d_logits, *weights, *back(d_logits).values()]
    assert {array.dtype for array in arrays} == {np.dtype(np.float32)}


@everyone
def test_float32_is_close_to_float64(scheme):
    model = decoder(scheme, np.float32)
    wide = decoder(scheme, np.float64)
    np.testing.assert_allclose(forward(model, tokens())[0], forward(wide, tokens())[0], rtol=0, atol=1e-4)


# a scheme and a window for each layer


MIXED = {
    "rope in a window, then none": [spec("rope", window=3), "none"],
    "two bases": [spec("rope", base=10, window=3), spec("rope", base=1000)],
    "two tables": ["t5", "t5"],
    "a table and shaw": ["learned", spec("shaw", clip=2)],
}


@pytest.mark.parametrize("schemes", MIXED.values(), ids=MIXED)
def test_gradients_with_a_scheme_for_each_layer(schemes):
    model, text = decoder_of(schemes), tokens(N + 1)
    _, gradients = loss_and_gradients(model, text[:, :-1], text[:, 1:])
    assert gradients.keys() == model.parameters.keys()
    rng = np.random.default_rng(6)
    for name, array in model.parameters.items():
        some = None if array.size <= 20 else rng.choice(array.size, 20, replace=False)
        agrees(lambda: losses(model, text).mean(), array, gradients[name], at=some)


def decoder_of(schemes, **sizes):
    model = new_decoder(schemes, VOCABULARY, **(SMALL | sizes), seed=1)
    rng = np.random.default_rng(2)
    for name, array in model.parameters.items():
        model.parameters[name] = array + rng.normal(0, 0.2, array.shape)
    return model


def test_layers_have_weights_of_their_own():
    assert {"0.scheme.table", "1.scheme.table"} < set(decoder_of(["t5", "t5"]).parameters)
    assert "scheme.table" in decoder_of("t5").parameters
    before, other = forward(decoder_of(["t5", "t5"]), tokens()), decoder_of(["t5", "t5"])
    other.parameters["1.scheme.table"] = other.parameters["1.scheme.table"] + numbers(16, 2)
    after = forward(other, tokens())
    np.testing.assert_array_equal(before.weights[0], after.weights[0])
    assert np.abs(before.weights[1] - after.weights[1]).max() > 1e-3


def test_a_window_of_a_layer():
    model = decoder_of([spec("none", window=2), "none"])
    first, second = forward(model, tokens()).weights
    offsets = np.arange(N) - np.arange(N)[:, None]
    assert not first[..., offsets <= -2].any()
    assert (second[..., offsets <= 0] > 0).all()
    for asked, seen in ((1, 1), (4, 2)):  # the smaller one counts
        first, second = forward(model, tokens(), window=asked).weights
        assert not first[..., offsets <= -seen].any()
        assert (second[..., (offsets <= 0) & (offsets > -asked)] > 0).all()


def test_the_same_in_all_layers_is_the_same_as_one():
    """But for weights, of which each layer has its own when there is one scheme for each."""
    one, each = decoder_of("rope"), decoder_of(["rope", "rope"])
    np.testing.assert_array_equal(forward(one, tokens()).logits, forward(each, tokens()).logits)
    assert one.scheme is one.layers[1].scheme
    with pytest.raises(AttributeError, match="a scheme for each layer"):
        _ = each.scheme


def test_changed_leaves_the_model_alone():
    model = decoder("rope")
    before = forward(model, tokens()).logits
    other = model.changed(inv_freq=model.scheme.inv_freq / 4, attention_factor=1.2)
    assert np.abs(forward(other, tokens()).logits - before).max() > 1e-3
    np.testing.assert_array_equal(forward(model, tokens()).logits, before)
    assert other.parameters is model.parameters
    with pytest.raises(AttributeError, match="no scheme of this decoder has"):
        model.changed(frequencies=3)


# a scheme of one's own, in one cell


class Kerple(Scheme):
    """Chi et al. 2022, the logarithmic kind: two trained numbers a head."""

    def new_weights(self, rng):
        return {"r1": np.ones(self.n_heads, np.float32), "r2": np.ones(self.n_heads, np.float32)}

    def bias(self, q, query_positions, key_positions, *, r1, r2):
        distance = np.abs(key_positions - query_positions[:, None])
        a, b = (np.abs(r)[:, None, None].astype(q.dtype) for r in (r1, r2))

        def back(d_bias):
            d = d_bias.sum(axis=0)
            d_a = (d * -np.log1p(b * distance)).sum(axis=(1, 2)) * np.sign(r1)
            d_b = (d * -a * distance / (1 + b * distance)).sum(axis=(1, 2)) * np.sign(r2)
            return None, {"r1": d_a, "r2": d_b}

        return -a * np.log1p(b * distance), back


class Slope(Scheme):
    def bias(self, q, query_positions, key_positions):
        return 0.1 * (key_positions - query_positions[:, None]).astype(q.dtype)


@pytest.mark.parametrize("kind", [Kerple, Slope])
def test_a_scheme_in_one_cell_is_trained_like_the_others(kind):
    model, text = decoder(kind), tokens(N + 1)
    _, gradients = loss_and_gradients(model, text[:, :-1], text[:, 1:])
    for name, array in model.parameters.items():
        agrees(lambda: losses(model, text).mean(), array, gradients[name])


# what is refused


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"window": 0}, ValueError, "window must be a whole number of at least 1, but got 0"),
        ({"window": -3}, ValueError, "window must be a whole number of at least 1, but got -3"),
        ({"window": 2.5}, TypeError, "window must be a whole number of at least 1, but got 2.5"),
        ({"sharpen_beyond": 1}, ValueError, "sharpen_beyond must be a whole number of at least 2, but got 1"),
        ({"sharpen_beyond": 0}, ValueError, "sharpen_beyond must be .* but got 0"),
        ({"start": -1}, ValueError, "start must be a whole number of at least 0, but got -1"),
    ],
)
@everyone
def test_options_that_are_wrong(scheme, options, error, said):
    with pytest.raises(error, match=said):
        forward(decoder(scheme), tokens(), **options)


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ([[0, VOCABULARY]], ValueError, f"tokens must hold numbers from 0 to {VOCABULARY - 1}, .* but got 7"),
        ([[0, -1]], ValueError, "tokens must hold numbers from 0 to 6, the vocabulary, but got -1"),
        ([0, 1], ValueError, "tokens must have 2 dimension"),
        ([[0.0, 1.0]], TypeError, "tokens must be an array of integers"),
    ],
)
def test_tokens_that_are_wrong(text, error, said):
    with pytest.raises(error, match=said):
        forward(decoder("rope"), np.array(text))


@pytest.mark.parametrize(
    ("targets", "error", "said"),
    [
        (np.full((BATCH, N), VOCABULARY), ValueError, "targets must hold numbers from 0 to 6"),
        (np.full((BATCH, N), -1), ValueError, "targets must hold numbers from 0 to 6, .* but got -1"),
        (np.zeros((BATCH, N - 1), int), ValueError, r"targets must have the shape of tokens, \(2, 6\)"),
        (np.zeros((1, N), int), ValueError, r"targets must have the shape of tokens, \(2, 6\)"),
        (np.zeros(N, int), ValueError, "targets must have 2 dimension"),
        (np.zeros((BATCH, N)), TypeError, "targets must be an array of integers"),
    ],
)
def test_targets_that_are_wrong(targets, error, said):
    with pytest.raises(error, match=said):
        loss_and_gradients(decoder("rope"), tokens(), targets)


@pytest.mark.parametrize("counted", [np.ones((BATCH, N)), np.ones((1, N), bool)])
def test_what_counts_must_fit(counted):
    with pytest.raises((TypeError, ValueError), match="counted must"):
        loss_and_gradients(decoder("rope"), tokens(), tokens(), counted=counted)


def test_only_what_counts_counts():
    model, text, counted = decoder("shaw"), tokens(N + 1), np.zeros((BATCH, N), bool)
    counted[0, 2:4] = counted[1, 5] = True
    loss, gradients = loss_and_gradients(model, text[:, :-1], text[:, 1:], counted=counted)
    assert abs(loss - losses(model, text)[counted].mean()) < 1e-12
    for name in ("0.qkv", "scheme.key_table"):
        agrees(
            lambda: losses(model, text)[counted].mean(), model.parameters[name], gradients[name], at=range(12)
        )


@pytest.mark.parametrize("name", ["d_model", "n_heads", "n_layers", "d_hidden", "n_positions"])
@pytest.mark.parametrize("size", [0, -2])
def test_sizes_that_are_too_small(name, size):
    with pytest.raises(ValueError, match=f"{name} must be a whole number of at least 1, but got {size}"):
        new_decoder("none", VOCABULARY, **(SMALL | {name: size}))


def test_sizes_that_do_not_divide():
    with pytest.raises(ValueError, match="d_model must be a multiple of n_heads = 3, but got 8"):
        new_decoder("none", VOCABULARY, **(SMALL | {"n_heads": 3}))
    with pytest.raises(ValueError, match="rotary_dim must be even"):
        new_decoder("rope", VOCABULARY, **(SMALL | {"d_model": 6, "n_heads": 2}))
    with pytest.raises(ValueError, match="n_positions must be above 8 for T5"):
        new_decoder("t5", VOCABULARY, **(SMALL | {"n_positions": 8}))
    with pytest.raises(ValueError, match="scheme must name one for each of 2 layers, but got 3"):
        new_decoder(["rope", "rope", "none"], VOCABULARY, **SMALL)
    with pytest.raises(ValueError, match="window must be a whole number of at least 1, but got 0"):
        new_decoder(spec("rope", window=0), VOCABULARY, **SMALL)
