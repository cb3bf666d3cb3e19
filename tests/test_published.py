"""What published models do with positions by their config.json, against the library that runs them."""

import copy
import math
import random

import numpy as np
import pytest
from trusted import reference

from helpers import context_extension
from helpers.published import Window, rotary_from_config, sharpening

REFERENCE = reference("published")["models"]
BY_NAME = {(entry["model"], entry["length"]): entry for entry in REFERENCE}
LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 4,
    "max_position_embeddings": 4096,
    "rope_theta": 10_000.0,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}


def changed(**keys):
    """The small Llama with other keys; None in place of a value takes the key out."""
    return {name: value for name, value in (LLAMA | keys).items() if value is not None}


def scaled(**part):
    return changed(rope_scaling=part)


def one_layer(config, **more):
    """What all layers do, where they do the same."""
    first, *others = rotary_from_config(config, **more)
    for other in others:
        assert (other.kind, other.base, other.window) == (first.kind, first.base, first.window)
        np.testing.assert_array_equal(other.scaling.inv_freq, first.scaling.inv_freq)
    return first


def expected_layers(entry):
    return [layer for count, layer in entry["layers"] for _ in range(count)]


def test_there_are_many_models_and_each_has_a_source():
    assert len({entry["model"] for entry in REFERENCE}) >= 15
    assert [entry["model"] for entry in REFERENCE if len(entry["source"]) < 20] == []


@pytest.mark.parametrize("key", BY_NAME, ids=lambda key: f"{key[0]} {key[1] or ''}")
def test_each_layer_is_what_transformers_makes_of_it(key):
    entry = BY_NAME[key]
    before = copy.deepcopy(entry["config"])
    layers = rotary_from_config(entry["config"], length=entry["length"])
    assert entry["config"] == before
    assert len(layers) == len(expected_layers(entry))
    for layer, (window, table) in zip(layers, expected_layers(entry), strict=True):
        assert layer.window == (None if window is None else Window(*window))
        if table is None:
            assert (layer.kind, layer.scaling, layer.base, layer.rotary_dim) == ("none", None, None, 0)
            continue
        expected = entry["tables"][table]
        # There frequencies are float32: exponents and powers are rounded on the way.
        np.testing.assert_allclose(layer.scaling.inv_freq, expected["inv_freq"], rtol=1e-6)
        assert layer.scaling.attention_factor == pytest.approx(expected["attention_factor"], rel=1e-12)
        assert layer.rotary_dim == 2 * len(expected["inv_freq"])
        assert layer.score_factor == pytest.approx(entry.get("score_factor", 1.0), rel=1e-12)
        assert layer.scaling.inv_freq.dtype == np.float64


@pytest.mark.parametrize("model", ["Llama-4-Scout", "Ministral-3-8B"])
def test_queries_are_sharpened_by_position(model):
    entry = BY_NAME[model, None]
    expected, layers = entry["sharpening"], rotary_from_config(entry["config"])
    for number in expected["layers"]:
        found = sharpening(layers[number], expected["positions"])
        np.testing.assert_allclose(found, expected["factors"], rtol=1e-12)
        assert found.max() > 1.1
    if model == "Llama-4-Scout":  # there the layers that turn are left alone
        assert layers[0].temperature is None
        assert sharpening(layers[0], expected["positions"]).tolist() == [1.0] * len(expected["positions"])


def test_widths_and_bases():
    neox = rotary_from_config(BY_NAME["GPT-NeoX-20B", None]["config"])[0]
    assert (neox.head_dim, neox.rotary_dim, neox.base) == (96, 24, 10_000.0)
    deepseek = rotary_from_config(BY_NAME["DeepSeek-V3", None]["config"])[0]
    assert (deepseek.head_dim, deepseek.rotary_dim) == (192, 64)
    gemma = rotary_from_config(BY_NAME["Gemma-3-12B", None]["config"])
    assert [layer.base for layer in gemma[:6]] == [10_000.0] * 5 + [1_000_000.0]
    assert [layer.kind for layer in gemma[:6]] == ["default"] * 5 + ["linear"]


# --- The same in other words ---


def test_old_and_new_spellings_say_the_same():
    old = one_layer(
        changed(rope_scaling={"type": "yarn", **{k: v for k, v in YARN.items() if k != "rope_type"}})
    )
    new = one_layer(changed(rope_theta=None, rope_parameters={"rope_theta": 10_000.0, **YARN}))
    both = one_layer(changed(rope_scaling={"type": "yarn", **YARN}))
    outside = one_layer(
        changed(rope_scaling={"rope_type": "yarn", "factor": 4.0}, original_max_position_embeddings=1024)
    )
    expected = context_extension.yarn(16, 10_000.0, trained_length=1024, factor=4.0)
    for layer in (old, new, both, outside):
        np.testing.assert_array_equal(layer.scaling.inv_freq, expected.inv_freq)
        assert layer.scaling.attention_factor == expected.attention_factor


