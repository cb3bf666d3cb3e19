"""Positions on the scores (notebook 05): offsets, Shaw, the skew step, T5 buckets, ALiBi."""

import inspect
import math

import numpy as np
import pytest
from bad_input import (
    NOT_A_COUNT,
    NOT_A_FLAG,
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
from trusted import faults, few, many, reference, untested

from helpers.attention import attention, attention_weights, causal_mask, softmax
from helpers.learned import position_ids
from helpers.relative_bias import (
    alibi_bias,
    alibi_slopes,
    relative_offsets,
    shaw_attention,
    shaw_scores,
    skew,
    t5_bias,
    t5_bucket_starts,
    t5_buckets,
)
from helpers.rope import round_to_bfloat16

SHAW = reference("shaw_relative")
T5 = reference("t5_buckets")
ALIBI = reference("alibi")
TOLERANCE = SHAW["tolerance"]["f64"]
FAULTS = faults("alibi", "alibi precision", "relative bias", "relative shift", "relative table")

LENGTHS = st.tuples(st.integers(0, 6), st.integers(0, 4)).map(
    lambda pair: (pair[0], sum(pair))
)  # (n_q, n_k >= n_q)
SEEDS = st.integers(0, 2**32)


def numbers(nested):
    """A reference array in which minus infinity is written as a text."""
    return np.array(nested, dtype=object).astype(float)


def test_each_known_fault_has_a_test():
    assert untested(FAULTS, globals()) == []


# relative_offsets


@many
@given(LENGTHS)
def test_offsets_are_key_minus_query_and_aligned_lower_right(lengths):
    n_queries, n_keys = lengths
    offsets = relative_offsets(n_queries, n_keys)
    expected = [[j - (i + n_keys - n_queries) for j in range(n_keys)] for i in range(n_queries)]
    assert offsets.shape == (n_queries, n_keys)
    assert np.issubdtype(offsets.dtype, np.signedinteger)
    np.testing.assert_array_equal(offsets, np.reshape(expected, (n_queries, n_keys)))
    # May attend means not later; a cache gives the last rows of the square.
    np.testing.assert_array_equal(offsets <= 0, causal_mask(n_queries, n_keys))
    np.testing.assert_array_equal(offsets, relative_offsets(n_keys)[n_keys - n_queries :])


def test_offsets_of_one_number_are_square():
    np.testing.assert_array_equal(relative_offsets(3), [[0, 1, 2], [-1, 0, 1], [-2, -1, 0]])
    np.testing.assert_array_equal(relative_offsets(np.int64(2), np.uint8(3)), [[-1, 0, 1], [-2, -1, 0]])


# Shaw


def shaw_reference():
    case = SHAW["shaw"]
    return case, *(frozen(case[name]) for name in ("q", "k", "v", "aK", "aV"))


def slow_shaw(q, k, v, key_table, value_table=None, mask=None):
    """Scores and outputs of one head, by loops; the clip of each table follows from its number of rows."""
    n_q, n_k = len(q), len(k)

    def entry(table, i, j):
        clip = (len(table) - 1) // 2
        return table[min(max(j - (i + n_k - n_q), -clip), clip) + clip]

    scores, outputs = np.zeros((n_q, n_k)), np.zeros((n_q, v.shape[1]))
    for i in range(n_q):
        for j in range(n_k):
            key = k[j] + entry(key_table, i, j)
            scores[i, j] = math.fsum(q[i] * key) / math.sqrt(q.shape[1])
        allowed = [j for j in range(n_k) if mask is None or mask[i, j]]
        powers = {j: math.exp(scores[i, j] - max(scores[i, a] for a in allowed)) for j in allowed}
        for j in allowed:
            value = v[j] if value_table is None else v[j] + entry(value_table, i, j)
            outputs[i] += powers[j] / math.fsum(powers.values()) * value
    return scores, outputs


def test_shaw_equals_the_reference():
    case, q, k, v, key_table, value_table = shaw_reference()
    scores = shaw_scores(q, k, key_table)
    np.testing.assert_allclose(scores, case["logits_scaled"], rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(softmax(scores), case["weights"], rtol=0, atol=TOLERANCE)
    output = shaw_attention(q, k, v, key_table, value_table)
    np.testing.assert_allclose(output, case["output"], rtol=0, atol=TOLERANCE)


def test_causal_shaw_equals_the_reference():
    case, q, k, v, key_table, value_table = shaw_reference()
    mask = causal_mask(case["n"])
    weights = softmax(np.where(mask, shaw_scores(q, k, key_table), -np.inf))
    np.testing.assert_allclose(weights, case["causal_weights"], rtol=0, atol=TOLERANCE)
    output = shaw_attention(q, k, v, key_table, value_table, mask=mask)
    np.testing.assert_allclose(output, case["causal_output"], rtol=0, atol=TOLERANCE)


def rows_used(n_queries, n_keys, clip):
    """Which row of the table each pair uses, read off a table that says its row numbers."""
    q = np.ones((n_queries, 1))
    return shaw_scores(q, np.zeros((n_keys, 1)), np.arange(2.0 * clip + 1)[:, None])


def test_shaw_rows_equal_the_reference():
    case = SHAW["shaw"]
    assert case["table_rows"] == 2 * case["clip_k"] + 1
    np.testing.assert_array_equal(rows_used(5, 5, case["clip_k"]), case["index_matrix"])
    np.testing.assert_array_equal(
        rows_used(1, 5, case["clip_k"])[0], case["index_matrix_kv_cache_last_query"]
    )


def test_shaw_01_smallest_input():
    np.testing.assert_array_equal(rows_used(5, 5, 2)[0], FAULTS["SHAW-01"]["right_value"])


@many
@given(LENGTHS, st.integers(0, 4))
def test_shaw_01_offsets_are_clipped_before_the_lookup(lengths, clip):
    n_queries, n_keys = lengths
    expected = np.clip(relative_offsets(n_queries, n_keys), -clip, clip) + clip
    np.testing.assert_array_equal(rows_used(n_queries, n_keys, clip), expected)


def test_shaw_01_texts_far_longer_than_the_table_work():
    rows = rows_used(300, 300, 3)
    assert set(rows[0].astype(int)) == {3, 4, 5, 6}
    assert set(rows[-1].astype(int)) == {0, 1, 2, 3}


@many
@given(LENGTHS, st.integers(0, 3), st.integers(0, 3), st.booleans(), st.booleans(), SEEDS)
def test_shaw_equals_the_loop(lengths, clip, width, with_values, with_mask, seed):
    n_queries, n_keys = lengths
    rng = np.random.default_rng(seed)
    q, k, v = rng.normal(size=(n_queries, 3)), rng.normal(size=(n_keys, 3)), rng.normal(size=(n_keys, width))
    key_table, value_table = rng.normal(size=(2 * clip + 1, 3)), rng.normal(size=(2 * clip + 1, width))
    value_table = value_table if with_values else None
    mask = rng.random((n_queries, n_keys)) < 0.6 if with_mask else None
    arrays = [frozen(array) for array in (q, k, v, key_table)]
    before = [array.copy() for array in arrays]
    scores, outputs = slow_shaw(q, k, v, key_table, value_table, mask)
    np.testing.assert_allclose(shaw_scores(arrays[0], arrays[1], arrays[3]), scores, rtol=1e-12, atol=1e-13)
    found = shaw_attention(*arrays, value_table, mask=mask)
    np.testing.assert_allclose(found, outputs, rtol=1e-12, atol=1e-13)
    for array, copy in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, copy)


@few
@given(st.sampled_from([(2,), (2, 3), (0,)]), LENGTHS, SEEDS)
def test_shaw_takes_heads_and_batches(batch, lengths, seed):
    n_queries, n_keys = lengths
    rng = np.random.default_rng(seed)
    q, k, v = (rng.normal(size=(*batch, n, 4)) for n in (n_queries, n_keys, n_keys))
    key_table, value_table = rng.normal(size=(2, 5, 4))
    mask = causal_mask(n_queries, n_keys)
    scores = shaw_scores(q, k, key_table)
    output = shaw_attention(q, k, v, key_table, value_table, mask=mask)
    assert scores.shape == (*batch, n_queries, n_keys)
    assert output.shape == (*batch, n_queries, 4)
    for index in np.ndindex(*batch):
        np.testing.assert_allclose(scores[index], shaw_scores(q[index], k[index], key_table), atol=1e-13)
        alone = shaw_attention(q[index], k[index], v[index], key_table, value_table, mask=mask)
        np.testing.assert_allclose(output[index], alone, atol=1e-13)


def test_shaw_with_tables_of_zeros_is_plain_attention():
    _, q, k, v, key_table, value_table = shaw_reference()
    found = shaw_attention(q, k, v, 0 * key_table, 0 * value_table)
    np.testing.assert_allclose(found, attention(q, k, v), atol=1e-14)
    without_values = shaw_attention(q, k, v, key_table, 0 * value_table)
    np.testing.assert_allclose(shaw_attention(q, k, v, key_table), without_values, atol=1e-14)


def test_the_relative_term_is_inside_the_scaling():
    scores = shaw_scores(np.ones((1, 16)), np.zeros((1, 16)), np.ones((1, 16)))
    np.testing.assert_allclose(scores, [[16 / 4]], rtol=1e-15)


def test_one_shared_row_moves_every_score_of_a_query_alike():
    _, q, k, _, key_table, _ = shaw_reference()
    moved = shaw_scores(q, k, key_table[:1]) - shaw_scores(q, k, 0 * key_table[:1])
    np.testing.assert_allclose(moved, np.repeat(q @ key_table[:1].T / 2, 5, axis=1), atol=1e-14)


def test_a_shaw_query_that_may_attend_to_nothing_gets_zeros():
    _, q, k, v, key_table, value_table = shaw_reference()
    mask = causal_mask(5)
    mask[2] = False
    found = shaw_attention(q, k, v, key_table, value_table, mask=mask)
    np.testing.assert_array_equal(found[2], np.zeros(4))
    assert np.all(found[[0, 1, 3, 4]] != 0)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_shaw_keeps_the_dtype(dtype):
    case, *arrays = shaw_reference()
    q, k, v, key_table, value_table = (array.astype(dtype) for array in arrays)
    scores, output = shaw_scores(q, k, key_table), shaw_attention(q, k, v, key_table, value_table)
    assert scores.dtype == dtype
    assert output.dtype == dtype
    np.testing.assert_allclose(output, case["output"], atol=30 * np.finfo(dtype).eps)


@pytest.mark.parametrize("size", [1e155, 1e300])
def test_shaw_scores_beyond_float64_are_refused_or_finite_never_nan(size):
    q, k, table = np.full((2, 4), size), np.full((2, 4), size), np.ones((3, 4))
    finite_or_refused(lambda: shaw_scores(q, k, table))
    finite_or_refused(lambda: shaw_attention(q, -k, k, table))


def test_sums_with_a_shaw_table_beyond_float64_are_refused_or_finite_never_infinite():
    """Two terms may fit one by one and not together."""
    q, k, table = np.full((2, 1), 1e154), np.full((2, 1), 1.5e154), np.full((3, 1), 1.5e154)
    finite_or_refused(lambda: shaw_scores(q, k, table))
    finite_or_refused(lambda: shaw_attention(q, k, k, table))
    ones, large = np.ones((2, 1)), np.full((2, 1), 1.5e308)
    finite_or_refused(lambda: shaw_attention(ones, ones, large, np.ones((3, 1)), np.full((3, 1), 1.5e308)))


# skew


def slow_skew(scores):
    """Entry (a, b) for keys that are not later than the query; nothing is said about the others."""
    n_queries, n_keys = scores.shape
    return {
        (a, b): scores[a, n_queries - 1 - a + b]
        for a in range(n_queries)
        for b in range(n_keys)
        if b <= a + n_keys - n_queries
    }


@many
@given(LENGTHS, st.sampled_from([(), (2,), (2, 3), (0,)]), SEEDS)
def test_causal_skew_equals_the_loop(lengths, batch, seed):
    n_queries, n_keys = lengths
    scores = frozen(np.random.default_rng(seed).normal(size=(*batch, n_queries, n_keys)))
    before = scores.copy()
    found = skew(scores)
    assert found.shape == scores.shape
    for index in np.ndindex(*batch):
        for (a, b), value in slow_skew(scores[index]).items():
            assert found[index][a, b] == value
    np.testing.assert_array_equal(scores, before)
    np.testing.assert_array_equal(found, skew(scores, causal=True))


@many
@given(st.integers(1, 6), st.sampled_from([(), (2,), (2, 3), (0,)]), SEEDS)
def test_two_sided_skew_equals_the_loop(n, batch, seed):
    scores = frozen(np.random.default_rng(seed).normal(size=(*batch, n, 2 * n - 1)))
    before = scores.copy()
    found = skew(scores, causal=False)
    assert found.shape == (*batch, n, n)
    for index in np.ndindex(*batch):
        expected = [[scores[index][a, b - a + n - 1] for b in range(n)] for a in range(n)]
        np.testing.assert_array_equal(found[index], expected)
    np.testing.assert_array_equal(scores, before)


def test_causal_skew_equals_the_reference():
    case = SHAW["skew_causal"]
    q, distances = np.array(SHAW["shaw"]["q"]), np.array(case["Er"])
    assert case["Er_rows_are_distances"] == list(range(-4, 1))
    scores = q @ distances.T
    np.testing.assert_allclose(scores, case["QEr_unskewed"], rtol=0, atol=TOLERANCE)
    found = np.where(causal_mask(5), skew(scores), 0.0)
    np.testing.assert_allclose(found, case["S_rel_lower_triangle"], rtol=0, atol=TOLERANCE)


def test_two_sided_skew_equals_the_reference():
    case = SHAW["skew_bidirectional"]
    q, distances = np.array(SHAW["shaw"]["q"]), np.array(case["E"])
    assert case["E_rows_are_distances"] == list(range(-4, 5))
    found = skew(q @ distances.T, causal=False)
    np.testing.assert_allclose(found, case["S_rel"], rtol=0, atol=TOLERANCE)
    # Each entry is the query times the vector of its offset: Shaw's term with as many rows as distances.
    np.testing.assert_allclose(found, 2 * shaw_scores(q, np.zeros((5, 4)), distances), rtol=0, atol=TOLERANCE)


def test_integers_skew_as_in_the_reference():
    case = SHAW["skew_causal"]["integer_example"]
    np.testing.assert_array_equal(skew(np.array(case["in"], float)), case["pad_reshape_slice"])


def test_labml_shifts_the_other_way_as_in_the_reference():
    """Its shift_right is the mirror image: turn the matrix round, skew, and turn it back."""
    case = SHAW["labml_shift_right"]
    mirrored = skew(np.array(case["in"], float)[::-1, ::-1])[::-1, ::-1]
    np.testing.assert_array_equal(mirrored, case["out"])
    assert not np.array_equal(skew(np.array(case["in"], float)), case["out"])


def test_xl_01_relative_shift_as_in_the_reference():
    """Four queries with four keys of memory; beyond the diagonal stand leftovers of the next row."""
    case = SHAW["transformer_xl_rel_shift"]
    found = skew(np.array(case["in"], float))
    np.testing.assert_array_equal(found, case["out"])
    np.testing.assert_array_equal(found[0], FAULTS["XL-01"]["right_value"])


@pytest.mark.parametrize("n_memory", [0, 1, 4])
@pytest.mark.parametrize("n", [2, 3, 6])
def test_xl_01_leftovers_are_not_zero_and_do_no_harm_once_masked(n, n_memory):
    scores = np.random.default_rng(n).uniform(1, 2, size=(n, n + n_memory))
    found, mask = skew(scores), causal_mask(n, n + n_memory)
    # In each row but the last there is one padding zero and then numbers of the next row.
    assert np.count_nonzero(found[~mask]) == n * (n - 1) // 2 - (n - 1)
    by_loop = np.full(found.shape, -np.inf)
    for (a, b), value in slow_skew(scores).items():
        by_loop[a, b] = value
    np.testing.assert_array_equal(softmax(np.where(mask, found, -np.inf)), softmax(by_loop))


def test_xl_03_smallest_input():
    """The causal step has no column for offset +2: entry [0, 2] is a number of query 1."""
    scores = np.arange(1.0, 10).reshape(3, 3)
    assert skew(scores)[0, 2] == 4
    message = refuses(lambda: skew(scores, causal=False), ValueError, "scores", (3, 3))
    assert "5" in message or "2" in message


@pytest.mark.parametrize("n", [2, 3, 4, 7])
def test_xl_03_both_directions_need_one_column_an_offset(n):
    offsets = np.tile(np.arange(-(n - 1), n, dtype=float), (n, 1))
    np.testing.assert_array_equal(skew(offsets, causal=False), relative_offsets(n))
    for columns in (n, 2 * n - 2, 2 * n):
        refuses(lambda c=columns: skew(np.zeros((n, c)), causal=False), ValueError, "scores")
    np.testing.assert_array_equal(np.tril(skew(offsets[:, :n])), np.tril(relative_offsets(n)))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_skew_keeps_the_dtype(dtype):
    assert skew(np.ones((3, 3), dtype)).dtype == dtype
    assert skew(np.ones((3, 5), dtype), causal=False).dtype == dtype


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (2, 0, 0), (0, 3, 3)], ids=str)
def test_skew_of_nothing_is_empty(shape):
    assert skew(np.zeros(shape)).shape == shape


