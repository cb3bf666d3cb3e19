"""Attention (notebook 01): softmax, masks, weighted sums, and the test for order-blindness."""

import math

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
from hypothesis.extra import numpy as hnp
from trusted import faults, few, many, reference, untested

from helpers.attention import attention, attention_weights, causal_mask, equivariance_error, softmax

REFERENCE = reference("attention")
CASES = REFERENCE["cases"]
TOLERANCE = REFERENCE["tolerance"]
Q, K, V = (frozen(REFERENCE[name]) for name in "qkv")
FAULTS = faults("attention")

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
SCORES_OR_MASKED = st.one_of(FLOATS, st.just(-np.inf), st.sampled_from([1e300, -1e300]))
SHAPES = hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4)


def test_each_known_fault_has_a_test():
    assert untested(FAULTS, globals()) == []


# The slow form: one number at a time.


def slow_softmax_row(row):
    largest = max(row)
    if largest == -math.inf:
        return [0.0] * len(row)
    powers = [math.exp(score - largest) for score in row]
    return [power / math.fsum(powers) for power in powers]


def slow_attention(q, k, v, bias=None, mask=None, scale=None):
    """Weights and output for one head, by loops over plain numbers."""
    weights, outputs = [], []
    for i, query in enumerate(q):
        row = []
        for j, key in enumerate(k):
            score = math.fsum(a * b for a, b in zip(query, key, strict=True))
            score *= 1 / math.sqrt(len(query)) if scale is None else scale
            if bias is not None:
                score += bias[i][j]
            if mask is not None and not mask[i][j]:
                score = -math.inf
            row.append(score)
        row = slow_softmax_row(row) if row else []
        weights.append(row)
        outputs.append(
            [math.fsum(w * line[c] for w, line in zip(row, v, strict=True)) for c in range(v.shape[1])]
        )
    return np.reshape(weights, (len(q), len(k))), np.reshape(outputs, (len(q), v.shape[1]))


@st.composite
def heads(draw, min_keys=0):
    """One head: queries, keys, values, a bias with some -inf, a mask (some rows may be all False)."""
    n_queries, n_keys = draw(st.integers(0, 4)), draw(st.integers(min_keys, 5))
    head_dim, d_v = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    q, k, v = rng.normal(size=(n_queries, head_dim)), rng.normal(size=(n_keys, head_dim)), None
    v = rng.normal(size=(n_keys, d_v))
    bias = np.where(rng.random((n_queries, n_keys)) < 0.2, -np.inf, rng.normal(size=(n_queries, n_keys)))
    mask = rng.random((n_queries, n_keys)) < draw(st.sampled_from([0.0, 0.5, 0.9]))
    return tuple(frozen(array) for array in (q, k, v, bias, mask))


# softmax


@many
@given(hnp.arrays(np.float64, SHAPES, elements=SCORES_OR_MASKED))
def test_softmax_of_anything_finite_or_masked_is_a_distribution(scores):
    scores = frozen(scores)
    before = scores.copy()
    weights = softmax(scores)
    assert weights.shape == scores.shape
    assert weights.dtype == np.float64
    assert np.all(np.isfinite(weights))
    assert np.all((weights >= 0) & (weights <= 1))
    assert np.all(weights[np.isneginf(scores)] == 0)
    sums = weights.sum(axis=-1)
    nothing_to_see = np.all(np.isneginf(scores), axis=-1)
    np.testing.assert_allclose(sums, np.where(nothing_to_see, 0.0, 1.0), rtol=1e-14)
    np.testing.assert_array_equal(scores, before)


@many
@given(hnp.arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 5)), elements=SCORES_OR_MASKED))
def test_softmax_equals_the_loop(scores):
    slow = [slow_softmax_row(row) for row in scores.tolist()]
    np.testing.assert_allclose(softmax(scores), slow, rtol=1e-13, atol=1e-300)


