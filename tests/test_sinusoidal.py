"""The sinusoidal table (notebook 02), its shift matrix and its wavelengths."""

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
)
from hypothesis import given
from hypothesis import strategies as st
from trusted import exact_angle, exact_sine_cosine, faults, few, many, reference, untested

from helpers import sinusoidal
from helpers.sinusoidal import shift_matrix, sinusoidal_encoding, wavelengths

REFERENCE = reference("sinusoidal")
FACTS = REFERENCE["facts"]
TOLERANCE = REFERENCE["tolerance"]["f64"]
FAULTS = faults("sinusoidal")
LAYOUTS = ["interleaved", "concatenated", "tensor2tensor"]
# The reference's names for the layouts.
LAYOUT_OF = {"interleaved": "interleaved", "concat": "concatenated", "concat_t2t": "tensor2tensor"}

POSITIONS = st.floats(-1e4, 1e4) | st.integers(-(10**4), 10**4).map(float)
WIDTHS = st.integers(1, 40)
EVEN_WIDTHS = st.integers(1, 20).map(lambda half: 2 * half)
BASES = st.sampled_from([0.5, 1.0, 2.0, 100, 10_000, 10_000.0, 500_000.0, 1e12])


def row(position, d_model, base=10_000.0, layout="interleaved"):
    """The encoding of one position."""
    return sinusoidal_encoding(np.array([float(position)]), d_model, base, layout)[0]


def test_each_known_fault_has_a_test():
    assert untested(FAULTS, globals()) == []


def same(found, expected):
    """Equal up to the last digit: a vectorised sine may round another way than a single one."""
    np.testing.assert_allclose(found, expected, rtol=1e-14, atol=1e-15)


# The slow form: one number at a time, from the formulas of the paper and of tensor2tensor.