def test_what_skew_gives_can_be_changed_without_changing_its_input():
    for causal, scores in ((True, np.ones((3, 3))), (False, np.ones((3, 5))), (True, np.ones((1, 1)))):
        skew(scores, causal=causal)[...] = -1
        assert np.all(scores == 1)


# T5 buckets


def exact_bucket(offset, n_buckets, max_distance, bidirectional):
    """By whole numbers: ln(m/E) / ln(D/E) * K >= t is the same as m**K * E**t >= D**t * E**K (K = B - E)."""
    first, size, distance = 0, n_buckets, max(-offset, 0)
    if bidirectional:
        size, distance = n_buckets // 2, abs(offset)
        first = size if offset > 0 else 0
    exact = size // 2
    if distance < exact:
        return first + distance
    steps, t = size - exact, 0
    while t + 1 < steps and distance**steps * exact ** (t + 1) >= max_distance ** (t + 1) * exact**steps:
        t += 1
    return first + exact + t


def settings_of(entry):
    return {
        "n_buckets": entry["num_buckets"],
        "max_distance": entry["max_distance"],
        "bidirectional": entry["bidirectional"],
    }


def name_of(entry):
    return f"{entry['num_buckets']}-{entry['max_distance']}-{'both' if entry['bidirectional'] else 'causal'}"


