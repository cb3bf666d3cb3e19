"""Learned tables (notebook 03): look-up with a ceiling, the usual work-around, positions of real tokens."""

import numpy as np
import pytest
from bad_input import NOT_A_COUNT, NOT_FINITE, cases, frozen, refuses, with_one, wrong_kinds
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from trusted import faults, few, many, reference, untested

from helpers.learned import (
    LearnedTable,
    PositionOutOfRange,
    interpolation_r2,
    minilm_table,
    position_ids,
    principal_coordinates,
    r_squared,
    repeat_last_row,
    step_operator,
    turning_planes,
)

REFERENCE = reference("learned_positions")
FAULTS = faults("learned table", "position ids")
INTEGER_TYPES = [np.int8, np.uint8, np.int32, np.int64, np.uint64]
SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
MASKS = hnp.arrays(
    np.int64, hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=6), elements=st.integers(0, 1)
)


def table_of(n_rows, d_model=3, dtype=float):
    """A table in which every number says its row and column: 100 * row + column."""
    return LearnedTable(frozen(100 * np.arange(n_rows)[:, None] + np.arange(d_model)[None, :]).astype(dtype))


def test_each_known_fault_has_a_test():
    assert untested(FAULTS, globals()) == []


# look-up


@many
@given(SHAPES, st.integers(1, 9), st.integers(1, 4), st.integers(0, 2**32))
def test_lookup_equals_the_loop(shape, n_rows, d_model, seed):
    rng = np.random.default_rng(seed)
    rows, positions = frozen(rng.normal(size=(n_rows, d_model))), frozen(rng.integers(0, n_rows, shape))
    before = positions.copy()
    table = LearnedTable(rows)
    found = table.lookup(positions)
    assert found.shape == (*shape, d_model)
    for index in np.ndindex(*shape):
        np.testing.assert_array_equal(found[index], rows[int(positions[index])])
    np.testing.assert_array_equal(positions, before)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_lookup_has_the_dtype_of_the_rows(dtype):
    assert table_of(4, dtype=dtype).lookup(np.array([0, 3])).dtype == dtype
    assert repeat_last_row(table_of(4, dtype=dtype), np.array([0, 9])).dtype == dtype


@pytest.mark.parametrize("dtype", INTEGER_TYPES)
def test_every_integer_type_is_a_position(dtype):
    np.testing.assert_array_equal(table_of(5).lookup(np.array([4, 0], dtype))[:, 0], [400, 0])


def test_a_single_position_gives_a_single_row():
    np.testing.assert_array_equal(table_of(5).lookup(4), [400, 401, 402])
    np.testing.assert_array_equal(table_of(5).lookup(np.int64(0)), [0, 1, 2])


def test_no_positions_give_no_rows():
    assert table_of(5).lookup(np.zeros(0, int)).shape == (0, 3)
    assert table_of(5).lookup(np.zeros((2, 0), int)).shape == (2, 0, 3)


def test_the_table_knows_its_size():
    table = table_of(5, 7)
    assert (table.n_rows, table.d_model) == (5, 7)


@pytest.mark.parametrize("positions", [2, np.array(2), np.array([2]), np.array([[0, 1, 2]])], ids=repr)
def test_what_was_looked_up_can_be_changed_without_changing_the_table(positions):
    table = table_of(3)
    found = table.lookup(positions)
    found[...] = -1
    np.testing.assert_array_equal(table.lookup(2), [200, 201, 202])
    found = repeat_last_row(table, positions)
    found[...] = -1
    np.testing.assert_array_equal(table.lookup(2), [200, 201, 202])


def test_the_add_example_of_the_reference():
    example = REFERENCE["add_example"]
    table, x = LearnedTable(np.array(example["table"])), np.array(example["x"])
    positions = example["offset"] + np.arange(x.shape[-2])
    np.testing.assert_array_equal(x + table.lookup(positions), example["out = x + table[offset:offset+2]"])


