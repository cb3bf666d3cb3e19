"""The seven schemes as objects with three doors (notebook 06): doors, gradients, the helpers behind them."""

import numpy as np
import pytest
from bad_input import frozen
from gradients import SEVEN, agrees

from helpers import attention, relative_bias, rope
from helpers.doors import Facts, Scheme, Size, through
from helpers.learned import PositionOutOfRange
from helpers.schemes import SCHEMES, build, spec
from helpers.sinusoidal import sinusoidal_encoding

D_MODEL, N_HEADS, N_POSITIONS, BATCH, N = 12, 3, 10, 2, 7
HEAD_DIM = D_MODEL // N_HEADS
POSITIONS = frozen(np.arange(N))
# The doors that a scheme has of its own.
USES = {
    name: tuple(
        door for door in ("embed", "rotate", "bias") if getattr(kind, door) is not getattr(Scheme, door)
    )
    for name, kind in SCHEMES.items()
}
# The weights of the seven; whoever joins them says so itself.
NAMED = {
    name: {key: array.shape for key, array in kind(12, 3, 10).new_weights(np.random.default_rng(0)).items()}
    for name, kind in SCHEMES.items()
    if name not in SEVEN
} | {"learned": {"table": (10, 12)}, "shaw": {"key_table": (11, 4)}, "t5": {"table": (16, 3)}}
everyone = pytest.mark.parametrize("name", list(SCHEMES))


class Doors:
    """A scheme with weights of its own: what the decoder's parameters are to it."""

    def __init__(self, scheme, weights):
        self.scheme, self.weights = scheme, weights

    def embed(self, x, positions):
        return self.both("embed", x, positions)[0]

    def rotate(self, x, positions):
        return self.both("rotate", x, positions)[0]

    def bias(self, q, query_positions, key_positions):
        return self.both("bias", q, query_positions, key_positions)[0]

    def both(self, door, *inputs):
        return through(self.scheme, door, *inputs, weights=self.weights)


def new_scheme(name, dtype=np.float32, n_positions=N_POSITIONS, **others):
    """A scheme of which each weight is a different number (T5's start as zeros), in this precision."""
    sizes = {"d_model": D_MODEL, "n_heads": N_HEADS, **others}
    scheme = SCHEMES[name](**sizes, n_positions=n_positions)
    noise = np.random.default_rng(4)
    weights = {
        key: frozen((array + noise.normal(0, 0.3, array.shape)).astype(dtype))
        for key, array in scheme.new_weights(np.random.default_rng(3)).items()
    }
    return Doors(scheme, weights)


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


# the three doors


def test_the_seven_schemes_by_name():
    assert list(SCHEMES)[:7] == SEVEN
    assert all(issubclass(kind, Scheme) for kind in SCHEMES.values())
    doors = {"none": (), "sinusoidal": ("embed",), "learned": ("embed",), "rope": ("rotate",)}
    assert {name: USES[name] for name in SEVEN} == doors | dict.fromkeys(("shaw", "t5", "alibi"), ("bias",))


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
def test_what_comes_back_through_an_unused_door(name):
    scheme, x, q = new_scheme(name), embeddings(), heads()
    d_x, of_embed = scheme.both("embed", x, POSITIONS)[1](x)
    assert d_x is x  # whatever is added to the embeddings, they get the whole gradient
    d_q, of_rotate = scheme.both("rotate", q, POSITIONS)[1](q)
    assert (d_q is q) == ("rotate" not in USES[name])
    d_query, of_bias = scheme.both("bias", q, POSITIONS, POSITIONS)[1](np.ones((BATCH, N_HEADS, N, N)))
    if name in SEVEN:
        assert (d_query is None) == (name != "shaw")  # only Shaw's bias depends on the query
    assert {*of_embed, *of_rotate, *of_bias} == set(NAMED.get(name, {}))


@everyone
def test_weights_are_named_and_float32(name):
    weights = SCHEMES[name](D_MODEL, N_HEADS, N_POSITIONS).new_weights(np.random.default_rng(0))
    assert {key: array.shape for key, array in weights.items()} == NAMED.get(name, {})
    assert all(array.dtype == np.float32 for array in weights.values())


@everyone
def test_a_scheme_owns_no_weights(name):
    """New ones are made each time that they are asked for, and only the caller has them."""
    scheme = SCHEMES[name](D_MODEL, N_HEADS, N_POSITIONS)
    before = repr(scheme)
    one, other = (scheme.new_weights(np.random.default_rng(0)) for _ in range(2))
    for key, array in one.items():
        assert not np.shares_memory(array, other[key])
        np.testing.assert_array_equal(array, other[key])  # the same rng
    assert repr(scheme) == before