EACH_T5 = pytest.mark.parametrize("entry", T5["entries"], ids=name_of)
ALL_OFFSETS = frozen(np.arange(-300, 301))


@EACH_T5
def test_buckets_equal_the_reference(entry):
    found = t5_buckets(ALL_OFFSETS, **settings_of(entry))
    expected = [bucket for bucket, count in entry["buckets_run_length"] for _ in range(count)]
    np.testing.assert_array_equal(found, expected)
    if "buckets" in entry:
        np.testing.assert_array_equal(found, entry["buckets"])


@EACH_T5
def test_the_last_bucket_starts_where_the_reference_says(entry):
    found = t5_buckets(-np.arange(301), **settings_of(entry))
    last = (entry["num_buckets"] // 2 if entry["bidirectional"] else entry["num_buckets"]) - 1
    in_last = np.flatnonzero(found == last)
    assert (int(in_last[0]) if len(in_last) else None) == entry["smallest_past_distance_in_last_bucket"]


@EACH_T5
def test_buckets_equal_whole_number_arithmetic(entry):
    settings = settings_of(entry)
    expected = [exact_bucket(offset, **settings) for offset in ALL_OFFSETS.tolist()]
    np.testing.assert_array_equal(t5_buckets(ALL_OFFSETS, **settings), expected)


@st.composite
def t5_settings(draw):
    bidirectional = draw(st.booleans())
    n_buckets = 2 * draw(st.integers(2, 40)) if bidirectional else draw(st.integers(2, 80))
    exact = (n_buckets // 2 if bidirectional else n_buckets) // 2
    max_distance = exact + draw(st.integers(1, 50) | st.sampled_from([exact, 3 * exact, 7 * exact, 1000]))
    return {"n_buckets": n_buckets, "max_distance": max_distance, "bidirectional": bidirectional}


@many
@given(t5_settings())
def test_buckets_of_any_setting_equal_whole_number_arithmetic(settings):
    offsets = np.arange(-150, 151)
    expected = [exact_bucket(offset, **settings) for offset in offsets.tolist()]
    np.testing.assert_array_equal(t5_buckets(offsets, **settings), expected)


@many
@given(t5_settings())
def test_buckets_grow_with_distance_and_stay_in_their_range(settings):
    past = t5_buckets(-np.arange(2000), **settings)
    future = t5_buckets(np.arange(2000), **settings)
    size = settings["n_buckets"] // (2 if settings["bidirectional"] else 1)
    assert past[0] == future[0] == 0
    assert np.all(np.diff(past) >= 0)
    assert past[-1] == past[settings["max_distance"]] == size - 1
    np.testing.assert_array_equal(past[: size // 2], np.arange(size // 2))
    if settings["bidirectional"]:
        np.testing.assert_array_equal(future[1:], past[1:] + size)
    else:
        np.testing.assert_array_equal(future, 0)


def test_the_notes_of_the_reference_hold():
    """Upper half for the future, or one bucket for all of it; bucket 0 is distance 0; bucket 16 is unused."""
    assert len(T5["notes"]) == 4
    both, causal = t5_buckets(ALL_OFFSETS), t5_buckets(ALL_OFFSETS, bidirectional=False)
    assert np.all((both >= 16) == (ALL_OFFSETS > 0))
    assert np.all((causal == 0) == (ALL_OFFSETS >= 0))
    assert np.all((both == 0) == (ALL_OFFSETS == 0))
    assert 16 not in both
    assert t5_buckets(np.array(-128)) == 15
    assert t5_buckets(np.array(-128), bidirectional=False) == 31


def test_t5_bucket_starts_have_the_same_defaults():
    np.testing.assert_array_equal(t5_bucket_starts(), t5_bucket_starts(32, 128, True))
    assert not np.array_equal(t5_bucket_starts(), t5_bucket_starts(32, 129, True))


def test_t5_defaults_are_32_buckets_to_128_both_ways():
    expected = t5_buckets(ALL_OFFSETS, n_buckets=32, max_distance=128, bidirectional=True)
    np.testing.assert_array_equal(t5_buckets(ALL_OFFSETS), expected)
    np.testing.assert_array_equal(t5_buckets(ALL_OFFSETS, 32, 128, True), expected)


@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 0), (2, 3, 4)], ids=str)
def test_buckets_have_the_shape_of_the_offsets(shape):
    offsets = frozen(np.random.default_rng(0).integers(-200, 200, shape))
    before = offsets.copy()
    found = np.asarray(t5_buckets(offsets))
    assert found.shape == shape
    assert np.issubdtype(found.dtype, np.integer)
    for index in np.ndindex(*shape):
        assert found[index] == exact_bucket(int(offsets[index]), 32, 128, True)
    np.testing.assert_array_equal(offsets, before)


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint64])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_the_ends_of_every_integer_type_are_in_the_right_bucket(bidirectional, dtype):
    """In int8 the distance of -128 is no int8, and an unsigned offset has no minus."""
    limits = np.iinfo(dtype)
    offsets = np.array([limits.min, 0, 1, limits.max], dtype)
    expected = [exact_bucket(int(offset), 32, 128, bidirectional) for offset in offsets]
    np.testing.assert_array_equal(t5_buckets(offsets, bidirectional=bidirectional), expected)