def slow_row(position, d, base, layout):
    if layout == "tensor2tensor":
        half = d // 2
        angles = [position / base ** (i / max(half - 1, 1)) for i in range(half)]
        return [math.sin(a) for a in angles] + [math.cos(a) for a in angles] + [0.0] * (d % 2)
    columns = []
    for j in range(d):
        angle = position / base ** (2 * (j // 2) / d)
        columns.append(math.sin(angle) if j % 2 == 0 else math.cos(angle))
    return columns if layout == "interleaved" else columns[0::2] + columns[1::2]


@many
@given(st.lists(POSITIONS, max_size=5), WIDTHS, BASES, st.sampled_from(LAYOUTS))
def test_encoding_equals_the_loop(positions, d_model, base, layout):
    positions = frozen(np.array(positions, float))
    table = sinusoidal_encoding(positions, d_model, base, layout)
    slow = np.reshape(
        [slow_row(p, d_model, base, layout) for p in positions.tolist()], (len(positions), d_model)
    )
    # Two correctly rounded ways to the same angle differ by a few units in its last place.
    fastest = max(1.0, base ** (-1.0))
    np.testing.assert_allclose(table, slow, rtol=0, atol=1e-11 * fastest)


# against the reference


@pytest.mark.parametrize("case", REFERENCE["cases"], ids=lambda case: case["name"])
def test_encoding_equals_the_reference(case):
    layout = LAYOUT_OF[case["layout"]]
    table = sinusoidal_encoding(frozen(case["positions"]), case["d"], case["base"], layout)
    np.testing.assert_allclose(table, case["f64"], rtol=0, atol=TOLERANCE)
    if case["positions"] == list(range(len(case["positions"]))):
        by_count = sinusoidal_encoding(len(case["positions"]), case["d"], case["base"], layout)
        same(by_count, table)


def test_concatenated_is_a_permutation_of_interleaved_as_in_the_reference():
    order = FACTS["permutation_interleaved_to_concat_d8"]
    concatenated = sinusoidal_encoding(8, 8, layout="concatenated")
    difference = np.abs(sinusoidal_encoding(8, 8)[:, order] - concatenated).max()
    assert difference == FACTS["interleaved[:,perm]==concat max_abs_diff"]


def test_concatenated_and_tensor2tensor_differ_by_as_much_as_in_the_reference():
    both = [sinusoidal_encoding(8, 8, layout=layout) for layout in ("concatenated", "tensor2tensor")]
    stated = FACTS["concat_vs_concat_t2t max_abs_diff (they are DIFFERENT functions)"]
    assert np.abs(both[0] - both[1]).max() == pytest.approx(stated, abs=5e-4)


def test_row_zero_and_the_dot_product_as_in_the_reference():
    np.testing.assert_array_equal(sinusoidal_encoding(1, 8)[0], FACTS["row0_interleaved"])
    fact = FACTS["dot_product_depends_only_on_offset"]
    table = sinusoidal_encoding(8, fact["d"], fact["base"])
    assert table[0] @ table[3] == pytest.approx(fact["pe(0).pe(3)"], abs=TOLERANCE)
    assert table[4] @ table[7] == pytest.approx(fact["pe(4).pe(7)"], abs=TOLERANCE)


def test_fairseq_padding_can_be_written_with_the_tensor2tensor_layout():
    """fairseq starts real tokens at padding_idx + 1 and gives padding a zero row."""
    rows = sinusoidal_encoding(4, 4, layout="tensor2tensor")
    rows[1] = 0
    expected = FACTS["fairseq_padding"]["rows"]
    np.testing.assert_allclose(rows, expected, rtol=0, atol=REFERENCE["tolerance"]["vs float32 library"])


def test_common_mistakes_of_the_reference_are_not_made():
    numbers = dict(FACTS["common_mistakes_numeric"]["at p=1, column 2, d=8, base=1e4"])
    right = {
        2: numbers.pop("right sin(1/10000**(2/8))"),
        3: numbers.pop("right column 3: cos(1/10000**(2/8))"),
    }
    encoded = row(1, 8)
    for column, value in right.items():
        assert encoded[column] == pytest.approx(value, abs=TOLERANCE)
    assert len(numbers) == 3
    for wrong in numbers.values():
        assert np.abs(encoded - wrong)[[2, 3]].min() > 1e-3


# against exact arithmetic, far out


@pytest.mark.parametrize("position", [4095, 131_071, 1_000_000, -1_000_000])
@pytest.mark.parametrize("d_model", [8, 32, 64])
def test_far_positions_equal_70_digit_arithmetic(d_model, position):
    """The error is that of rounding the angle; exp(-ln(base) * x), or float32, would miss by more."""
    encoded = row(position, d_model)
    for i in range(d_model // 2):
        angle = exact_angle(position, (2 * i, d_model))
        allowed = 3 * np.finfo(float).eps * abs(float(angle)) + 1e-15
        np.testing.assert_allclose(encoded[2 * i : 2 * i + 2], exact_sine_cosine(angle), rtol=0, atol=allowed)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("position", [1e15, 1e300, -1e300, 1.7e308, 5e-324])
def test_absurd_positions_stay_finite(position, layout):
    assert np.all(np.abs(row(position, 6, layout=layout)) <= 1)


@pytest.mark.parametrize("base", [5e-324, 1e-300, 1e-3, 1.0, 1e300, 1.7e308])
@pytest.mark.parametrize("d_model", [1, 2, 7, 512, 4096])
def test_absurd_bases_are_refused_or_finite_never_nan(base, d_model):
    finite_or_refused(lambda: sinusoidal_encoding(3, d_model, base))
    finite_or_refused(lambda: sinusoidal_encoding(np.array([1e308]), d_model, base))
    finite_or_refused(lambda: wavelengths(d_model, base))
    finite_or_refused(lambda: shift_matrix(1e10, 2 * min(d_model, 8), base))


# properties


@many
@given(st.integers(0, 9), WIDTHS, st.sampled_from(LAYOUTS))
def test_shape_dtype_and_a_count_in_place_of_positions(n, d_model, layout):
    table = sinusoidal_encoding(n, d_model, layout=layout)
    assert table.shape == (n, d_model)
    assert table.dtype == np.float64
    same(table, sinusoidal_encoding(np.arange(n), d_model, layout=layout))
    same(table, sinusoidal_encoding(np.int32(n), d_model, layout=layout))
    assert np.all(np.abs(table) <= 1)


@pytest.mark.parametrize(
    "dtype", [np.int8, np.uint8, np.int64, np.uint64, np.float16, np.float32, np.float64]
)
def test_the_table_is_float64_whatever_the_positions_are(dtype):
    positions = frozen(np.arange(100, 120).astype(dtype))
    table = sinusoidal_encoding(positions, 6)
    assert table.dtype == np.float64
    same(table, sinusoidal_encoding(np.arange(100.0, 120.0), 6))


@few
@given(st.lists(POSITIONS, min_size=1, max_size=6), WIDTHS, st.sampled_from(LAYOUTS))
def test_a_row_depends_on_its_position_alone(positions, d_model, layout):
    positions = frozen(np.array(positions))
    before = positions.copy()
    table = sinusoidal_encoding(positions, d_model, layout=layout)
    for position, encoded in zip(positions, table, strict=True):
        same(encoded, row(position, d_model, layout=layout))
    np.testing.assert_array_equal(positions, before)


@few
@given(POSITIONS, EVEN_WIDTHS, BASES, st.sampled_from(LAYOUTS))
def test_every_row_has_squared_length_half_the_width(position, d_model, base, layout):
    encoded = row(position, d_model, base, layout)
    assert encoded @ encoded == pytest.approx(d_model / 2, rel=1e-13)


@many
@given(POSITIONS, POSITIONS, POSITIONS, EVEN_WIDTHS, st.sampled_from(LAYOUTS))
def test_the_dot_product_of_two_rows_depends_on_their_offset_alone(p, r, shift, d_model, layout):
    here = row(p, d_model, layout=layout) @ row(r, d_model, layout=layout)
    there = row(p + shift, d_model, layout=layout) @ row(r + shift, d_model, layout=layout)
    assert there == pytest.approx(here, abs=1e-11 * d_model)


@few
@given(POSITIONS, EVEN_WIDTHS)
def test_a_negative_position_turns_the_sines_round(position, d_model):
    signs = np.tile([-1.0, 1.0], d_model // 2)
    same(row(-position, d_model), signs * row(position, d_model))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_base_one_gives_every_pair_the_same_frequency(layout):
    encoded = row(2.0, 8, base=1.0, layout=layout)
    np.testing.assert_allclose(
        np.unique(encoded.round(12)), sorted([math.sin(2.0), math.cos(2.0)]), atol=1e-12
    )


def test_defaults_are_those_of_the_paper():
    same(sinusoidal_encoding(5, 6), sinusoidal_encoding(5, 6, 10_000, "interleaved"))
    same(wavelengths(6), wavelengths(6, 10_000))
    same(shift_matrix(2, 6), shift_matrix(2, 6, 10_000))


# wavelengths


@many
@given(WIDTHS, BASES)
def test_wavelengths_equal_the_loop(d_model, base):
    expected = [2 * math.pi * base ** (2 * i / d_model) for i in range((d_model + 1) // 2)]
    found = wavelengths(d_model, base)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-14)


@few
@given(POSITIONS, EVEN_WIDTHS)
def test_after_one_wavelength_a_pair_repeats(position, d_model):
    for i, wavelength in enumerate(wavelengths(d_model)):
        pair = slice(2 * i, 2 * i + 2)
        again = row(position + wavelength, d_model)[pair]
        np.testing.assert_allclose(again, row(position, d_model)[pair], atol=1e-10)


def test_wavelengths_run_from_one_turn_to_almost_base_turns():
    found = wavelengths(64)
    assert found[0] == pytest.approx(2 * math.pi, rel=1e-15)
    assert found[-1] == pytest.approx(2 * math.pi * 10_000 ** (62 / 64), rel=1e-14)


# shift_matrix


@many
@given(POSITIONS, st.floats(-1e4, 1e4), EVEN_WIDTHS, st.sampled_from([1.0, 100, 10_000.0, 500_000.0]))
def test_the_shift_matrix_moves_every_row(position, offset, d_model, base):
    matrix = shift_matrix(offset, d_model, base)
    assert matrix.shape == (d_model, d_model)
    assert matrix.dtype == np.float64
    np.testing.assert_allclose(
        matrix @ row(position, d_model, base), row(position + offset, d_model, base), rtol=0, atol=2e-11
    )


@few
@given(st.integers(-50, 50), EVEN_WIDTHS)
def test_the_shift_matrix_equals_the_loop(offset, d_model):
    expected = np.zeros((d_model, d_model))
    for i in range(d_model // 2):
        angle = offset / 10_000 ** (2 * i / d_model)
        sine, cosine = 2 * i, 2 * i + 1
        expected[sine, sine], expected[sine, cosine] = math.cos(angle), math.sin(angle)
        expected[cosine, sine], expected[cosine, cosine] = -math.sin(angle), math.cos(angle)
    np.testing.assert_allclose(shift_matrix(offset, d_model), expected, rtol=0, atol=1e-13)


@few
@given(st.floats(-100, 100), st.floats(-100, 100), EVEN_WIDTHS)
def test_shifts_add_up_and_can_be_undone(first, second, d_model):
    together = shift_matrix(first, d_model) @ shift_matrix(second, d_model)
    np.testing.assert_allclose(together, shift_matrix(first + second, d_model), atol=1e-12)
    np.testing.assert_allclose(shift_matrix(-first, d_model), shift_matrix(first, d_model).T, atol=1e-15)
    np.testing.assert_array_equal(shift_matrix(0, d_model), np.eye(d_model))


# known faults, each as a test of its kind


@pytest.mark.parametrize("name", ["SIN-01", "SIN-03"])
def test_sin_01_and_sin_03_smallest_input(name):
    expected = FAULTS[name]["right_value"]
    np.testing.assert_allclose(sinusoidal_encoding(2, len(expected))[1], expected, rtol=1e-9)


@pytest.mark.parametrize("base", [100, 10_000, 1e6])
@pytest.mark.parametrize("d_model", [2, 3, 4, 5, 6, 16, 33, 128])
def test_sin_01_both_columns_of_a_pair_share_a_frequency(d_model, base):
    """Double angles, sin 2a = 2 sin a cos a, hold only if sine and cosine have the same angle a."""
    positions = np.array([0.5, 1, 2, 7, 100])
    single, double = (sinusoidal_encoding(p, d_model, base) for p in (positions, 2 * positions))
    for i in range(d_model // 2):
        sine, cosine = single[:, 2 * i], single[:, 2 * i + 1]
        np.testing.assert_allclose(double[:, 2 * i], 2 * sine * cosine, atol=1e-12)
        np.testing.assert_allclose(sine**2 + cosine**2, 1.0, rtol=1e-14)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("d_model", range(1, 34, 2))
def test_sin_03_odd_widths_have_one_sine_more_or_a_zero_column(d_model, layout):
    table = sinusoidal_encoding(3, d_model, layout=layout)
    assert table.shape == (3, d_model)
    zero = table[0]
    n_sines, n_cosines = (d_model + 1) // 2, d_model // 2
    assert (zero == 0).sum() == n_sines
    assert (zero == 1).sum() == n_cosines
    assert np.array_equal(table[:, -1], [0, 0, 0]) == (layout == "tensor2tensor")
    slow = [slow_row(p, d_model, 10_000.0, layout) for p in range(3)]
    np.testing.assert_allclose(table, slow, atol=1e-15)


def test_sin_04_smallest_input():
    for layout, expected in FAULTS["SIN-04"]["right_value"].items():
        np.testing.assert_allclose(sinusoidal_encoding(2, 4, layout=layout)[1], expected, rtol=1e-9)


@pytest.mark.parametrize("d_model", [1, 2, 3, 4, 7, 8, 31, 64])
def test_sin_04_interleaved_and_concatenated_hold_the_same_columns_in_another_order(d_model):
    interleaved, concatenated = (sinusoidal_encoding(9, d_model, layout=name) for name in LAYOUTS[:2])
    n_sines = (d_model + 1) // 2
    np.testing.assert_array_equal(concatenated[:, :n_sines], interleaved[:, 0::2])
    np.testing.assert_array_equal(concatenated[:, n_sines:], interleaved[:, 1::2])
    if d_model > 2:
        assert not np.allclose(concatenated, interleaved)


def test_sin_05_smallest_input():
    fault = FAULTS["SIN-05"]
    assert row(1, 8)[2] == pytest.approx(fault["right_value"], rel=1e-9)
    assert row(1, 8, layout="concatenated")[1] == pytest.approx(fault["right_value"], rel=1e-9)
    assert row(1, 8, layout="tensor2tensor")[1] == pytest.approx(fault["wrong_value"], rel=1e-9)


@pytest.mark.parametrize("d_model", [6, 8, 16, 64])
def test_sin_05_tensor2tensor_reaches_the_base_and_is_no_permutation(d_model):
    """Its slowest sine makes one turn in exactly 2 pi base positions; the paper's stops short of that."""
    base = 10_000.0
    slowest = d_model // 2 - 1
    assert row(1, d_model, base, "tensor2tensor")[slowest] == pytest.approx(math.sin(1 / base), rel=1e-12)
    assert row(1, d_model, base, "concatenated")[slowest] > 1.01 * math.sin(1 / base)
    sorted_rows = [np.sort(row(1, d_model, base, layout)) for layout in LAYOUTS]
    same(sorted_rows[0], sorted_rows[1])
    assert np.abs(sorted_rows[0] - sorted_rows[2]).max() > 1e-3


@pytest.mark.parametrize("d_model", [1, 2, 3])
def test_sin_05_tensor2tensor_has_no_division_by_zero_in_small_widths(d_model):
    expected = [[], [math.sin(3), math.cos(3)]][d_model // 2] + [0.0] * (d_model % 2)
    np.testing.assert_allclose(row(3, d_model, layout="tensor2tensor"), expected, rtol=1e-15)


def test_sin_06_smallest_input():
    assert row(1, 4)[2] == pytest.approx(FAULTS["SIN-06"]["right_value"], rel=1e-9)


@few
@given(st.integers(2, 30).map(lambda half: 2 * half), st.floats(1.5, 1e9), st.sampled_from(LAYOUTS))
def test_sin_06_positions_are_divided_so_that_later_pairs_are_slower(d_model, base, layout):
    encoded = row(1.0, d_model, base, layout)
    sines = encoded[0::2] if layout == "interleaved" else encoded[: d_model // 2]
    assert sines[0] == pytest.approx(math.sin(1.0), rel=1e-15)
    assert np.all(np.diff(sines) < 0)
    assert np.all(sines > 0)
    assert np.all(np.diff(wavelengths(d_model, base)) > 0)


def test_sin_08_smallest_input():
    """cos(1) sin(2) + sin(1) cos(2) = sin(3): the first row of the shift matrix needs the cosine too."""
    moved = shift_matrix(1, 2)[0] @ row(2, 2)
    assert moved == pytest.approx(FAULTS["SIN-08"]["right_value"], rel=1e-9)


@pytest.mark.parametrize("d_model", [2, 8, 32])
@pytest.mark.parametrize("offset", [1, 5, -3])
def test_sin_08_the_map_is_linear_in_pairs_but_not_in_the_sines_alone(offset, d_model):
    positions = np.arange(200.0)
    here, there = sinusoidal_encoding(positions, d_model), sinusoidal_encoding(positions + offset, d_model)
    np.testing.assert_allclose(here @ shift_matrix(offset, d_model).T, there, atol=1e-12)
    sine, target = here[:, 0], there[:, 0]
    left_over = target - sine * (sine @ target) / (sine @ sine)
    assert np.abs(left_over).max() > 0.1
    # Nothing mixes two pairs.
    blocks = np.kron(np.eye(d_model // 2), np.ones((2, 2)))
    assert np.all(shift_matrix(offset, d_model)[blocks == 0] == 0)


def test_sin_10_smallest_input():
    table = sinusoidal_encoding(2, 8)
    assert table.shape == (2, 8)
    np.testing.assert_array_equal(table[0], FAULTS["SIN-10"]["right_value"])


@pytest.mark.parametrize("d_model", [2, 3, 8, 9, 64])
def test_sin_10_row_zero_is_zero_one_zero_one_and_the_table_has_two_axes(d_model):
    table = sinusoidal_encoding(5, d_model)
    assert table.shape == (5, d_model)
    np.testing.assert_array_equal(table[0], [float(j % 2) for j in range(d_model)])


def test_sin_11_smallest_input():
    moved = row(3 + wavelengths(32)[2] / 4, 32)
    np.testing.assert_allclose([row(3, 32)[5], moved[4]], FAULTS["SIN-11"]["right_value"], rtol=1e-9)


@pytest.mark.parametrize("d_model", [4, 32, 128])
def test_sin_11_neighbouring_columns_differ_by_a_quarter_turn_and_pairs_by_frequency(d_model):
    positions = np.arange(6.0)
    table = sinusoidal_encoding(positions, d_model)
    for i, wavelength in enumerate(wavelengths(d_model)):
        moved = sinusoidal_encoding(positions + wavelength / 4, d_model)
        np.testing.assert_allclose(moved[:, 2 * i], table[:, 2 * i + 1], atol=1e-9)
    assert np.all(np.abs(np.diff(table[1, 0::2])) > 1e-6)


# bad input

ENCODING = pytest.param(lambda d_model=4, base=10_000.0: sinusoidal_encoding(3, d_model, base), id="encoding")
SHIFT = pytest.param(lambda d_model=4, base=10_000.0: shift_matrix(3, d_model, base), id="shift_matrix")
WAVELENGTHS = pytest.param(lambda d_model=4, base=10_000.0: wavelengths(d_model, base), id="wavelengths")
EACH = pytest.mark.parametrize("call", [ENCODING, SHIFT, WAVELENGTHS])


@EACH
@pytest.mark.parametrize("bad", cases(NOT_A_COUNT))
def test_a_width_that_is_no_count_is_refused(call, bad):
    refuses(lambda: call(d_model=bad), TypeError, "d_model", bad)


@EACH
@pytest.mark.parametrize("bad", [0, -1, -2])
def test_a_width_that_is_not_positive_is_refused(call, bad):
    refuses(lambda: call(d_model=bad), ValueError, "d_model", bad)


@pytest.mark.parametrize("bad", [1, 3, 7])
def test_a_shift_matrix_of_odd_width_is_refused(bad):
    message = refuses(lambda: shift_matrix(1, bad), ValueError, "d_model", bad)
    assert "even" in message or "at least 2" in message


@EACH
@pytest.mark.parametrize("bad", [0, 0.0, -1, -10_000.0, *NOT_FINITE.values()], ids=str)
def test_a_base_that_is_not_positive_and_finite_is_refused(call, bad):
    refuses(lambda: call(base=bad), ValueError, "base", bad)


@EACH
@pytest.mark.parametrize("bad", cases(NOT_A_NUMBER))
def test_a_base_that_is_no_number_is_refused(call, bad):
    refuses(lambda: call(base=bad), TypeError, "base", bad)


@EACH
def test_a_base_beyond_float64_is_refused(call):
    refuses(lambda: call(base=10**400), ValueError, "base")


@pytest.mark.parametrize("bad", cases(NOT_FINITE))
def test_positions_and_offsets_that_are_not_finite_are_refused(bad):
    refuses(lambda: sinusoidal_encoding(with_one(np.arange(3.0), bad), 4), ValueError, "positions", bad)
    refuses(lambda: shift_matrix(bad, 4), ValueError, "offset", bad)


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(None, id="None"),
        pytest.param("abc", id="text"),
        pytest.param(True, id="bool"),
        pytest.param(2j, id="complex"),
        pytest.param(np.array(["1", "2"]), id="strings"),
        pytest.param(np.array([1j, 2j]), id="complex_array"),
        pytest.param(np.array([None, 1], dtype=object), id="objects"),
        pytest.param(np.array([True, False]), id="bools"),
    ],
)
def test_positions_that_are_no_real_numbers_are_refused(bad):
    refuses(lambda: sinusoidal_encoding(bad, 4), TypeError, "positions", bad)


@pytest.mark.parametrize("shape", [(2, 3), (1, 3), (0, 3)], ids=str)
def test_positions_with_two_axes_are_refused(shape):
    refuses(lambda: sinusoidal_encoding(np.zeros(shape), 4), ValueError, "positions", shape)


def test_a_negative_count_and_a_fractional_count_are_refused():
    refuses(lambda: sinusoidal_encoding(-1, 4), ValueError, "positions", -1)
    refuses(lambda: sinusoidal_encoding(3.0, 4), (TypeError, ValueError), "positions", 3.0)


@pytest.mark.parametrize("bad", cases(NOT_A_NUMBER))
def test_an_offset_that_is_no_number_is_refused(bad):
    refuses(lambda: shift_matrix(bad, 4), TypeError, "offset", bad)


@pytest.mark.parametrize("bad", ["half", "Interleaved", ""], ids=repr)
def test_an_unknown_layout_is_refused_and_the_known_ones_are_named(bad):
    message = refuses(lambda: sinusoidal_encoding(3, 4, layout=bad), ValueError, "layout", repr(bad))
    assert all(layout in message for layout in LAYOUTS)


@pytest.mark.parametrize("bad", [None, 0, True, ["interleaved"]], ids=repr)
def test_a_layout_that_is_no_text_is_refused(bad):
    refuses(lambda: sinusoidal_encoding(3, 4, layout=bad), TypeError, "layout", bad)


# How much of scores the offset explains (notebook 02)


def test_scores_of_the_offset_alone_are_explained_whole_and_others_hardly():
    offsets = np.arange(30) - np.arange(30)[:, None]
    assert sinusoidal.offset_share(np.cos(offsets)) == pytest.approx(1)
    assert sinusoidal.offset_share(offsets**3) == pytest.approx(1)
    noise = np.random.default_rng(0).normal(size=(200, 200))
    assert 0 < sinusoidal.offset_share(noise) < 0.03
    assert sinusoidal.offset_share(np.add.outer(np.arange(30), np.arange(30))) < 0.01


def test_the_share_is_what_the_means_of_diagonals_leave():
    scores = np.array([[1.0, 3.0], [1.0, -1.0]])
    diagonals = [[1.0, -1.0], [3.0], [1.0]]
    within = sum(np.var(one) * len(one) for one in diagonals) / 4
    assert sinusoidal.offset_share(scores) == pytest.approx(1 - within / scores.var())


@pytest.mark.parametrize("scores", [np.ones((2, 3)), np.ones((3, 3)), np.arange(6).reshape(2, 3)])
def test_scores_that_are_not_square_or_all_equal_are_named(scores):
    with pytest.raises(ValueError, match=r"^scores must be square and not all equal, but got shape"):
        sinusoidal.offset_share(scores)
