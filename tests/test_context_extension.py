"""Context extension (notebook 07): interpolation, NTK-aware, dynamic, by parts, YaRN, Llama 3, LongRoPE."""

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
    shows,
    with_one,
    wrong_kinds,
)
from hypothesis import assume, given
from hypothesis import strategies as st
from trusted import faults, few, many, reference, untested

from helpers import context_extension
from helpers.context_extension import RotaryScaling, yarn_softmax_multiplier
from helpers.rope import inverse_frequencies, rotate

BASIC, LLAMA3, LONGROPE, YARN = (
    reference(f"rope_scaling_{name}") for name in ("basic", "llama3", "longrope", "yarn")
)
FAULTS = faults("context extension", "context extension + kv cache")

# One legal call of every method, by its keywords; with the short name of a method, `call` makes it.
CALLS = {
    "unscaled": {},
    "position_interpolation": {"factor": 4.0},
    "ntk_aware": {"factor": 4.0},
    "dynamic_ntk": {"trained_length": 64, "length": 256, "factor": 2.0},
    "ntk_by_parts": {"trained_length": 2048, "factor": 4.0, "low_rotations": 2, "high_rotations": 16},
    "yarn": {
        "trained_length": 2048,
        "factor": 4.0,
        "beta_fast": 16,
        "beta_slow": 2,
        "truncate": False,
        "mscale": 1.0,
        "mscale_all_dim": 0.8,
        "attention_factor": None,
    },
    "llama3": {"trained_length": 1024, "factor": 4.0, "low_freq_factor": 2, "high_freq_factor": 16},
    "longrope": {
        "trained_length": 64,
        "short_factors": frozen([1.0, 1.0, 1.25, 1.5]),
        "long_factors": frozen([1.0, 2.0, 4.0, 8.0]),
        "length": 65,
        "max_length": 512,
        "factor": None,
        "attention_factor": None,
    },
}
EACH_METHOD = pytest.mark.parametrize("name", CALLS)
# Methods that turn some pairs as before, some slower by the factor, and the others by something between.
RAMPS = ["ntk_by_parts", "yarn", "llama3"]
EACH_RAMP = pytest.mark.parametrize("name", RAMPS)


def call(name, rotary_dim=8, base=10_000.0, **changes):
    """The legal call of the table with some arguments changed."""
    return getattr(context_extension, name)(rotary_dim, base, **{**CALLS[name], **changes})


def test_each_known_fault_has_a_test():
    assert {"NTK-01", "YARN-01", "LONG-01", "LL3-01"} <= set(FAULTS)
    assert untested(FAULTS, globals()) == []


def same(found, expected):
    """Equal up to the last digits."""
    np.testing.assert_allclose(found, expected, rtol=1e-14, atol=0)


def close(found, expected):
    """Equal to the digits that two ways of computing a power share."""
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=0)


# The slow forms: one pair after the other, from the formulas, as a list of frequencies and the factor.


