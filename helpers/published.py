"""What a published model does with positions, read from the config.json that comes with it (notebook 08).

The names there have grown over years and differ between models: a base is rope_theta or rotary_emb_base, a
scaling is rope_scaling or rope_parameters, its kind is type or rope_type, and some layers have a base or a
window of their own, or don't turn. Here all of it becomes one `Layer` for each layer, with plain frequencies
that the functions of `context_extension` make. What is not known is refused by name: a part that is left out
silently is a model that is silently wrong.
Source: the models' own files, and the library that runs most of them (transformers 5.24).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from helpers import arguments
from helpers import context_extension as scalings
from helpers.context_extension import RotaryScaling


class Window(NamedTuple):
    """Which keys a query sees.

    kind: "sliding", the last `size` of them, its own among them; "chunked", those of its own chunk, the text
    being cut into chunks of `size`; "both sides", its own and size/2 on either side.
    """

    kind: str
    size: int


class Temperature(NamedTuple):
    """A query is multiplied by 1 + strength ln(1 + floor((position + first) / length)): see `sharpening`."""

    strength: float
    length: int
    first: int


class Layer(NamedTuple):
    """What one layer does with positions.

    kind: of scaling, "default" for none, or "none" where nothing turns, and then scaling and base are None.
    rotary_dim: how many of the head_dim features of a query turn. score_factor: multiplies all scores.
    """

    kind: str
    scaling: RotaryScaling | None
    base: float | None
    rotary_dim: int
    head_dim: int
    window: Window | None
    score_factor: float
    temperature: Temperature | None


# The keys that each kind of scaling may have, besides its kind, base and width. "finetuned" says only that
# training went on with it.
_KEYS = {
    "default": set(),
    "linear": {"factor"},
    "dynamic": {"factor"},
    "yarn": {
        *("factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "truncate"),
        *("mscale", "mscale_all_dim", "attention_factor", "llama_4_scaling_beta", "finetuned"),
    },
    "longrope": {
        *("short_factor", "long_factor", "original_max_position_embeddings", "factor", "attention_factor")
    },
    "llama3": {"factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor"},
}
_OTHER_NAMES = {"su": "longrope"}
_ALWAYS = {"type", "rope_type", "rope_theta", "partial_rotary_factor"}
# What is read outside of the scaling, or says nothing about angles (which features make a pair).
_KNOWN = {
    *("rope_scaling", "rope_parameters", "rope_theta", "rotary_emb_base", "rope_local_base_freq"),
    *("global_rope_theta", "local_rope_theta", "partial_rotary_factor", "rotary_pct", "rotary_dim"),
    *("qk_rope_head_dim", "no_rope_layers", "no_rope_layer_interval", "use_sliding_window", "sliding_window"),
    *("sliding_window_pattern", "_sliding_window_pattern", "rope_interleave", "rope_interleaved"),
}
_LARGEST = 100_000  # number of layers, heads or features
# Parts of the names that must be known.
_ABOUT_POSITIONS = ("rope", "rotary", "alibi", "sliding", "yarn", "ntk")
# What some files leave to the code of their model: the base, and which layers have the window.
_BASE_UNSAID = {"llama": 10_000.0, "gptj": 10_000.0}
_FULL_EVERY = {"gemma2": 2, "gemma3_text": 6, "cohere2": 4}
_ALL_SLIDE = {"mistral", "mixtral", "phi3", "starcoder2"}
_LATER_SLIDE = {"qwen2", "qwen2_moe", "qwen3", "qwen3_moe"}  # those from max_window_layers on
# In these models the layers without a window don't turn (where there are layers with one).
_FULL_LAYERS_STAND_STILL = {"cohere2", "exaone4"}


def rotary_from_config(config: Mapping[str, Any], *, length: int | None = None) -> list[Layer]:
    """Return what each layer does with positions.

    config: a published config.json as json.load gives it; of a model that also sees or hears, its text part.
    length: tokens of the text, on which "dynamic" and "longrope" depend; the trained length unless given.
    Raises ValueError, which names the key, the value and what is allowed, for what is unknown, missing or
    contradicts itself, and for models that do not rotate.
    """
    if not isinstance(config, Mapping):
        raise TypeError(f"config must be what json.load gives, a dict, but got {type(config).__name__}")
    text = config.get("text_config", config)
    _must(isinstance(text, Mapping), "text_config", "a dict", text)
    config = {name: value for name, value in text.items() if value is not None}
    _must(isinstance(config.get("model_type", ""), str), "model_type", "a word", config.get("model_type"))
    _refuse_unknown(config)
    n_layers = _first(config, "num_hidden_layers", "n_layer")
    kinds = _layer_kinds(config, n_layers)
    turns = _turning_layers(config, kinds)
    pairs = list(zip(kinds, turns, strict=True))
    different = {pair: _layer(config, *pair, length) for pair in set(pairs)}  # equal layers share one object
    return [different[pair] for pair in pairs]


def sharpening(layer: Layer, positions: ArrayLike) -> np.ndarray:
    """Return what multiplies the query at each position: 1 where a layer has no temperature; float64."""
    positions = arguments.real_array("positions", positions)
    if layer.temperature is None:
        return np.ones(positions.shape)
    strength, length, first = layer.temperature
    return 1 + strength * np.log1p(np.floor((positions + first) / length))


# --- Which layers ---


def _refuse_unknown(config: Mapping[str, Any]) -> None:
    # "absolute" stands in the files of many models that rotate: an old default that nobody reads.
    said = str(config.get("position_embedding_type", "absolute"))
    if said != "absolute" and "rope" not in said and "rotary" not in said:
        raise ValueError(f"position_embedding_type must be of a model that rotates, but is {said!r}")
    if config.get("alibi"):
        raise ValueError("alibi must be false: a model with a bias on its scores does not rotate")
    for name in config:
        if any(part in name for part in _ABOUT_POSITIONS) and name not in _KNOWN | {"alibi"}:
            raise ValueError(f"{name!r} must be one of the known keys about positions: {_listed(_KNOWN)}")


def _layer_kinds(config: Mapping[str, Any], n_layers: int) -> list[str]:
    """Return "full_attention", "sliding_attention" or "chunked_attention" for each layer."""
    model, numbers = config.get("model_type"), range(n_layers)
    if "layer_types" in config:
        kinds = config["layer_types"]
        _must(isinstance(kinds, list | tuple), "layer_types", "a list", kinds)
        _must(len(kinds) == n_layers, "layer_types", f"of {n_layers} layers", f"{len(kinds)} entries")
        for kind in kinds:
            _one_of("layer_types", kind, {"full_attention", "sliding_attention", "chunked_attention"})
        return list(kinds)
    if "attention_chunk_size" in config:  # Llama 4: the layers that turn
        turns = _no_rope_rule(config, n_layers)
        return ["chunked_attention" if turning else "full_attention" for turning in turns]
    if "global_attn_every_n_layers" in config:  # ModernBERT
        every = _count(config, "global_attn_every_n_layers")
        return ["sliding_attention" if number % every else "full_attention" for number in numbers]
    if "sliding_window" not in config or not config.get("use_sliding_window", True):
        return ["full_attention"] * n_layers
    every = config.get(
        "sliding_window_pattern", config.get("_sliding_window_pattern", _FULL_EVERY.get(model))
    )
    if every is not None:
        every = arguments.whole_number("sliding_window_pattern", every, at_least=1)
        return ["sliding_attention" if (number + 1) % every else "full_attention" for number in numbers]
    if model in _LATER_SLIDE:
        first = _count(config, "max_window_layers", at_least=0)
        return ["sliding_attention" if number >= first else "full_attention" for number in numbers]
    _must(
        model in _ALL_SLIDE,
        "sliding_window",
        "of a model of which it is known which layers have it, or come with layer_types",
        f"{config['sliding_window']} for model_type {model!r}",
    )
    return ["sliding_attention"] * n_layers


def _turning_layers(config: Mapping[str, Any], kinds: list[str]) -> list[bool]:
    if config.get("model_type") in _FULL_LAYERS_STAND_STILL and "sliding_attention" in kinds:
        return [kind != "full_attention" for kind in kinds]
    return _no_rope_rule(config, len(kinds))


def _no_rope_rule(config: Mapping[str, Any], n_layers: int) -> list[bool]:
    """Return whether each layer turns. In no_rope_layers, in spite of its name, a 1 says that it does."""
    if config.get("no_rope_layers"):
        listed = config["no_rope_layers"]
        fits = isinstance(listed, list | tuple) and len(listed) == n_layers
        fits = fits and all(one in (0, 1) for one in listed)
        _must(fits, "no_rope_layers", f"a 0 (does not turn) or 1 for each of {n_layers} layers", listed)
        return [bool(one) for one in listed]
    if "no_rope_layer_interval" not in config and "no_rope_layers" not in config:
        return [True] * n_layers
    every = config.get("no_rope_layer_interval", 4 if config.get("model_type") == "llama4_text" else None)
    _must(every is not None, "no_rope_layers", "a list, or come with no_rope_layer_interval", [])
    every = arguments.whole_number("no_rope_layer_interval", every, at_least=1)
    return [bool((number + 1) % every) for number in range(n_layers)]


# --- One layer ---


def _layer(config: Mapping[str, Any], layer_kind: str, turning: bool, length: int | None) -> Layer:
    part = _rotary_part(config, layer_kind)
    kind, base = _kind(part), _base(config, part, layer_kind)
    head_dim, rotary_dim = _widths(config, part)
    window, temperature = _window(config, layer_kind), _temperature(config, part, turning)
    if not turning:
        return Layer("none", None, None, 0, head_dim, window, 1.0, temperature)
    scaling = _scaling(config, part, kind, rotary_dim, base, length)
    # DeepSeek, whose queries turn in a part of their features only, sharpens by a factor on all scores.
    sharpens = kind == "yarn" and "qk_rope_head_dim" in config and part.get("mscale_all_dim")
    factor = scalings.yarn_softmax_multiplier(part["factor"], part["mscale_all_dim"]) if sharpens else 1.0
    return Layer(kind, scaling, base, rotary_dim, head_dim, window, factor, temperature)


def _rotary_part(config: Mapping[str, Any], layer_kind: str) -> dict[str, Any]:
    """Return the keys of the scaling of layers of this kind, without those that are null."""
    for both in ("rope_scaling", "rope_parameters"):
        part = config.get(both, {})
        _must(isinstance(part, Mapping), both, "a dict", part)
    part = config.get("rope_parameters") or config.get("rope_scaling") or {}
    twice = config.get("rope_parameters") and config.get("rope_scaling")
    _must(not twice, "rope_scaling", "left out where there are rope_parameters", config.get("rope_scaling"))
    by_kind = [name for name, one in part.items() if isinstance(one, Mapping)]
    if by_kind:
        for name in part:
            _one_of("rope_parameters", name, {"full_attention", "sliding_attention", "chunked_attention"})
        _one_of("layer_types", layer_kind, set(by_kind))
        part = part[layer_kind]
    elif layer_kind == "sliding_attention" and "rope_local_base_freq" in config:
        part = {}  # Gemma 3 stretches its layers without a window only
    return {name: one for name, one in part.items() if one is not None}


def _kind(part: Mapping[str, Any]) -> str:
    named = {str(part[name]) for name in ("rope_type", "type") if name in part} or {"default"}
    _must(len(named) == 1, "rope_type", "the same as type", sorted(named))
    (kind,) = named
    kind = _OTHER_NAMES.get(kind, kind)
    _one_of("rope_type", kind, set(_KEYS))
    for name in part:
        _one_of(f"a key of the scaling {kind!r}", name, _KEYS[kind] | _ALWAYS)
    return kind


def _base(config: Mapping[str, Any], part: Mapping[str, Any], layer_kind: str) -> float:
    sliding = layer_kind == "sliding_attention"
    own = ("rope_local_base_freq", "local_rope_theta") if sliding else ("global_rope_theta",)
    for where, names in ((part, ("rope_theta",)), (config, (*own, "rope_theta", "rotary_emb_base"))):
        for name in names:
            if name in where:
                return arguments.real_number(name, where[name], positive=True)
    model = config.get("model_type")
    _must(
        model in _BASE_UNSAID,
        "rope_theta",
        f"said, except for {_listed(_BASE_UNSAID)}",
        f"not, for {model!r}",
    )
    return _BASE_UNSAID[model]


def _widths(config: Mapping[str, Any], part: Mapping[str, Any]) -> tuple[int, int]:
    """Return the width of a query, and how many of its features turn."""
    if "qk_rope_head_dim" in config:
        turning = _count(config, "qk_rope_head_dim", at_most=_LARGEST)
        _must(turning % 2 == 0, "qk_rope_head_dim", "even", turning)
        return turning + _count(config, "qk_nope_head_dim", at_least=0), turning
    if "head_dim" in config:
        head_dim = _count(config, "head_dim", at_most=_LARGEST)
    else:
        width, heads = (
            _first(config, *names) for names in (("hidden_size", "n_embd"), ("num_attention_heads", "n_head"))
        )
        _must(width % heads == 0, "hidden_size", f"a multiple of the number of heads, {heads}", width)
        head_dim = width // heads
    if "rotary_dim" in config:
        turning = _count(config, "rotary_dim")
    else:
        shares = [where[name] for where, name in _shares(config, part) if name in where]
        share = arguments.real_number("partial_rotary_factor", shares[0] if shares else 1.0, positive=True)
        turning = int(head_dim * share)
    fits = 2 <= turning <= head_dim and turning % 2 == 0
    _must(fits, "the width that turns", f"even, from 2 to {head_dim}", turning)
    return head_dim, turning


def _shares(config: Mapping[str, Any], part: Mapping[str, Any]) -> tuple:
    return (part, "partial_rotary_factor"), (config, "partial_rotary_factor"), (config, "rotary_pct")


def _scaling(
    config: Mapping[str, Any], part: Mapping[str, Any], kind: str, d: int, base: float, length: int | None
) -> RotaryScaling:
    """Return the frequencies of a kind of scaling: its keys under the names of context_extension."""
    if kind == "default":
        return scalings.unscaled(d, base)
    if kind != "longrope":
        factor = _said(part, "factor")
    if kind == "linear":
        return scalings.position_interpolation(d, base, factor=factor)
    if kind == "dynamic":
        trained = _count(config, "max_position_embeddings")
        length = trained if length is None else length
        return scalings.dynamic_ntk(d, base, trained_length=trained, length=length, factor=factor)
    trained = _trained_length(config, part)
    if kind == "llama3":
        thresholds = {name: _said(part, name) for name in ("low_freq_factor", "high_freq_factor")}
        return scalings.llama3(d, base, trained_length=trained, factor=factor, **thresholds)
    if kind == "yarn":
        names = "beta_fast", "beta_slow", "truncate", "mscale", "mscale_all_dim", "attention_factor"
        more = {name: part[name] for name in names if name in part}
        return scalings.yarn(d, base, trained_length=trained, factor=factor, **more)
    more = {name: part[name] for name in ("factor", "attention_factor") if name in part}
    if "factor" not in part:
        more["max_length"] = _count(config, "max_position_embeddings")
    factors = {f"{name}s": _said(part, name) for name in ("short_factor", "long_factor")}
    return scalings.longrope(d, base, trained_length=trained, length=length, **factors, **more)


def _trained_length(config: Mapping[str, Any], part: Mapping[str, Any]) -> int:
    name = "original_max_position_embeddings"
    found = {_count(where, name) for where in (config, part) if name in where}
    _must(len(found) < 2, name, "the same in the scaling and outside of it", sorted(found))
    return found.pop() if found else _count(config, "max_position_embeddings")


def _window(config: Mapping[str, Any], layer_kind: str) -> Window | None:
    if layer_kind == "full_attention":
        return None
    if layer_kind == "chunked_attention":
        return Window("chunked", _count(config, "attention_chunk_size"))
    if "local_attention" in config:
        return Window("both sides", _count(config, "local_attention"))
    return Window("sliding", _count(config, "sliding_window"))


def _temperature(config: Mapping[str, Any], part: Mapping[str, Any], turning: bool) -> Temperature | None:
    """Llama 4 sharpens the layers that don't turn, Ministral 3 all of them, one position later."""
    if part.get("llama_4_scaling_beta"):
        return Temperature(_said(part, "llama_4_scaling_beta"), _trained_length(config, part), 0)
    if config.get("attn_temperature_tuning") and not turning:
        strength = arguments.real_number("attn_scale", _said(config, "attn_scale"))
        return Temperature(strength, _count(config, "floor_scale"), 1)
    return None


# --- Checks ---


def _must(fits: bool, name: str, allowed: str, value: Any) -> None:
    if not fits:
        raise ValueError(f"{name} must be {allowed}, but is {value}")


def _one_of(name: str, value: Any, allowed: set[str]) -> None:
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} must be one of {_listed(allowed)}, but is {value!r}")


def _listed(names: Any) -> str:
    return ", ".join(sorted(names))


def _said(where: Mapping[str, Any], name: str) -> Any:
    if name not in where:
        raise ValueError(f"{name} must be said in the config, but is not")
    return where[name]


def _first(config: Mapping[str, Any], *names: str) -> int:
    for name in names:
        if name in config:
            return _count(config, name, at_most=_LARGEST)
    raise ValueError(f"{names[0]} must be said in the config, but is not")


def _count(config: Mapping[str, Any], name: str, at_least: int = 1, at_most: int = 2**53) -> int:
    found = arguments.whole_number(name, _said(config, name), at_least=at_least)
    _must(found <= at_most, name, f"at most {at_most}", found)
    return found
