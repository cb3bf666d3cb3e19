"""The seven schemes as objects with three doors (notebook 06): doors, gradients, the helpers behind them."""

import numpy as np
import pytest
from bad_input import frozen

from helpers import attention, relative_bias, rope
from helpers.learned import PositionOutOfRange
from helpers.schemes import SCHEMES, Scheme
from helpers.sinusoidal import sinusoidal_encoding

D_MODEL, N_HEADS, N_POSITIONS, BATCH, N = 12, 3, 10, 2, 7
HEAD_DIM = D_MODEL // N_HEADS
POSITIONS = frozen(np.arange(N))
USES = {
    "none": (),
    "sinusoidal": ("embed",),
    "learned": ("embed",),
    "shaw": ("bias",),
    "t5": ("bias",),
    "rope": ("rotate",),
    "alibi": ("bias",),
}
NAMED = {"learned": {"table": (10, 12)}, "shaw": {"key_table": (11, 4)}, "t5": {"table": (16, 3)}}
everyone = pytest.mark.parametrize("name", list(SCHEMES))


def new_scheme(name, dtype=np.float32, n_positions=N_POSITIONS, **others):
    """A scheme of which each parameter is a different number (T5's start as zeros), in this precision."""
    sizes = {"d_model": D_MODEL, "n_heads": N_HEADS, **others}
    scheme = SCHEMES[name](**sizes, n_positions=n_positions, rng=np.random.default_rng(3))
    noise = np.random.default_rng(4)
    for key, array in scheme.parameters.items():
        scheme.parameters[key] = frozen((array + noise.normal(0, 0.3, array.shape)).astype(dtype))
    return scheme


def embeddings(dtype=np.float64, n=N):
    return frozen(np.random.default_rng(0).normal(size=(BATCH, n, D_MODEL)).astype(dtype))


def heads(dtype=np.float64, n=N, seed=1):
    return frozen(np.random.default_rng(seed).normal(size=(BATCH, N_HEADS, n, HEAD_DIM)).astype(dtype))


def doors(scheme, dtype=np.float64, positions=POSITIONS):
    """What comes out of each door, by its name."""
    return {
        "embed": scheme.embed(embeddings(dtype, len(positions)), positions),
        "rotate": scheme.rotate(heads(dtype, len(positions)), positions),
        "bias": scheme.bias(heads(dtype, len(positions)), positions, positions),
    }


def slope(value, array, index, step=1e-6):
    """The central difference of value() along one entry of an array, which is put back."""
    kept, sides = array[index], []
    for moved in (kept + step, kept - step):
        array[index] = moved
        sides.append(value())
    array[index] = kept
    return (sides[0] - sides[1]) / (2 * step)


def agrees(value, array, gradient, *, at=None, relative=1e-6):
    """The gradient of value() equals central differences, to a share of the array's largest gradient.

    at: the flat indices to try (all of them, if not given).
    """
    assert gradient.shape == array.shape
    indices = [np.unravel_index(i, array.shape) for i in (range(array.size) if at is None else at)]
    slopes = np.array([slope(value, array, index) for index in indices])
    claimed = np.array([gradient[index] for index in indices])
    largest = np.abs(gradient).max()
    assert largest > 0
    np.testing.assert_allclose(claimed, slopes, rtol=0, atol=relative * largest)


# the three doors


def test_the_seven_schemes_by_name():
    assert list(SCHEMES) == list(USES)
    assert all(issubclass(kind, Scheme) for kind in SCHEMES.values())


@everyone
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_doors_keep_shape_and_precision(name, dtype):
    out = doors(new_scheme(name, dtype), dtype)
    assert out["embed"].shape == (BATCH, N, D_MODEL)
    assert out["rotate"].shape == (BATCH, N_HEADS, N, HEAD_DIM)
    assert out["embed"].dtype == out["rotate"].dtype == dtype
    if "bias" in USES[name]:
        assert np.broadcast_shapes(out["bias"].shape, (BATCH, N_HEADS, N, N)) == (BATCH, N_HEADS, N, N)
        assert out["bias"].shape[-2:] == (N, N)
        assert out["bias"].dtype == dtype
        assert np.isfinite(out["bias"]).all()