def slow_old(d, base):
    return [1 / base ** (2 * i / d) for i in range(d // 2)]


def slow_unscaled(d, base):
    return slow_old(d, base), 1.0


def slow_position_interpolation(d, base, factor):
    return [w / factor for w in slow_old(d, base)], 1.0


def slow_ntk_aware(d, base, factor):
    return slow_old(d, base if factor == 1 else base * factor ** (d / (d - 2))), 1.0


def slow_dynamic_ntk(d, base, trained_length, length, factor=1.0):
    if length <= trained_length:
        return slow_old(d, base), 1.0
    return slow_ntk_aware(d, base, factor * length / trained_length - (factor - 1))


def slow_ntk_by_parts(d, base, trained_length, factor, low_rotations=1, high_rotations=32):
    new = []
    for w in slow_old(d, base):
        rotations = trained_length / (2 * math.pi / w)
        if low_rotations == high_rotations:
            keep = 1.0 if rotations > low_rotations else 0.0
        else:
            keep = (rotations - low_rotations) / (high_rotations - low_rotations)
            keep = min(max(keep, 0.0), 1.0)
        new.append(keep * w + (1 - keep) * w / factor)
    return new, 1.0


def slow_llama3(d, base, trained_length, factor, low_freq_factor=1, high_freq_factor=4):
    """The published code, with its comparisons of wavelengths; there it divides 0 by 0 for equal factors."""
    longest = trained_length / low_freq_factor if low_freq_factor else math.inf
    shortest = trained_length / high_freq_factor if high_freq_factor else math.inf
    new = []
    for w in slow_old(d, base):
        wavelength = 2 * math.pi / w
        if wavelength < shortest:
            new.append(w)
        elif wavelength > longest or longest == shortest:
            new.append(w / factor)
        else:
            keep = (trained_length / wavelength - low_freq_factor) / (high_freq_factor - low_freq_factor)
            new.append((1 - keep) * w / factor + keep * w)
    return new, 1.0


def index_of(rotations, d, base, trained_length):
    """Between which pairs is the one that turns this often in the trained length?"""
    return d * math.log(trained_length / (2 * math.pi * rotations)) / (2 * math.log(base))


def yarn_ends(d, base, trained_length, beta_fast=32, beta_slow=1, truncate=True):
    low, high = (index_of(beta, d, base, trained_length) for beta in (beta_fast, beta_slow))
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    return max(low, 0), min(high, d - 1)


def published_ramp(d, base, trained_length, beta_fast=32, beta_slow=1, truncate=True):
    """How much of each pair YaRN's own code divides, also where its bounds have crossed."""
    low, high = yarn_ends(d, base, trained_length, beta_fast, beta_slow, truncate)
    if low == high:
        high += 0.001
    return [min(max((i - low) / (high - low), 0.0), 1.0) for i in range(d // 2)]


def slow_temperature(factor, mscale=1.0):
    return 0.1 * mscale * math.log(factor) + 1 if factor > 1 else 1.0


def slow_yarn(
    d,
    base,
    trained_length,
    factor,
    beta_fast=32,
    beta_slow=1,
    truncate=True,
    mscale=None,
    mscale_all_dim=None,
    attention_factor=None,
):
    ramp = published_ramp(d, base, trained_length, beta_fast, beta_slow, truncate)
    if trained_length / (2 * math.pi) <= beta_slow:  # the turns of the fastest pair
        ramp = [1.0] * (d // 2)
    elif index_of(beta_fast, d, base, trained_length) >= d - 1:
        ramp = [0.0] * (d // 2)
    new = [w * (1 - t) + w / factor * t for w, t in zip(slow_old(d, base), ramp, strict=True)]
    if attention_factor is None:
        attention_factor = slow_temperature(factor)
        if mscale and mscale_all_dim:
            attention_factor = slow_temperature(factor, mscale) / slow_temperature(factor, mscale_all_dim)
    return new, attention_factor


def slow_longrope(
    d,
    base,
    trained_length,
    short_factors,
    long_factors,
    length=None,
    max_length=None,
    factor=None,
    attention_factor=None,
):
    factors = short_factors if length is None or length <= trained_length else long_factors
    new = [w / float(factors[i]) for i, w in enumerate(slow_old(d, base))]
    if attention_factor is None:
        s = 1.0
        if factor is not None:
            s = factor
        elif max_length is not None:
            s = max_length / trained_length
        attention_factor = math.sqrt(1 + math.log(s) / math.log(trained_length)) if s > 1 else 1.0
    return new, attention_factor


SLOW = {name: globals()[f"slow_{name}"] for name in CALLS}

FACTORS = st.just(1.0) | st.floats(0.25, 1) | st.floats(1, 64) | st.sampled_from([2, 4, 8, 16, 40])
STRETCHES = st.floats(1, 64) | st.sampled_from([1, 2, 4, 8, 40])
EVEN_WIDTHS = st.integers(1, 32).map(lambda half: 2 * half)
BASES = st.sampled_from([0.5, 1.0, 3, 100, 10_000.0, 500_000.0, 1e12])
LARGE_BASES = st.sampled_from([500.0, 10_000, 150_000.0, 500_000.0, 1e6])
LENGTHS = st.integers(1, 200) | st.integers(1, 2**20) | st.sampled_from([2048, 4096, 8192, 131_072])


def maybe(strategy):
    return st.none() | strategy


@st.composite
def by_parts_calls(draw, name="ntk_by_parts", factors=FACTORS, bases=BASES):
    names = {
        "ntk_by_parts": ("low_rotations", "high_rotations"),
        "llama3": ("low_freq_factor", "high_freq_factor"),
    }
    low = draw(st.sampled_from([0, 0.25, 1, 2.0]))
    limits = dict(zip(names[name], (low, low + draw(st.sampled_from([0, 0.5, 3, 31.0]))), strict=True))
    keywords = {"trained_length": draw(LENGTHS), "factor": draw(factors), **limits}
    return name, draw(EVEN_WIDTHS), draw(bases), keywords


@st.composite
def yarn_calls(draw, factors=FACTORS):
    """Calls in which the ends of the ramp are not so near to a pair that rounding may go either way."""
    d, base = draw(EVEN_WIDTHS), draw(LARGE_BASES | st.just(5.0))
    lengths = st.integers(1, 32) | st.integers(32, 2**20) | st.sampled_from([128, 2048, 4096, 131_072])
    ramp = {
        "trained_length": draw(lengths),
        "beta_fast": draw(st.sampled_from([8, 32, 40.5])),
        "beta_slow": draw(st.sampled_from([0.5, 1, 2.5])),
        "truncate": draw(st.booleans()),
    }
    for beta in (ramp["beta_fast"], ramp["beta_slow"]):
        index = index_of(beta, d, base, ramp["trained_length"])
        assume(abs(index - round(index)) > 1e-6)
    scales = st.floats(0.1, 2) | st.just(0.0)
    mscale = draw(maybe(scales))
    mscale_all_dim = draw(maybe(scales) | st.just(mscale))
    temperature = {
        "mscale": mscale,
        "mscale_all_dim": mscale_all_dim,
        "attention_factor": draw(maybe(st.floats(0.5, 2))),
    }
    return "yarn", d, base, {"factor": draw(factors), **ramp, **temperature}


@st.composite
def longrope_calls(draw):
    d, base, trained_length = draw(EVEN_WIDTHS), draw(BASES), draw(st.integers(2, 8192))
    short, long = (
        frozen(draw(st.lists(st.floats(0.5, 100), min_size=d // 2, max_size=d // 2))) for _ in "12"
    )
    around = st.sampled_from([0, 1, trained_length - 1, trained_length, trained_length + 1])
    keywords = {
        "trained_length": trained_length,
        "short_factors": short,
        "long_factors": long,
        "length": draw(maybe(around | st.integers(0, 2**20))),
        "max_length": draw(maybe(st.integers(trained_length, 2**20))),
        "factor": draw(maybe(FACTORS)),
        "attention_factor": draw(maybe(st.floats(0.5, 2))),
    }
    return "longrope", d, base, keywords


@st.composite
def simple_calls(draw):
    name = draw(st.sampled_from(["unscaled", "position_interpolation", "ntk_aware", "dynamic_ntk"]))
    keywords = {}
    if name != "unscaled":
        keywords["factor"] = draw(FACTORS)
    if name == "dynamic_ntk":
        keywords["trained_length"] = trained_length = draw(LENGTHS)
        around = st.sampled_from([0, 1, trained_length - 1, trained_length, trained_length + 1])
        keywords["length"] = draw(around | st.integers(0, 2**20))
    widths = EVEN_WIDTHS.filter(lambda width: width > 2) if "ntk" in name else EVEN_WIDTHS
    return name, draw(widths), draw(BASES), keywords


@pytest.mark.parametrize(
    "calls",
    [simple_calls(), by_parts_calls(), by_parts_calls("llama3"), yarn_calls(), longrope_calls()],
    ids=["simple", "ntk_by_parts", "llama3", "yarn", "longrope"],
)
def test_each_method_equals_its_loop(calls):
    @many
    @given(calls)
    def equal(legal):
        name, d, base, keywords = legal
        before = {key: np.array(value) for key, value in keywords.items()}
        found = getattr(context_extension, name)(d, base, **keywords)
        assert isinstance(found, RotaryScaling)
        assert found.inv_freq.shape == (d // 2,)
        assert found.inv_freq.dtype == np.float64
        assert isinstance(found.attention_factor, float)
        inv_freq, attention_factor = SLOW[name](d, base, **keywords)
        close(found.inv_freq, inv_freq)
        close(found.attention_factor, attention_factor)
        for key, value in keywords.items():
            np.testing.assert_array_equal(value, before[key])

    equal()


# how the methods are called

REQUIRED = inspect.Parameter.empty
SIGNATURES = {
    "unscaled": {},
    "position_interpolation": {"factor": REQUIRED},
    "ntk_aware": {"factor": REQUIRED},
    "dynamic_ntk": {"trained_length": REQUIRED, "length": REQUIRED, "factor": 1.0},
    "ntk_by_parts": {
        "trained_length": REQUIRED,
        "factor": REQUIRED,
        "low_rotations": 1,
        "high_rotations": 32,
    },
    "yarn": {
        "trained_length": REQUIRED,
        "factor": REQUIRED,
        "beta_fast": 32,
        "beta_slow": 1,
        "truncate": True,
        "mscale": None,
        "mscale_all_dim": None,
        "attention_factor": None,
    },
    "llama3": {
        "trained_length": REQUIRED,
        "factor": REQUIRED,
        "low_freq_factor": 1,
        "high_freq_factor": 4,
    },
    "longrope": {
        "trained_length": REQUIRED,
        "short_factors": REQUIRED,
        "long_factors": REQUIRED,
        "length": None,
        "max_length": None,
        "factor": None,
        "attention_factor": None,
    },
}


@EACH_METHOD
def test_the_signature(name):
    parameters = inspect.signature(getattr(context_extension, name)).parameters
    assert list(parameters)[:2] == ["rotary_dim", "base"]
    assert parameters["rotary_dim"].default is REQUIRED
    assert parameters["base"].default == 10_000.0
    keywords = {key: value for key, value in parameters.items() if key not in ("rotary_dim", "base")}
    assert all(value.kind is value.KEYWORD_ONLY for value in keywords.values())
    assert {key: value.default for key, value in keywords.items()} == SIGNATURES[name]


@EACH_METHOD
def test_the_defaults_are_the_values_of_the_signature(name):
    method = getattr(context_extension, name)
    required = {key: CALLS[name][key] for key, value in SIGNATURES[name].items() if value is REQUIRED}
    given = {**SIGNATURES[name], **required}
    short, long = method(8, **required), method(8, 10_000, **given)
    same(short.inv_freq, long.inv_freq)
    assert short.attention_factor == long.attention_factor
    inv_freq, attention_factor = SLOW[name](8, 10_000.0, **required)
    close(short.inv_freq, inv_freq)
    close(short.attention_factor, attention_factor)


@EACH_METHOD
def test_whatever_follows_the_base_is_given_by_name(name):
    with pytest.raises(TypeError):
        getattr(context_extension, name)(8, 10_000.0, *(CALLS[name].values() or [1.0]))


def test_the_result_is_a_named_tuple():
    assert RotaryScaling._fields == ("inv_freq", "attention_factor")
    inv_freq, attention_factor = found = context_extension.unscaled(8)
    assert isinstance(found, tuple)
    assert found.inv_freq is inv_freq
    assert found.attention_factor is attention_factor


@EACH_METHOD
@pytest.mark.parametrize("layout", ["interleaved", "half"])
def test_the_result_goes_into_rotate(layout, name):
    """A rotary width of 8 of 12 features; every score is multiplied by the square of the factor."""
    x = np.random.default_rng(1).normal(size=(2, 3, 12))
    positions = np.array([0, 5, 700])
    scaling = call(name)
    found = rotate(x, positions, *scaling, layout=layout)
    inv_freq, attention_factor = SLOW[name](8, 10_000.0, **CALLS[name])
    np.testing.assert_array_equal(found[..., 8:], x[..., 8:])
    for i, w in enumerate(inv_freq):
        a, b = (2 * i, 2 * i + 1) if layout == "interleaved" else (i, i + 4)
        cos, sin = np.cos(positions * w) * attention_factor, np.sin(positions * w) * attention_factor
        np.testing.assert_allclose(found[..., a], x[..., a] * cos - x[..., b] * sin, atol=1e-12)
        np.testing.assert_allclose(found[..., b], x[..., a] * sin + x[..., b] * cos, atol=1e-12)


@EACH_METHOD
def test_a_result_that_is_overwritten_spoils_no_later_one(name):
    first = call(name)
    right = first.inv_freq.copy()
    if first.inv_freq.flags.writeable:
        first.inv_freq[...] = -1
    same(call(name).inv_freq, right)
    assert not any(
        np.shares_memory(call(name).inv_freq, value) for value in CALLS[name].values() if np.ndim(value)
    )


@EACH_METHOD
@pytest.mark.parametrize(
    ("count", "number"),
    [(np.int64, np.float64), (np.int32, np.float32), (np.uint16, np.float16), (np.int16, np.uint16)],
)
def test_numpy_numbers_are_numbers(count, number, name):
    """A narrow type must not make the computation narrow: all these numbers fit into all these types."""
    narrow = {int: count, float: number, bool: np.bool_}
    changes = {key: narrow[type(value)](value) for key, value in CALLS[name].items() if type(value) in narrow}
    changes.pop("mscale_all_dim", None)  # 0.8 is another number in float32
    found, plain = call(name, count(8), number(10_000), **changes), call(name)
    assert found.inv_freq.dtype == np.float64
    assert isinstance(found.attention_factor, float)
    same(found.inv_freq, plain.inv_freq)
    same(found.attention_factor, plain.attention_factor)


@EACH_METHOD
@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_a_rotary_width_of_eight_bits_neither_wraps_nor_rounds(kind, name):
    changes = {}
    if name == "longrope":
        changes = dict.fromkeys(["short_factors", "long_factors"], np.full(62, 3.0))
    found, plain = call(name, kind(124), **changes), call(name, 124, **changes)
    same(found.inv_freq, plain.inv_freq)


@EACH_METHOD
@pytest.mark.parametrize("base", [500_000, 10**18, 10**30])
def test_a_base_may_be_a_whole_number_of_any_size(base, name):
    found, plain = call(name, base=base), call(name, base=float(base))
    same(found.inv_freq, plain.inv_freq)
    assert found.attention_factor == plain.attention_factor


@pytest.mark.parametrize("kind", [list, tuple, np.float32, np.float16, np.int64])
def test_longrope_factors_of_every_kind(kind):
    factors = [1, 2, 4, 8]
    found = call("longrope", long_factors=kind(factors), short_factors=kind(factors))
    assert found.inv_freq.dtype == np.float64
    close(found.inv_freq, call("longrope", long_factors=np.array(factors, float)).inv_freq)


def test_longrope_divides_by_narrow_factors_in_float64():
    factors = np.array([1.1, 2.3, 4.7, 8.9], np.float32)
    found = call("longrope", long_factors=factors)
    close(found.inv_freq, [w / float(f) for w, f in zip(slow_old(8, 1e4), factors, strict=True)])


# against the reference


def entries(*files):
    return [pytest.param(file, entry, id=entry["name"]) for file in files for entry in file["entries"]]


def tolerance(file, quantity):
    """1e-12 from `rtol 1e-12`."""
    return float(str(file["tolerance"][quantity]).removeprefix("rtol "))


def scaling_of(entry):
    """The call that an entry describes. Keys of the library that are not renamed here pass as they are."""
    if "rope_parameters" not in entry:
        return context_extension.longrope(
            entry["head_dim"],
            trained_length=entry["original_max_position_embeddings"],
            max_length=entry["max_position_embeddings"],
            length=entry["seq_len"],
            short_factors=entry["short_factor"],
            long_factors=entry["long_factor"],
            **entry["overrides"],
        )
    keywords = dict(entry["rope_parameters"])
    kind, base = keywords.pop("rope_type"), keywords.pop("rope_theta")
    if "original_max_position_embeddings" in keywords:
        keywords["trained_length"] = keywords.pop("original_max_position_embeddings")
    if kind == "dynamic":
        keywords["trained_length"] = trained_length = entry["max_position_embeddings"]
        # The library takes no length for one that was never exceeded.
        keywords["length"] = trained_length if entry["seq_len"] is None else entry["seq_len"]
    names = {"default": "unscaled", "linear": "position_interpolation", "dynamic": "dynamic_ntk"}
    return getattr(context_extension, names.get(kind, kind))(entry["head_dim"], base, **keywords)


@pytest.mark.parametrize(("file", "entry"), entries(BASIC, LLAMA3, LONGROPE, YARN))
def test_each_entry_of_the_reference(file, entry):
    found = scaling_of(entry)
    np.testing.assert_allclose(
        found.inv_freq, entry["inv_freq_f64"], rtol=tolerance(file, "inv_freq_f64"), atol=0
    )
    assert found.attention_factor == pytest.approx(entry["attention_factor"], rel=1e-12)
    if "lib_attention_factor" in entry:
        assert found.attention_factor == pytest.approx(entry["lib_attention_factor"], rel=1e-12)
    if "lib_inv_freq_float32" in entry:
        # The file on LongRoPE states no tolerance for the library's float32: that of the others.
        rtol = tolerance(YARN if file is LONGROPE else file, "vs library float32")
        np.testing.assert_allclose(found.inv_freq, entry["lib_inv_freq_float32"], rtol=rtol, atol=0)
    for checked in entry.get("checked_against", []):
        if "mscale" in checked:
            assert found.attention_factor == pytest.approx(checked["mscale"], rel=1e-12)


def test_the_tolerances_are_those_of_the_reference():
    assert all(tolerance(file, "inv_freq_f64") == 1e-12 for file in (BASIC, LLAMA3, LONGROPE, YARN))
    assert all(tolerance(file, "attention_factor") == 1e-12 for file in (LONGROPE, YARN))


DYNAMIC = [entry for entry in BASIC["entries"] if "effective_base" in entry]


@pytest.mark.parametrize("entry", DYNAMIC, ids=lambda entry: entry["name"])
def test_the_effective_base_as_in_the_reference(entry):
    d = entry["head_dim"]
    assert scaling_of(entry).inv_freq[1] ** (-d / 2) == pytest.approx(entry["effective_base"], rel=1e-11)
    if entry["seq_len"] is None or entry["seq_len"] <= entry["max_position_embeddings"]:
        np.testing.assert_array_equal(scaling_of(entry).inv_freq, inverse_frequencies(d))


@pytest.mark.parametrize("case", BASIC["ntk_fixed"], ids=lambda case: f"d{case['head_dim']}_x{case['alpha']}")
def test_ntk_aware_equals_the_reference(case):
    d, base, alpha = case["head_dim"], case["base"], case["alpha"]
    found = context_extension.ntk_aware(d, base, factor=alpha)
    np.testing.assert_allclose(
        found.inv_freq, case["inv_freq_f64"], rtol=tolerance(BASIC, "inv_freq_f64"), atol=0
    )
    assert found.attention_factor == 1.0
    close(found.inv_freq, inverse_frequencies(d, case["new_base"]))
    ratio = inverse_frequencies(d, base)[-1] / found.inv_freq[-1]
    assert ratio == pytest.approx(case["lowest_freq_ratio_old_over_new"], rel=1e-12)


@pytest.mark.parametrize("entry", LLAMA3["entries"], ids=lambda entry: entry["name"])
def test_the_regions_of_llama3_as_in_the_reference(entry):
    parameters = entry["rope_parameters"]
    old, new = inverse_frequencies(entry["head_dim"], parameters["rope_theta"]), scaling_of(entry).inv_freq
    first, last = entry["regions"]["keep"]
    same(new[first : last + 1], old[first : last + 1])
    first, last = entry["regions"]["divide"]
    same(new[first : last + 1], old[first : last + 1] / parameters["factor"])
    first, last = entry["regions"]["blend"]
    between = new[first : last + 1] / old[first : last + 1]
    assert np.all((between > 1.001 / parameters["factor"]) & (between < 0.999))
    assert entry["regions"]["keep"][0] == 0
    assert entry["regions"]["divide"][1] == entry["head_dim"] // 2 - 1


@pytest.mark.parametrize("entry", LLAMA3["entries"], ids=lambda entry: entry["name"])
def test_llama3_is_by_parts_as_in_the_reference(entry):
    parameters = entry["rope_parameters"]
    by_parts = context_extension.ntk_by_parts(
        entry["head_dim"],
        parameters["rope_theta"],
        trained_length=parameters["original_max_position_embeddings"],
        factor=parameters["factor"],
        low_rotations=parameters["low_freq_factor"],
        high_rotations=parameters["high_freq_factor"],
    )
    assert entry["equals_ntk_by_parts_paper_ramp(alpha=low,beta=high) max_rel_diff"] == 0
    same(scaling_of(entry).inv_freq, by_parts.inv_freq)
    assert by_parts.attention_factor == 1.0


@pytest.mark.parametrize("entry", LONGROPE["entries"], ids=lambda entry: entry["name"])
def test_which_factors_longrope_uses_as_in_the_reference(entry):
    used = np.array(entry[f"{entry['factors_used']}_factor"])
    close(scaling_of(entry).inv_freq, inverse_frequencies(entry["head_dim"]) / used)


@pytest.mark.parametrize("length", [None, 1, 4096, 4097, 131_072])
def test_longrope_with_the_factors_of_phi3(length):
    short, long = LONGROPE["phi3_short"], LONGROPE["phi3_long"]
    found = context_extension.longrope(
        96,
        trained_length=4096,
        short_factors=short,
        long_factors=long,
        length=length,
        max_length=131_072,
    )
    used = long if length in (4097, 131_072) else short
    close(found.inv_freq, [w / f for w, f in zip(slow_old(96, 1e4), used, strict=True)])
    # 128k / 4k = 32 = 2^5 and 4096 = 2^12: the ratio of the logarithms is 5/12.
    assert found.attention_factor == pytest.approx(math.sqrt(1 + 5 / 12), rel=1e-14)
    assert found.attention_factor == pytest.approx(1.190238, abs=5e-7)


def parts_of(new, old, factor):
    """How much of each pair is interpolated: 0 keeps its frequency, 1 divides it by the factor."""
    return (1 - new / old) / (1 - 1 / factor)


def ramp_of(entry, **changes):
    """The ramp of a YaRN entry, read from what the function returns."""
    changed = {**entry, "rope_parameters": {**entry["rope_parameters"], **changes}}
    old = inverse_frequencies(entry["head_dim"], entry["rope_parameters"]["rope_theta"])
    return parts_of(scaling_of(changed).inv_freq, old, changed["rope_parameters"]["factor"])


def line_of(ramp):
    """Where the line through the first two pairs of the ramp's inside is 0, and where it is 1."""
    i = np.flatnonzero((ramp > 1e-9) & (ramp < 1 - 1e-9))[0]
    step = ramp[i + 1] - ramp[i]
    return i - ramp[i] / step, i + (1 - ramp[i]) / step


@pytest.mark.parametrize("entry", YARN["entries"], ids=lambda entry: entry["name"])
def test_the_ramp_of_yarn_as_in_the_reference(entry):
    ramp = ramp_of(entry)
    if "ramp_0_keep_1_interpolate" in entry:
        np.testing.assert_allclose(ramp, entry["ramp_0_keep_1_interpolate"], rtol=0, atol=1e-12)
    assert np.flatnonzero(ramp > 1e-9)[0] == entry["first_pair_changed"]
    assert np.flatnonzero(ramp > 1 - 1e-9)[0] == entry["first_pair_fully_interpolated"]
    assert line_of(ramp) == pytest.approx((entry["low"], entry["high"]), abs=1e-9)
    raw = entry["low_raw"], entry["high_raw"]
    assert (max(math.floor(raw[0]), 0), math.ceil(raw[1])) == (entry["low"], entry["high"])
    smooth = ramp_of(entry, truncate=False)
    assert line_of(smooth) == pytest.approx((max(raw[0], 0), raw[1]), abs=1e-9)


@pytest.mark.parametrize("entry", YARN["entries"], ids=lambda entry: entry["name"])
def test_the_ramp_of_the_paper_as_in_the_reference(entry):
    parameters, stated = entry["rope_parameters"], entry["paper_ramp_in_rotations"]
    paper = context_extension.ntk_by_parts(
        entry["head_dim"],
        parameters["rope_theta"],
        trained_length=parameters["original_max_position_embeddings"],
        factor=parameters["factor"],
        low_rotations=parameters["beta_slow"],
        high_rotations=parameters["beta_fast"],
    )
    assert paper.attention_factor == 1.0
    if "paper_inv_freq_f64" in entry:
        np.testing.assert_allclose(
            paper.inv_freq, entry["paper_inv_freq_f64"], rtol=tolerance(YARN, "inv_freq_f64"), atol=0
        )
    code = scaling_of(entry).inv_freq
    difference = np.abs(paper.inv_freq / code - 1).max()
    assert difference == pytest.approx(stated["max_rel_diff_of_inv_freq_vs_code"], abs=5.1e-4)
    old = inverse_frequencies(entry["head_dim"], parameters["rope_theta"])
    ramp = parts_of(paper.inv_freq, old, parameters["factor"])
    assert np.flatnonzero(ramp > 1e-9)[0] == stated["first_pair_changed"]
    assert np.flatnonzero(ramp > 1 - 1e-9)[0] == stated["first_pair_fully_interpolated"]


@pytest.mark.parametrize("entry", YARN["entries"], ids=lambda entry: entry["name"])
def test_what_yarn_does_to_the_scores_as_in_the_reference(entry):
    scaling = scaling_of(entry)
    found = scaling.attention_factor**2
    assert found == pytest.approx(entry["logit_multiplier_if_cos_sin_scaled"], rel=1e-12)
    if "deepseek_extra_softmax_scale_multiplier" in entry:
        parameters = entry["rope_parameters"]
        multiplier = yarn_softmax_multiplier(parameters["factor"], parameters["mscale_all_dim"])
        assert multiplier == pytest.approx(entry["deepseek_extra_softmax_scale_multiplier"], rel=1e-12)


# properties


# YaRN's ramp has no ends where all pairs turn alike, or the last one fastest.
NAME_AND_BASE = [
    (name, base) for name in CALLS for base in (0.5, 1.0, 10_000.0, 500_000) if name != "yarn" or base > 1
]


@pytest.mark.parametrize(("name", "base"), NAME_AND_BASE)
@pytest.mark.parametrize("rotary_dim", [4, 8, 128])
def test_a_factor_of_one_changes_nothing(rotary_dim, name, base):
    """Neither the frequencies, to the last digit, nor the scores, whatever else is given."""
    changes = {} if name == "unscaled" else {"factor": 1}
    if name == "dynamic_ntk":  # its factor is a slope: what changes nothing is a short input
        changes = {"length": CALLS[name]["trained_length"]}
    if name == "longrope":
        changes |= dict.fromkeys(["short_factors", "long_factors"], np.ones(rotary_dim // 2))
    found = call(name, rotary_dim, base, **changes)
    np.testing.assert_array_equal(found.inv_freq, inverse_frequencies(rotary_dim, base))
    assert found.attention_factor == 1.0


@pytest.mark.parametrize("factor", [1, 1.0, np.float32(1)])
def test_a_factor_of_one_needs_no_wider_rotary_width(factor):
    for name in ("position_interpolation", "ntk_aware", *RAMPS):
        found = call(name, 2, factor=factor)
        np.testing.assert_array_equal(found.inv_freq, [1.0])
        assert found.attention_factor == 1.0


@many
@given(EVEN_WIDTHS, BASES)
def test_unscaled_is_the_plain_rotary_embedding(rotary_dim, base):
    found = context_extension.unscaled(rotary_dim, base)
    np.testing.assert_array_equal(found.inv_freq, inverse_frequencies(rotary_dim, base))
    assert found.attention_factor == 1.0


@many
@given(EVEN_WIDTHS, BASES, FACTORS, st.floats(-1e4, 1e4), st.integers(0, 2**32))
def test_interpolation_is_the_plain_embedding_at_closer_positions(rotary_dim, base, factor, position, seed):
    x = np.random.default_rng(seed).uniform(-1, 1, size=(1, rotary_dim))
    scaling = context_extension.position_interpolation(rotary_dim, base, factor=factor)
    found = rotate(x, np.array([position]), *scaling)
    np.testing.assert_allclose(found, rotate(x, np.array([position / factor]), base=base), atol=1e-9)


@many
@given(EVEN_WIDTHS.filter(lambda width: width > 2), BASES, FACTORS)
def test_ntk_aware_keeps_the_first_pair_and_divides_the_last(rotary_dim, base, factor):
    old = inverse_frequencies(rotary_dim, base)
    found = context_extension.ntk_aware(rotary_dim, base, factor=factor)
    assert found.inv_freq[0] == 1.0
    assert found.inv_freq[-1] == pytest.approx(old[-1] / factor, rel=1e-13)
    # Between the ends each pair is divided by the same power of the factor more than the one before.
    steps = np.diff(np.log(old / found.inv_freq))
    np.testing.assert_allclose(steps, math.log(factor) / (rotary_dim // 2 - 1), rtol=0, atol=1e-11)
    assert found.attention_factor == 1.0


@many
@given(EVEN_WIDTHS.filter(lambda width: width > 2), BASES, LENGTHS, st.floats(0, 64), FACTORS)
def test_dynamic_ntk_is_ntk_aware_with_a_factor_of_the_length(d, base, trained_length, times, factor):
    length = round(trained_length * times)
    found = context_extension.dynamic_ntk(
        d, base, trained_length=trained_length, length=length, factor=factor
    )
    if length <= trained_length:
        np.testing.assert_array_equal(found.inv_freq, inverse_frequencies(d, base))
    else:
        alpha = 1 + factor * (length - trained_length) / trained_length
        close(found.inv_freq, context_extension.ntk_aware(d, base, factor=alpha).inv_freq)
    assert found.attention_factor == 1.0


@few
@given(EVEN_WIDTHS.filter(lambda width: width > 2), LENGTHS, st.integers(1, 64))
def test_dynamic_ntk_without_a_factor_follows_the_length(d, trained_length, times):
    """The rule of the paper: the factor is length / trained_length, so the last pair is divided by it."""
    found = context_extension.dynamic_ntk(d, trained_length=trained_length, length=times * trained_length)
    assert found.inv_freq[-1] == pytest.approx(inverse_frequencies(d)[-1] / times, rel=1e-12)


@pytest.mark.parametrize("factor", [1.0, 2.0, 4])
def test_dynamic_ntk_changes_with_the_first_position_beyond_the_trained_length(factor):
    plain, first, later = (
        context_extension.dynamic_ntk(8, trained_length=64, length=length, factor=factor).inv_freq
        for length in (64, 65, 640)
    )
    np.testing.assert_array_equal(plain, inverse_frequencies(8))
    assert np.all(first[1:] < plain[1:])
    assert np.all(later[1:] < first[1:])


def between(new, old, factor):
    """Is each number between the old one and the old one over the factor?"""
    low, high = np.minimum(old, old / factor), np.maximum(old, old / factor)
    return np.all((new >= low * (1 - 1e-14)) & (new <= high * (1 + 1e-14)))


@many
@given(by_parts_calls() | by_parts_calls("llama3") | yarn_calls())
def test_each_new_frequency_is_between_the_old_one_and_the_old_one_over_the_factor(legal):
    name, d, base, keywords = legal
    found = getattr(context_extension, name)(d, base, **keywords)
    assert between(found.inv_freq, inverse_frequencies(d, base), keywords["factor"])


@many
@given(
    EVEN_WIDTHS, LARGE_BASES, st.integers(1, 300) | st.integers(1, 2**40), STRETCHES, st.sampled_from(RAMPS)
)
def test_the_bounds_hold_for_very_short_and_very_long_trained_lengths(d, base, trained_length, factor, name):
    found = getattr(context_extension, name)(d, base, trained_length=trained_length, factor=factor)
    old = inverse_frequencies(d, base)
    assert between(found.inv_freq, old, factor)
    assert np.all(np.diff(found.inv_freq) < 0)
    if name != "yarn":
        assert found.attention_factor == 1.0


@many
@given(by_parts_calls() | by_parts_calls("llama3") | yarn_calls())
def test_fast_pairs_are_kept_and_slow_pairs_divided(legal):
    name, d, base, keywords = legal
    ends = {
        "ntk_by_parts": ("low_rotations", "high_rotations"),
        "llama3": ("low_freq_factor", "high_freq_factor"),
        "yarn": ("beta_slow", "beta_fast"),
    }
    slow, fast = (keywords[key] for key in ends[name])
    found = getattr(context_extension, name)(d, base, **keywords)
    old = inverse_frequencies(d, base)
    rotations = keywords["trained_length"] * old / (2 * math.pi)
    same(found.inv_freq[rotations >= fast], old[rotations >= fast])
    same(found.inv_freq[rotations <= slow], old[rotations <= slow] / keywords["factor"])


@many
@given(by_parts_calls())
def test_llama3_is_by_parts_under_another_name(legal):
    _, d, base, keywords = legal
    names = {"low_rotations": "low_freq_factor", "high_rotations": "high_freq_factor"}
    renamed = {names.get(key, key): value for key, value in keywords.items()}
    one = context_extension.ntk_by_parts(d, base, **keywords)
    other = context_extension.llama3(d, base, **renamed)
    same(one.inv_freq, other.inv_freq)
    assert one.attention_factor == other.attention_factor == 1.0


@many
@given(
    by_parts_calls(factors=STRETCHES, bases=LARGE_BASES)
    | by_parts_calls("llama3", factors=STRETCHES, bases=LARGE_BASES)
    | yarn_calls(factors=STRETCHES)
)
def test_a_stretch_keeps_the_order_of_the_pairs_and_a_larger_one_slows_them(legal):
    name, d, base, keywords = legal
    method = getattr(context_extension, name)
    found = method(d, base, **keywords).inv_freq
    assert np.all(np.diff(found) < 0)
    slower = method(d, base, **{**keywords, "factor": 2 * keywords["factor"]}).inv_freq
    assert np.all(slower <= found * (1 + 1e-14))


@many
@given(EVEN_WIDTHS.filter(lambda width: width > 2), LARGE_BASES, STRETCHES)
def test_a_stretch_keeps_the_order_of_the_pairs_without_parts_too(d, base, factor):
    for name in ("position_interpolation", "ntk_aware"):
        found, slower = (
            getattr(context_extension, name)(d, base, factor=f).inv_freq for f in (factor, 2 * factor)
        )
        assert np.all(np.diff(found) < 0)
        assert np.all(slower <= found)


@many
@given(yarn_calls())
def test_the_ends_of_yarn_do_not_depend_on_the_temperature(legal):
    _, d, base, keywords = legal
    found = context_extension.yarn(d, base, **keywords).inv_freq
    plain = dict.fromkeys(["mscale", "mscale_all_dim", "attention_factor"])
    same(context_extension.yarn(d, base, **{**keywords, **plain}).inv_freq, found)


@pytest.mark.parametrize("factor", [0.25, 0.999, 1, 1.0])
def test_without_a_stretch_yarn_and_longrope_have_no_temperature(factor):
    assert context_extension.yarn(8, trained_length=2048, factor=factor).attention_factor == 1.0
    assert call("yarn", factor=factor, mscale=1.0, mscale_all_dim=0.5).attention_factor == 1.0
    assert call("longrope", factor=factor).attention_factor == 1.0
    assert yarn_softmax_multiplier(factor, 0.707) == 1.0


@few
@given(FACTORS, st.floats(0.1, 2))
def test_the_softmax_multiplier_is_the_square_of_the_temperature(factor, mscale_all_dim):
    found = yarn_softmax_multiplier(factor, mscale_all_dim)
    assert isinstance(found, float)
    close(found, slow_temperature(factor, mscale_all_dim) ** 2)


@few
@given(STRETCHES, st.floats(0.1, 2), st.floats(0.1, 2))
def test_what_leaves_cosine_and_sine_comes_back_in_the_softmax_scale(factor, mscale, mscale_all_dim):
    """Together the two halves multiply a score by g(mscale)^2, however it is shared out."""
    scaling = call("yarn", factor=factor, mscale=mscale, mscale_all_dim=mscale_all_dim)
    found = scaling.attention_factor**2 * yarn_softmax_multiplier(factor, mscale_all_dim)
    close(found, slow_temperature(factor, mscale) ** 2)


def test_a_given_attention_factor_is_taken_as_it_is():
    for name in ("yarn", "longrope"):
        assert call(name, attention_factor=1.5).attention_factor == 1.5
        assert call(name, attention_factor=1).attention_factor == 1.0
        assert call(name, factor=1, attention_factor=1.5).attention_factor == 1.5
        same(call(name, attention_factor=1.5).inv_freq, call(name).inv_freq)


def test_where_the_factor_of_longrope_comes_from():
    """The factor where given, else max_length / trained_length, else 1."""

    def temperature(**changes):
        return call("longrope", trained_length=16, **changes).attention_factor

    assert temperature(max_length=None) == 1.0
    assert temperature(max_length=16) == 1.0
    assert temperature(max_length=256) == pytest.approx(math.sqrt(2), rel=1e-15)
    assert temperature(max_length=256, factor=1.0) == 1.0
    assert temperature(max_length=None, factor=256) == pytest.approx(math.sqrt(3), rel=1e-15)
    assert temperature(max_length=256, factor=2) == pytest.approx(math.sqrt(1.25), rel=1e-15)
    # For short inputs as well.
    assert temperature(max_length=256, length=1) == pytest.approx(math.sqrt(2), rel=1e-15)
    assert temperature(max_length=256, length=None) == pytest.approx(math.sqrt(2), rel=1e-15)


# known faults, each as a test of its kind


def base_of(inv_freq):
    """The base that gives these frequencies."""
    return float(inv_freq[1]) ** -len(inv_freq)


def dynamic_base(d, length, factor):
    return base_of(
        context_extension.dynamic_ntk(d, trained_length=2048, length=length, factor=factor).inv_freq
    )


def test_ntk_01_smallest_input():
    assert dynamic_base(64, 1024, 4.0) == pytest.approx(FAULTS["NTK-01"]["right_value"], rel=1e-9)


@pytest.mark.parametrize("factor", [1.0, 2.0, 4.0, 40.0])
@pytest.mark.parametrize("length", [0, 1, 1024, 2047, 2048])
def test_ntk_01_short_inputs_keep_the_trained_frequencies(length, factor):
    found = context_extension.dynamic_ntk(64, trained_length=2048, length=length, factor=factor)
    np.testing.assert_array_equal(found.inv_freq, inverse_frequencies(64))


def test_ntk_02_smallest_input():
    assert dynamic_base(64, 8192, 4.0) == pytest.approx(FAULTS["NTK-02"]["right_value"], rel=1e-9)


@pytest.mark.parametrize(("factor", "effective"), [(1.0, 2), (2.0, 3), (4.0, 5)])
def test_ntk_02_at_twice_the_length_the_factor_counts_in_full(factor, effective):
    """f L/L0 - (f - 1) at L = 2 L0: with f = 2 the last pair is divided by 3, not by 2, and never by 1."""
    found = context_extension.dynamic_ntk(16, trained_length=100, length=200, factor=factor)
    assert inverse_frequencies(16)[-1] / found.inv_freq[-1] == pytest.approx(effective, rel=1e-12)


def test_ntk_03_smallest_input():
    bases = [dynamic_base(16, length, 2.0) for length in (1024, 4096, 1024)]
    assert bases[2] == pytest.approx(FAULTS["NTK-03"]["right_value"], rel=1e-12)
    assert bases[1] == pytest.approx(FAULTS["NTK-03"]["wrong_value"], rel=1e-9)


@EACH_METHOD
def test_ntk_03_no_call_remembers_the_one_before(name):
    before = call(name)
    for changes in ({"length": 10**6}, {"factor": 99.0}, {"trained_length": 7}):
        if set(changes) <= set(CALLS[name]):
            call(name, **changes)
    call(name, base=77.0)
    after = call(name)
    np.testing.assert_array_equal(before.inv_freq, after.inv_freq)
    assert before.attention_factor == after.attention_factor


def dynamic(length):
    return context_extension.dynamic_ntk(16, trained_length=2048, length=length, factor=2.0)


def test_ntk_04_smallest_input():
    assert 100 * dynamic(4096).inv_freq[1] == pytest.approx(FAULTS["NTK-04"]["right_value"], rel=1e-9)
    assert 100 * dynamic(2049).inv_freq[1] == pytest.approx(FAULTS["NTK-04"]["wrong_value"], rel=1e-9)


def test_ntk_04_a_key_cached_under_an_older_base_does_not_fit():
    """Rotated when it is used, a score depends on the offset alone; rotated when cached, it does not."""
    q, k = np.random.default_rng(4).normal(size=(2, 1, 16))

    def score(query_position, key_position, cached_at):
        turned_q = rotate(q, np.array([query_position]), *dynamic(4096))
        return (turned_q @ rotate(k, np.array([key_position]), *dynamic(cached_at)).T).item()

    fresh = [score(100 + shift, shift, 4096) for shift in (0, 100, 2000)]
    np.testing.assert_allclose(fresh, fresh[0], atol=1e-10)
    stale = [score(100 + shift, shift, 2049) for shift in (0, 100, 2000)]
    assert np.ptp(stale) > 0.1


@pytest.mark.parametrize("base", [1.0, 10_000.0])
def test_ntk_07_a_rotary_width_of_two_works_where_nothing_is_rescaled(base):
    for found in (
        context_extension.unscaled(2, base),
        context_extension.ntk_aware(2, base, factor=1.0),
        context_extension.dynamic_ntk(2, base, trained_length=64, length=64),
        context_extension.dynamic_ntk(2, base, trained_length=64, length=1, factor=4.0),
    ):
        np.testing.assert_array_equal(found.inv_freq, [1.0])
        assert found.attention_factor == 1.0


@pytest.mark.parametrize("factor", [0.5, 1.001, 2.0, 8])
def test_ntk_07_a_rotary_width_of_two_is_refused_by_name_where_a_rescaled_base_is_asked_for(factor):
    refuses(lambda: context_extension.ntk_aware(2, factor=factor), ValueError, "rotary_dim", 2)
    refuses(
        lambda: context_extension.dynamic_ntk(2, trained_length=64, length=65, factor=factor),
        ValueError,
        "rotary_dim",
        2,
    )


def test_ntk_07_the_other_methods_know_no_such_exception():
    same(context_extension.position_interpolation(2, factor=4).inv_freq, [0.25])
    for name in ("ntk_by_parts", "llama3"):
        same(getattr(context_extension, name)(2, trained_length=5, factor=4).inv_freq, [0.25])
        same(getattr(context_extension, name)(2, trained_length=2048, factor=4).inv_freq, [1.0])
    same(context_extension.yarn(2, trained_length=2048, factor=4).inv_freq, [1.0])
    found = context_extension.longrope(2, trained_length=64, short_factors=[2.0], long_factors=[4.0])
    same(found.inv_freq, [0.5])


def yarn_ramp(d, base, **keywords):
    found = context_extension.yarn(d, base, factor=4.0, **keywords)
    return parts_of(found.inv_freq, inverse_frequencies(d, base), 4.0)


def test_yarn_01_smallest_input():
    """Upper index 35, as the slope of the ramp shows, though there are 32 pairs."""
    _, high = line_of(yarn_ramp(64, 10_000.0, trained_length=131_072))
    assert high == pytest.approx(FAULTS["YARN-01"]["right_value"], abs=1e-9)


@pytest.mark.parametrize(
    ("d", "trained_length", "high"), [(64, 65_536, 33), (64, 262_144, 37), (128, 131_072, 70)]
)
@pytest.mark.parametrize("truncate", [True, False])
def test_yarn_01_with_a_long_trained_length_the_ramp_never_reaches_its_end(truncate, d, trained_length, high):
    ramp = yarn_ramp(d, 10_000.0, trained_length=trained_length, truncate=truncate)
    assert ramp.max() < 0.99
    found = line_of(ramp)[1]
    assert math.ceil(found - 1e-9) == high
    assert (found == pytest.approx(high, abs=1e-9)) == truncate


def test_yarn_01_the_upper_index_is_clamped_to_the_rotary_width():
    """ceil c(1) is 10 where the base is small; the clamp leaves 7, one less than the width."""
    d, base, trained_length = 8, 20.0, 10_000
    assert math.ceil(index_of(1, d, base, trained_length)) > d - 1
    for truncate in (True, False):
        ramp = yarn_ramp(d, base, trained_length=trained_length, beta_fast=1000, truncate=truncate)
        assert line_of(ramp)[1] == pytest.approx(d - 1, abs=1e-9)


def test_yarn_02_smallest_input():
    ramp = yarn_ramp(64, 150_000.0, trained_length=4096, truncate=False)
    assert line_of(ramp) == pytest.approx(FAULTS["YARN-02"]["right_value"], rel=1e-9)
    rounded = yarn_ramp(64, 150_000.0, trained_length=4096)
    assert line_of(rounded) == pytest.approx(FAULTS["YARN-02"]["wrong_value"], rel=1e-9)


@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("trained_length", [2048, 4096, 8192])
def test_yarn_02_the_range_is_rounded_outwards_or_not_at_all(trained_length, d):
    raw = tuple(index_of(beta, d, 10_000, trained_length) for beta in (32, 1))
    smooth = yarn_ramp(d, 10_000.0, trained_length=trained_length, truncate=False)
    rounded = yarn_ramp(d, 10_000.0, trained_length=trained_length, truncate=True)
    assert line_of(smooth) == pytest.approx(raw, abs=1e-9)
    assert line_of(rounded) == pytest.approx((math.floor(raw[0]), math.ceil(raw[1])), abs=1e-9)


def test_yarn_where_not_one_pair_turns_once_smallest_input():
    """c(1) is -0.2, which is rounded to 0: the published code keeps pair 0, which turns 0.64 times."""
    found = context_extension.yarn(8, trained_length=4, factor=2).inv_freq
    np.testing.assert_array_equal(found / inverse_frequencies(8), [0.5, 0.5, 0.5, 0.5])
    assert published_ramp(8, 10_000, 4) == [0, 1, 1, 1]
    assert published_ramp(8, 10_000, 4, truncate=False) == [0, 0, 0, 0]
    assert published_ramp(64, 10_000, 4) == [0] * 32


@pytest.mark.parametrize("truncate", [True, False])
@pytest.mark.parametrize("trained_length", [1, 4, 6])
@pytest.mark.parametrize(("d", "base"), [(2, 10_000.0), (8, 10_000.0), (64, 500_000.0), (128, 20.0)])
def test_yarn_divides_all_pairs_if_not_one_turns_once_as_the_paper_says(d, base, trained_length, truncate):
    keywords = {"trained_length": trained_length, "factor": 4.0}
    found = context_extension.yarn(d, base, truncate=truncate, **keywords)
    np.testing.assert_array_equal(found.inv_freq, inverse_frequencies(d, base) / 4)
    paper = context_extension.ntk_by_parts(d, base, **keywords)
    np.testing.assert_array_equal(found.inv_freq, paper.inv_freq)
    assert found.attention_factor == pytest.approx(slow_temperature(4.0), rel=1e-15)


@pytest.mark.parametrize("truncate", [True, False])
def test_yarn_divides_all_pairs_up_to_exactly_beta_slow_turns_of_the_fastest(truncate):
    turns = 64 / (2 * np.pi)
    assert 64 / (2 * np.pi * turns) == 1
    for beta_slow, pairs_divided in ((turns, 8), (turns * 1.001, 8), (turns * 0.999, 7)):
        ramp = yarn_ramp(16, 10_000.0, trained_length=64, beta_slow=beta_slow, truncate=truncate)
        np.testing.assert_array_equal(ramp, [0.0] * (8 - pairs_divided) + [1.0] * pairs_divided)


@pytest.mark.parametrize("truncate", [True, False])
@pytest.mark.parametrize("d", [2, 8, 64])
def test_yarn_keeps_all_pairs_if_each_turns_more_than_beta_fast_times(d, truncate):
    """With a base of 5 and a billion tokens even the lower end lies beyond d - 1."""
    keywords = {"trained_length": 10**9 if d < 64 else 2**53, "factor": 4.0}
    base = 5.0 if d < 64 else 1.5
    assert index_of(32, d, base, keywords["trained_length"]) > d - 1
    found = context_extension.yarn(d, base, truncate=truncate, **keywords)
    np.testing.assert_array_equal(found.inv_freq, inverse_frequencies(d, base))
    paper = context_extension.ntk_by_parts(d, base, **keywords)
    np.testing.assert_array_equal(found.inv_freq, paper.inv_freq)
    assert published_ramp(d, base, keywords["trained_length"], truncate=truncate) == [1] * (d // 2)


def test_yarn_04_smallest_input():
    scaling = context_extension.yarn(64, trained_length=4096, factor=40, mscale=1, mscale_all_dim=1)
    found = [scaling.attention_factor, yarn_softmax_multiplier(40, 1)]
    assert found == pytest.approx(FAULTS["YARN-04"]["right_value"], rel=1e-9)


@pytest.mark.parametrize("factor", [2, 16.0, 40])
@pytest.mark.parametrize("mscale", [0.5, 0.707, 1.0])
def test_yarn_04_equal_scales_leave_cosine_and_sine_alone(mscale, factor):
    found = call("yarn", factor=factor, mscale=mscale, mscale_all_dim=mscale)
    assert found.attention_factor == pytest.approx(1.0, rel=1e-15)
    right = (0.1 * mscale * math.log(factor) + 1) ** 2
    assert yarn_softmax_multiplier(factor, mscale) == pytest.approx(right, rel=1e-14)


def test_yarn_05_smallest_input():
    found = yarn_softmax_multiplier(40, 0.8)
    assert found == pytest.approx(FAULTS["YARN-05"]["right_value"], rel=1e-9)


@pytest.mark.parametrize(
    ("mscale_all_dim", "right"), [(0.707, 1.58963), (1.0, 1.87385), (0.8, 1.677310835), (0.0, 1.0)]
)
def test_yarn_05_the_multiplier_knows_mscale_all_dim_alone(mscale_all_dim, right):
    assert yarn_softmax_multiplier(40, mscale_all_dim) == pytest.approx(right, abs=5e-6)
    assert list(inspect.signature(yarn_softmax_multiplier).parameters) == ["factor", "mscale_all_dim"]


@pytest.mark.parametrize("zero", [0, 0.0, -0.0])
def test_an_mscale_of_0_counts_as_not_given(zero):
    """As a number, mscale = 0 beside mscale_all_dim = 1 would give 1/1.3689 in place of 1.3689."""
    plain = 0.1 * math.log(40) + 1
    for mscale, mscale_all_dim in ((zero, 1.0), (0.707, zero), (zero, zero), (zero, None), (None, zero)):
        found = call("yarn", factor=40, mscale=mscale, mscale_all_dim=mscale_all_dim)
        assert found.attention_factor == pytest.approx(plain, rel=1e-15)
        assert found.attention_factor == call("yarn", factor=40, mscale=None).attention_factor
    both = call("yarn", factor=40, mscale=0.707, mscale_all_dim=1.0)
    assert both.attention_factor == pytest.approx((0.0707 * math.log(40) + 1) / plain, rel=1e-15)


@pytest.mark.parametrize("factor", [0.5, 1, 40, 1e300])
def test_the_softmax_multiplier_leaves_scores_alone_if_mscale_all_dim_is_0(factor):
    for zero in (0, 0.0):
        assert yarn_softmax_multiplier(factor, zero) == 1.0


@pytest.mark.parametrize("bad", [-1, -0.5])
@pytest.mark.parametrize("argument", ["mscale", "mscale_all_dim"])
def test_a_negative_mscale_is_refused_whatever_the_other_is(argument, bad):
    other = {"mscale": "mscale_all_dim", "mscale_all_dim": "mscale"}[argument]
    for value in (None, 0, 1.0):
        refuses_number(lambda v=value: call("yarn", **{argument: bad, other: v}), argument, bad)


def test_yarn_07_smallest_input():
    found = context_extension.yarn(64, trained_length=4096, factor=16)
    assert found.attention_factor**2 == pytest.approx(FAULTS["YARN-07"]["right_value"], rel=1e-9)
    assert found.attention_factor == pytest.approx(FAULTS["YARN-07"]["wrong_value"], rel=1e-9)


@pytest.mark.parametrize("factor", [1.5, 4, 16.0, 40])
def test_yarn_07_scores_are_multiplied_by_the_square(factor):
    q, k = np.random.default_rng(7).normal(size=(2, 5, 64))
    inv_freq, attention_factor = scaling = context_extension.yarn(64, trained_length=4096, factor=factor)
    positions = np.array([0, 1, 50, 4000, 60_000])
    scores, plain = (
        rotate(q, positions, *how) @ rotate(k, positions, *how).T for how in (scaling, (inv_freq, 1.0))
    )
    np.testing.assert_allclose(scores, (0.1 * math.log(factor) + 1) ** 2 * plain, rtol=1e-10)
    assert attention_factor == pytest.approx(0.1 * math.log(factor) + 1, rel=1e-15)


def test_long_01_smallest_input():
    right = FAULTS["LONG-01"]["right_value"]
    factors = {"short": [1.1, 1.2, 1.3, 1.4], "long": [3.0, 5.0, 7.0, 9.0]}
    for length, words in right.items():
        used = factors[words.split()[0]]
        found = context_extension.longrope(
            8,
            trained_length=4096,
            short_factors=factors["short"],
            long_factors=factors["long"],
            length=int(length),
        )
        close(found.inv_freq, inverse_frequencies(8) / used)


@pytest.mark.parametrize("trained_length", [2, 64, 4096])
@pytest.mark.parametrize("max_length", [None, 10**6])
def test_long_01_the_switch_is_strict_and_follows_the_length_in_use(max_length, trained_length):
    def uses_long(length):
        found = call("longrope", trained_length=trained_length, length=length, max_length=max_length)
        return found.inv_freq[-1] == pytest.approx(1e-3 / 8, rel=1e-12)

    lengths = [None, 0, 1, trained_length - 1, trained_length, trained_length + 1, 10 * trained_length]
    assert [uses_long(length) for length in lengths] == [False] * 5 + [True] * 2


def test_long_01_a_key_cached_before_the_switch_does_not_fit():
    q, k = np.random.default_rng(5).normal(size=(2, 1, 8))
    short, long = call("longrope", length=64), call("longrope", length=65)

    def score(shift, cached):
        return (rotate(q, np.array([20 + shift]), *long) @ rotate(k, np.array([shift]), *cached).T).item()

    assert score(0, long) == pytest.approx(score(40, long), abs=1e-10)
    assert abs(score(0, short) - score(40, short)) > 0.1


def test_ll3_01_smallest_input():
    """The second of two pairs has the wavelength 3000 when the base is (3000 / 2 pi)^2."""
    base = (3000 / (2 * math.pi)) ** 2
    new = context_extension.llama3(4, base, trained_length=8192, factor=8).inv_freq
    weight = 1 - parts_of(new, inverse_frequencies(4, base), 8)[1]
    assert weight == pytest.approx(FAULTS["LL3-01"]["right_value"], rel=1e-9)


@pytest.mark.parametrize("name", ["llama3", "ntk_by_parts"])
@pytest.mark.parametrize("rotations", [0.5, 1, 1.5, 2, 2.5, 3.7, 4, 8])
def test_ll3_01_the_weight_is_linear_in_rotations_and_grows_with_them(rotations, name):
    wavelength = 8192 / rotations
    base = (wavelength / (2 * math.pi)) ** 2
    limits = {"ntk_by_parts": {"low_rotations": 1, "high_rotations": 4}}.get(name, {})
    new = getattr(context_extension, name)(4, base, trained_length=8192, factor=8, **limits).inv_freq
    weight = 1 - parts_of(new, inverse_frequencies(4, base), 8)[1]
    assert weight == pytest.approx(min(max((rotations - 1) / 3, 0), 1), abs=1e-9)


def test_ll3_02_smallest_input():
    found = context_extension.llama3(128, 500_000, trained_length=8192, factor=8).inv_freq[-1]
    assert found == pytest.approx(FAULTS["LL3-02"]["right_value"], rel=1e-9)


@EACH_METHOD
def test_ll3_02_every_method_but_the_unscaled_changes_the_last_pair(name):
    """For inputs longer than the trained length."""
    ratio = inverse_frequencies(8)[-1] / call(name).inv_freq[-1]
    assert ratio == pytest.approx({"unscaled": 1, "dynamic_ntk": 7, "longrope": 8}.get(name, 4), rel=1e-12)


@pytest.mark.parametrize(("d", "factor"), [(128, 8), (64, 32)])
def test_ll3_02_the_slow_half_of_llama_is_divided_by_the_factor(d, factor):
    old = inverse_frequencies(d, 500_000)
    new = context_extension.llama3(d, 500_000, trained_length=8192, factor=factor).inv_freq
    slow = 2 * math.pi / old > 8192
    assert slow.sum() > 0.4 * d / 2
    same(new[slow], old[slow] / factor)


# thresholds that are equal, or 0

BY_TURNS = {
    "ntk_by_parts": ("low_rotations", "high_rotations"),
    "llama3": ("low_freq_factor", "high_freq_factor"),
}


def with_thresholds(name, low, high, d=8, base=10_000.0, **keywords):
    """The frequencies of a method whose ramp goes by turns."""
    thresholds = dict(zip(BY_TURNS[name], (low, high), strict=True))
    return getattr(context_extension, name)(d, base, factor=16.0, **thresholds, **keywords).inv_freq


@pytest.mark.parametrize("name", BY_TURNS)
def test_llama_4_scout_has_a_step_in_place_of_a_ramp(name):
    """Its published settings: 35 pairs turn more than once within 8,192 tokens, and 29 do not."""
    new = with_thresholds(name, 1.0, 1.0, 128, 500_000.0, trained_length=8192)
    old = [500_000.0 ** (-2 * i / 128) for i in range(64)]
    assert 8192 * old[34] / (2 * math.pi) > 1 > 8192 * old[35] / (2 * math.pi)
    close(new, [*old[:35], *(w / 16 for w in old[35:])])
    assert new[-1] == pytest.approx(FAULTS["LL3-02"]["wrong_value"] / 16, rel=1e-9)


@pytest.mark.parametrize("name", BY_TURNS)
@pytest.mark.parametrize("pair", range(4))
def test_a_pair_that_turns_exactly_as_often_as_both_thresholds_say_is_divided(pair, name):
    """There the published formula is 0/0. A threshold that is one digit smaller keeps the pair."""
    old = inverse_frequencies(8)
    turns = 64 * old / (2 * np.pi)
    for threshold, kept in (
        (np.nextafter(turns[pair], 0), pair + 1),
        (turns[pair], pair),
        (np.nextafter(turns[pair], 99), pair),
    ):
        new = with_thresholds(name, threshold, threshold, trained_length=64)
        np.testing.assert_array_equal(new, [*old[:kept], *(old[kept:] / 16)])


@pytest.mark.parametrize("name", BY_TURNS)
@pytest.mark.parametrize("threshold", [0.01, 1, 10.0])
def test_a_step_is_what_an_ever_steeper_ramp_comes_to(threshold, name):
    step = with_thresholds(name, threshold, threshold, 64, trained_length=64)
    steep = with_thresholds(name, threshold, threshold * (1 + 1e-12), 64, trained_length=64)
    close(step, steep)
    assert set(np.round(inverse_frequencies(64) / step).tolist()) == {1, 16}


@pytest.mark.parametrize("name", BY_TURNS)
def test_a_lower_threshold_of_0_divides_no_pair_as_a_whole(name):
    """From 0 turns on the share kept is the number of turns over the upper threshold."""
    old = inverse_frequencies(8)
    share = np.minimum(64 * old / (2 * np.pi) / 4, 1)
    assert share[0] == 1 > share[1]
    close(with_thresholds(name, 0, 4, trained_length=64), share * old + (1 - share) * old / 16)
    np.testing.assert_array_equal(with_thresholds(name, 0, 0.0, trained_length=64), old)
    np.testing.assert_array_equal(with_thresholds(name, 0, 5e-324, trained_length=64), old)


@pytest.mark.parametrize("name", BY_TURNS)
@pytest.mark.parametrize(("low", "high"), [(1.5, 1), (1, 0), (1, np.nextafter(1, 0)), (0, -1)])
def test_thresholds_that_fall_are_refused_by_name(low, high, name):
    low_name, high_name = BY_TURNS[name]
    message = refuses(
        lambda: with_thresholds(name, low, high, trained_length=64), ValueError, high_name, float(high)
    )
    assert f"at least {low_name} = {float(low)}" in message


# the edge of float64

HUGE, BEYOND = 10**300, 10**400  # float64 ends between the two


def short_id(number):
    return f"10^{len(str(number)) - 1}" if number > 100 else str(number)


def sound(call):
    """A scaling without NaN, inf or a negative frequency, or a ValueError."""

    def numbers():
        found = call()
        assert np.all(np.asarray(found.inv_freq) >= 0)
        return np.array([*found.inv_freq, found.attention_factor])

    return finite_or_refused(numbers)


@EACH_METHOD
@pytest.mark.parametrize("base", [5e-324, 1e-300, 0.5, 1.0, 1.0000001, 1e300, 1.7e308])
@pytest.mark.parametrize("rotary_dim", [2, 4, 6, 512])
def test_absurd_bases_are_refused_or_finite_never_nan(rotary_dim, base, name):
    changes = {}
    if name == "longrope":
        changes = dict.fromkeys(["short_factors", "long_factors"], np.full(rotary_dim // 2, 3.0))
    sound(lambda: call(name, rotary_dim, base, **changes))


@pytest.mark.parametrize("name", [name for name in CALLS if name != "unscaled"])
@pytest.mark.parametrize("factor", [5e-324, 1e-310, 1e-300, 1e-10, 1e10, 1e300, 1.7e308])
@pytest.mark.parametrize("base", [0.5, 10_000.0, 1e300])
def test_absurd_factors_are_refused_or_finite_never_nan(base, factor, name):
    changes = {"factor": factor}
    if name == "yarn":
        sound(lambda: call(name, 8, base, **{**changes, "mscale": None, "mscale_all_dim": None}))
    if name == "longrope":
        sound(lambda: call(name, 8, base, long_factors=np.full(4, factor)))
    sound(lambda: call(name, 8, base, **changes))
    sound(lambda: call(name, 4 if name != "longrope" else 8, base, **changes))


@pytest.mark.parametrize("name", [name for name in CALLS if "trained_length" in CALLS[name]])
@pytest.mark.parametrize("trained_length", [1, 2, 3, 6, 7, 10**9, 10**18, HUGE, BEYOND], ids=short_id)
def test_absurd_trained_lengths_are_refused_or_finite_never_nan(trained_length, name):
    for length in (0, 1, 10**18, HUGE, BEYOND):
        changes = {"length": length} if "length" in CALLS[name] else {}
        sound(lambda changes=changes: call(name, trained_length=trained_length, **changes))
    if name == "longrope":
        sound(lambda: call(name, trained_length=trained_length, max_length=BEYOND))


def test_a_trained_length_of_one_has_no_logarithm_to_divide_by():
    """Where nothing is divided by it, it may be legal or not."""
    keywords = {"trained_length": 1, "length": 1}
    refuses(lambda: call("longrope", **keywords, max_length=8), ValueError, "trained_length", 1)
    refuses(lambda: call("longrope", **keywords, factor=8.0), ValueError, "trained_length", 1)
    for changes, right in ({"max_length": 1}, 1.0), ({"attention_factor": 1.5}, 1.5):
        found = finite_or_refused(lambda c=changes: call("longrope", **keywords, **c).attention_factor)
        assert found in (None, right)


@pytest.mark.parametrize("mscale", [-3.0, -1e300, 0.0, 1e-300, 1e300, 1.7e308, -10 / math.log(4)])
def test_absurd_scales_of_the_temperature_are_refused_or_finite_never_nan(mscale):
    for changes in ({"mscale": mscale}, {"mscale_all_dim": mscale}, {"mscale": 1e300, "mscale_all_dim": 1}):
        for factor in (4.0, 1.7e308):
            sound(lambda changes=changes, f=factor: call("yarn", **{"factor": f, **changes}))
    finite_or_refused(lambda: yarn_softmax_multiplier(4.0, mscale))
    finite_or_refused(lambda: yarn_softmax_multiplier(1.7e308, mscale))


@pytest.mark.parametrize(
    ("name", "argument"),
    [("ntk_by_parts", "low_rotations"), ("llama3", "low_freq_factor"), ("yarn", "beta_slow")],
)
@pytest.mark.parametrize("value", [0, 5e-324, 1e-300])
def test_a_lower_limit_of_hardly_any_turns_is_refused_or_finite(value, name, argument):
    sound(lambda: call(name, **{argument: value}))


# bad input


def arguments_of(*names):
    """Every method that has one of these arguments, with its name."""
    return [
        pytest.param(method, argument, id=f"{method}-{argument}")
        for method, keywords in CALLS.items()
        for argument in keywords
        if argument in names
    ]


def is_optional(name, argument):
    return SIGNATURES[name][argument] is None


EACH_LENGTH = pytest.mark.parametrize(
    ("name", "argument"), arguments_of("trained_length", "length", "max_length")
)
ROTATIONS = ["low_rotations", "high_rotations", "low_freq_factor", "beta_fast", "beta_slow"]
POSITIVE = ["factor", "high_freq_factor", "attention_factor"]
EACH_POSITIVE = pytest.mark.parametrize(("name", "argument"), arguments_of(*POSITIVE))
EACH_NUMBER = pytest.mark.parametrize(
    ("name", "argument"), arguments_of(*POSITIVE, *ROTATIONS, "mscale", "mscale_all_dim")
)


@EACH_METHOD
@pytest.mark.parametrize("bad", cases(NOT_A_COUNT))
def test_a_rotary_width_that_is_no_count_is_refused(bad, name):
    refuses(lambda: call(name, bad), TypeError, "rotary_dim", bad)


@EACH_METHOD
@pytest.mark.parametrize("bad", [0, -2, 1, 3, 7])
def test_a_rotary_width_that_is_not_even_and_positive_is_refused(bad, name):
    refuses(lambda: call(name, bad), ValueError, "rotary_dim", bad)


@EACH_METHOD
@pytest.mark.parametrize("bad", [0, 0.0, -1, -10_000.0, *NOT_FINITE.values()], ids=str)
def test_a_base_that_is_not_positive_and_finite_is_refused(bad, name):
    refuses(lambda: call(name, base=bad), ValueError, "base", bad)


@EACH_METHOD
@pytest.mark.parametrize("bad", cases(NOT_A_NUMBER))
def test_a_base_that_is_no_number_is_refused(bad, name):
    refuses(lambda: call(name, base=bad), TypeError, "base", bad)


@EACH_METHOD
def test_a_base_beyond_float64_is_refused(name):
    refuses(lambda: call(name, base=BEYOND), ValueError, "base")


@EACH_LENGTH
@pytest.mark.parametrize("bad", cases(NOT_A_COUNT))
def test_a_length_that_is_no_count_is_refused(bad, name, argument):
    if bad is None and is_optional(name, argument):
        call(name, **{argument: None})
    else:
        refuses(lambda: call(name, **{argument: bad}), TypeError, argument, bad)


@EACH_LENGTH
@pytest.mark.parametrize("bad", [-1, -64])
def test_a_negative_length_is_refused(bad, name, argument):
    refuses(lambda: call(name, **{argument: bad}), ValueError, argument, bad)


@pytest.mark.parametrize(("name", "argument"), arguments_of("trained_length"))
def test_a_model_that_was_trained_on_nothing_is_refused(name, argument):
    refuses(lambda: call(name, **{argument: 0}), ValueError, argument, 0)


@EACH_NUMBER
@pytest.mark.parametrize("bad", cases(NOT_A_NUMBER))
def test_a_factor_that_is_no_number_is_refused(bad, name, argument):
    if bad is None and is_optional(name, argument):
        call(name, **{argument: None})
    else:
        refuses(lambda: call(name, **{argument: bad}), TypeError, argument, bad)


@EACH_NUMBER
@pytest.mark.parametrize("bad", cases(NOT_FINITE))
def test_a_factor_that_is_not_finite_is_refused(bad, name, argument):
    refuses(lambda: call(name, **{argument: bad}), ValueError, argument, bad)


@EACH_NUMBER
def test_a_factor_beyond_float64_is_refused(name, argument):
    refuses(lambda: call(name, **{argument: BEYOND}), ValueError, argument)


def refuses_number(call, argument, bad):
    """Refused; the message may show a whole number as the float that it stands for."""
    message = refuses(call, ValueError, argument)
    assert shows(message, str(bad)) or shows(message, str(float(bad))), f"{bad!r} is not shown in: {message}"


@EACH_POSITIVE
@pytest.mark.parametrize("bad", [0, 0.0, -1, -2.5])
def test_a_factor_that_is_not_positive_is_refused(bad, name, argument):
    refuses_number(lambda: call(name, **{argument: bad}), argument, bad)


@pytest.mark.parametrize(("name", "argument"), arguments_of(*ROTATIONS))
@pytest.mark.parametrize("bad", [-1, -0.5])
def test_a_negative_number_of_rotations_is_refused(bad, name, argument):
    refuses_number(lambda: call(name, **{argument: bad}), argument, bad)


@EACH_RAMP
def test_limits_in_the_wrong_order_are_refused(name):
    """No pair can be kept and divided at once. The message may name either limit, or both."""
    low, high = {
        "ntk_by_parts": ("low_rotations", "high_rotations"),
        "llama3": ("low_freq_factor", "high_freq_factor"),
        "yarn": ("beta_slow", "beta_fast"),
    }[name]
    with pytest.raises(ValueError, match="must") as caught:
        call(name, **{low: 21, high: 3})
    message = str(caught.value)
    assert shows(message, low) or shows(message, high)
    assert any(shows(message, value) for value in ("3", "3.0", "21", "21.0"))
    sound(lambda: call(name, **{low: 4, high: 4}))


@pytest.mark.parametrize("bad", cases(NOT_A_FLAG))
def test_truncate_must_be_a_flag(bad):
    refuses(lambda: call("yarn", truncate=bad), TypeError, "truncate", bad)


EACH_LIST = pytest.mark.parametrize("argument", ["short_factors", "long_factors"])
# Both lists are checked, whichever is in use.
EACH_SIDE = pytest.mark.parametrize("length", [None, 64, 65])


@EACH_LIST
@EACH_SIDE
@pytest.mark.parametrize("value", [0.0, -1.0, *NOT_FINITE.values()], ids=str)
def test_factors_of_pairs_that_are_not_positive_and_finite_are_refused(value, length, argument):
    bad = with_one(CALLS["longrope"][argument], value)
    refuses(lambda: call("longrope", length=length, **{argument: bad}), ValueError, argument, value)


@EACH_LIST
@EACH_SIDE
@pytest.mark.parametrize("shape", [(3,), (5,), (8,), (0,), (1, 4), (4, 1), ()], ids=str)
def test_factors_that_are_not_one_a_pair_are_refused(shape, length, argument):
    bad = np.ones(shape)
    message = refuses(lambda: call("longrope", length=length, **{argument: bad}), ValueError, argument)
    assert any(shows(message, text) for text in (str(shape), str(bad.size)))


@EACH_LIST
@EACH_SIDE
@pytest.mark.parametrize("bad", cases(wrong_kinds((4,))))
def test_factors_of_pairs_that_are_no_real_numbers_are_refused(bad, length, argument):
    refuses(lambda: call("longrope", length=length, **{argument: bad}), TypeError, argument, bad)


@pytest.mark.parametrize("bad", cases(NOT_A_NUMBER))
def test_the_softmax_multiplier_refuses_what_is_no_number(bad):
    refuses(lambda: yarn_softmax_multiplier(bad, 1.0), TypeError, "factor", bad)
    refuses(lambda: yarn_softmax_multiplier(4.0, bad), TypeError, "mscale_all_dim", bad)


@pytest.mark.parametrize("bad", cases(NOT_FINITE))
def test_the_softmax_multiplier_refuses_what_is_not_finite(bad):
    refuses(lambda: yarn_softmax_multiplier(bad, 1.0), ValueError, "factor", bad)
    refuses(lambda: yarn_softmax_multiplier(4.0, bad), ValueError, "mscale_all_dim", bad)


@pytest.mark.parametrize("bad", [0, 0.0, -4.0])
def test_the_softmax_multiplier_refuses_a_factor_that_is_not_positive(bad):
    refuses(lambda: yarn_softmax_multiplier(bad, 1.0), ValueError, "factor", bad)