@pytest.mark.parametrize(("n_buckets", "bidirectional"), [(4, True), (2, False), (3, False)])
def test_the_smallest_numbers_of_buckets(n_buckets, bidirectional):
    settings = {"n_buckets": n_buckets, "max_distance": 2, "bidirectional": bidirectional}
    expected = [exact_bucket(offset, **settings) for offset in range(-9, 10)]
    np.testing.assert_array_equal(t5_buckets(np.arange(-9, 10), **settings), expected)


@pytest.mark.parametrize(
    "case", T5["float_formula_variants_that_fail (bidirectional 32/128, one side)"], ids=str
)
def test_t5_03_float_traps_of_the_reference(case):
    assert t5_buckets(np.array(-case["n"])) == case["right"]


def test_t5_03_smallest_input():
    found = t5_buckets(np.array([-64]), n_buckets=32, max_distance=128, bidirectional=True)
    np.testing.assert_array_equal(found, [FAULTS["T5-03"]["right_value"]])
    # The other trap of the formula sheet: (ln m - ln E) / ln(D/E) * (B - E).
    assert t5_buckets(np.array(-8), n_buckets=8, max_distance=16, bidirectional=False) == 6


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("n_buckets", [4, 8, 12, 18, 32, 36, 54, 72, 108, 128])
def test_t5_03_exact_boundaries_are_never_lost(n_buckets, bidirectional):
    """Where max_distance is E times a power of two, a bucket may start exactly at an integer."""
    size = n_buckets // 2 if bidirectional else n_buckets
    exact = size // 2
    for doublings in range(1, 8):
        settings = {
            "n_buckets": n_buckets,
            "max_distance": exact * 2**doublings,
            "bidirectional": bidirectional,
        }
        steps = size - exact
        boundaries = {round(exact * 2 ** (doublings * t / steps)) for t in range(steps + 1)}
        offsets = sorted({-(boundary + near) for boundary in boundaries for near in (-1, 0, 1)})
        expected = [exact_bucket(offset, **settings) for offset in offsets]
        np.testing.assert_array_equal(t5_buckets(np.array(offsets), **settings), expected)


# T5 bias


def t5_example_table():
    """The table of the reference: weight[bucket, head] = 2 * bucket + head."""
    return frozen(2.0 * np.arange(32)[:, None] + np.arange(2))


def test_t5_bias_equals_the_reference():
    example = T5["bias_example"]
    assert example["table"] == "weight[b,h] = 2*b+h, 32 buckets, 2 heads"
    np.testing.assert_array_equal(t5_bias(t5_example_table(), 4), example["bidirectional_4x4"])
    last = t5_bias(t5_example_table(), 1, 4, bidirectional=False)
    np.testing.assert_array_equal(last, example["causal_last_query_of_4"])


@many
@given(LENGTHS, st.integers(1, 3), t5_settings(), SEEDS)
def test_t5_bias_equals_the_loop(lengths, n_heads, settings, seed):
    n_queries, n_keys = lengths
    table = frozen(np.random.default_rng(seed).normal(size=(settings.pop("n_buckets"), n_heads)))
    before = table.copy()
    found = t5_bias(table, n_queries, n_keys, **settings)
    assert found.shape == (n_heads, n_queries, n_keys)
    for h, i, j in np.ndindex(*found.shape):
        offset = j - (i + n_keys - n_queries)
        assert found[h, i, j] == table[exact_bucket(offset, len(table), **settings), h]
    np.testing.assert_array_equal(table, before)


def test_t5_bias_of_one_length_is_square_and_of_a_cache_its_last_rows():
    table = t5_example_table()
    square = t5_bias(table, 200)
    np.testing.assert_array_equal(square, t5_bias(table, 200, 200, max_distance=128, bidirectional=True))
    np.testing.assert_array_equal(t5_bias(table, 3, 200), square[:, -3:])
    assert t5_bias(table, 0).shape == (2, 0, 0)
    assert t5_bias(table, 0, 5).shape == (2, 0, 5)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_t5_bias_has_the_dtype_of_the_table(dtype):
    assert t5_bias(t5_example_table().astype(dtype), 3).dtype == dtype