# position ids


def slow_position_ids(mask, offset, padded):
    """One row, by counting."""
    seen, result = 0, []
    for real in mask:
        result.append(seen + offset if real else padded)
        seen += int(real)
    return result


@many
@given(MASKS, st.integers(0, 5), st.integers(0, 5))
def test_position_ids_equal_the_loop(mask, offset, padded):
    mask = frozen(mask)
    before = mask.copy()
    found = position_ids(mask, offset=offset, padded=padded)
    assert found.shape == mask.shape
    assert np.issubdtype(found.dtype, np.signedinteger)
    for index in np.ndindex(*mask.shape[:-1]):
        np.testing.assert_array_equal(found[index], slow_position_ids(mask[index], offset, padded))
    np.testing.assert_array_equal(mask, before)
    np.testing.assert_array_equal(position_ids(mask.astype(bool), offset=offset, padded=padded), found)


def test_roberta_positions_as_in_the_reference():
    case = REFERENCE["roberta"]
    padding = case["padding_idx"]
    found = position_ids(np.array(case["input_ids"]) != padding, offset=padding + 1, padded=padding)
    np.testing.assert_array_equal(found, case["position_ids"])


def test_opt_positions_as_in_the_reference():
    case = REFERENCE["opt"]
    found = position_ids(np.array(case["attention_mask"]), offset=case["offset"], padded=1)
    np.testing.assert_array_equal(found, case["rows_looked_up"])


def test_pos_01_left_padding_as_in_the_reference():
    case = REFERENCE["left_padding"]
    found = position_ids(np.array(case["attention_mask"]), padded=1)
    np.testing.assert_array_equal(found, case["position_ids"])
    assert not np.array_equal(found, case["wrong_arange"])


def test_pos_01_smallest_input():
    found = position_ids(np.array([0, 0, 1, 1]))
    np.testing.assert_array_equal(found[2:], FAULTS["POS-01"]["right_value"])
    np.testing.assert_array_equal(found[:2], 0)


@pytest.mark.parametrize("n_padding", range(6))
def test_pos_01_real_tokens_count_from_zero_however_long_the_padding(n_padding):
    left = np.array([0] * n_padding + [1] * 5)
    np.testing.assert_array_equal(position_ids(left)[n_padding:], np.arange(5))
    np.testing.assert_array_equal(position_ids(left[::-1])[:5], np.arange(5))


@pytest.mark.parametrize("dtype", [bool, *INTEGER_TYPES])
def test_long_masks_of_narrow_types_do_not_overflow(dtype):
    mask = np.ones(70_000, dtype)
    mask[:3] = 0
    found = position_ids(mask, padded=9)
    np.testing.assert_array_equal(found[:5], [9, 9, 9, 0, 1])
    assert found[-1] == 70_000 - 4


def test_an_empty_mask_gives_no_positions():
    assert position_ids(np.zeros((2, 0), int)).shape == (2, 0)
    assert position_ids(np.zeros(0, bool)).shape == (0,)


# repeat_last_row


@many
@given(hnp.arrays(np.int64, SHAPES, elements=st.integers(0, 2**62)), st.integers(1, 5))
def test_repeat_last_row_equals_the_loop(positions, n_rows):
    table, positions = table_of(n_rows), frozen(positions)
    before = positions.copy()
    found = repeat_last_row(table, positions)
    assert found.shape == (*positions.shape, 3)
    for index in np.ndindex(*positions.shape):
        np.testing.assert_array_equal(found[index], table.lookup(min(int(positions[index]), n_rows - 1)))
    np.testing.assert_array_equal(positions, before)


@pytest.mark.parametrize("dtype", INTEGER_TYPES)
def test_repeat_last_row_of_every_integer_type(dtype):
    largest = np.iinfo(dtype).max
    np.testing.assert_array_equal(
        repeat_last_row(table_of(5), np.array([0, 4, largest], dtype))[:, 0], [0, 400, 400]
    )