@many
@given(hnp.arrays(np.float64, (3, 4), elements=st.floats(-50, 50)), st.floats(-1e3, 1e3))
def test_softmax_does_not_change_when_a_row_is_shifted(scores, shift):
    np.testing.assert_allclose(softmax(scores + shift), softmax(scores), rtol=1e-11, atol=1e-300)


def test_softmax_of_large_scores_as_in_the_reference():
    large = CASES["large_logits"]
    np.testing.assert_allclose(
        softmax(np.array([large["in"]], float)), large["softmax"], atol=TOLERANCE, rtol=0
    )


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ([1e300, -1e300], [1.0, 0.0]),
        ([1e300, 1e300], [0.5, 0.5]),
        ([-1e300, -1e300, -1e300, -1e300], [0.25] * 4),
        ([np.finfo(float).max, -np.finfo(float).max], [1.0, 0.0]),
        ([-np.inf, -1e300], [0.0, 1.0]),
        ([-np.inf, 0.0, 0.0], [0.0, 0.5, 0.5]),
        ([5e-324, 0.0], [0.5, 0.5]),
    ],
    ids=str,
)
def test_softmax_of_extreme_rows(row, expected):
    np.testing.assert_allclose(softmax(np.array(row)), expected, atol=1e-15)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
def test_softmax_along_each_axis(axis):
    scores = frozen(np.random.default_rng(0).normal(size=(2, 3, 4)))
    expected = np.moveaxis(softmax(np.moveaxis(scores, axis, -1)), -1, axis)
    np.testing.assert_allclose(softmax(scores, axis=axis), expected, rtol=1e-14)
    np.testing.assert_allclose(softmax(scores, axis).sum(axis=axis), 1.0, rtol=1e-14)


def test_softmax_works_on_the_last_axis_unless_told():
    scores = np.arange(6.0).reshape(2, 3) ** 2
    np.testing.assert_allclose(softmax(scores), softmax(scores, axis=-1), rtol=1e-15)
    assert not np.allclose(softmax(scores), softmax(scores, axis=0))


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3), (2, 0, 4)], ids=str)
def test_softmax_of_nothing_is_empty(shape):
    assert softmax(np.zeros(shape)).shape == shape


@pytest.mark.parametrize(
    ("given_dtype", "result_dtype"),
    [
        (np.float16, np.float16),
        (np.float32, np.float32),
        (np.float64, np.float64),
        (np.int64, np.float64),
        (np.int8, float),
    ],
)
def test_softmax_keeps_the_float_dtype_and_turns_whole_numbers_into_float64(given_dtype, result_dtype):
    scores = frozen(np.array([[1, 2, 3], [100, -100, 0]], dtype=given_dtype))
    weights = softmax(scores)
    assert weights.dtype == result_dtype
    np.testing.assert_allclose(weights, softmax(scores.astype(float)), atol=2 * np.finfo(result_dtype).eps)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_softmax_of_the_largest_numbers_of_each_dtype(dtype):
    largest = np.finfo(dtype).max
    np.testing.assert_array_equal(softmax(np.array([largest, -largest, -np.inf], dtype)), [1, 0, 0])


@pytest.mark.parametrize("value", [np.nan, np.inf], ids=str)
def test_softmax_refuses_nan_and_plus_infinity(value):
    refuses(lambda: softmax(np.array([[0.0, 1.0], [2.0, value]])), ValueError, "scores", value)


@pytest.mark.parametrize("scores", cases(wrong_kinds((2, 2))))
def test_softmax_refuses_scores_that_are_no_real_numbers(scores):
    refuses(lambda: softmax(scores), TypeError, "scores", scores)


@pytest.mark.parametrize("axis", [2, -3, 17])
def test_softmax_refuses_an_axis_that_is_not_there(axis):
    refuses(lambda: softmax(np.zeros((2, 2)), axis=axis), ValueError, "axis", axis)