def test_t5_01_smallest_input():
    """Cross-attention has no relative bias: no bias at all is the same as zeros."""
    assert FAULTS["T5-01"]["right_value"].startswith("zeros")
    rng = np.random.default_rng(0)
    q, k = rng.normal(size=(2, 5, 4)), rng.normal(size=(2, 3, 4))
    without = attention_weights(q, k, scale=1.0)
    np.testing.assert_array_equal(without, attention_weights(q, k, bias=np.zeros((2, 5, 3)), scale=1.0))


@pytest.mark.parametrize(("n_queries", "n_keys"), [(5, 3), (2, 1), (1, 0)], ids=str)
def test_t5_01_queries_without_a_place_among_the_keys_have_no_relative_bias(n_queries, n_keys):
    """More queries than keys can't be the end of one text, so there is no offset to look up."""
    table = t5_example_table()
    refuses(lambda: t5_bias(table, n_queries, n_keys), ValueError, "n_keys", n_keys)


def test_t5_02_smallest_input():
    """T5's logit is q.k, without a scale; the course's default divides by the root of the width."""
    fault = FAULTS["T5-02"]
    q, k = np.ones((1, 4)), np.array([[1.0] * 4, [0.0] * 4])
    for scale, logit in ((1.0, fault["right_value"]), (None, fault["wrong_value"])):
        weights = attention_weights(q, k, scale=scale)
        assert math.log(weights[0, 0] / weights[0, 1]) == pytest.approx(logit, rel=1e-13)


@pytest.mark.parametrize("head_dim", [1, 4, 9, 64])
def test_t5_02_scale_one_with_a_t5_bias_is_the_plain_sum(head_dim):
    rng = np.random.default_rng(head_dim)
    q, k = rng.normal(size=(2, 5, head_dim)), rng.normal(size=(2, 5, head_dim))
    bias = t5_bias(rng.normal(size=(32, 2)), 5)
    expected = softmax(q @ k.swapaxes(-1, -2) + bias)
    np.testing.assert_allclose(attention_weights(q, k, bias=bias, scale=1.0), expected, rtol=1e-12)


# ALiBi


def original_slopes(n_heads, largest=8):
    """The rule of the authors' code by exponents: a power of two, then every other one of twice as many."""
    power = 1
    while 2 * power <= n_heads:
        power *= 2
    exponents = [largest * h / power for h in range(1, power + 1)]
    exponents += [largest * h / (2 * power) for h in range(1, 2 * power + 1, 2)]
    return [2.0**-exponent for exponent in exponents[:n_heads]]


SLOPES = ALIBI["slopes"]


@pytest.mark.parametrize("n_heads", SLOPES)
def test_slopes_equal_the_reference(n_heads):
    found = alibi_slopes(int(n_heads))
    # The stored values have 13 digits, the stated relative tolerance is 1e-12.
    np.testing.assert_allclose(found, SLOPES[n_heads]["f64"], rtol=1e-12)
    if "naive" in SLOPES[n_heads]:
        assert np.abs(found - SLOPES[n_heads]["naive"]).max() > 0.1


def slopes_of_mpt(n_heads, alibi_bias_max=8):
    """MPT's rule: the slopes of the next power of two; of these every second, then the others."""
    power = 2 ** math.ceil(math.log2(n_heads))
    slopes = 1 / 2.0 ** (np.arange(1, power + 1) * (alibi_bias_max / power))
    return slopes if power == n_heads else np.concatenate([slopes[1::2], slopes[::2]])[:n_heads]


def test_mpt_has_the_same_slopes_in_the_same_order_as_in_the_reference():
    assert ALIBI["heads_where_mpt_order_differs"] == []
    for n_heads in range(1, 257):
        np.testing.assert_allclose(alibi_slopes(n_heads), slopes_of_mpt(n_heads), rtol=1e-14)


@pytest.mark.parametrize("largest", [1, 4, 8, 16, 0.1, 10.5, np.float32(6)])
def test_another_maximum_than_8_gives_the_slopes_of_mpt_in_the_same_order(largest):
    """And so those of the original rule, with the maximum in place of its 8."""
    for n_heads in range(1, 257):
        found = alibi_slopes(n_heads, largest)
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, slopes_of_mpt(n_heads, float(largest)), rtol=1e-14)
        np.testing.assert_allclose(found, original_slopes(n_heads, float(largest)), rtol=1e-14)
        assert found.min() == pytest.approx(2.0 ** -float(largest), rel=1e-14)
        np.testing.assert_allclose(found, alibi_slopes(n_heads) ** (float(largest) / 8), rtol=1e-12)


def test_another_maximum_than_8_in_figures():
    np.testing.assert_array_equal(alibi_slopes(4, 4), [0.5, 0.25, 0.125, 0.0625])
    np.testing.assert_array_equal(alibi_slopes(6, alibi_bias_max=16), 2.0 ** -np.array([4, 8, 12, 16, 2, 6]))


def test_without_a_maximum_it_is_8_to_the_last_digit():
    assert inspect.signature(alibi_slopes).parameters["alibi_bias_max"].default == 8
    for n_heads in range(1, 257):
        power = 2 ** (n_heads.bit_length() - 1)
        first = 2.0 ** (-8 * np.arange(1, power + 1) / power)
        between = 2.0 ** (-8 * np.arange(1, 2 * power, 2) / (2 * power))
        np.testing.assert_array_equal(alibi_slopes(n_heads), [*first, *between][:n_heads])
        np.testing.assert_array_equal(alibi_slopes(n_heads, 8), alibi_slopes(n_heads))


@pytest.mark.parametrize("causal", [True, False])
def test_the_bias_takes_the_maximum_by_name_and_has_its_slopes(causal):
    bias = alibi_bias(6, 3, 5, causal=causal, alibi_bias_max=4)
    slopes = alibi_slopes(6, 4)
    expected = alibi_bias(6, 3, 5, causal=causal) * (slopes / alibi_slopes(6))[:, None, None]
    np.testing.assert_allclose(bias, expected, rtol=1e-14)
    np.testing.assert_array_equal(alibi_bias(6, 3, alibi_bias_max=8.0), alibi_bias(6, 3))
    assert inspect.signature(alibi_bias).parameters["alibi_bias_max"].kind is inspect.Parameter.KEYWORD_ONLY


@pytest.mark.parametrize("call", [lambda m: alibi_slopes(3, m), lambda m: alibi_bias(3, 4, alibi_bias_max=m)])
def test_a_maximum_that_is_no_number_above_0_is_refused(call):
    for bad in (0, -8.0, *NOT_FINITE.values(), 10**400):
        refuses(lambda bad=bad: call(bad), ValueError, "alibi_bias_max", bad)
    for bad in NOT_A_NUMBER.values():
        refuses(lambda bad=bad: call(bad), TypeError, "alibi_bias_max", bad)