@everyone
def test_an_unused_door_returns_its_input_or_nothing(name):
    scheme, x, q = new_scheme(name), embeddings(), heads()
    assert (scheme.embed(x, POSITIONS) is x) == ("embed" not in USES[name])
    assert (scheme.rotate(q, POSITIONS) is q) == ("rotate" not in USES[name])
    assert (scheme.bias(q, POSITIONS, POSITIONS) is None) == ("bias" not in USES[name])


@everyone
def test_a_used_door_changes_something(name):
    scheme = new_scheme(name)
    out = doors(scheme)
    if "embed" in USES[name]:
        assert np.abs(out["embed"] - embeddings()).max(axis=-1).min() > 1e-3
    if "rotate" in USES[name]:
        assert np.abs(out["rotate"] - heads())[:, :, 1:].max(axis=-1).min() > 1e-3
    if "bias" in USES[name]:
        assert np.ptp(out["bias"]) > 0.1


@everyone
def test_an_unused_door_has_no_gradient(name):
    scheme, d_x, d_q, d_bias = new_scheme(name), embeddings(), heads(), np.ones((BATCH, N_HEADS, N, N))
    assert ("embed" in USES[name] and name in NAMED) == bool(scheme.embed_gradient(d_x, POSITIONS))
    assert (scheme.rotate_gradient(d_q, POSITIONS) is d_q) == ("rotate" not in USES[name])
    d_query, of_parameters = scheme.bias_gradient(d_bias, heads(), POSITIONS, POSITIONS)
    assert (d_query is None) == (name != "shaw")  # only Shaw's bias depends on the query
    assert bool(of_parameters) == ("bias" in USES[name] and name in NAMED)


@everyone
def test_parameters_are_named_and_float32(name):
    scheme = SCHEMES[name](D_MODEL, N_HEADS, N_POSITIONS, np.random.default_rng(0))
    assert {key: array.shape for key, array in scheme.parameters.items()} == NAMED.get(name, {})
    assert all(array.dtype == np.float32 for array in scheme.parameters.values())
    gradients = scheme.embed_gradient(embeddings(), POSITIONS)
    gradients |= scheme.bias_gradient(np.ones((BATCH, N_HEADS, N, N)), heads(), POSITIONS, POSITIONS)[1]
    assert {key: array.shape for key, array in gradients.items()} == NAMED.get(name, {})


@everyone
def test_two_schemes_share_nothing(name):
    one, other = (SCHEMES[name](D_MODEL, N_HEADS, N_POSITIONS, np.random.default_rng(0)) for _ in range(2))
    assert one.parameters is not other.parameters
    for key, array in one.parameters.items():
        assert not np.shares_memory(array, other.parameters[key])
        np.testing.assert_array_equal(array, other.parameters[key])  # the same rng


@everyone
def test_text_of_length_zero(name):
    out = doors(new_scheme(name), positions=np.arange(0))
    assert out["embed"].shape == (BATCH, 0, D_MODEL)
    assert out["rotate"].shape == (BATCH, N_HEADS, 0, HEAD_DIM)
    assert out["bias"] is None or out["bias"].shape[-2:] == (0, 0)


@pytest.mark.parametrize("name", ["shaw", "t5", "alibi", "rope"])
def test_relative_schemes_see_only_offsets(name):
    scheme, q, k = new_scheme(name, np.float64), heads(), heads(seed=2)
    here, there = (
        scheme.rotate(q, at) @ scheme.rotate(k, at).swapaxes(-1, -2)
        + (0 if (bias := scheme.bias(q, at, at)) is None else bias)
        for at in (POSITIONS, POSITIONS + 1000)
    )
    np.testing.assert_allclose(here, there, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["shaw", "t5", "alibi"])