@pytest.mark.parametrize("axis", cases(NOT_A_COUNT))
def test_softmax_refuses_an_axis_that_is_no_integer(axis):
    refuses(lambda: softmax(np.zeros((2, 2)), axis=axis), TypeError, "axis", axis)


def test_softmax_refuses_a_single_number():
    refuses(lambda: softmax(np.array(1.0)), ValueError, "scores", np.shape(1.0))


# causal_mask


@few
@given(st.integers(0, 7), st.integers(0, 5))
def test_att_01_newest_queries_see_every_earlier_key(n_queries, n_cached):
    n_keys = n_queries + n_cached
    mask = causal_mask(n_queries, n_keys)
    expected = [[j <= i + n_cached for j in range(n_keys)] for i in range(n_queries)]
    assert mask.dtype == bool
    assert mask.shape == (n_queries, n_keys)
    np.testing.assert_array_equal(mask, np.reshape(expected, (n_queries, n_keys)))
    # The rows are the last rows of the full mask: the alignment that a cache needs.
    np.testing.assert_array_equal(mask, causal_mask(n_keys)[n_cached:])


def test_att_01_smallest_input():
    np.testing.assert_array_equal(causal_mask(2, 4), np.array(FAULTS["ATT-01"]["right_value"], bool))
    assert not np.array_equal(causal_mask(2, 4), np.array(FAULTS["ATT-01"]["wrong_value"], bool))


def test_causal_mask_of_one_number_is_square():
    np.testing.assert_array_equal(causal_mask(4), np.tril(np.ones((4, 4), bool)))
    np.testing.assert_array_equal(causal_mask(np.int64(3), np.uint8(3)), causal_mask(3))


def test_causal_mask_of_nothing():
    assert causal_mask(0).shape == (0, 0)
    assert causal_mask(0, 3).shape == (0, 3)


@pytest.mark.parametrize("count", cases(NOT_A_COUNT))
def test_causal_mask_refuses_a_number_of_queries_that_is_no_count(count):
    refuses(lambda: causal_mask(count), TypeError, "n_queries", count)


@pytest.mark.parametrize("count", cases(NOT_A_COUNT, without=["None"]))
def test_causal_mask_refuses_a_number_of_keys_that_is_no_count(count):
    refuses(lambda: causal_mask(1, count), TypeError, "n_keys", count)


def test_causal_mask_refuses_negative_counts_and_fewer_keys_than_queries():
    refuses(lambda: causal_mask(-1), ValueError, "n_queries", -1)
    refuses(lambda: causal_mask(-2, 3), ValueError, "n_queries", -2)
    refuses(lambda: causal_mask(0, -1), ValueError, "n_keys", -1)
    refuses(lambda: causal_mask(4, 3), ValueError, "n_keys", 3, 4)


# attention_weights and attention, against the reference


def arguments(name):
    """How each case of the reference is called here."""
    return {
        "no_mask": {},
        "causal": {"mask": causal_mask(4)},
        "key_2_masked (bool, True = keep)": {"mask": np.array([True, True, False, True])},
        "float_bias": {"bias": np.array(CASES["float_bias"]["bias"])},
        "scale_1 (T5)": {"scale": 1.0},
    }[name]


@pytest.mark.parametrize("name", [name for name in CASES if "output" in CASES[name]])
def test_attention_equals_the_reference(name):
    output = attention(Q, K, V, **arguments(name))
    np.testing.assert_allclose(output, CASES[name]["output"], atol=TOLERANCE, rtol=0)
    if "weights" in CASES[name]:
        weights = attention_weights(Q, K, **arguments(name))
        np.testing.assert_allclose(weights, CASES[name]["weights"], atol=TOLERANCE, rtol=0)


def test_every_case_of_the_reference_is_used():
    named = {name for name in CASES if "output" in CASES[name]}
    assert set(CASES) - named == {"2_queries_4_keys", "row_1_fully_masked", "large_logits"}
    assert len(named) == 5