@pytest.mark.parametrize("largest", [5e-324, 1e-10, 1000, 1e300, 1.7e308])
@pytest.mark.parametrize("n_heads", [1, 5, 8])
def test_absurd_maxima_give_slopes_between_0_and_1(n_heads, largest):
    slopes = alibi_slopes(n_heads, largest)
    assert np.all((slopes >= 0) & (slopes <= 1))
    assert np.all(np.isfinite(alibi_bias(n_heads, 4, causal=False, alibi_bias_max=largest)))


@pytest.mark.parametrize("name", ["ALIBI-01", "ALIBI-07"])
def test_alibi_01_and_alibi_07_smallest_input(name):
    expected = FAULTS[name]["right_value"]
    np.testing.assert_array_equal(alibi_slopes(len(expected)), expected)


def test_alibi_01_and_alibi_07_every_number_of_heads_follows_the_original_rule():
    for n_heads in range(1, 257):
        found = alibi_slopes(n_heads)
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, original_slopes(n_heads), rtol=1e-14, err_msg=f"n_heads={n_heads}")


def test_alibi_01_the_literal_formula_is_right_for_powers_of_two_only():
    for n_heads in range(1, 257):
        literal = 2.0 ** (-8 * np.arange(1, n_heads + 1) / n_heads)
        is_power = n_heads & (n_heads - 1) == 0
        assert np.allclose(alibi_slopes(n_heads), literal, rtol=1e-12) == is_power, n_heads


@pytest.mark.parametrize("n_heads", [1, 2, 3, 5, 12, 100, 255, 256, 1000])
def test_slopes_are_between_zero_and_one_and_all_different(n_heads):
    slopes = alibi_slopes(n_heads)
    assert slopes.shape == (n_heads,)
    assert np.all((slopes > 0) & (slopes < 1))
    assert len(np.unique(slopes)) == n_heads
    np.testing.assert_array_equal(alibi_slopes(np.int64(n_heads)), slopes)


@pytest.mark.parametrize("n_heads", ALIBI["bias_length5"])
@pytest.mark.parametrize(("causal", "form"), [(True, "causal_relative"), (False, "symmetric")])
def test_bias_equals_the_reference(n_heads, causal, form):
    found = alibi_bias(int(n_heads), 5, causal=causal)
    np.testing.assert_allclose(found, numbers(ALIBI["bias_length5"][n_heads][form]), rtol=1e-12)


@pytest.mark.parametrize("form", ["bloom_row_per_head", "mpt_row_per_head"])
@pytest.mark.parametrize("n_heads", ALIBI["bias_length5"])
def test_alibi_04_forms_of_other_libraries_differ_by_a_constant_a_row_as_in_the_reference(n_heads, form):
    """Bloom adds slope * key, MPT slope * (key - last): the last row of ours up to a constant."""
    row = np.array(ALIBI["bias_length5"][n_heads][form])
    last = alibi_bias(int(n_heads), 5)[:, -1]
    np.testing.assert_allclose(last - last[:, :1], row - row[:, :1], rtol=0, atol=1e-12)
    slopes = alibi_slopes(int(n_heads))[:, None]
    np.testing.assert_allclose(
        row, slopes * (np.arange(5) - (4 if form.startswith("mpt") else 0)), rtol=1e-12
    )


def test_alibi_04_masked_softmax_makes_the_forms_equal_as_in_the_reference():
    case = ALIBI["masked_softmax_equivalence"]
    scores, n_heads = np.array(case["scores"]), case["n_heads"]
    found = softmax(scores + alibi_bias(n_heads, 5))
    np.testing.assert_allclose(found, case["weights"], rtol=0, atol=1e-12)
    keys, slopes = np.arange(5), alibi_slopes(n_heads)[:, None, None]
    columns = {
        "relative_vs_bloom_column_form_max_abs_diff": keys,
        "relative_vs_mpt_form_max_abs_diff": keys - 4,
    }
    for name, column in columns.items():
        masked = softmax(np.where(causal_mask(5), scores + slopes * column, -np.inf))
        np.testing.assert_allclose(masked, found, rtol=0, atol=case[name] + 1e-14)
    unmasked = softmax(scores + slopes * keys)
    symmetric = softmax(scores + alibi_bias(n_heads, 5, causal=False))
    stated = case["column_form_WITHOUT_mask_vs_symmetric_max_abs_diff"]
    assert np.abs(unmasked - symmetric).max() == pytest.approx(stated, abs=5e-4)


def test_a_cache_has_the_last_rows_as_in_the_reference():
    case = ALIBI["kv_cache_offset"]
    n_queries, n_keys = len(case["query_positions"]), len(case["key_positions"])
    found = alibi_bias(case["n_heads"], n_queries, n_keys)
    np.testing.assert_allclose(found, numbers(case["causal_relative"]), rtol=1e-12)
    both_ways = alibi_bias(case["n_heads"], n_queries, n_keys, causal=False)
    np.testing.assert_allclose(both_ways, case["x_transformers_AlibiPositionalBias(2)(i=2,j=5)"], rtol=1e-12)


def test_bloom_with_left_padding_as_in_the_reference():
    """Slope times the position among real tokens, and nothing at padding: both are expressible here."""
    case = ALIBI["left_padding"]
    mask = np.array(case["mask"][0])
    bloom = alibi_slopes(case["n_heads"])[:, None] * position_ids(mask) * mask
    np.testing.assert_allclose(bloom, case["bloom"], rtol=1e-12)


@many
@given(st.integers(1, 20), LENGTHS, st.booleans())
def test_bias_equals_the_loop(n_heads, lengths, causal):
    n_queries, n_keys = lengths
    found = alibi_bias(n_heads, n_queries, n_keys, causal=causal)
    slopes = original_slopes(n_heads)
    expected = np.zeros((n_heads, n_queries, n_keys))
    for h, i, j in np.ndindex(*expected.shape):
        distance = i + n_keys - n_queries - j
        expected[h, i, j] = -math.inf if causal and distance < 0 else -slopes[h] * abs(distance)
    assert found.shape == expected.shape
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_bias_is_square_and_causal_unless_told():
    np.testing.assert_array_equal(alibi_bias(3, 4), alibi_bias(3, 4, 4, causal=True))
    np.testing.assert_array_equal(alibi_bias(3, 2, 6), alibi_bias(3, 6)[:, -2:])


def test_alibi_04_smallest_input():
    row = alibi_bias(1, 4)[0, 3]
    np.testing.assert_allclose(row - row[-1], FAULTS["ALIBI-04"]["right_value"], rtol=1e-10)


@few
@given(st.integers(1, 12), st.integers(1, 12))
def test_alibi_04_the_bias_is_never_positive_and_falls_with_distance(n_heads, n):
    for causal in (True, False):
        bias = alibi_bias(n_heads, n, causal=causal)
        assert np.all(bias <= 0)
        assert np.all(np.diagonal(bias, axis1=1, axis2=2) == 0)
        past = np.where(causal_mask(n), bias, np.nan)
        steps = np.diff(past, axis=-1)
        steps = steps[~np.isnan(steps)]
        assert np.all(steps > 0)