@pytest.mark.parametrize("nothing", [{}, {"rope_scaling": None}, {"rope_scaling": {"type": "default"}}])
def test_no_scaling_in_three_spellings(nothing):
    layer = one_layer(LLAMA | nothing)
    assert layer.kind == "default"
    np.testing.assert_array_equal(layer.scaling.inv_freq, context_extension.unscaled(16).inv_freq)


def test_a_key_that_is_null_is_a_key_that_is_not_there():
    layer = one_layer(
        scaled(**YARN, mscale=None, attention_factor=None) | {"sliding_window": None, "alibi": None}
    )
    assert layer.scaling.attention_factor == pytest.approx(0.1 * math.log(4) + 1)


def test_each_key_of_yarn_counts():
    plain = one_layer(scaled(**YARN)).scaling
    for key, value in {
        "beta_fast": 8,
        "beta_slow": 2,
        "truncate": False,
        "factor": 5.0,
        "original_max_position_embeddings": 512,
    }.items():
        other = one_layer(scaled(**YARN | {key: value})).scaling
        assert np.abs(other.inv_freq - plain.inv_freq).max() > 1e-6, key
    assert one_layer(scaled(**YARN, attention_factor=1.5)).scaling.attention_factor == 1.5
    ratio = one_layer(scaled(**YARN, mscale=2.0, mscale_all_dim=1.0)).scaling.attention_factor
    assert ratio == pytest.approx((0.2 * math.log(4) + 1) / (0.1 * math.log(4) + 1))


def test_length_decides_for_dynamic_and_longrope():
    dynamic = scaled(type="dynamic", factor=2.0)
    short = one_layer(dynamic).scaling.inv_freq
    np.testing.assert_array_equal(one_layer(dynamic, length=4096).scaling.inv_freq, short)
    np.testing.assert_array_equal(
        one_layer(dynamic, length=8192).scaling.inv_freq,
        context_extension.dynamic_ntk(16, trained_length=4096, length=8192, factor=2.0).inv_freq,
    )
    factors = {"short_factor": [1.0] * 8, "long_factor": [2.0] * 8, "original_max_position_embeddings": 1024}
    longrope = scaled(type="longrope", **factors)
    ratio = one_layer(longrope).scaling.inv_freq / one_layer(longrope, length=1025).scaling.inv_freq
    np.testing.assert_allclose(ratio, 2)


def test_which_layers_have_a_window():
    qwen = changed(model_type="qwen2", sliding_window=32, use_sliding_window=True, max_window_layers=3)
    assert [layer.window for layer in rotary_from_config(qwen)] == [None, None, None, Window("sliding", 32)]
    assert one_layer(qwen | {"use_sliding_window": False}).window is None
    listed = changed(sliding_window=8, layer_types=["full_attention", "sliding_attention"] * 2)
    assert [layer.window for layer in rotary_from_config(listed)] == [None, Window("sliding", 8)] * 2
    pattern = changed(model_type="exaone4", sliding_window=8, sliding_window_pattern=2)
    assert [layer.kind for layer in rotary_from_config(pattern)] == ["default", "none"] * 2


def test_layers_that_do_not_turn_by_list_or_by_interval():
    listed = changed(no_rope_layers=[1, 0, 1, 1])
    assert [layer.kind for layer in rotary_from_config(listed)] == ["default", "none", "default", "default"]
    interval = changed(no_rope_layer_interval=2)
    assert [layer.kind for layer in rotary_from_config(interval)] == ["default", "none"] * 2


# --- What is refused ---