def test_two_newest_queries_and_four_keys_as_in_the_reference():
    case = CASES["2_queries_4_keys"]
    output = attention(Q[:, :, :2], K, V, mask=causal_mask(2, 4))
    lower_right = case["lower_right (kv cache) float64 numpy"]
    np.testing.assert_allclose(output, lower_right, atol=TOLERANCE, rtol=0)
    # torch's other alignment is another mask, so it can be had, but not by accident.
    output = attention(Q[:, :, :2], K, V, mask=np.tri(2, 4, dtype=bool))
    np.testing.assert_allclose(output, case["torch_is_causal_top_left"], atol=TOLERANCE, rtol=0)


def test_att_02_fully_masked_row_as_in_the_reference():
    mask = causal_mask(4)
    mask[1] = False
    output = attention(Q, K, V, mask=mask)
    zeros = CASES["row_1_fully_masked"]["torch_output_row_1"]
    np.testing.assert_array_equal(output[..., 1, :], np.broadcast_to(zeros, output[..., 1, :].shape))
    rest = [0, 2, 3]
    expected = attention(Q, K, V, mask=causal_mask(4))[..., rest, :]
    np.testing.assert_allclose(output[..., rest, :], expected, rtol=1e-13)


@pytest.mark.parametrize("how", ["mask", "bias", "both"])
def test_att_02_a_query_that_may_attend_to_nothing_gets_zeros(how):
    rng = np.random.default_rng(1)
    q, k, v = rng.normal(size=(3, 4)), rng.normal(size=(5, 4)), rng.normal(size=(5, 2))
    mask = np.ones((3, 5), bool)
    bias = np.zeros((3, 5))
    if how == "mask":
        mask[1] = False
    elif how == "bias":
        bias[1] = -np.inf
    else:
        mask[1, :2], bias[1, 2:] = False, -np.inf
    weights, output = attention_weights(q, k, bias=bias, mask=mask), attention(q, k, v, bias=bias, mask=mask)
    np.testing.assert_array_equal(weights[1], np.zeros(5))
    np.testing.assert_array_equal(output[1], np.zeros(2))
    np.testing.assert_allclose(weights[[0, 2]].sum(axis=-1), 1.0, rtol=1e-14)
    np.testing.assert_array_equal(softmax(np.full((2, 3), -np.inf)), np.zeros((2, 3)))


# against the loop, and as properties