def test_alibi_05_smallest_input():
    fault = FAULTS["ALIBI-05"]
    head = alibi_slopes(8).tolist().index(0.5)
    np.testing.assert_array_equal(alibi_bias(8, 3, causal=False)[head, 0], fault["right_value"])


@pytest.mark.parametrize("n_heads", [1, 3, 8, 71])
@pytest.mark.parametrize("n", [1, 2, 9])
def test_alibi_05_both_directions_are_symmetric_and_agree_with_causal_in_the_past(n, n_heads):
    both, causal = alibi_bias(n_heads, n, causal=False), alibi_bias(n_heads, n)
    np.testing.assert_array_equal(both, both.swapaxes(-1, -2))
    assert np.all(np.isfinite(both))
    np.testing.assert_array_equal(causal, np.where(causal_mask(n), both, -np.inf))


def test_alibi_06_smallest_input():
    """The bias reaches the logit whole; Falcon's smaller one is ours divided by the root of the width."""
    fault = FAULTS["ALIBI-06"]
    slope, head_dim = 0.5, 64
    bias = alibi_bias(8, 2)[alibi_slopes(8).tolist().index(slope)]
    q, k = np.zeros((2, head_dim)), np.zeros((2, head_dim))
    for given_bias, expected in (
        (bias, fault["right_value"]),
        (bias / math.sqrt(head_dim), fault["wrong_value"]),
    ):
        weights = attention_weights(q, k, bias=given_bias)
        assert math.log(weights[1, 0] / weights[1, 1]) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("head_dim", [1, 3, 16, 64])
@pytest.mark.parametrize("n_heads", [1, 3, 8])
def test_alibi_06_the_bias_is_added_after_the_scaling(n_heads, head_dim):
    rng = np.random.default_rng(head_dim)
    q, k = rng.normal(size=(n_heads, 5, head_dim)), rng.normal(size=(n_heads, 5, head_dim))
    bias, products = alibi_bias(n_heads, 5), q @ k.swapaxes(-1, -2)
    after = softmax(products / math.sqrt(head_dim) + bias)
    np.testing.assert_allclose(attention_weights(q, k, bias=bias), after, rtol=1e-12)
    falcon = softmax((products + bias) / math.sqrt(head_dim))
    found = attention_weights(q, k, bias=bias / math.sqrt(head_dim))
    np.testing.assert_allclose(found, falcon, rtol=1e-12)
    assert np.allclose(after, falcon) == (head_dim == 1)


def test_alibi_08_smallest_input():
    fault = FAULTS["ALIBI-08"]
    slope = alibi_slopes(71)[64]
    assert slope == pytest.approx(fault["right_value"], rel=1e-10)
    assert round_to_bfloat16(np.array([slope]))[0] == fault["wrong_value"]


@pytest.mark.parametrize("n_heads", [1, 8, 71, 112])
def test_alibi_08_neighbouring_keys_differ_at_any_distance(n_heads):
    """Each step of distance is worth one slope, however far away; in bfloat16 most steps are worth none."""
    bias = alibi_bias(n_heads, 1, 20_001)[:, 0]
    slopes = np.repeat(alibi_slopes(n_heads)[:, None], 20_000, axis=1)
    np.testing.assert_allclose(np.diff(bias, axis=-1), slopes, rtol=1e-6)
    rounded = round_to_bfloat16(bias[:, :1000])
    assert np.mean(np.diff(rounded, axis=-1) == 0) > 0.9


# bad input: counts of heads, queries and keys

BY_LENGTHS = pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda *lengths: relative_offsets(*lengths), id="relative_offsets"),
        pytest.param(lambda *lengths: t5_bias(np.ones((32, 2)), *lengths), id="t5_bias"),
        pytest.param(lambda *lengths: alibi_bias(2, *lengths), id="alibi_bias"),
    ],
)


@BY_LENGTHS
@pytest.mark.parametrize("bad", cases(NOT_A_COUNT))
def test_lengths_that_are_no_counts_are_refused(call, bad):
    refuses(lambda: call(bad), TypeError, "n_queries", bad)
    if bad is not None:
        refuses(lambda: call(1, bad), TypeError, "n_keys", bad)


@BY_LENGTHS
def test_lengths_that_do_not_fit_are_refused(call):
    refuses(lambda: call(-1), ValueError, "n_queries", -1)
    refuses(lambda: call(0, -1), ValueError, "n_keys", -1)
    refuses(lambda: call(4, 3), ValueError, "n_keys", 3, 4)


@pytest.mark.parametrize(
    "call", [alibi_slopes, lambda n_heads: alibi_bias(n_heads, 3)], ids=["slopes", "bias"]
)
def test_numbers_of_heads_that_are_not_legal_are_refused(call):
    for bad in (0, -1, -8):
        refuses(lambda bad=bad: call(bad), ValueError, "n_heads", bad)
    for bad in NOT_A_COUNT.values():
        refuses(lambda bad=bad: call(bad), TypeError, "n_heads", bad)


@pytest.mark.parametrize("bad", cases(NOT_A_FLAG))
def test_flags_that_are_no_bools_are_refused(bad):
    refuses(lambda: alibi_bias(2, 3, causal=bad), TypeError, "causal", bad)
    refuses(lambda: skew(np.ones((3, 3)), causal=bad), TypeError, "causal", bad)
    refuses(lambda: t5_buckets(np.array([1]), bidirectional=bad), TypeError, "bidirectional", bad)
    refuses(lambda: t5_bias(np.ones((32, 2)), 3, bidirectional=bad), TypeError, "bidirectional", bad)


# bad input: T5


@pytest.mark.parametrize(
    "bad",
    [
        *cases(wrong_kinds((3,))),
        pytest.param(np.array([1.0, 2.0]), id="floats"),
        pytest.param(1.5, id="a_float"),
    ],
)
def test_offsets_that_are_no_integers_are_refused(bad):
    refuses(lambda: t5_buckets(bad), TypeError, "offsets", bad)


@pytest.mark.parametrize("value", cases(NOT_FINITE))
def test_offsets_with_nan_or_infinity_are_refused(value):
    with pytest.raises((TypeError, ValueError), match="offsets"):
        t5_buckets(np.array([0.0, value]))


@pytest.mark.parametrize("bad", cases(NOT_A_COUNT))
def test_t5_settings_that_are_no_counts_are_refused(bad):
    refuses(lambda: t5_buckets(np.array([1]), n_buckets=bad), TypeError, "n_buckets", bad)
    refuses(lambda: t5_buckets(np.array([1]), max_distance=bad), TypeError, "max_distance", bad)
    refuses(lambda: t5_bias(np.ones((32, 2)), 3, max_distance=bad), TypeError, "max_distance", bad)


