"""Rotary embedding (notebook 04): frequencies, rotation in both layouts, rounding to bfloat16."""

import cmath
import math
from fractions import Fraction

import numpy as np
import pytest
from bad_input import (
    NOT_A_COUNT,
    NOT_A_NUMBER,
    NOT_FINITE,
    cases,
    finite_or_refused,
    frozen,
    refuses,
    with_one,
    wrong_kinds,
)
from hypothesis import given
from hypothesis import strategies as st
from trusted import exact_angle, exact_sine_cosine, faults, few, many, reference, untested

from helpers import rope
from helpers.rope import (
    half_to_interleaved,
    interleaved_to_half,
    inverse_frequencies,
    rotate,
    round_to_bfloat16,
)

REFERENCE = reference("rope")
PRECISION = reference("precision")
TOLERANCE = REFERENCE["tolerance"]["f64"]
FAULTS = faults("rope", "rope partial", "rope shapes", "rope kv cache", "rope precision")
LAYOUTS = ["interleaved", "half"]
EACH_LAYOUT = pytest.mark.parametrize("layout", LAYOUTS)

Q, K = frozen(REFERENCE["q"]), frozen(REFERENCE["k"])
POSITIONS = frozen(REFERENCE["positions"])
BASE = REFERENCE["base"]

FAR = st.floats(-1e4, 1e4) | st.integers(-(10**4), 10**4).map(float)
BASES = st.sampled_from([0.5, 1.0, 100, 10_000.0, 500_000.0, 1e12])
EVEN_WIDTHS = st.integers(1, 16).map(lambda half: 2 * half)


def test_each_known_fault_has_a_test():
    assert untested(FAULTS, globals()) == []


def same(found, expected):
    """Equal up to the last digit: a vectorised product may round another way than a single one."""
    np.testing.assert_allclose(found, expected, rtol=1e-14, atol=1e-15)


# The slow form: each pair is one complex number, turned by multiplication.


def pairs_of(m, layout):
    """Which two features make pair i."""
    return [(2 * i, 2 * i + 1) if layout == "interleaved" else (i, i + m) for i in range(m)]


def slow_rotate_vector(vector, position, inv_freq, factor=1.0, layout="interleaved"):
    turned = [float(number) for number in vector]
    for (a, b), frequency in zip(pairs_of(len(inv_freq), layout), inv_freq, strict=True):
        number = complex(vector[a], vector[b]) * cmath.exp(1j * float(position) * float(frequency)) * factor
        turned[a], turned[b] = number.real, number.imag
    return turned


def slow_rotate(x, positions, inv_freq, factor=1.0, layout="interleaved"):
    """Every vector on its own; positions already have the shape of x without its last axis."""
    result = np.array(x, float)
    for index in np.ndindex(*x.shape[:-1]):
        result[index] = slow_rotate_vector(x[index], positions[index], inv_freq, factor, layout)
    return result


@st.composite
def calls(draw):
    """x, positions of a legal shape, and the keywords of a legal call."""
    batch = draw(st.sampled_from([(), (1,), (2,), (2, 3), (0,)]))
    n, m = draw(st.integers(0, 4)), draw(st.integers(1, 4))
    head_dim = 2 * m + 2 * draw(st.integers(0, 2))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    x = rng.normal(size=(*batch, n, head_dim))
    full = (*batch, n)
    shape = draw(st.sampled_from([(n,), full, *([(*batch[:-1], 1, n)] if batch else [])]))
    positions = rng.uniform(-1e4, 1e4, shape) if draw(st.booleans()) else rng.integers(-(10**4), 10**4, shape)
    inv_freq = rng.normal(size=m)
    inv_freq[rng.random(m) < 0.2] = 0.0
    factor, layout = draw(st.sampled_from([1.0, 1.2772, 2])), draw(st.sampled_from(LAYOUTS))
    return frozen(x), frozen(positions), frozen(inv_freq), factor, layout


@many
@given(calls())
def test_rotate_equals_complex_multiplication(call):
    x, positions, inv_freq, factor, layout = call
    before = [array.copy() for array in (x, positions, inv_freq)]
    found = rotate(x, positions, inv_freq, factor, layout=layout)
    assert found.shape == x.shape
    assert found.dtype == np.float64
    slow = slow_rotate(x, np.broadcast_to(positions, x.shape[:-1]), inv_freq, factor, layout)
    np.testing.assert_allclose(found, slow, rtol=0, atol=1e-10)
    for array, copy in zip((x, positions, inv_freq), before, strict=True):
        np.testing.assert_array_equal(array, copy)


@few
@given(FAR, EVEN_WIDTHS, BASES, st.sampled_from(LAYOUTS), st.integers(0, 2**32))
def test_a_base_stands_for_its_frequencies(position, head_dim, base, layout, seed):
    x, positions = np.random.default_rng(seed).normal(size=(1, head_dim)), np.array([position])
    with_base = rotate(x, positions, base=base, layout=layout)
    with_frequencies = rotate(x, positions, inverse_frequencies(head_dim, base), layout=layout)
    same(with_base, with_frequencies)


def test_defaults():
    same(rotate(Q, POSITIONS), rotate(Q, POSITIONS, base=10_000, layout="interleaved"))
    same(rotate(Q, POSITIONS), rotate(Q, POSITIONS, None, 1.0))
    same(inverse_frequencies(8), inverse_frequencies(8, 10_000))