@many
@given(heads(), st.sampled_from([None, 1.0, 0.3]), st.booleans(), st.booleans())
def test_attention_equals_the_loop(head, scale, with_bias, with_mask):
    q, k, v, bias, mask = head
    extra = {"bias": bias if with_bias else None, "mask": mask if with_mask else None, "scale": scale}
    weights, output = slow_attention(q, k, v, **extra)
    np.testing.assert_allclose(attention_weights(q, k, **extra), weights, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(attention(q, k, v, **extra), output, rtol=1e-12, atol=1e-13)


@few
@given(heads(min_keys=1))
def test_rows_of_weights_sum_to_one_unless_all_is_masked(head):
    q, k, _, _, mask = head
    weights = attention_weights(q, k, mask=mask)
    np.testing.assert_allclose(weights.sum(axis=-1), mask.any(axis=-1).astype(float), rtol=1e-14)
    assert np.all(weights[~mask] == 0)


def test_the_scale_is_one_over_the_root_of_the_head_width():
    q, k = np.array([[1.0, 2.0, 3.0, 4.0]]), np.array([[1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]])
    np.testing.assert_allclose(attention_weights(q, k), attention_weights(q, k, scale=0.5), rtol=1e-15)
    np.testing.assert_allclose(attention_weights(q, k), [softmax(np.array([5.0, 0.0]))], rtol=1e-14)


def test_the_bias_is_added_after_the_scaling():
    q, k = np.ones((1, 4)), np.zeros((2, 4))
    bias = np.array([[0.0, 1.0]])
    for scale in (None, 1.0, 0.125):
        np.testing.assert_allclose(attention_weights(q, k, bias=bias, scale=scale), softmax(bias), rtol=1e-14)


def test_the_mask_acts_before_the_softmax():
    """Weights set to zero afterwards would leave rows that don't sum to one."""
    weights = attention_weights(Q, K, mask=causal_mask(4))
    np.testing.assert_allclose(weights.sum(axis=-1), 1.0, rtol=1e-14)
    ratio = attention_weights(Q, K)
    np.testing.assert_allclose(
        weights[..., 2, 0] / weights[..., 2, 1], ratio[..., 2, 0] / ratio[..., 2, 1], rtol=1e-12
    )


def test_a_mask_says_the_same_as_minus_infinity_in_the_bias():
    bias = np.where(causal_mask(4), 0.0, -np.inf)
    np.testing.assert_allclose(
        attention_weights(Q, K, bias=bias), attention_weights(Q, K, mask=causal_mask(4))
    )


@pytest.mark.parametrize("shape", [(4,), (1, 4), (4, 1), (4, 4), (2, 4, 4), (2, 1, 4), (1, 2, 4, 4)], ids=str)
def test_mask_and_bias_broadcast(shape):
    rng = np.random.default_rng(3)
    mask, bias = frozen(rng.random(shape) < 0.7), frozen(rng.normal(size=shape))
    full = attention(
        Q, K, V, mask=np.broadcast_to(mask, (1, 2, 4, 4)), bias=np.broadcast_to(bias, (1, 2, 4, 4))
    )
    np.testing.assert_allclose(attention(Q, K, V, mask=mask, bias=bias), full, rtol=1e-13)


def test_each_head_and_batch_entry_is_on_its_own():
    output = attention(Q, K, V, mask=causal_mask(4))
    for h in range(2):
        alone = attention(Q[0, h], K[0, h], V[0, h], mask=causal_mask(4))
        np.testing.assert_allclose(output[0, h], alone, rtol=1e-13)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_attention_keeps_the_dtype(dtype):
    q, k, v = (array.astype(dtype) for array in (Q, K, V))
    weights, output = attention_weights(q, k, mask=causal_mask(4)), attention(q, k, v, mask=causal_mask(4))
    assert weights.dtype == dtype
    assert output.dtype == dtype
    np.testing.assert_allclose(output, attention(Q, K, V, mask=causal_mask(4)), atol=30 * np.finfo(dtype).eps)


def test_inputs_are_left_alone():
    bias, mask = frozen(np.zeros((4, 4))), frozen(causal_mask(4))
    arrays = (Q, K, V, bias, mask)
    before = [array.copy() for array in arrays]
    attention(Q, K, V, bias=bias, mask=mask)
    attention_weights(Q, K, bias=bias, mask=mask)
    for array, copy in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, copy)


@pytest.mark.parametrize(("n_queries", "n_keys"), [(0, 0), (0, 3), (2, 0)], ids=str)
def test_no_queries_or_no_keys(n_queries, n_keys):
    q, k, v = np.ones((2, n_queries, 4)), np.ones((2, n_keys, 4)), np.ones((2, n_keys, 3))
    assert attention_weights(q, k).shape == (2, n_queries, n_keys)
    output = attention(q, k, v)
    assert output.shape == (2, n_queries, 3)
    assert np.all(output == 0)


@pytest.mark.parametrize("size", [1e-300, 1e-150, 1e100, 1e150])
def test_very_small_and_very_large_vectors_stay_finite(size):
    weights = attention_weights(Q * size, K * size)
    assert np.all(np.isfinite(weights))
    np.testing.assert_allclose(weights.sum(axis=-1), 1.0, rtol=1e-14)
    assert np.all(np.isfinite(attention(Q * size, K * size, V * size)))


