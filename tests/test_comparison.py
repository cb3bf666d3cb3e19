"""The table that closes the course: reach, costs counted by hand, and who uses what."""

import json
import re

import numpy as np
import pytest
from trusted import reference

from helpers import comparison, context_extension, measures, results
from helpers.comparison import MULTIPLES, excess, extra_operations, holds_to, layer_operations, models, phi3
from helpers.rope import rotate
from helpers.schemes import SCHEMES, Shaw
from helpers.text import LENGTH, REACH
from helpers.transformer import forward, new_decoder

everyone = pytest.mark.parametrize("scheme", list(SCHEMES))


# how far a scheme holds


def in_bins(home, at_128, at_256, at_512, between=9.0):
    """Losses in bins of 8 positions, (64,): home on average up to 64, these numbers at the ends of texts.

    Home falls, as losses do. What lies between the ends must not count, and so it is far off.
    """
    losses = np.full(64, between)
    losses[:8] = home + np.linspace(0.7, -0.7, 8)
    for end, loss in ((128, at_128), (256, at_256), (512, at_512)):
        losses[(end - 64) // 8 : end // 8] = loss + np.linspace(0.1, -0.1, 8)
    return losses


@pytest.fixture
def made_up(monkeypatch):
    """Results made by hand: seven seeds of a group, with all keys; with a window it loses everywhere."""
    rows = {
        "all": [
            in_bins(2.0, 2.0, 2.0, 2.0),  # holds everywhere
            in_bins(2.0, 1.5, 1.0, 0.5),  # gains
            in_bins(2.0, 2.05, 2.05, 2.5),  # to four times
            in_bins(2.0, 2.09, 2.2, 2.5),  # to twice
            in_bins(2.0, 2.2, 2.3, 2.4),  # not at all
            in_bins(2.0, 2.2, 2.05, 2.0),  # lost at twice, and better later: that doesn't count
            in_bins(2.0, 2.05, 2.05, 2.5, between=0.0),  # to four times, whatever lies between
        ],
        "window": [in_bins(2.0, 3.0, 3.0, 3.0)] * 7,
    }

    def measured(group, name):
        assert group == "made up"
        return np.stack(rows[name])

    monkeypatch.setattr(results, "measured", measured)


@pytest.mark.usefixtures("made_up")
@pytest.mark.parametrize(
    ("multiple", "expected"),
    [
        (2, [0, -0.5, 0.05, 0.09, 0.2, 0.2, 0.05]),
        (4, [0, -1, 0.05, 0.2, 0.3, 0.05, 0.05]),
        (8, [0, -1.5, 0.5, 0.5, 0.4, 0, 0.5]),
    ],
)
def test_excess_is_the_end_of_a_longer_text_less_all_of_a_trained_one(multiple, expected):
    np.testing.assert_allclose(excess("made up", multiple), expected, atol=1e-12)


@pytest.mark.usefixtures("made_up")
def test_holds_to_is_the_longest_multiple_without_a_loss_before():
    found = holds_to("made up")
    np.testing.assert_array_equal(found, [8, 8, 4, 2, 1, 1, 4])


@pytest.mark.usefixtures("made_up")
@pytest.mark.parametrize(
    ("within", "expected"),
    [
        (1e-9, [8, 8, 1, 1, 1, 1, 1]),
        (0.06, [8, 8, 4, 1, 1, 1, 4]),
        (0.25, [8, 8, 4, 4, 2, 8, 4]),
        (0.45, [8, 8, 4, 4, 8, 8, 4]),
        (1.0, [8] * 7),
        (-0.6, [1] * 7),
    ],
)
def test_holds_to_with_another_limit(within, expected):
    np.testing.assert_array_equal(holds_to("made up", within), expected)


def test_a_loss_of_just_the_limit_holds(monkeypatch):
    """The limit is what may be lost, so that a seed at it has not lost more."""
    row = np.concatenate([np.full(8, 2.0), np.full(56, 2.125)])
    monkeypatch.setattr(results, "measured", lambda group, name: np.stack([row, row + (row > 2) / 1024]))
    np.testing.assert_array_equal(holds_to("made up", 0.125), [8, 1])


def test_the_multiples_are_those_of_the_shipped_lengths():
    assert MULTIPLES == (2, 4, 8)
    assert MULTIPLES[-1] * LENGTH == REACH


def by_a_loop(losses):
    """How far each seed holds, from losses (n_seeds, 64) in bins of 8 positions."""
    expected = []
    for row in losses.repeat(8, axis=1).astype(float):
        reached = 1
        for multiple in (2, 4, 8):
            if row[64 * multiple - 64 : 64 * multiple].mean() - row[:64].mean() > 0.1:
                break
            reached = multiple
        expected.append(reached)
    return expected


def test_holds_to_equals_a_loop(monkeypatch):
    rng = np.random.default_rng(0)
    losses = 2 + rng.uniform(0, 0.25, (200, 64)) + rng.uniform(-0.1, 0.1, (200, 1))
    losses[:, 8:] += rng.uniform(-0.1, 0.15, (200, 7)).repeat(8, axis=1)
    monkeypatch.setattr(results, "measured", lambda group, name: {"all": losses}[name])
    found = holds_to("made up")
    np.testing.assert_array_equal(found, by_a_loop(losses))
    assert set(found) == {1, 2, 4, 8}


@everyone
def test_holds_to_equals_a_loop_over_the_shipped_results(scheme):
    np.testing.assert_array_equal(holds_to(scheme), by_a_loop(results.measured(scheme, "all")))


@pytest.mark.parametrize("wrong", [lambda: holds_to("nope"), lambda: excess("nope", 2)])
def test_a_group_that_was_not_measured_is_named(monkeypatch, wrong):
    files = {"race.npz": {"rope/all": np.zeros((5, 8, 64)), "about": np.array("{}")}, "checks.npz": {}}
    monkeypatch.setattr(results, "_stored", files.__getitem__)
    with pytest.raises(KeyError, match=r"group and name must be one of \['rope/all'\], but got 'nope/all'"):
        wrong()


# what a scheme costs


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        ("none", 0),
        ("sinusoidal", 0),
        ("learned", 64 * 64),  # a row of 64 numbers for each of 64 positions
        ("shaw", 65 * 16),  # offsets -32 to 32, and heads of width 16
        ("t5", 16 * 4),  # buckets by heads
        ("rope", 0),
        ("alibi", 0),
    ],
)
def test_parameters_are_counted(scheme, expected):
    assert comparison.n_parameters(scheme) == expected
    plain, with_scheme = (
        sum(array.size for array in new_decoder(name, 62).parameters.values()) for name in ("none", scheme)
    )
    assert with_scheme - plain == expected