REFUSED = {
    "kind": (scaled(rope_type="warp", factor=2), "rope_type must be one of default, .*yarn, but is 'warp'"),
    "several axes": (scaled(type="mrope", mrope_section=[2, 3, 3]), "rope_type must be one of .*'mrope'"),
    "key of a kind": (scaled(type="linear", factor=2, alpha=3), "a key of the scaling 'linear' .*'alpha'"),
    "key of another kind": (
        scaled(type="linear", factor=2, beta_fast=3),
        "'linear' must be one of .*'beta_fast'",
    ),
    "key outside": (changed(rope_ratio=50), "'rope_ratio' must be one of the known keys"),
    "two kinds": (scaled(type="linear", rope_type="yarn", factor=2), "rope_type must be the same as type"),
    "two scalings": (
        changed(rope_scaling=YARN, rope_parameters=YARN),
        "rope_scaling must be left out where there are rope_parameters",
    ),
    "two lengths": (
        scaled(**YARN) | {"original_max_position_embeddings": 7},
        r"original_max_position_embeddings must be the same .* but is \[7, 1024\]",
    ),
    "no factor": (scaled(type="linear"), "factor must be said"),
    "factor 0": (scaled(type="linear", factor=0), "factor must be a finite number above 0, but got 0"),
    "no thresholds": (scaled(rope_type="llama3", factor=8), "low_freq_factor must be said"),
    "too few factors": (
        scaled(type="longrope", short_factor=[1.0], long_factor=[1.0] * 8),
        "short_factors must have 8 entries",
    ),
    "no base": (changed(model_type="bert", rope_theta=None), "rope_theta must be said.*'bert'"),
    "base": (changed(rope_theta=-1.0), "rope_theta must be a finite number above 0, but got -1"),
    "ALiBi": (changed(alibi=True), "alibi must be false"),
    "relative": (
        changed(position_embedding_type="relative_key"),
        "must be of a model that rotates.*relative_key",
    ),
    "no layers": (changed(num_hidden_layers=None), "num_hidden_layers must be said"),
    "no heads": (changed(num_attention_heads=None), "num_attention_heads must be said"),
    "heads": (changed(num_attention_heads=5), "hidden_size must be a multiple of the number of heads, 5"),
    "odd width": (changed(partial_rotary_factor=0.2), "must be even, from 2 to 16, but is 3"),
    "too wide": (changed(partial_rotary_factor=2.0), "must be even, from 2 to 16, but is 32"),
    "kind of layer": (
        changed(layer_types=["linear_attention"] * 4),
        "layer_types must be one of .*linear_attention",
    ),
    "layers listed": (
        changed(layer_types=["full_attention"]),
        "layer_types must be of 4 layers, but is 1 entries",
    ),
    "whose window": (
        changed(sliding_window=8),
        "sliding_window must be of a model of which it is known .*'llama'",
    ),
    "window size": (changed(layer_types=["sliding_attention"] * 4), "sliding_window must be said"),
    "listed turns": (
        changed(no_rope_layers=[1, 2, 1, 1]),
        "no_rope_layers must be a 0 .* or 1 for each of 4",
    ),
    "no list": (changed(no_rope_layers=[]), "no_rope_layers must be a list, or come with"),
    "temperature": (
        changed(no_rope_layers=[1, 0, 1, 1], attn_temperature_tuning=True),
        "attn_scale must be said",
    ),
    "by layers": (
        changed(rope_parameters={"full_attention": YARN, "sliding_attention": YARN, "factor": 2}),
        "rope_parameters must be one of .*'factor'",
    ),
    "a layer left out": (
        changed(
            layer_types=["sliding_attention"] * 4, sliding_window=8, rope_parameters={"full_attention": YARN}
        ),
        "layer_types must be one of full_attention, but is 'sliding_attention'",
    ),
    "no dict": (changed(rope_scaling="yarn"), "rope_scaling must be a dict, but is yarn"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_unknown_or_missing_is_named(case):
    config, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        rotary_from_config(config)


@pytest.mark.parametrize("config", [None, "{}", [LLAMA]])
def test_a_config_is_a_dict(config):
    with pytest.raises(TypeError, match=r"config must be what json\.load gives"):
        rotary_from_config(config)


def test_nothing_but_an_error_of_ours_comes_of_damaged_configs():
    """Values of published files swapped for others: read, or refused, with what is allowed."""
    rng = random.Random(0)
    odd = [None, 0, -1, 3, 2.5, math.nan, "x", [], [1], {}, {"a": 1}, True, 10**400]
    refused = 0
    for _ in range(2000):
        config = copy.deepcopy(rng.choice(REFERENCE)["config"])
        place = config.get("text_config", config)
        parts = [place, *(part for part in place.values() if isinstance(part, dict))]
        part = rng.choice(parts)
        part[rng.choice([*part, "rope_theta", "rope_type"])] = rng.choice(odd)
        try:
            rotary_from_config(config, length=rng.choice([None, 10, 10**6]))
        except (ValueError, TypeError) as problem:
            refused += 1
            message = str(problem)
        else:
            message = "must"
        assert any(word in message for word in ("must", "needs")), (config, message)
    assert refused > 300