@pytest.mark.parametrize("size", [1e160, 1e300])
def test_scores_beyond_float64_are_refused_or_finite_never_nan(size):
    finite_or_refused(lambda: attention_weights(Q * size, K * size))
    for scale, bias in ((size, 1.7e308), (1.5e307, 1.7e308), (1.5e307, -1.7e308)):
        finite_or_refused(lambda s=scale, b=bias: attention_weights(Q, K, bias=np.full((4, 4), b), scale=s))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_values_at_the_edge_of_a_dtype_are_refused_or_finite_never_infinite(dtype):
    """Weights sum to one only up to rounding, so even a mean may end beyond the largest number."""
    largest = np.finfo(dtype).max
    for n in (1, 3, 7, 10, 49):
        q, k = np.ones((2, 2), dtype), np.ones((n, 2), dtype)
        v = np.full((n, 1), largest, dtype)
        finite_or_refused(lambda q=q, k=k, v=v: attention(q, k, v))


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_scores_beyond_a_narrow_dtype_are_refused_or_finite_never_nan(dtype):
    big = np.full((2, 4), np.finfo(dtype).max / 4, dtype)
    finite_or_refused(lambda: attention_weights(big, big))
    finite_or_refused(lambda: attention(big, -big, big))


# bad input of attention_weights and attention

Q1, K1, V1 = np.ones((3, 4)), np.ones((5, 4)), np.ones((5, 2))
BOTH = pytest.mark.parametrize(
    "call",
    [
        pytest.param(
            lambda q=Q1, k=K1, v=V1, **extra: attention_weights(q, k, **extra), id="attention_weights"
        ),
        pytest.param(lambda q=Q1, k=K1, v=V1, **extra: attention(q, k, v, **extra), id="attention"),
    ],
)


@BOTH
@pytest.mark.parametrize("value", cases(NOT_FINITE))
@pytest.mark.parametrize("name", ["q", "k", "scale"])
def test_attention_refuses_numbers_that_are_not_finite(call, name, value):
    bad = {"q": with_one(Q1, value), "k": with_one(K1, value), "scale": value}[name]
    refuses(lambda: call(**{name: bad}), ValueError, name, value)


@BOTH
@pytest.mark.parametrize("value", [np.nan, np.inf], ids=str)
def test_attention_refuses_a_bias_with_nan_or_plus_infinity(call, value):
    refuses(lambda: call(bias=with_one(np.zeros((3, 5)), value)), ValueError, "bias", value)


@pytest.mark.parametrize("value", cases(NOT_FINITE))
def test_attention_refuses_values_that_are_not_finite_even_where_masked(value):
    mask = np.array([True, True, True, True, False])
    refuses(lambda: attention(Q1, K1, with_one(V1, value), mask=mask), ValueError, "v", value)


@BOTH
@pytest.mark.parametrize("kind", list(wrong_kinds(1)))
@pytest.mark.parametrize("name", ["q", "k"])
def test_attention_refuses_arrays_that_are_no_real_numbers(call, name, kind):
    bad = wrong_kinds({"q": (3, 4), "k": (5, 4)}[name])[kind]
    refuses(lambda: call(**{name: bad}), TypeError, name, bad)


@pytest.mark.parametrize("bad", cases(wrong_kinds((5, 2))))
def test_attention_refuses_values_that_are_no_real_numbers(bad):
    refuses(lambda: attention(Q1, K1, bad), TypeError, "v", bad)


@BOTH
@pytest.mark.parametrize("bad", cases(wrong_kinds((3, 5)), without=["None"]))
def test_attention_refuses_a_bias_that_is_no_real_numbers(call, bad):
    refuses(lambda: call(bias=bad), TypeError, "bias", bad)