# what is said about a scheme stands with it


@everyone
def test_each_scheme_has_its_facts(name):
    facts = SCHEMES[name].facts
    assert isinstance(facts, Facts)
    assert facts.door == {"embed": 1, "rotate": 2, "bias": 3, None: 0}[next(iter(USES[name]), None)]
    small, large = (facts.operations(Size(64, 4, 2, 64, n_keys)) for n_keys in (64, 512))
    assert 0 <= small <= large


def test_labels_colours_and_lines_tell_schemes_apart():
    every = [kind.facts for kind in SCHEMES.values()]
    assert len({facts.label for facts in every}) == len({facts.colour for facts in every}) == len(every)
    assert len({facts.ink for facts in every}) == len(every)


# how a decoder asks for a scheme


@pytest.mark.parametrize("name", ["roPE", "", "xpos"])
def test_a_scheme_that_there_is_not(name):
    with pytest.raises(ValueError, match="scheme must be one of 'none', 'sinusoidal'"):
        spec(name)


@pytest.mark.parametrize("kind", [None, 3, dict, Scheme(8, 2, 8)])
def test_what_is_no_scheme(kind):
    with pytest.raises(TypeError, match="scheme must be a name in SCHEMES or a class that extends Scheme"):
        spec(kind)


def test_options_of_a_scheme():
    stretched = build(spec("rope", base=100), 12, 3, 10)
    np.testing.assert_array_equal(stretched.inv_freq, rope.inverse_frequencies(4, 100))
    assert build(spec("alibi", slope_factor=0.25), 12, 3, 10).slope_factor == 0.25
    assert spec(spec("rope", base=100)) == spec("rope", base=100)
    with pytest.raises(ValueError, match=r"options of Rope must be of base, but got \['slope'\]"):
        build(spec("rope", slope=1), 12, 3, 10)


def test_options_change_what_they_say():
    x, at = embeddings(), POSITIONS
    once, twice = (build(spec("sinusoidal", amplitude=a), D_MODEL, 3, 10).embed(x, at) - x for a in (1, 2))
    np.testing.assert_allclose(twice, 2 * once, atol=1e-14)
    once, twice = (build(spec("alibi", slope_factor=f), D_MODEL, 3, 10).bias(heads(), at, at) for f in (1, 2))
    np.testing.assert_allclose(twice, 2 * once, atol=1e-14)
    assert build(spec("shaw", clip=2), 12, 3, 10).new_weights(np.random.default_rng(0))[
        "key_table"
    ].shape == (5, 4)


@pytest.mark.parametrize("n_positions", [1, 8])
def test_t5_needs_more_positions_than_buckets_of_their_own(n_positions):
    with pytest.raises(ValueError, match=f"n_positions must be above 8 for T5, .*but got {n_positions}"):
        SCHEMES["t5"](12, 3, n_positions)
    SCHEMES["t5"](12, 3, 9)


# a scheme of one's own


class Forgetful(Scheme):
    def bias(self, q, query_positions, key_positions):
        np.zeros(3)


class NoWayBack(Scheme):
    def rotate(self, x, positions):
        return 2 * x


class Untrained(Scheme):
    def new_weights(self, rng):
        return {"w": np.ones(1)}

    def bias(self, q, query_positions, key_positions, *, w):
        return w * np.ones((len(query_positions), len(key_positions)))


def test_a_door_that_forgets_its_return():
    with pytest.raises(TypeError, match=r"Forgetful.bias must return an array, .* is a `return` missing\?"):
        through(Forgetful(12, 3, 10), "bias", heads(), POSITIONS, POSITIONS, weights={})


@pytest.mark.parametrize(
    ("kind", "door", "weights"), [(NoWayBack, "rotate", {}), (Untrained, "bias", {"w": np.ones(1)})]
)
def test_a_door_that_needs_a_way_back_says_so_when_it_is_trained(kind, door, weights):
    inputs = (heads(), POSITIONS) if door == "rotate" else (heads(), POSITIONS, POSITIONS)
    out, back = through(kind(12, 3, 10), door, *inputs, weights=weights)
    assert np.isfinite(out).all()  # reading needs none
    with pytest.raises(TypeError, match=f"{kind.__name__}.{door} must return its output and back"):
        back(out)


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
            out[:, place], embeddings(n=3)[:, place] + scheme.weights["table"][position]
        )


def test_rope_door_is_rotate():
    scheme, at = new_scheme("rope"), POSITIONS + 3
    np.testing.assert_array_equal(scheme.rotate(heads(), at), rope.rotate(heads(), at))
    scheme.scheme.inv_freq, scheme.scheme.attention_factor = rope.inverse_frequencies(HEAD_DIM) / 4, 1.3
    stretched = rope.rotate(heads(), at, rope.inverse_frequencies(HEAD_DIM) / 4, 1.3)
    np.testing.assert_array_equal(scheme.rotate(heads(), at), stretched)
    assert np.abs(stretched - rope.rotate(heads(), at)).max() > 0.1