def test_bias_for_the_last_queries_alone(name):
    scheme, q = new_scheme(name, np.float64), heads()
    full = np.broadcast_to(scheme.bias(q, POSITIONS, POSITIONS), (BATCH, N_HEADS, N, N))
    last = scheme.bias(q[:, :, -3:], POSITIONS[-3:], POSITIONS)
    np.testing.assert_allclose(np.broadcast_to(last, (BATCH, N_HEADS, 3, N)), full[:, :, -3:], atol=1e-15)


# the doors are the helpers of notebooks 02 to 05


@pytest.mark.parametrize("start", [0, 5, 448])
def test_sinusoidal_door_is_the_sinusoidal_encoding(start):
    """In the original's proportion to the embeddings, which it multiplies by sqrt(d_model)."""
    at = POSITIONS + start
    waves = np.sqrt(D_MODEL) * (new_scheme("sinusoidal").embed(embeddings(), at) - embeddings())
    expected = np.broadcast_to(sinusoidal_encoding(at, D_MODEL), waves.shape)
    np.testing.assert_allclose(waves, expected, rtol=0, atol=1e-14)


def test_learned_door_adds_a_row_of_the_table():
    scheme = new_scheme("learned", np.float64)
    at = np.array([9, 0, 3])
    out = scheme.embed(embeddings(n=3), at)
    for place, position in enumerate(at):
        np.testing.assert_array_equal(
            out[:, place], embeddings(n=3)[:, place] + scheme.parameters["table"][position]
        )


def test_rope_door_is_rotate():
    scheme, at = new_scheme("rope"), POSITIONS + 3
    np.testing.assert_array_equal(scheme.rotate(heads(), at), rope.rotate(heads(), at))
    scheme.inv_freq, scheme.attention_factor = rope.inverse_frequencies(HEAD_DIM) / 4, 1.3
    stretched = rope.rotate(heads(), at, rope.inverse_frequencies(HEAD_DIM) / 4, 1.3)
    np.testing.assert_array_equal(scheme.rotate(heads(), at), stretched)
    assert np.abs(stretched - rope.rotate(heads(), at)).max() > 0.1


def test_rope_has_the_frequencies_of_its_head_width():
    scheme = new_scheme("rope")
    np.testing.assert_array_equal(scheme.inv_freq, rope.inverse_frequencies(HEAD_DIM))
    assert scheme.attention_factor == 1


@pytest.mark.parametrize("n", [3, N, 20])  # within the clip of 5, beyond it, far beyond it
def test_shaw_door_is_shaw_scores_without_content(n):
    scheme, q, k = new_scheme("shaw", np.float64), heads(n=n), heads(n=n, seed=2)
    with_content = relative_bias.shaw_scores(q, k, scheme.parameters["key_table"])
    content = attention.scaled_scores(q, k)
    np.testing.assert_allclose(scheme.bias(q, np.arange(n), np.arange(n)), with_content - content, atol=1e-13)


def test_shaw_clips_at_half_the_trained_length():
    assert new_scheme("shaw", n_positions=64).parameters["key_table"].shape == (65, HEAD_DIM)


@pytest.mark.parametrize("n", [N, 40])
def test_t5_door_is_t5_bias(n):
    scheme = new_scheme("t5", np.float64, n_positions=32)
    at = np.arange(n)
    table = scheme.parameters["table"]
    expected = relative_bias.t5_bias(table, n, max_distance=32, bidirectional=False)
    np.testing.assert_array_equal(scheme.bias(heads(n=n), at, at), expected)


@pytest.mark.parametrize("n_heads", [1, 3, 4])
def test_alibi_door_is_alibi_bias(n_heads):
    scheme = new_scheme("alibi", n_heads=n_heads)
    np.testing.assert_array_equal(
        scheme.bias(heads(), POSITIONS, POSITIONS), relative_bias.alibi_bias(n_heads, N, causal=False)
    )


# the learned table's ceiling