@BOTH
@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(np.ones((3, 5)), id="float"),
        pytest.param(np.ones((3, 5), int), id="int"),
        pytest.param(np.full((3, 5), "a"), id="strings"),
        pytest.param(np.full((3, 5), 1j), id="complex"),
    ],
)
def test_attention_refuses_a_mask_that_is_not_bool(call, bad):
    refuses(lambda: call(mask=bad), TypeError, "mask", bad)


@BOTH
@pytest.mark.parametrize("bad", cases(NOT_A_NUMBER, without=["None"]))
def test_attention_refuses_a_scale_that_is_no_number(call, bad):
    refuses(lambda: call(scale=bad), TypeError, "scale", bad)


@BOTH
def test_attention_refuses_shapes_that_do_not_fit(call):
    refuses(lambda: call(q=np.ones(4)), ValueError, "q", (4,))
    refuses(lambda: call(k=np.ones(4)), ValueError, "k", (4,))
    refuses(lambda: call(q=np.array(1.0)), ValueError, "q", ())
    refuses(lambda: call(k=np.ones((5, 3))), ValueError, "k", 3, 4)
    refuses(lambda: call(q=np.ones((2, 3, 4)), k=np.ones((3, 5, 4))), ValueError, "k", (3,))
    refuses(lambda: call(bias=np.zeros((3, 4))), ValueError, "bias", (3, 4))
    refuses(lambda: call(bias=np.zeros(2)), ValueError, "bias", (2,))
    refuses(lambda: call(mask=np.ones((5, 3), bool)), ValueError, "mask", (5, 3))


@BOTH
def test_a_bias_or_a_mask_can_not_add_queries_or_keys(call):
    refuses(lambda: call(q=Q1[:1], bias=np.zeros((3, 5))), ValueError, "bias", (3, 5))
    refuses(lambda: call(q=Q1[:1], mask=np.ones((3, 5), bool)), ValueError, "mask", (3, 5))
    refuses(lambda: call(k=K1[:1], v=V1[:1], bias=np.zeros((3, 5))), ValueError, "bias", (3, 5))
    refuses(lambda: call(k=K1[:1], v=V1[:1], mask=np.ones(5, bool)), ValueError, "mask", (5,))


def test_attention_refuses_values_that_do_not_fit():
    refuses(lambda: attention(Q1, K1, np.ones(5)), ValueError, "v", (5,))
    refuses(lambda: attention(Q1, K1, np.ones((4, 2))), ValueError, "v", (4, 2))
    refuses(lambda: attention(Q1, K1, np.array(1.0)), ValueError, "v", ())


# equivariance_error


def plain_attention(x):
    return attention(x, x, x)


def causal_attention(x):
    return attention(x, x, x, mask=causal_mask(len(x)))


def add_position(x):
    return x + np.arange(len(x))[:, None]


@few
@given(st.integers(0, 6), st.integers(0, 2**32))
def test_equivariance_error_equals_the_definition(n, seed):
    rng = np.random.default_rng(seed)
    x, permutation = frozen(rng.normal(size=(n, 3))), frozen(rng.permutation(n))
    for layer in (plain_attention, causal_attention, add_position, lambda x: x[:, :1] * 2):
        after, before = layer(x[permutation]), layer(x)
        slow = max(
            (
                abs(after[i, c] - before[p, c])
                for i, p in enumerate(permutation)
                for c in range(after.shape[1])
            ),
            default=0.0,
        )
        assert equivariance_error(layer, x, permutation) == pytest.approx(slow, abs=1e-15)


def test_equivariance_error_tells_blind_layers_from_others():
    x = frozen(np.random.default_rng(5).normal(size=(6, 4)))
    permutation = np.array([1, 2, 3, 4, 5, 0])
    assert equivariance_error(plain_attention, x, permutation) < 1e-14
    assert equivariance_error(causal_attention, x, permutation) > 0.1
    # Position i goes where position permutation[i] was: rows differ by at most 5.
    assert equivariance_error(add_position, x, permutation) == pytest.approx(5.0, rel=1e-14)