@pytest.mark.parametrize(
    ("n_buckets", "bidirectional"),
    [(3, True), (2, True), (1, True), (0, True), (-4, True), (1, False), (0, False), (-1, False)],
)
def test_too_few_buckets_are_refused(n_buckets, bidirectional):
    call = {"n_buckets": n_buckets, "bidirectional": bidirectional}
    refuses(lambda: t5_buckets(np.array([1]), **call), ValueError, "n_buckets", n_buckets)


@pytest.mark.parametrize("max_distance", [8, 7, 1, 0, -128])
def test_a_max_distance_within_the_exact_range_is_refused(max_distance):
    """With 32 buckets both ways the distances 0 to 7 are exact, so max_distance starts at 9."""
    message = refuses(
        lambda: t5_buckets(np.array([1]), 32, max_distance), ValueError, "max_distance", max_distance
    )
    assert max_distance < 1 or "8" in message or "9" in message
    refuses(
        lambda: t5_bias(np.ones((32, 2)), 3, max_distance=max_distance),
        ValueError,
        "max_distance",
        max_distance,
    )
    assert t5_buckets(np.array([-9]), 32, 9)[0] == 15


def test_an_odd_number_of_buckets_for_both_ways_is_refused_or_in_range():
    finite_or_refused(lambda: t5_buckets(np.arange(-200, 200), n_buckets=33))


@pytest.mark.parametrize("value", cases(NOT_FINITE))
def test_t5_tables_that_are_not_finite_are_refused(value):
    refuses(lambda: t5_bias(with_one(np.ones((32, 2)), value), 3), ValueError, "table", value)


@pytest.mark.parametrize("bad", cases(wrong_kinds((32, 2))))
def test_t5_tables_that_are_no_real_numbers_are_refused(bad):
    refuses(lambda: t5_bias(bad, 3), TypeError, "table", bad)


@pytest.mark.parametrize("shape", [(), (32,), (2, 32, 2)], ids=str)
def test_t5_tables_that_are_no_matrix_are_refused(shape):
    refuses(lambda: t5_bias(np.ones(shape), 3), ValueError, "table", shape)


def test_t5_tables_with_too_few_rows_are_refused():
    for rows in (0, 2, 3):
        refuses(lambda rows=rows: t5_bias(np.ones((rows, 2)), 3), ValueError, "table", rows)


# bad input: Shaw and skew

Q1, K1, V1, TABLE1, VALUES1 = (
    np.ones((3, 4)),
    np.ones((5, 4)),
    np.ones((5, 2)),
    np.ones((3, 4)),
    np.ones((3, 2)),
)


def call_shaw(q=Q1, k=K1, v=V1, key_table=TABLE1, value_table=VALUES1, mask=None):
    return shaw_attention(q, k, v, key_table, value_table, mask=mask)


def call_shaw_scores(q=Q1, k=K1, key_table=TABLE1):
    return shaw_scores(q, k, key_table)


SHAW_ARRAYS = {"q": Q1, "k": K1, "v": V1, "key_table": TABLE1, "value_table": VALUES1}
SHAW_CALLS = [
    pytest.param(call, name, id=f"{call.__name__}-{name}")
    for call, names in ((call_shaw, SHAW_ARRAYS), (call_shaw_scores, ["q", "k", "key_table"]))
    for name in names
]


@pytest.mark.parametrize("value", cases(NOT_FINITE))
@pytest.mark.parametrize(("call", "name"), SHAW_CALLS)
def test_shaw_refuses_numbers_that_are_not_finite(call, name, value):
    refuses(lambda: call(**{name: with_one(SHAW_ARRAYS[name], value)}), ValueError, name, value)


@pytest.mark.parametrize("kind", list(wrong_kinds(1)))
@pytest.mark.parametrize(("call", "name"), SHAW_CALLS)
def test_shaw_refuses_arrays_that_are_no_real_numbers(call, name, kind):
    bad = wrong_kinds(SHAW_ARRAYS[name].shape)[kind]
    if name == "value_table" and bad is None:
        assert call(value_table=None).shape == (3, 2)  # the only None with a meaning
    else:
        refuses(lambda: call(**{name: bad}), TypeError, name, bad)


@pytest.mark.parametrize("call", [call_shaw, call_shaw_scores])
def test_shaw_refuses_shapes_that_do_not_fit(call):
    for name in ("q", "k", "key_table"):
        refuses(lambda name=name: call(**{name: np.ones(4)}), ValueError, name, (4,))
    refuses(lambda: call(k=np.ones((5, 3))), ValueError, "k", 3, 4)
    refuses(lambda: call(key_table=np.ones((3, 5))), ValueError, "key_table", 5, 4)
    for rows in (0, 2, 4):
        message = refuses(lambda rows=rows: call(key_table=np.ones((rows, 4))), ValueError, "key_table", rows)
        assert "odd" in message or "clip" in message


@pytest.mark.parametrize("call", [call_shaw, call_shaw_scores])
def test_shaw_refuses_fewer_keys_than_queries(call):
    refuses(
        lambda: call(k=np.ones((2, 4)), **({"v": V1[:2]} if call is call_shaw else {})), ValueError, "k", 2, 3
    )


def test_shaw_attention_refuses_values_and_masks_that_do_not_fit():
    refuses(lambda: call_shaw(v=np.ones(5)), ValueError, "v", (5,))
    refuses(lambda: call_shaw(v=np.ones((4, 2))), ValueError, "v", 4, 5)
    refuses(lambda: call_shaw(value_table=np.ones(3)), ValueError, "value_table", (3,))
    refuses(lambda: call_shaw(value_table=np.ones((3, 4))), ValueError, "value_table", 4, 2)
    for rows in (0, 2):
        refuses(lambda rows=rows: call_shaw(value_table=np.ones((rows, 2))), ValueError, "value_table", rows)
    refuses(lambda: call_shaw(mask=np.ones((5, 3), bool)), ValueError, "mask", (5, 3))
    for bad in (np.ones((3, 5)), np.ones((3, 5), int), np.full((3, 5), "a")):
        refuses(lambda bad=bad: call_shaw(mask=bad), TypeError, "mask", bad)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("value", [np.nan, np.inf], ids=str)
def test_skew_refuses_nan_and_infinity(value, causal):
    scores = with_one(np.ones((3, 3 if causal else 5)), value)
    refuses(lambda: skew(scores, causal=causal), ValueError, "scores", value)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kind", list(wrong_kinds(1)))
def test_skew_refuses_what_is_no_real_number(kind, causal):
    bad = wrong_kinds((3, 3 if causal else 5))[kind]
    refuses(lambda: skew(bad, causal=causal), TypeError, "scores", bad)


@pytest.mark.parametrize("shape", [(), (3,), (3, 2), (4, 3, 2)], ids=str)
def test_causal_skew_refuses_shapes_that_do_not_fit(shape):
    refuses(lambda: skew(np.ones(shape)), ValueError, "scores", shape)


@pytest.mark.parametrize("shape", [(), (5,), (3, 4), (3, 6), (5, 3)], ids=str)
def test_two_sided_skew_refuses_shapes_that_do_not_fit(shape):
    refuses(lambda: skew(np.ones(shape), causal=False), ValueError, "scores", shape)