@pytest.mark.parametrize("first", [4, 10, 1000])
def test_learned_refuses_beyond_its_table(first):
    scheme = new_scheme("learned")
    with pytest.raises(PositionOutOfRange, match="positions must be from 0 to 9"):
        scheme.embed(embeddings(), POSITIONS + first)
    scheme.embed(embeddings(), POSITIONS + 3)  # up to its last row


def test_learned_can_repeat_its_last_row():
    scheme = new_scheme("learned", np.float64)
    scheme.beyond = "repeat"
    table, out = scheme.parameters["table"], scheme.embed(embeddings(), POSITIONS + 5) - embeddings()
    for place, row in enumerate([5, 6, 7, 8, 9, 9, 9]):
        np.testing.assert_allclose(out[:, place], np.broadcast_to(table[row], (BATCH, D_MODEL)), atol=1e-15)


def test_no_position_below_zero_can_be_learned():
    scheme = new_scheme("learned")
    for beyond in ("refuse", "repeat"):
        scheme.beyond = beyond
        with pytest.raises(PositionOutOfRange):
            scheme.embed(embeddings(), POSITIONS - 1)


# each door's gradients, alone


@pytest.mark.parametrize("first", [0, 5])
def test_gradient_of_the_learned_table(first):
    scheme = new_scheme("learned", np.float64)
    scheme.beyond = "repeat"
    table = scheme.parameters["table"] = np.array(scheme.parameters["table"])
    weights = np.random.default_rng(5).normal(size=(BATCH, N, D_MODEL))
    gradient = scheme.embed_gradient(weights, POSITIONS + first)["table"]
    agrees(lambda: (scheme.embed(embeddings(), POSITIONS + first) * weights).sum(), table, gradient)


@everyone
def test_gradient_of_the_embeddings_passes_unchanged(name):
    x, weights = np.array(embeddings()), np.random.default_rng(5).normal(size=(BATCH, N, D_MODEL))
    scheme = new_scheme(name)
    agrees(lambda: (scheme.embed(x, POSITIONS) * weights).sum(), x, weights)


@everyone
@pytest.mark.parametrize("factor", [1.0, 1.3])
def test_gradient_through_the_rotation(name, factor):
    scheme, q = new_scheme(name), np.array(heads())
    if name == "rope":
        scheme.attention_factor, scheme.inv_freq = factor, scheme.inv_freq[:1]  # partly turned only
    weights = np.random.default_rng(5).normal(size=q.shape)
    at = POSITIONS + 3
    agrees(lambda: (scheme.rotate(q, at) * weights).sum(), q, scheme.rotate_gradient(weights, at))


@pytest.mark.parametrize("n", [3, N, 20])
@pytest.mark.parametrize("name", ["shaw", "t5"])
def test_gradients_through_the_bias(name, n):
    scheme, q, at = new_scheme(name, np.float64), np.array(heads(n=n)), np.arange(n) + 2
    for key, array in scheme.parameters.items():
        scheme.parameters[key] = np.array(array)
    weights = frozen(np.random.default_rng(5).normal(size=(BATCH, N_HEADS, n, n)))
    d_q, gradients = scheme.bias_gradient(weights, q, at, at)

    def value():
        return (scheme.bias(q, at, at) * weights).sum()

    for key, array in scheme.parameters.items():
        agrees(value, array, gradients[key])
    if d_q is not None:
        agrees(value, q, d_q)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@everyone
def test_gradients_keep_the_precision(name, dtype):
    scheme = new_scheme(name, dtype)
    d_bias = np.ones((BATCH, N_HEADS, N, N), dtype)
    d_q, gradients = scheme.bias_gradient(d_bias, heads(dtype), POSITIONS, POSITIONS)
    arrays = [*gradients.values(), *scheme.embed_gradient(embeddings(dtype), POSITIONS).values()]
    arrays += [scheme.rotate_gradient(heads(dtype), POSITIONS), *([] if d_q is None else [d_q])]
    assert {array.dtype for array in arrays} == {np.dtype(dtype)}