# the real table


def test_the_minilm_table_is_the_real_one():
    """Size and row norms as they were measured on the original weights (half precision moves them little)."""
    table = minilm_table()
    rows = table if isinstance(table, np.ndarray) else table.lookup(np.arange(512))
    assert rows.shape == (512, 384)
    assert rows.dtype == np.float32
    assert np.all(np.isfinite(rows))
    norms = np.linalg.norm(rows, axis=1)
    assert norms[0] == pytest.approx(2.36, abs=0.01)
    assert norms[1:127].mean() == pytest.approx(0.43, abs=0.03)
    assert norms[127] == pytest.approx(0.69, abs=0.01)
    assert norms[511] == pytest.approx(0.97, abs=0.35)
    assert len(np.unique(rows, axis=0)) == 512


def test_nobody_can_spoil_the_minilm_table_for_others():
    first = minilm_table()
    rows = first if isinstance(first, np.ndarray) else first.lookup(np.arange(512))
    value = float(rows[3, 5])
    if rows.flags.writeable:
        rows[3, 5] = 99.0
    second = minilm_table()
    rows = second if isinstance(second, np.ndarray) else second.lookup(np.arange(512))
    assert rows[3, 5] == value


# known faults, each as a test of its kind


def test_learn_01_smallest_input():
    found = position_ids(np.array([0, 5, 2]) != 1, offset=2, padded=1)
    np.testing.assert_array_equal(found, FAULTS["LEARN-01"]["right_value"])


@pytest.mark.parametrize("name", ["RobertaConfig default (class) / roberta-base checkpoint"])
def test_learn_01_reserved_rows_make_a_table_longer_than_the_text(name):
    tokens, n_rows = REFERENCE["table_sizes_default_configs"][name]
    assert n_rows == tokens + 2
    table, positions = table_of(n_rows), position_ids(np.ones(tokens, int), offset=2, padded=1)
    assert positions[0] == 2
    np.testing.assert_array_equal(table.lookup(positions)[-1, 0], 100 * (n_rows - 1))
    too_long = position_ids(np.ones(tokens + 1, int), offset=2, padded=1)
    refuses(lambda: table.lookup(too_long), PositionOutOfRange, "positions", n_rows, n_rows)


@pytest.mark.parametrize("name", ["BertConfig.max_position_embeddings", "GPT2Config.n_positions"])
def test_learn_02_tables_of_real_models_end_where_they_end(name):
    n_rows = REFERENCE["table_sizes_default_configs"][name]
    table = table_of(n_rows, 1)
    assert table.lookup(np.arange(n_rows)).shape == (n_rows, 1)
    refuses(lambda: table.lookup(np.arange(n_rows + 1)), PositionOutOfRange, "positions", n_rows)


def test_learn_02_opt_has_two_rows_more():
    tokens = REFERENCE["table_sizes_default_configs"]["OPTConfig.max_position_embeddings (+2 rows)"]
    positions = position_ids(np.ones(tokens, int), offset=REFERENCE["opt"]["offset"], padded=1)
    assert table_of(tokens + 2, 1).lookup(positions)[-1, 0] == 100 * (tokens + 1)


def test_learn_02_smallest_input():
    """Length 5 on a table of 4 rows: position 4 is the first that has no row."""
    refuses(lambda: table_of(4).lookup(np.arange(5)), PositionOutOfRange, "positions", 4)


@few
@given(st.integers(1, 6), st.integers(-(2**63), 2**63 - 1).filter(lambda p: not 0 <= p < 6))
def test_learn_02_positions_without_a_row_are_refused_and_named(n_rows, outside):
    positions = np.array([[0, outside], [0, 0]])
    message = refuses(
        lambda: table_of(n_rows).lookup(positions), PositionOutOfRange, "positions", outside, n_rows
    )
    assert "row" in message