def rope_by_hand(d_model):
    """Every product and sum of turning one query and one key of d_model features."""
    count = 0
    for _vector in ("query", "key"):
        for _pair in range(d_model // 2):
            count += 2 + 1  # u cos - v sin
            count += 2 + 1  # u sin + v cos
    return count


def shaw_by_hand(n_keys, d_model, n_heads):
    """A product of the query with each of the 65 rows, in each head; then one sum for each key and head."""
    count = 0
    for _head in range(n_heads):
        for _row in range(65):
            count += 2 * (d_model // n_heads)  # a product and a sum for each feature
        count += n_keys
    return count


@pytest.mark.parametrize(
    ("n_keys", "d_model", "n_heads", "n_layers"),
    [(3, 8, 2, 2), (1, 4, 1, 1), (10, 12, 3, 4), (512, 64, 4, 2)],
)
def test_extra_operations_are_counted_by_hand(n_keys, d_model, n_heads, n_layers):
    sizes = {"d_model": d_model, "n_heads": n_heads, "n_layers": n_layers}
    expected = {
        "none": 0,
        "sinusoidal": d_model / n_layers,  # one sum a feature, before the first layer only
        "learned": d_model / n_layers,
        "shaw": shaw_by_hand(n_keys, d_model, n_heads),
        "t5": sum(1 for _ in range(n_heads) for _ in range(n_keys)),
        "rope": rope_by_hand(d_model),
        "alibi": sum(1 for _ in range(n_heads) for _ in range(n_keys)),
    }
    assert {scheme: extra_operations(scheme, n_keys, **sizes) for scheme in SCHEMES} == expected


def test_extra_operations_of_a_very_small_model_in_figures():
    small = {"n_keys": 3, "d_model": 8, "n_heads": 2, "n_layers": 2}
    found = {scheme: extra_operations(scheme, **small) for scheme in SCHEMES}
    assert found == {
        "none": 0,
        "sinusoidal": 4,
        "learned": 4,
        "shaw": 2 * 65 * 8 + 6,
        "t5": 6,
        "rope": 48,
        "alibi": 6,
    }


def test_the_rows_of_shaw_are_those_of_the_course():
    model = new_decoder("shaw", 62)
    assert isinstance(model.scheme, Shaw)
    rows = len(model.parameters["scheme.key_table"])
    assert extra_operations("shaw", 0) == 2 * rows * 64


@everyone
def test_extra_operations_are_among_the_facts_of_a_scheme(monkeypatch, scheme):
    """An eighth scheme says itself what it costs, and the table asks for that."""
    sizes = []

    def operations(size):
        sizes.append(size._asdict())
        return 17

    monkeypatch.setattr(SCHEMES[scheme], "facts", SCHEMES[scheme].facts._replace(operations=operations))
    assert extra_operations(scheme, 300, d_model=32, n_heads=2, n_layers=3) == 17
    assert sizes == [{"d_model": 32, "n_heads": 2, "n_layers": 3, "n_positions": LENGTH, "n_keys": 300}]


def product_of(a, b, c):
    """The products and sums of an (a, b) matrix times a (b, c) one."""
    return 2 * a * b * c


@pytest.mark.parametrize(("n_keys", "d_model", "d_hidden"), [(3, 2, 4), (1, 1, 1), (512, 64, 256)])
def test_operations_of_a_layer_are_those_of_its_matrix_products(n_keys, d_model, d_hidden):
    expected = (
        product_of(1, d_model, 3 * d_model)  # to query, key and value
        + product_of(1, d_model, n_keys)  # scores, all heads together
        + product_of(1, n_keys, d_model)  # the mix of values
        + product_of(1, d_model, d_model)  # out
        + product_of(1, d_model, d_hidden)
        + product_of(1, d_hidden, d_model)
    )
    assert layer_operations(n_keys, d_model, d_hidden) == expected


def test_operations_of_a_layer_in_figures():
    assert layer_operations(3, 2, 4) == 24 + 12 + 12 + 8 + 16 + 16
    assert layer_operations(512) == layer_operations(512, 64, 256)


@pytest.fixture
def clock(monkeypatch):
    """Reading takes made-up times: by scheme, and in each round longer."""
    now, seen = [0.0], []
    seconds = dict(zip(SCHEMES, (1.0, 1.5, 2.0, 4.0, 3.0, 2.5, 1.25), strict=True))

    def read(model, tokens):
        scheme = next(name for name, kind in SCHEMES.items() if type(model.scheme) is kind)
        rounds = sum(name == scheme for name, _, _ in seen)
        seen.append((scheme, model, tokens))
        one_off = 7 if (scheme, rounds) == ("rope", 1) else 1  # a disturbance that a median forgets
        now[0] += seconds[scheme] * (1 + rounds) * one_off

    monkeypatch.setattr(comparison, "forward", read)
    monkeypatch.setattr(comparison.time, "perf_counter", lambda: now[0])
    return seconds, seen


def test_time_ratios_are_medians_of_rounds_side_by_side(clock):
    seconds, seen = clock
    assert comparison.time_ratios(3) == pytest.approx(seconds)
    assert [scheme for scheme, _, _ in seen] == list(SCHEMES) * 3
    assert len({id(tokens) for _, _, tokens in seen}) == 1
    assert seen[0][2].shape == (8, REACH)


def test_time_is_taken_of_reading_the_texts_that_all_share(clock):
    _, seen = clock
    comparison.time_ratios(1)
    np.testing.assert_array_equal(seen[0][2], measures.shared_pieces(REACH - 1, 8))


def test_time_is_taken_of_models_that_can_read_the_text(clock):
    _, seen = clock
    comparison.time_ratios(1)
    for scheme, model, tokens in seen:
        own = {name: array.shape for name, array in model.parameters.items() if "scheme." in name}
        if scheme == "shaw":  # the table of the course, whatever the length
            assert model.scheme.clip == LENGTH // 2
            assert own == {"scheme.key_table": (65, 16)}
        if scheme == "learned":
            assert own == {"scheme.table": (REACH, 64)}
        assert forward(model, tokens[:1]).logits.shape == (1, REACH, 62), scheme


def test_each_scheme_has_a_ratio():
    ratios = comparison.time_ratios(1)
    assert list(ratios) == list(SCHEMES)
    assert all(np.isfinite(ratio) and ratio > 0 for ratio in ratios.values())
    assert ratios["none"] == 1


# who uses it


REGISTRIES = (
    "pypi",
    "pythonhosted",
    "anaconda",
    "conda-forge",
    "npmjs",
    "yarnpkg",
    "crates.io",
    "rubygems",
    "golang.org",
    "maven",
    "nuget",
    "artifactory",
    "localhost",
    "://",
)


def test_there_are_34_models_each_once():
    assert len(models()) == 34
    assert len({model["model"] for model in models()}) == 34


@pytest.mark.parametrize("model", models(), ids=lambda model: model["model"])
def test_a_model_has_a_family_a_scheme_and_a_source(model):
    assert {"model", "family", "scheme", "source"} <= model.keys()
    assert model["family"] in SCHEMES
    assert model["scheme"].strip()
    assert len(model["source"].strip()) > 20
    assert "from memory" not in json.dumps(model).lower()
    for number in ("max_positions", "head_dim", "n_heads", "rotary_dim"):
        assert number not in model or (type(model[number]) is int and model[number] > 0)


@pytest.mark.parametrize("model", models(), ids=lambda model: model["model"])
def test_a_source_says_where_not_by_which_host_it_came(model):
    text = json.dumps(model).lower()
    assert [name for name in REGISTRIES if name in text] == []
    assert not re.search(r"\b[\w-]+\.(com|io|org|net|dev|internal)\b", text)


@pytest.mark.parametrize(
    "model", [model for model in models() if model["family"] == "rope"], ids=lambda model: model["model"]
)
def test_a_rope_model_has_numbers_that_fit(model):
    base = model["rope_theta"]
    for value in base.values() if isinstance(base, dict) else [base]:
        assert context_extension.unscaled(model["rotary_dim"], value).inv_freq.shape == (
            model["rotary_dim"] // 2,
        )
    assert model["rotary_dim"] <= model["head_dim"]
    assert model["max_positions"] >= model.get("scaling", {}).get("original_max_position_embeddings", 1)


def model_called(name):
    (model,) = (model for model in models() if model["model"] == name)
    return model


@pytest.mark.parametrize("model", models(), ids=lambda model: model["model"])
def test_no_number_is_the_default_of_a_library(model):
    """A configuration class often has the values of some other model, or of none."""
    assert "default" not in model["source"].lower()
    assert not re.search(r"[a-z0-9]Config\b", model["source"])


RELEASED = {
    "SmolLM3-3B": {"rope_theta": 5_000_000, "max_positions": 65_536, "head_dim": 128, "n_heads": 16},
    "Llama-4-Scout": {
        "rope_theta": 500_000,
        "max_positions": 10_485_760,
        "head_dim": 128,
        "rotary_dim": 128,
        "n_heads": 40,
        "scaling": {
            "rope_type": "llama3",
            "factor": 16.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 1.0,
            "original_max_position_embeddings": 8192,
        },
    },
    "GPT-NeoX-20B": {"rope_theta": 10_000, "max_positions": 2048, "head_dim": 6144 // 64, "rotary_dim": 24},
    "gpt-oss-20b": {"rope_theta": 150_000, "max_positions": 131_072, "head_dim": 64, "n_heads": 64},
    "RoFormer-base (Chinese)": {"rope_theta": 10_000, "max_positions": 1536, "head_dim": 768 // 12},
    "ModernBERT-base": {"rope_theta": {"global": 160_000, "local": 10_000}, "max_positions": 8192},
    "Falcon-RW": {"max_positions": 2048, "head_dim": 2048 // 32},
    "T5-base": {"head_dim": 64, "n_heads": 12},
    "BERT-base": {"max_positions": 512, "head_dim": 768 // 12, "n_heads": 12},
    "RoBERTa-base": {"max_positions": 514 - 2, "head_dim": 768 // 12, "n_heads": 12},
    "OPT-125M class": {"max_positions": 2048, "head_dim": 768 // 12, "n_heads": 12},
    "Whisper encoder": {"max_positions": 1500},
}


@pytest.mark.parametrize("name", RELEASED)
def test_a_row_that_had_a_librarys_defaults_has_the_released_numbers(name):
    model = model_called(name)
    assert {key: model[key] for key in RELEASED[name]} == RELEASED[name]


def test_marian_and_pegasus_have_no_one_length():
    """Marian's released models have 512 positions, those of Pegasus 128 to 1,024, depending on the task."""
    assert "max_positions" not in model_called("Marian / Pegasus")


def frequencies_of(model):
    """What this course's function makes of a published scaling, and of the same model without it."""
    keywords = {key: value for key, value in model["scaling"].items() if key not in ("note", "layers")}
    kind, base = keywords.pop("rope_type"), model["rope_theta"]
    if "original_max_position_embeddings" in keywords:
        keywords["trained_length"] = keywords.pop("original_max_position_embeddings")
    base = base["global"] if isinstance(base, dict) else base
    method = getattr(context_extension, {"linear": "position_interpolation"}.get(kind, kind))
    plain = context_extension.unscaled(model["rotary_dim"], base).inv_freq
    return method(model["rotary_dim"], base, **keywords).inv_freq, plain


SCALED = [
    model for model in models() if model.get("scaling", {"rope_type": "longrope"})["rope_type"] != "longrope"
]


@pytest.mark.parametrize("model", SCALED, ids=lambda model: model["model"])
def test_each_published_scaling_can_be_computed(model):
    """LongRoPE's needs a list of factors; the others divide the slowest pair by their factor."""
    new, plain = frequencies_of(model)
    assert plain[-1] / new[-1] == pytest.approx(model["scaling"]["factor"], rel=1e-12)
    assert (new[0] == plain[0]) == (model["scaling"]["rope_type"] != "linear")


def test_the_scaling_of_llama_4_scout_is_a_step():
    new, plain = frequencies_of(model_called("Llama-4-Scout"))
    np.testing.assert_allclose(plain / new, [1] * 35 + [16] * 29, rtol=1e-12)


@everyone
def test_users_are_the_models_of_a_family(scheme):
    assert comparison.users(scheme) == [model["model"] for model in models() if model["family"] == scheme]


def test_who_uses_what_as_notebook_07_says():
    """Its last table: 24 of 34 use RoPE, three ALiBi; none uses Shaw, or nothing at all."""
    expected = {"none": 0, "sinusoidal": 2, "learned": 4, "shaw": 0, "t5": 1, "rope": 24, "alibi": 3}
    assert {scheme: len(comparison.users(scheme)) for scheme in SCHEMES} == expected
    assert set(comparison.users("alibi")) == {"BLOOM-176B", "MPT-7B", "Falcon-RW"}


# the factors of Phi-3


LONGROPE = reference("rope_scaling_longrope")


def scaling_of_phi3(length, short_factors, long_factors):
    given = {name: phi3()[name] for name in ("trained_length", "max_length")}
    return context_extension.longrope(
        phi3()["rotary_dim"],
        phi3()["base"],
        short_factors=short_factors,
        long_factors=long_factors,
        length=length,
        **given,
    )


def test_the_factors_of_phi3_are_those_of_the_reference():
    """There the long ones are as published, 32.59000396728515 for example; the course has two decimals."""
    np.testing.assert_array_equal(phi3()["short_factors"], LONGROPE["phi3_short"])
    np.testing.assert_array_equal(phi3()["long_factors"], np.round(LONGROPE["phi3_long"], 2))
    np.testing.assert_allclose(phi3()["long_factors"], LONGROPE["phi3_long"], rtol=3e-7)
    assert len(phi3()["short_factors"]) == len(phi3()["long_factors"]) == phi3()["rotary_dim"] // 2


@pytest.mark.parametrize(
    ("length", "used"), [(1, "short"), (4096, "short"), (4097, "long"), (131_072, "long")]
)
def test_the_factors_of_phi3_give_what_the_reference_gives(length, used):
    found = scaling_of_phi3(length, phi3()["short_factors"], phi3()["long_factors"])
    theirs = scaling_of_phi3(length, LONGROPE["phi3_short"], LONGROPE["phi3_long"])
    np.testing.assert_allclose(found.inv_freq, theirs.inv_freq, rtol=3e-7)
    expected = [10_000 ** (-2 * i / 96) / f for i, f in enumerate(LONGROPE[f"phi3_{used}"])]
    np.testing.assert_allclose(found.inv_freq, expected, rtol=3e-7)


def test_the_temperature_of_phi3_is_the_one_that_its_makers_state():
    (published,) = (model for model in models() if model["model"] == "Phi-3-mini-128k")
    found = scaling_of_phi3(1, phi3()["short_factors"], phi3()["long_factors"])
    assert found.attention_factor == pytest.approx(published["scaling"]["attention_factor"], abs=1e-12)
    assert any("1.190238" in note for note in LONGROPE["notes"])
    assert phi3()["rotary_dim"] == published["rotary_dim"]
    assert phi3()["base"] == published["rope_theta"]
    assert phi3()["trained_length"] == published["scaling"]["original_max_position_embeddings"]
    assert phi3()["max_length"] == published["max_positions"]
    x = rotate(np.ones((2, 96)), np.arange(2), *found)
    np.testing.assert_allclose(np.linalg.norm(x, axis=1), found.attention_factor * 96**0.5)


def test_phi3_says_where_it_is_from():
    assert "April 2024" in phi3()["from"]
    assert "from memory" not in phi3()["from"]