def test_rope_has_the_frequencies_of_its_head_width():
    scheme = new_scheme("rope")
    np.testing.assert_array_equal(scheme.scheme.inv_freq, rope.inverse_frequencies(HEAD_DIM))
    assert scheme.scheme.attention_factor == 1


@pytest.mark.parametrize("n", [3, N, 20])  # within the clip of 5, beyond it, far beyond it
def test_shaw_door_is_shaw_scores_without_content(n):
    scheme, q, k = new_scheme("shaw", np.float64), heads(n=n), heads(n=n, seed=2)
    with_content = relative_bias.shaw_scores(q, k, scheme.weights["key_table"])
    content = attention.scaled_scores(q, k)
    np.testing.assert_allclose(scheme.bias(q, np.arange(n), np.arange(n)), with_content - content, atol=1e-13)


def test_shaw_clips_at_half_the_trained_length():
    assert new_scheme("shaw", n_positions=64).weights["key_table"].shape == (65, HEAD_DIM)


@pytest.mark.parametrize("n", [N, 40])
def test_t5_door_is_t5_bias(n):
    scheme = new_scheme("t5", np.float64, n_positions=32)
    at = np.arange(n)
    table = scheme.weights["table"]
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
    scheme.scheme.beyond = "repeat"
    table, out = scheme.weights["table"], scheme.embed(embeddings(), POSITIONS + 5) - embeddings()
    for place, row in enumerate([5, 6, 7, 8, 9, 9, 9]):
        np.testing.assert_allclose(out[:, place], np.broadcast_to(table[row], (BATCH, D_MODEL)), atol=1e-15)


def test_no_position_below_zero_can_be_learned():
    scheme = new_scheme("learned")
    for beyond in ("refuse", "repeat"):
        scheme.scheme.beyond = beyond
        with pytest.raises(PositionOutOfRange):
            scheme.embed(embeddings(), POSITIONS - 1)


# each door's gradients, alone


@pytest.mark.parametrize("first", [0, 5])
def test_gradient_of_the_learned_table(first):
    scheme = new_scheme("learned", np.float64)
    scheme.scheme.beyond = "repeat"
    table = scheme.weights["table"] = np.array(scheme.weights["table"])
    weights = np.random.default_rng(5).normal(size=(BATCH, N, D_MODEL))
    gradient = scheme.both("embed", embeddings(), POSITIONS + first)[1](weights)[1]["table"]
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
        scheme.scheme.attention_factor, scheme.scheme.inv_freq = factor, scheme.scheme.inv_freq[:1]  # in part
    weights = np.random.default_rng(5).normal(size=q.shape)
    at = POSITIONS + 3
    agrees(lambda: (scheme.rotate(q, at) * weights).sum(), q, scheme.both("rotate", q, at)[1](weights)[0])


@pytest.mark.parametrize("n", [3, N, 20])
@pytest.mark.parametrize("name", [name for name in SCHEMES if "bias" in USES[name] and NAMED.get(name)])
def test_gradients_through_the_bias(name, n):
    scheme, q, at = new_scheme(name, np.float64), np.array(heads(n=n)), np.arange(n) + 2
    for key, array in scheme.weights.items():
        scheme.weights[key] = np.array(array)
    weights = frozen(np.random.default_rng(5).normal(size=(BATCH, N_HEADS, n, n)))
    d_q, gradients = scheme.both("bias", q, at, at)[1](weights)

    def value():
        return (scheme.bias(q, at, at) * weights).sum()

    for key, array in scheme.weights.items():
        agrees(value, array, gradients[key])
    if d_q is not None:
        agrees(value, q, d_q)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@everyone
def test_gradients_keep_the_precision(name, dtype):
    scheme = new_scheme(name, dtype)
    x, q, d_bias = embeddings(dtype), heads(dtype), np.ones((BATCH, N_HEADS, N, N), dtype)
    d_x, of_embed = scheme.both("embed", x, POSITIONS)[1](x)
    d_turned, of_rotate = scheme.both("rotate", q, POSITIONS)[1](q)
    d_q, of_bias = scheme.both("bias", q, POSITIONS, POSITIONS)[1](d_bias)
    arrays = [d_x, d_turned, *of_embed.values(), *of_rotate.values(), *of_bias.values()]
    arrays += [] if d_q is None else [d_q]
    assert {array.dtype for array in arrays} == {np.dtype(dtype)}