def test_equivariance_error_uses_the_permutation_and_not_its_inverse():
    """Only a permutation of order three or more tells the two apart, and only on a layer that sees order."""
    x = np.array([[0.0], [10.0], [30.0]])
    right = equivariance_error(lambda x: x * np.array([[1.0], [2.0], [3.0]]), x, np.array([1, 2, 0]))
    # layer(x[p]) = 10, 60, 0; layer(x)[p] = 20, 90, 0
    assert right == pytest.approx(30.0)
    other = equivariance_error(lambda x: x * np.array([[1.0], [2.0], [3.0]]), x, np.array([2, 0, 1]))
    # layer(x[p]) = 30, 0, 30; layer(x)[p] = 90, 0, 20
    assert other == pytest.approx(60.0)


def test_equivariance_error_of_the_identity_is_zero_and_nothing_is_changed():
    x = frozen(np.random.default_rng(6).normal(size=(4, 2)))
    before = x.copy()
    assert equivariance_error(add_position, x, frozen(np.arange(4))) == 0
    np.testing.assert_array_equal(x, before)
    assert equivariance_error(plain_attention, np.zeros((0, 3)), np.zeros(0, int)) == 0


X1, P1 = np.ones((3, 2)), np.array([2, 0, 1])


@pytest.mark.parametrize("layer", [None, "plain_attention", 3], ids=repr)
def test_equivariance_error_refuses_a_layer_that_cannot_be_called(layer):
    refuses(lambda: equivariance_error(layer, X1, P1), TypeError, "layer", layer)


@pytest.mark.parametrize("value", cases(NOT_FINITE))
def test_equivariance_error_refuses_input_that_is_not_finite(value):
    refuses(lambda: equivariance_error(plain_attention, with_one(X1, value), P1), ValueError, "x", value)


@pytest.mark.parametrize("bad", cases(wrong_kinds((3, 2))))
def test_equivariance_error_refuses_input_that_is_no_real_numbers(bad):
    refuses(lambda: equivariance_error(plain_attention, bad, P1), TypeError, "x", bad)


@pytest.mark.parametrize("shape", [(), (3,)], ids=str)
def test_equivariance_error_refuses_input_that_is_no_matrix(shape):
    refuses(lambda: equivariance_error(lambda x: x, np.ones(shape), P1), ValueError, "x", shape)


@pytest.mark.parametrize(
    ("permutation", "offender"),
    [([0, 1, 1], 1), ([0, 1, 3], 3), ([0, 1, -1], -1), ([1, 2, 3], 3)],
    ids=str,
)
def test_equivariance_error_refuses_what_is_no_permutation(permutation, offender):
    bad = np.array(permutation)
    refuses(lambda: equivariance_error(plain_attention, X1, bad), ValueError, "permutation", offender)


@pytest.mark.parametrize("shape", [(2,), (4,), (0,), (3, 1), ()], ids=str)
def test_equivariance_error_refuses_a_permutation_of_another_length(shape):
    bad = np.zeros(shape, int) if shape in ((), (3, 1)) else np.arange(shape[0])
    refuses(lambda: equivariance_error(plain_attention, X1, bad), ValueError, "permutation")


@pytest.mark.parametrize(
    "bad", [*cases(wrong_kinds((3,))), pytest.param(np.array([2.0, 0.0, 1.0]), id="float")]
)
def test_equivariance_error_refuses_a_permutation_that_is_not_of_integers(bad):
    refuses(lambda: equivariance_error(plain_attention, X1, bad), TypeError, "permutation", bad)


def test_equivariance_error_refuses_a_layer_that_loses_a_position():
    refuses(lambda: equivariance_error(lambda x: x[:-1], X1, P1), ValueError, "layer", (2, 2))


def test_equivariance_error_never_answers_nan():
    finite_or_refused(lambda: equivariance_error(lambda x: x * np.nan, X1, P1))