# inverse_frequencies


@many
@given(EVEN_WIDTHS, BASES)
def test_inverse_frequencies_equal_the_loop(rotary_dim, base):
    found = inverse_frequencies(rotary_dim, base)
    assert found.shape == (rotary_dim // 2,)
    assert found.dtype == np.float64
    np.testing.assert_allclose(
        found, [1 / base ** (2 * i / rotary_dim) for i in range(rotary_dim // 2)], rtol=1e-14
    )


@pytest.mark.parametrize("rotary_dim", [32, 64, 128])
@pytest.mark.parametrize("base", [10_000, 500_000])
def test_inverse_frequencies_equal_70_digit_arithmetic(base, rotary_dim):
    """To three units of the last place, as a power is; exp(-ln(base) * x) is off by up to eight."""
    exact = [float(exact_angle(1, (2 * i, rotary_dim), base)) for i in range(rotary_dim // 2)]
    np.testing.assert_allclose(inverse_frequencies(rotary_dim, base), exact, rtol=3 * np.finfo(float).eps)


@pytest.mark.parametrize("base", [5e-324, 1e-300, 1.0, 1e300, 1.7e308])
@pytest.mark.parametrize("rotary_dim", [2, 6, 512])
def test_absurd_bases_are_refused_or_finite_never_nan(rotary_dim, base):
    finite_or_refused(lambda: inverse_frequencies(rotary_dim, base))
    finite_or_refused(lambda: rotate(np.ones((1, rotary_dim)), np.array([1e10]), base=base))


# against the reference


@pytest.mark.parametrize("name", ["q", "k"])
@EACH_LAYOUT
def test_rotate_equals_the_reference(layout, name):
    found = rotate({"q": Q, "k": K}[name], POSITIONS, base=BASE, layout=layout)
    np.testing.assert_allclose(found, REFERENCE[layout][name], rtol=0, atol=TOLERANCE)


@EACH_LAYOUT
def test_scores_equal_the_reference_and_do_not_move_with_a_shift(layout):
    scores = REFERENCE["scores"]
    for shift in (0, 17):
        q, k = (rotate(array, POSITIONS + shift, base=BASE, layout=layout) for array in (Q, K))
        np.testing.assert_allclose(q @ k.swapaxes(-1, -2), scores[layout], rtol=0, atol=TOLERANCE)
    assert scores["shift_all_positions_by_17_max_abs_change"] < TOLERANCE


def test_the_permutation_between_the_layouts_as_in_the_reference():
    permutation = REFERENCE["permutation"]
    features = np.arange(8.0)
    np.testing.assert_array_equal(interleaved_to_half(features), permutation["interleaved_to_half"])
    np.testing.assert_array_equal(half_to_interleaved(features), permutation["half_to_interleaved"])
    one = rotate(interleaved_to_half(Q), POSITIONS, base=BASE, layout="half")
    other = interleaved_to_half(rotate(Q, POSITIONS, base=BASE))
    assert np.abs(one - other).max() == permutation["max_abs_diff"]


def test_the_rows_of_a_weight_matrix_are_permuted_as_in_the_reference():
    """Moving Meta's weights to the half layout reorders the rows of each head."""
    case = REFERENCE["permutation"]["hf_convert_llama_weights_row_order"]
    rows = np.arange(float(case["n_heads"] * case["head_dim"])).reshape(case["n_heads"], case["head_dim"])
    np.testing.assert_array_equal(interleaved_to_half(rows).ravel(), case["new_row_i_comes_from_old_row"])


@EACH_LAYOUT
def test_partial_rotation_equals_the_reference(layout):
    partial = REFERENCE["partial"]
    inv_freq = inverse_frequencies(partial["rotary_dim"], BASE)
    found = rotate(Q, POSITIONS, inv_freq, layout=layout)
    np.testing.assert_allclose(found, partial[f"{layout}_q"], rtol=0, atol=TOLERANCE)


def test_rope_05_proportional_variant_as_in_the_reference():
    """Its frequencies are those of the full width, then zeros: an inv_freq like any other."""
    variant = REFERENCE["partial"]["proportional_variant"]
    inv_freq = np.where(np.arange(4) < 2, inverse_frequencies(8, BASE), 0.0)
    np.testing.assert_allclose(inv_freq, variant["inv_freq_lib_float32"], rtol=1e-7)
    found = rotate(Q, POSITIONS, inv_freq, layout="half")
    np.testing.assert_allclose(found, variant["q"], rtol=0, atol=TOLERANCE)
    difference = np.abs(found - np.array(REFERENCE["partial"]["half_q"])).max()
    assert difference == pytest.approx(variant["differs_from_half_partial_max_abs"], abs=5e-3)


@EACH_LAYOUT
def test_one_hot_as_in_the_reference(layout):
    case = REFERENCE["one_hot"]
    found = rotate(np.array([case["x"]]), np.array([case["position"]]), base=case["base"], layout=layout)
    np.testing.assert_allclose(found[0], case[layout], rtol=0, atol=TOLERANCE)


# properties


@many
@given(FAR, EVEN_WIDTHS, BASES, st.sampled_from(LAYOUTS), st.integers(0, 2**32))
def test_lengths_are_kept_and_multiplied_by_the_attention_factor(position, head_dim, base, layout, seed):
    x, positions = np.random.default_rng(seed).normal(size=(1, head_dim)), np.array([position])
    length = np.linalg.norm(x)
    assert np.linalg.norm(rotate(x, positions, base=base, layout=layout)) == pytest.approx(length, rel=1e-14)
    scaled = rotate(x, positions, attention_factor=1.5, base=base, layout=layout)
    assert np.linalg.norm(scaled) == pytest.approx(1.5 * length, rel=1e-14)


@many
@given(FAR, FAR, FAR, EVEN_WIDTHS, st.sampled_from(LAYOUTS), st.integers(0, 2**32))
def test_scores_depend_on_the_offset_alone(p, r, shift, head_dim, layout, seed):
    q, k = np.random.default_rng(seed).uniform(-1, 1, size=(2, 1, head_dim))

    def score(query_position, key_position):
        turned_q = rotate(q, np.array([query_position]), layout=layout)
        return (turned_q @ rotate(k, np.array([key_position]), layout=layout).T).item()

    assert score(p + shift, r + shift) == pytest.approx(score(p, r), abs=1e-10 * head_dim)


@few
@given(FAR, FAR, EVEN_WIDTHS, st.sampled_from(LAYOUTS))
def test_rotations_add_up_and_can_be_undone(first, second, head_dim, layout):
    x = np.linspace(-1, 1, head_dim)[None, :]
    there = rotate(x, np.array([first]), layout=layout)
    np.testing.assert_allclose(rotate(there, np.array([-first]), layout=layout), x, atol=1e-14)
    both = rotate(there, np.array([second]), layout=layout)
    np.testing.assert_allclose(both, rotate(x, np.array([first + second]), layout=layout), atol=1e-10)


@EACH_LAYOUT
def test_position_zero_changes_nothing(layout):
    np.testing.assert_array_equal(rotate(Q, np.zeros(6), layout=layout), Q)


def test_the_sign_is_a_turn_to_the_left():
    """A flipped sign keeps length and shift invariance, so only a value can catch it."""
    found = rotate(np.array([[1.0, 0.0]]), np.array([1]))
    np.testing.assert_allclose(found, [[math.cos(1), math.sin(1)]], rtol=1e-15)
    found = rotate(np.array([[0.0, 1.0]]), np.array([1]), layout="half")
    np.testing.assert_allclose(found, [[-math.sin(1), math.cos(1)]], rtol=1e-15)


@EACH_LAYOUT
def test_the_attention_factor_leaves_what_is_not_rotated(layout):
    inv_freq = inverse_frequencies(4)
    plain, scaled = (
        rotate(Q, POSITIONS, inv_freq, layout=layout),
        rotate(Q, POSITIONS, inv_freq, 3.0, layout=layout),
    )
    np.testing.assert_allclose(scaled[..., :4], 3.0 * plain[..., :4], rtol=1e-14)
    np.testing.assert_array_equal(scaled[..., 4:], Q[..., 4:])


@EACH_LAYOUT
def test_zero_and_negative_frequencies_are_legal(layout):
    inv_freq = np.array([0.3, 0.0, -0.3, 2.0])
    found = rotate(Q, POSITIONS, inv_freq, layout=layout)
    for i, (a, b) in enumerate(pairs_of(4, layout)):
        if inv_freq[i] == 0:
            np.testing.assert_array_equal(found[..., [a, b]], Q[..., [a, b]])
    back = rotate(found, POSITIONS, -inv_freq, layout=layout)
    np.testing.assert_allclose(back, Q, atol=1e-13)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("position", [3, 1857, 131_071, 999_999])
def test_the_result_has_the_dtype_of_x_and_its_angles_are_float64(position, dtype):
    """In a narrow type only the result is rounded: angles in float32 would miss by 0.02 at the far end."""
    x = np.random.default_rng(7).uniform(-1, 1, size=(1, 64)).astype(dtype)
    positions = np.array([position])
    for layout in LAYOUTS:
        found = rotate(x, positions, layout=layout)
        assert found.dtype == dtype
        exact = rotate(x.astype(float), positions, layout=layout)
        np.testing.assert_allclose(found, exact, rtol=0, atol=3 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64])
def test_whole_numbers_are_never_rounded(dtype):
    x = frozen(np.array([[1, 0, 2, 3]], dtype))
    found = rotate(x, np.array([1]))
    assert found.dtype == np.float64
    same(found, rotate(x.astype(float), np.array([1])))
    assert found[0, 0] == pytest.approx(math.cos(1))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.uint64, np.float16, np.float32])
def test_positions_of_every_type_give_the_same_angles(dtype):
    positions = np.array([0, 1, 2, 3, 7, 100])
    same(rotate(Q, positions.astype(dtype)), rotate(Q, positions))


def test_fractional_and_negative_positions():
    x = np.array([[1.0, 0.0]] * 3)
    found = rotate(x, np.array([0.5, -1.0, -2.25]))
    np.testing.assert_allclose(found[:, 0], np.cos([0.5, 1.0, 2.25]), rtol=1e-15)
    np.testing.assert_allclose(found[:, 1], np.sin([0.5, -1.0, -2.25]), rtol=1e-15)


@pytest.mark.parametrize("shape", [(0, 8), (2, 0, 8), (2, 3, 0, 8), (0, 4, 8)], ids=str)
@EACH_LAYOUT
def test_a_sequence_of_length_zero_gives_an_empty_result(layout, shape):
    found = rotate(np.zeros(shape), np.zeros(shape[-2]), layout=layout)
    assert found.shape == shape


@pytest.mark.parametrize("position", [1e15, 1e300, -1e300, 1.7e308, 5e-324])
@EACH_LAYOUT
def test_absurd_positions_stay_finite(layout, position):
    found = rotate(np.ones((1, 8)), np.array([position]), layout=layout)
    assert np.linalg.norm(found) == pytest.approx(math.sqrt(8), rel=1e-13)


@pytest.mark.parametrize("size", [5e-324, 1e-310, 1e-160, 1e160, 1e307])
@EACH_LAYOUT
def test_very_small_and_very_large_vectors_stay_finite(layout, size):
    found = rotate(np.full((3, 8), size), np.array([0, 1, 1000]), layout=layout)
    assert np.all(np.isfinite(found))
    np.testing.assert_array_equal(found[0], np.full(8, size))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_vectors_at_the_edge_of_a_dtype_are_refused_or_finite_never_infinite(dtype):
    """(u, v) turned by an eighth of a turn has one entry 1.41 u, which may be too large for the type."""
    edge = np.full((1, 2), np.finfo(dtype).max, dtype)
    finite_or_refused(lambda: rotate(edge, np.array([-math.pi / 4])))
    finite_or_refused(lambda: rotate(edge, np.array([0]), attention_factor=2.0))
    finite_or_refused(lambda: rotate(np.ones((1, 2), dtype), np.array([1e300]), np.array([1e300])))
    for factor in (1e300, 1.7e308):
        for x in (np.zeros((1, 2), dtype), np.full((1, 2), np.finfo(dtype).tiny)):
            finite_or_refused(lambda x=x, f=factor: rotate(x, np.array([1]), attention_factor=f))


@EACH_LAYOUT
def test_the_memory_layout_of_x_does_not_matter(layout):
    """Transposed, strided, reversed and broadcast views are arrays like any other."""
    rng = np.random.default_rng(11)
    views = {
        "transposed": rng.normal(size=(8, 3)).T,
        "fortran": np.asfortranarray(rng.normal(size=(2, 3, 8))),
        "strided": rng.normal(size=(3, 16))[:, ::2],
        "reversed": rng.normal(size=(3, 8))[::-1, ::-1],
        "broadcast": np.broadcast_to(rng.normal(size=(3, 8)), (2, 3, 8)),
    }
    for name, x in views.items():
        plain = rotate(np.ascontiguousarray(x), np.arange(3), layout=layout)
        np.testing.assert_allclose(rotate(x, np.arange(3), layout=layout), plain, atol=1e-15, err_msg=name)


# layouts


@few
@given(st.integers(0, 8).map(lambda half: 2 * half), st.sampled_from([(), (3,), (2, 3), (0,)]))
def test_the_permutations_undo_each_other(width, batch):
    x = frozen(np.random.default_rng(0).normal(size=(*batch, width)))
    half = interleaved_to_half(x)
    assert half.shape == x.shape
    np.testing.assert_array_equal(half[..., : width // 2], x[..., 0::2])
    np.testing.assert_array_equal(half[..., width // 2 :], x[..., 1::2])
    np.testing.assert_array_equal(half_to_interleaved(half), x)
    np.testing.assert_array_equal(interleaved_to_half(half_to_interleaved(x)), x)


@pytest.mark.parametrize("change", [interleaved_to_half, half_to_interleaved])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_the_permutations_keep_the_dtype_and_leave_their_input_alone(change, dtype):
    x = np.arange(8, dtype=dtype)
    changed = change(x)
    assert changed.dtype == dtype
    changed[...] = -1
    np.testing.assert_array_equal(x, np.arange(8))


# known faults, each as a test of its kind


@EACH_LAYOUT
def test_rope_01_smallest_input(layout):
    found = rotate(np.array([[1.0, 0, 0, 0]]), np.array([1]), layout=layout)
    np.testing.assert_allclose(found[0], FAULTS["ROPE-01"]["right_value"][layout], rtol=1e-9)


@many
@given(FAR, EVEN_WIDTHS, BASES, st.integers(0, 2**32))
def test_rope_01_the_layouts_differ_by_the_permutation_alone(position, head_dim, base, seed):
    x, positions = np.random.default_rng(seed).normal(size=(1, head_dim)), np.array([position])
    interleaved = rotate(x, positions, base=base)
    by_half = half_to_interleaved(rotate(interleaved_to_half(x), positions, base=base, layout="half"))
    np.testing.assert_array_equal(interleaved, by_half)


@EACH_LAYOUT
def test_rope_02_smallest_input(layout):
    found = rotate(np.array([[1.0, 0, 0, 0]]), np.array([1]), layout=layout)
    assert (found**2).sum() == pytest.approx(FAULTS["ROPE-02"]["right_value"], rel=1e-15)


@EACH_LAYOUT
@pytest.mark.parametrize("head_dim", [2, 4, 6, 8, 10, 32, 128])
def test_rope_02_every_layout_and_width_keeps_length_and_shift_invariance(head_dim, layout):
    rng = np.random.default_rng(head_dim)
    q, k = rng.uniform(-1, 1, size=(2, 5, head_dim))
    positions = np.array([0.0, 1, 2.5, 100, -7])
    turned = rotate(q, positions, layout=layout)
    np.testing.assert_allclose((turned**2).sum(axis=-1), (q**2).sum(axis=-1), rtol=1e-14)
    scores = [
        rotate(q, positions + shift, layout=layout) @ rotate(k, positions + shift, layout=layout).T
        for shift in (0, 17, 1000)
    ]
    np.testing.assert_allclose(scores[1], scores[0], atol=1e-12)
    np.testing.assert_allclose(scores[2], scores[0], atol=1e-10)
    # The reference says how far the mixed layout is from both: these tests can see it.
    assert REFERENCE["bug_mixed_layout"]["shift_by_17_max_abs_change_of_scores"] > 1
    assert REFERENCE["bug_mixed_layout"]["max_abs_change_of_norm"] > 0.1


def test_rope_04_smallest_input():
    found = rotate(np.eye(8)[1:2], np.array([1]), inverse_frequencies(4), layout="half")
    np.testing.assert_allclose(found[0], FAULTS["ROPE-04"]["right_value"], rtol=1e-9)


@EACH_LAYOUT
@pytest.mark.parametrize("rotary_dim", [2, 4, 6, 16])
@pytest.mark.parametrize("rest", [2, 8])
def test_rope_04_partial_rotation_is_a_rotation_of_the_first_features(rest, rotary_dim, layout):
    x = np.random.default_rng(2).normal(size=(3, rotary_dim + rest))
    positions = np.array([1, 50, 3000])
    found = rotate(x, positions, inverse_frequencies(rotary_dim), layout=layout)
    np.testing.assert_array_equal(found[:, rotary_dim:], x[:, rotary_dim:])
    alone = rotate(x[:, :rotary_dim], positions, layout=layout)
    same(found[:, :rotary_dim], alone)


def test_rope_05_smallest_input():
    inv_freq = np.array([*inverse_frequencies(8)[:2], 0.0, 0.0])
    found = rotate(np.eye(8)[1:2], np.array([1]), inv_freq, layout="half")
    np.testing.assert_allclose(found[0], FAULTS["ROPE-05"]["right_value"], rtol=1e-9)


@pytest.mark.parametrize("head_dim", [4, 8, 32])
def test_rope_05_the_two_kinds_of_partial_rotation_differ(head_dim):
    x, m = np.random.default_rng(3).normal(size=(1, head_dim)), head_dim // 4
    position = np.array([2])
    proportional = np.where(np.arange(2 * m) < m, inverse_frequencies(head_dim), 0.0)
    found = rotate(x, position, proportional, layout="half")
    still = [feature for i, pair in enumerate(pairs_of(2 * m, "half")) for feature in pair if i >= m]
    np.testing.assert_array_equal(found[:, still], x[:, still])
    assert not np.allclose(found, rotate(x, position, inverse_frequencies(2 * m), layout="half"))


def test_rope_07_smallest_input():
    """Axes (batch, length, heads, width): the positions get an axis of their own for the heads."""
    x = np.tile([1.0, 0.0], (1, 2, 2, 1))
    found = rotate(x, np.array([0, 1])[:, None])
    np.testing.assert_allclose(found[0, 1], FAULTS["ROPE-07"]["right_value"], rtol=1e-9)
    np.testing.assert_array_equal(found[0, 0], [[1, 0], [1, 0]])


@EACH_LAYOUT
@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_rope_07_two_heads_at_one_position_turn_alike(n, layout):
    """The position runs along the axis before the last, also when there are as many heads as positions."""
    vectors = np.random.default_rng(n).normal(size=(n, 6))
    alone = rotate(vectors, np.arange(n), layout=layout)
    heads_first = np.broadcast_to(vectors, (2, n, n, 6))
    for positions in (np.arange(n), np.broadcast_to(np.arange(n), (2, n, n)), np.arange(n)[None, None, :]):
        found = rotate(heads_first, positions, layout=layout)
        same(found, np.broadcast_to(alone, (2, n, n, 6)))
    length_first = np.broadcast_to(vectors[:, None, :], (2, n, n, 6))
    found = rotate(length_first, np.arange(n)[:, None], layout=layout)
    same(found, np.broadcast_to(alone[:, None, :], (2, n, n, 6)))


def test_rope_07_each_batch_entry_may_have_positions_of_its_own():
    x = np.broadcast_to(np.array([1.0, 0.0]), (2, 3, 4, 2))
    positions = np.array([[0, 1, 2, 3], [0, 0, 0, 1]])
    found = rotate(x, positions[:, None, :])
    np.testing.assert_allclose(found[..., 0], np.broadcast_to(np.cos(positions)[:, None, :], (2, 3, 4)))


def test_rope_08_smallest_input():
    found = rotate(np.array([[1.0, 0.0]]), np.array([3]))
    np.testing.assert_allclose(found[0], FAULTS["ROPE-08"]["right_value"], rtol=1e-9)


@EACH_LAYOUT
@pytest.mark.parametrize("start", [0, 1, 100_000])
def test_rope_08_one_token_at_a_time_equals_the_full_pass(start, layout):
    x = np.random.default_rng(8).normal(size=(2, 3, 6, 8))
    positions = start + np.arange(6)
    whole = rotate(x, positions, layout=layout)
    for t in range(6):
        one = rotate(x[..., t : t + 1, :], positions[t : t + 1], layout=layout)
        same(one, whole[..., t : t + 1, :])


def test_rope_09_smallest_input():
    fault, example = FAULTS["ROPE-09"], PRECISION["gpt_neox_1003_example"]
    inv_freq = inverse_frequencies(example["dim"])
    angle = example["position"] * inv_freq[example["pair"]]
    assert angle == pytest.approx(fault["right_value"], rel=1e-9)
    assert angle == pytest.approx(example["angle_f64"], rel=1e-12)
    x = np.zeros((1, 32))
    x[0, 2 * example["pair"]] = 1.0
    for dtype in (np.float64, np.float32, np.float16):
        cosine = rotate(x.astype(dtype), np.array([example["position"]]))[0, 2 * example["pair"]]
        assert float(cosine) == pytest.approx(example["cos_f64"], abs=max(float(np.finfo(dtype).eps), 1e-12))
    # The same product in float16 is off by most of a radian.
    half_precision = np.float16(example["position"]) * inv_freq.astype(np.float16)[example["pair"]]
    assert float(half_precision) == example["angle_float16"] == fault["wrong_value"]
    assert math.cos(half_precision) == pytest.approx(example["cos_of_float16_angle"], abs=1e-12)


@pytest.mark.parametrize(
    "case", PRECISION["numpy_float32_vs_exact_dim64"], ids=lambda case: str(case["position"])
)
@EACH_LAYOUT
def test_rope_09_angles_stay_as_exact_as_float64_allows(layout, case):
    """Against 70-digit arithmetic: below ten times the stated error of float64, far below that of float32."""
    x = np.zeros((1, 64))
    first = np.array([a for a, _ in pairs_of(32, layout)])
    x[0, first] = 1.0
    cosines = rotate(x, np.array([case["position"]]), layout=layout)[0, first]
    exact = [exact_sine_cosine(exact_angle(case["position"], (2 * i, 64)))[1] for i in range(32)]
    assert np.abs(cosines - exact).max() < 10 * case["max_abs_cos_error_float64"]
    narrow = np.cos(np.float32(case["position"]) * inverse_frequencies(64).astype(np.float32))
    assert np.abs(narrow - exact).max() > 0.1 * case["max_abs_cos_error_float32"]


def table_errors(how):
    """Largest errors of angle and cosine over 2048 positions at width 32, when some numbers are rounded."""
    inv_freq, positions = inverse_frequencies(32), np.arange(2048.0)
    right = positions[:, None] * inv_freq
    f16, f32, bf16 = np.float16, np.float32, round_to_bfloat16
    angles = {
        "float32 everything": lambda: positions.astype(f32)[:, None] * inv_freq.astype(f32),
        "float16 inv_freq and positions, float16 product": lambda: (
            positions.astype(f16)[:, None] * inv_freq.astype(f16)
        ),
        "bfloat16 inv_freq and positions, bfloat16 product": lambda: bf16(
            bf16(positions)[:, None] * bf16(inv_freq)
        ),
        "bfloat16 inv_freq only, float32 product": lambda: positions.astype(f32)[:, None] * bf16(inv_freq),
        "bfloat16 positions only, float32 product": lambda: bf16(positions)[:, None] * inv_freq.astype(f32),
    }[how]().astype(float)
    return np.abs(angles - right).max(), np.abs(np.cos(angles) - np.cos(right)).max()


@pytest.mark.parametrize("case", PRECISION["rope_table_dim32_len2048_base1e4"], ids=lambda case: case["how"])
def test_rope_09_what_rounding_costs_as_in_the_reference(case):
    """The reference is meant as an order of magnitude, so a factor of two is allowed."""
    angle_error, cosine_error = table_errors(case["how"])
    assert 0.5 < angle_error / case["max_abs_angle_error_rad"] < 2
    assert 0.5 < cosine_error / case["max_abs_cos_error"] < 2


@pytest.mark.parametrize("bad", [1, 3, 9, 127])
def test_rope_10_odd_rotary_widths_are_refused_by_name(bad):
    message = refuses(lambda: inverse_frequencies(bad), ValueError, "rotary_dim", bad)
    assert "even" in message or "at least 2" in message
    message = refuses(lambda: rotate(np.ones((2, bad)), np.arange(2)), ValueError, "x", bad)
    assert "even" in message or "at least 2" in message


@pytest.mark.parametrize("change", [interleaved_to_half, half_to_interleaved])
@pytest.mark.parametrize("bad", [1, 9])
def test_rope_10_odd_widths_have_no_layout(change, bad):
    assert "even" in refuses(lambda: change(np.ones((2, bad))), ValueError, "x", bad)


@pytest.mark.parametrize("base", [1.0, 10_000.0, 500_000])
def test_ntk_07_a_rotary_width_of_two_is_one_pair_of_frequency_one(base):
    np.testing.assert_array_equal(inverse_frequencies(2, base), [1.0])
    for layout in LAYOUTS:
        found = rotate(np.array([[1.0, 0.0]]), np.array([2]), base=base, layout=layout)
        np.testing.assert_allclose(found, [[math.cos(2), math.sin(2)]], rtol=1e-15)
    partial = rotate(np.array([[1.0, 0.0, 5.0, 6.0]]), np.array([2]), inverse_frequencies(2, base))
    np.testing.assert_allclose(partial, [[math.cos(2), math.sin(2), 5, 6]], rtol=1e-15)


# round_to_bfloat16


def slow_bfloat16(value):
    """The nearest multiple of the step that eight significant bits leave, ties to even, by fractions."""
    if value == 0:
        return value
    exponent = math.frexp(value)[1] - 1
    step = Fraction(2) ** (max(exponent, -126) - 7)
    return float(round(Fraction(value) / step) * step)


# Beyond this the nearest bfloat16 would be infinity.
LARGEST = float((2 - Fraction(1, 128)) * Fraction(2) ** 127)
NUMBERS = st.floats(-LARGEST, LARGEST) | st.floats(-LARGEST, LARGEST, width=32) | st.floats(-1000, 1000)


@many
@given(st.lists(NUMBERS, max_size=8))
def test_rounding_equals_exact_fractions(numbers):
    x = frozen(np.array(numbers, float))
    before = x.copy()
    found = round_to_bfloat16(x)
    assert found.dtype == np.float32
    assert found.shape == x.shape
    np.testing.assert_array_equal(found.astype(float), [slow_bfloat16(number) for number in numbers])
    np.testing.assert_array_equal(x, before)


@many
@given(
    st.integers(-120, 120),
    st.integers(128, 255),
    st.sampled_from([-1, 0, 1]),
    st.sampled_from([8, 15, 20, 40]),
)
def test_rounding_next_to_a_tie_goes_to_the_nearer_side(exponent, mantissa, side, bits):
    """Half-way between two neighbours, and a little to each side: a float64 must not be rounded twice."""
    number = math.ldexp(mantissa + 0.5 + side * 2.0**-bits, exponent - 7)
    found = round_to_bfloat16(np.array([number, -number]))
    np.testing.assert_array_equal(found.astype(float), [slow_bfloat16(number), -slow_bfloat16(number)])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_rounding_leaves_only_the_upper_sixteen_bits_of_a_float32(dtype):
    x = np.random.default_rng(9).normal(size=(50, 4)).astype(dtype)
    found = round_to_bfloat16(x)
    assert found.dtype == np.float32
    assert np.all(found.view(np.uint32) & 0xFFFF == 0)
    np.testing.assert_allclose(found, x, rtol=2.0**-8)
    np.testing.assert_array_equal(round_to_bfloat16(found), found)


def test_whole_numbers_that_bfloat16_and_float16_cannot_hold_as_in_the_reference():
    fact = PRECISION["first_integer_not_representable"]
    rounded = round_to_bfloat16(np.arange(300.0))
    assert np.flatnonzero(rounded != np.arange(300))[0] == fact["bfloat16"]
    assert rounded[fact["bfloat16"]] == fact["its_value"]
    assert np.float16(fact["float16"]) == fact["float16_value"]
    around = np.arange(256.0, 264.0)
    np.testing.assert_array_equal(round_to_bfloat16(around), PRECISION["bfloat16_positions_256_to_263"])


def test_rounding_of_nothing_and_of_zero():
    assert round_to_bfloat16(np.zeros((0, 3))).shape == (0, 3)
    np.testing.assert_array_equal(np.signbit(round_to_bfloat16(np.array([0.0, -0.0]))), [False, True])


@pytest.mark.parametrize("value", [LARGEST, 3.39e38, 3.4e38, 3.5e38, 1e39, 1e300, 1.7e308])
def test_rounding_of_large_numbers_is_refused_or_finite_never_infinite(value):
    finite_or_refused(lambda: round_to_bfloat16(np.array([value, -value])))
    assert round_to_bfloat16(np.array([LARGEST]))[0] == LARGEST


@pytest.mark.parametrize("value", cases(NOT_FINITE))
def test_rounding_refuses_numbers_that_are_not_finite(value):
    refuses(lambda: round_to_bfloat16(np.array([1.0, value])), ValueError, "x", value)


@pytest.mark.parametrize("bad", cases(wrong_kinds((2,))))
def test_rounding_refuses_what_is_no_real_number(bad):
    refuses(lambda: round_to_bfloat16(bad), TypeError, "x", bad)


# bad input

X1, P1, F1 = np.ones((2, 3, 8)), np.arange(3.0), np.array([1.0, 0.1, 0.01, 0.001])


@pytest.mark.parametrize("bad", cases(NOT_A_COUNT))
def test_a_rotary_width_that_is_no_count_is_refused(bad):
    refuses(lambda: inverse_frequencies(bad), TypeError, "rotary_dim", bad)


@pytest.mark.parametrize("bad", [0, -1, -2])
def test_a_rotary_width_that_is_not_positive_is_refused(bad):
    refuses(lambda: inverse_frequencies(bad), ValueError, "rotary_dim", bad)


@pytest.mark.parametrize("bad", [0, 0.0, -1, -10_000.0, *NOT_FINITE.values()], ids=str)
def test_a_base_that_is_not_positive_and_finite_is_refused(bad):
    refuses(lambda: inverse_frequencies(8, bad), ValueError, "base", bad)
    refuses(lambda: rotate(X1, P1, base=bad), ValueError, "base", bad)


@pytest.mark.parametrize("bad", cases(NOT_A_NUMBER))
def test_a_base_that_is_no_number_is_refused(bad):
    refuses(lambda: inverse_frequencies(8, bad), TypeError, "base", bad)
    if bad is not None:
        refuses(lambda: rotate(X1, P1, base=bad), TypeError, "base", bad)


def test_a_base_beyond_float64_is_refused():
    refuses(lambda: inverse_frequencies(8, 10**400), ValueError, "base")
    refuses(lambda: rotate(X1, P1, base=10**400), ValueError, "base")


def test_a_base_together_with_frequencies_is_refused():
    message = refuses(lambda: rotate(X1, P1, F1, base=10_000.0), (ValueError, TypeError), "base")
    assert "inv_freq" in message


@pytest.mark.parametrize("value", cases(NOT_FINITE))
def test_numbers_that_are_not_finite_are_refused(value):
    refuses(lambda: rotate(with_one(X1, value), P1), ValueError, "x", value)
    refuses(lambda: rotate(X1, with_one(P1, value)), ValueError, "positions", value)
    refuses(lambda: rotate(X1, P1, with_one(F1, value)), ValueError, "inv_freq", value)
    refuses(lambda: rotate(X1, P1, F1, value), ValueError, "attention_factor", value)


@pytest.mark.parametrize("value", cases(NOT_FINITE))
def test_features_that_are_not_rotated_must_be_finite_too(value):
    refuses(lambda: rotate(with_one(X1, value), P1, F1[:1]), ValueError, "x", value)


@pytest.mark.parametrize("kind", list(wrong_kinds(1)))
def test_arrays_that_are_no_real_numbers_are_refused(kind):
    x, positions, inv_freq = (wrong_kinds(shape)[kind] for shape in ((2, 3, 8), (3,), (4,)))
    refuses(lambda: rotate(x, P1), TypeError, "x", x)
    refuses(lambda: rotate(X1, positions), TypeError, "positions", positions)
    if inv_freq is not None:
        refuses(lambda: rotate(X1, P1, inv_freq), TypeError, "inv_freq", inv_freq)


@pytest.mark.parametrize("bad", cases(NOT_A_NUMBER))
def test_an_attention_factor_that_is_no_number_is_refused(bad):
    refuses(lambda: rotate(X1, P1, F1, bad), TypeError, "attention_factor", bad)


@pytest.mark.parametrize("shape", [(2,), (4,), (3, 3), (2, 2, 3), (0,)], ids=str)
def test_positions_that_do_not_fit_are_refused(shape):
    refuses(lambda: rotate(X1, np.zeros(shape)), ValueError, "positions", shape)


def test_positions_do_not_make_the_result_larger():
    refuses(lambda: rotate(np.ones((3, 8)), np.zeros((2, 3))), ValueError, "positions", (2, 3))


@pytest.mark.parametrize("shape", [(5,), (2, 4), (1, 4)], ids=str)
def test_frequencies_that_do_not_fit_are_refused(shape):
    refuses(lambda: rotate(X1, P1, np.ones(shape)), ValueError, "inv_freq")


@EACH_LAYOUT
def test_a_single_number_has_nothing_to_rotate(layout):
    refuses(lambda: rotate(np.array(1.0), P1, layout=layout), ValueError, "x")


@pytest.mark.parametrize("bad", ["concatenated", "Half", ""], ids=repr)
def test_an_unknown_layout_is_refused_and_the_known_ones_are_named(bad):
    message = refuses(lambda: rotate(X1, P1, layout=bad), ValueError, "layout", repr(bad))
    assert all(layout in message for layout in LAYOUTS)


@pytest.mark.parametrize("bad", [None, 0, True, ["half"]], ids=repr)
def test_a_layout_that_is_no_text_is_refused(bad):
    refuses(lambda: rotate(X1, P1, layout=bad), TypeError, "layout", bad)


@pytest.mark.parametrize("change", [interleaved_to_half, half_to_interleaved])
def test_the_permutations_refuse_bad_input(change):
    for value in NOT_FINITE.values():
        refuses(lambda value=value: change(with_one(np.ones((2, 4)), value)), ValueError, "x", value)
    for bad in wrong_kinds((2, 4)).values():
        refuses(lambda bad=bad: change(bad), TypeError, "x", bad)
    refuses(lambda: change(np.array(1.0)), ValueError, "x")


@pytest.mark.parametrize("layout", rope.LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_all_pairs_at_once_turn_as_the_formula_says(layout, dtype):
    """The decoder turns pairs as complex numbers; `turn` is the formula in plain u and v."""
    rng = np.random.default_rng(0)
    x, angles = rng.normal(size=(2, 5, 10)).astype(dtype), rng.normal(size=(5, 3))
    cos, sin = np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)
    first, second = (slice(0, 3), slice(3, 6)) if layout == "half" else (slice(0, 6, 2), slice(1, 6, 2))
    expected = x.copy()
    expected[..., first], expected[..., second] = rope.turn(x[..., first], x[..., second], cos, sin)
    found = rope.turn_pairs(x, cos, sin, layout)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected, rtol=0, atol=4 * np.finfo(dtype).eps)
    np.testing.assert_array_equal(found[..., 6:], x[..., 6:])