def test_learn_02_numpy_would_have_answered_minus_one():
    assert "IndexError" in REFERENCE["out_of_range"]
    refuses(lambda: table_of(4).lookup(-1), PositionOutOfRange, "positions", -1, 4)


@pytest.mark.parametrize("kind", [IndexError, ValueError])
def test_learn_02_the_error_is_an_index_error_and_a_value_error(kind):
    assert issubclass(PositionOutOfRange, kind)
    with pytest.raises(kind, match="9"):
        table_of(4).lookup(9)


def test_learn_02_unsigned_positions_do_not_wrap():
    beyond = np.array([2**63 + 5], np.uint64)
    refuses(lambda: table_of(4).lookup(beyond), PositionOutOfRange, "positions", 2**63 + 5, 4)
    np.testing.assert_array_equal(repeat_last_row(table_of(4), beyond)[:, 0], [300])


# bad input

NOT_POSITIONS = {
    **wrong_kinds((2,)),
    "floats": np.array([0.0, 1.0]),
    "fractions": np.array([0.5, 1.0]),
    "one_float": 1.0,
    "one_bool": True,
}


@pytest.mark.parametrize("bad", cases(NOT_POSITIONS))
def test_positions_that_are_no_integers_are_refused(bad):
    refuses(lambda: table_of(3).lookup(bad), TypeError, "positions", bad)
    refuses(lambda: repeat_last_row(table_of(3), bad), TypeError, "positions", bad)


@pytest.mark.parametrize("value", cases(NOT_FINITE))
def test_positions_with_nan_or_infinity_are_refused(value):
    bad = np.array([0.0, value])
    for call in (lambda: table_of(3).lookup(bad), lambda: repeat_last_row(table_of(3), bad)):
        with pytest.raises((TypeError, ValueError), match="positions"):
            call()


def test_repeat_last_row_refuses_negative_positions():
    refuses(lambda: repeat_last_row(table_of(3), np.array([0, -2, 1])), ValueError, "positions", -2)
    refuses(lambda: repeat_last_row(table_of(3), -1), ValueError, "positions", -1)


@pytest.mark.parametrize("bad", [None, "table", np.ones((3, 2)), 3], ids=type)
def test_repeat_last_row_refuses_what_is_no_table(bad):
    refuses(lambda: repeat_last_row(bad, np.array([0])), TypeError, "table")


@pytest.mark.parametrize("value", cases(NOT_FINITE))
def test_rows_that_are_not_finite_are_refused(value):
    refuses(lambda: LearnedTable(with_one(np.ones((3, 2)), value)), ValueError, "rows", value)


@pytest.mark.parametrize("bad", cases(wrong_kinds((3, 2))))
def test_rows_that_are_no_real_numbers_are_refused(bad):
    refuses(lambda: LearnedTable(bad), TypeError, "rows", bad)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4)], ids=str)
def test_rows_that_are_no_matrix_are_refused(shape):
    refuses(lambda: LearnedTable(np.ones(shape)), ValueError, "rows", shape)


@pytest.mark.parametrize(
    "bad",
    [
        *cases(wrong_kinds((3,)), without=["bools"]),
        pytest.param(np.array([0.0, 1.0]), id="floats"),
        pytest.param(np.array([np.nan, 1.0]), id="nan"),
    ],
)
def test_a_mask_that_is_not_of_integers_or_bools_is_refused(bad):
    refuses(lambda: position_ids(bad), TypeError, "attention_mask", bad)


@pytest.mark.parametrize("value", [2, -1, 100])
def test_a_mask_with_other_numbers_than_0_and_1_is_refused(value):
    refuses(lambda: position_ids(np.array([[0, 1], [1, value]])), ValueError, "attention_mask", value)


def test_a_mask_without_an_axis_is_refused():
    refuses(lambda: position_ids(np.array(1)), ValueError, "attention_mask", "array(1)")


@pytest.mark.parametrize("bad", cases(NOT_A_COUNT))
@pytest.mark.parametrize("name", ["offset", "padded"])
def test_offset_and_padded_must_be_integers(name, bad):
    refuses(lambda: position_ids(np.array([1, 1]), **{name: bad}), TypeError, name, bad)


# How a table is analysed in notebook 03


def circles(n, *angles):
    """Rows that turn by these angles, in a plane each: (n, 2 * len(angles))."""
    turns = np.outer(np.arange(n), angles)
    return np.stack([np.cos(turns), np.sin(turns)], axis=-1).reshape(n, -1)


def test_principal_coordinates_keep_all_distances_and_are_ordered():
    rows = np.random.default_rng(0).normal(size=(9, 4)) * [1, 5, 3, 2] + 7
    coordinates, variances = principal_coordinates(rows, 4)
    assert coordinates.shape == (9, 4)
    np.testing.assert_allclose(coordinates.mean(axis=0), 0, atol=1e-12)
    apart = [np.linalg.norm(each[:, None] - each, axis=-1) for each in (rows, coordinates)]
    np.testing.assert_allclose(*apart, atol=1e-12)
    np.testing.assert_allclose(variances, np.linalg.eigvalsh(np.cov(rows.T, bias=True))[::-1])
    np.testing.assert_allclose(variances, coordinates.var(axis=0))
    np.testing.assert_allclose(principal_coordinates(rows, 2)[0], coordinates[:, :2])


def test_as_many_components_as_rows_or_columns_and_no_more():
    rows = np.random.default_rng(0).normal(size=(3, 5))
    assert principal_coordinates(rows, 3)[0].shape == (3, 3)
    with pytest.raises(ValueError, match=r"^n_components must be at most 3, but got 4$"):
        principal_coordinates(rows, 4)


def test_the_step_operator_of_circles_is_a_rotation():
    step = step_operator(circles(12, 0.7))
    np.testing.assert_allclose(step, [[np.cos(0.7), -np.sin(0.7)], [np.sin(0.7), np.cos(0.7)]], atol=1e-12)


def test_a_step_operator_needs_more_rows_than_columns():
    assert step_operator(np.eye(3)[:, :2]).shape == (2, 2)
    with pytest.raises(ValueError, match="more rows than columns"):
        step_operator(np.eye(3))


def test_turning_planes_are_found_again_fastest_first():
    mixed = circles(20, 0.3, 1.1) @ np.linalg.qr(np.random.default_rng(1).normal(size=(4, 4)))[0]
    angles, planes = turning_planes(mixed)
    np.testing.assert_allclose(angles, [1.1, 0.3])
    np.testing.assert_allclose(planes, np.exp(1j * np.outer(np.arange(20), [1.1, 0.3])), atol=1e-9)


def test_straight_lines_explain_a_straight_table_and_not_a_wild_one():
    line = np.outer(np.arange(11), [1.0, -2.0])
    assert interpolation_r2(line, 5) == pytest.approx(1)
    assert interpolation_r2(circles(11, np.pi), 2) < 0
    # Rows 0, 2 and 4 are kept, 1 and 3 are guessed as the means of their neighbours.
    rows = np.array([[0.0], [3.0], [2.0], [1.0], [4.0]])
    assert interpolation_r2(rows, 2) == pytest.approx(1 - (4 + 4) / (1 + 1))


@pytest.mark.parametrize(("shape", "gap"), [((5,), 2), ((2, 3), 2)])
def test_rows_that_leave_nothing_between_are_named(shape, gap):
    with pytest.raises(ValueError, match=r"^rows must be a matrix of more than 2 rows"):
        interpolation_r2(np.ones(shape), gap)


def test_r_squared_is_one_for_the_truth_and_zero_for_the_mean():
    actual = np.array([[1.0, 2.0], [3.0, 6.0]])
    assert r_squared(actual, actual) == 1
    assert r_squared(actual, np.broadcast_to(actual.mean(axis=0), (2, 2))) == 0
