"""Open a published language model of the Llama kind: what its file must say, and its weights (notebook 08).

The names are those of the file, which llama.cpp's converter gave them. A file that says anything which the
forward pass of helpers/language_model.py does not do (experts, a scaling of positions, a bias) is refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

import numpy as np

from helpers import arguments, byte_pairs, gguf

ARCHITECTURE = "llama"
# Those facts about the architecture that are used below, or that say nothing more.
_KNOWN = {
    *("block_count", "context_length", "embedding_length", "feed_forward_length", "vocab_size"),
    *("attention.head_count", "attention.head_count_kv", "attention.key_length", "attention.value_length"),
    *("attention.layer_norm_rms_epsilon", "rope.freq_base", "rope.dimension_count"),
}


@dataclass(frozen=True)
class Model:
    """A language model as its file has it. Matrices are (outputs, inputs), so that a step is x @ matrix.T.

    context_length: positions that it was trained for. base: of the rotation's frequencies.
    layers: by name attn_q, attn_k, attn_v, attn_output, ffn_gate, ffn_up and ffn_down, and the gains of the
    norms before them, attn_norm and ffn_norm. unembedding: the embedding itself, where the two are tied.
    """

    name: str
    d_model: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    d_hidden: int
    context_length: int
    base: float
    epsilon: float
    end: int  # the token that ends an answer
    tokenizer: byte_pairs.Tokenizer = field(repr=False)
    embedding: np.ndarray = field(repr=False)
    layers: tuple[Mapping[str, np.ndarray], ...] = field(repr=False)
    norm: np.ndarray = field(repr=False)
    unembedding: np.ndarray = field(repr=False)


def open_model(path: str | PathLike) -> Model:
    """Return the model of a GGUF file, its weights as float32: four bytes each, so 135 million take 540 MB.

    Raises ValueError, which names the file, the value and what is allowed, for a file that is damaged or of
    another kind (helpers/gguf.py), of another architecture or tokenizer, or with too few or too many tensors.
    """
    file = gguf.read_file(path)
    facts = _Facts(file)
    facts.must_be("general.architecture", ARCHITECTURE)
    facts.must_be("tokenizer.ggml.model", "gpt2")
    facts.must_be("tokenizer.ggml.pre", "smollm")
    facts.must_be("tokenizer.ggml.add_bos_token", False, unless_said=False)
    facts.must_be("tokenizer.ggml.add_space_prefix", False, unless_said=False)
    for name in file.facts:
        if name.startswith(f"{ARCHITECTURE}.") and name.partition(".")[2] not in _KNOWN:
            raise ValueError(f"{file.path} must not have {name!r}, since this forward pass does not know it")

    d_model, n_heads = facts.count("embedding_length"), facts.count("attention.head_count")
    n_kv_heads = facts.count("attention.head_count_kv", n_heads)
    head_dim = facts.count("attention.key_length", d_model // n_heads)
    for name in ("attention.value_length", "rope.dimension_count"):
        facts.must_be(f"{ARCHITECTURE}.{name}", head_dim, unless_said=head_dim)
    if n_heads % n_kv_heads or head_dim < 2 or head_dim % 2:
        raise ValueError(
            f"{file.path}: heads must share keys evenly and have an even width, but there are {n_heads} of "
            f"width {head_dim}, and {n_kv_heads} of keys"
        )
    d_hidden, n_layers = facts.count("feed_forward_length"), facts.count("block_count")
    tokenizer = _tokenizer(facts)
    table = len(tokenizer.pieces), d_model
    q, kv = n_heads * head_dim, n_kv_heads * head_dim
    layer = {
        "attn_norm": (d_model,),
        "attn_q": (q, d_model),
        "attn_k": (kv, d_model),
        "attn_v": (kv, d_model),
        "attn_output": (d_model, q),
        "ffn_norm": (d_model,),
        "ffn_gate": (d_hidden, d_model),
        "ffn_up": (d_hidden, d_model),
        "ffn_down": (d_model, d_hidden),
    }
    shapes = {"token_embd": table, "output_norm": (d_model,)}
    if "output.weight" in file.tensors:
        shapes["output"] = table
    if n_layers > len(file.tensors):  # said before so many names are made
        raise ValueError(f"{file.path} must have {n_layers} layers, but has {len(file.tensors)} tensors")
    shapes |= {f"blk.{number}.{name}": shape for number in range(n_layers) for name, shape in layer.items()}
    weights = _weights(file, shapes)
    return Model(
        name=facts.text("general.name", "a model without a name"),
        d_model=d_model,
        n_layers=n_layers,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        head_dim=head_dim,
        d_hidden=d_hidden,
        context_length=facts.count("context_length"),
        base=facts.positive("rope.freq_base", 10_000.0),
        epsilon=facts.positive("attention.layer_norm_rms_epsilon"),
        end=facts.token("tokenizer.ggml.eos_token_id", len(tokenizer.pieces)),
        tokenizer=tokenizer,
        embedding=weights["token_embd"],
        layers=tuple({name: weights[f"blk.{number}.{name}"] for name in layer} for number in range(n_layers)),
        norm=weights["output_norm"],
        unembedding=weights.get("output", weights["token_embd"]),
    )


def _weights(file: gguf.File, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    """Return all weights by name, or raise unless the file has just these tensors, and finite numbers."""
    found = {name.removesuffix(".weight"): tensor for name, tensor in file.tensors.items()}
    if different := found.keys() ^ shapes.keys():
        name = min(different)
        problem = "must not have" if name in found else "lacks"
        raise ValueError(f"{file.path} {problem} the tensor {name!r}: a model of this kind has it otherwise")
    weights = {}
    for name, shape in shapes.items():
        if found[name].shape != shape:
            raise ValueError(f"{file.path}: {name!r} must have shape {shape}, but has {found[name].shape}")
        with np.errstate(invalid="ignore"):  # where one is not finite, neither is the sum
            weights[name] = gguf.numbers(found[name])
            finite = np.isfinite(weights[name].sum(dtype=np.float64))
        if not finite:
            raise ValueError(f"{file.path}: {name!r} must hold finite numbers, but has NaN or inf")
        weights[name].flags.writeable = False
    return weights


def _tokenizer(facts: "_Facts") -> byte_pairs.Tokenizer:
    vocabulary, merges = (facts.texts(f"tokenizer.ggml.{name}") for name in ("tokens", "merges"))
    kinds = facts.value("tokenizer.ggml.token_type")
    listed = kinds.tolist() if isinstance(kinds, np.ndarray) else []
    if len(listed) != len(vocabulary) or not set(listed) <= {1, 3}:
        raise ValueError(
            f"{facts.path}: tokenizer.ggml.token_type must have a 1 (normal) or a 3 (special) for each of "
            f"{len(vocabulary)} tokens, but is {str(kinds)[:80]}"
        )
    try:
        return byte_pairs.new_tokenizer(vocabulary, merges, np.flatnonzero(kinds == 3).tolist())
    except ValueError as problem:
        raise ValueError(f"{facts.path}: {problem}") from None


class _Facts:
    """The facts of a file, each checked when it is asked for."""

    def __init__(self, file: gguf.File) -> None:
        self.path, self.facts = file.path, file.facts

    def value(self, name: str, unless_said: Any = None) -> Any:
        found = self.facts.get(name, unless_said)
        if found is None:
            raise ValueError(f"{self.path} must say {name!r}, but does not")
        return found

    def must_be(self, name: str, allowed: Any, unless_said: Any = None) -> None:
        if type(found := self.value(name, unless_said)) is not type(allowed) or found != allowed:
            raise ValueError(f"{self.path}: {name} must be {allowed!r}, but is {str(found)[:80]!r}")

    def count(self, name: str, unless_said: int | None = None) -> int:
        return self._checked(arguments.whole_number, f"{ARCHITECTURE}.{name}", unless_said, at_least=1)

    def positive(self, name: str, unless_said: float | None = None) -> float:
        return self._checked(arguments.real_number, f"{ARCHITECTURE}.{name}", unless_said, positive=True)

    def token(self, name: str, n_tokens: int) -> int:
        if (found := self._checked(arguments.whole_number, name, None, at_least=0)) >= n_tokens:
            raise ValueError(f"{self.path}: {name} must be below {n_tokens}, but is {found}")
        return found

    def text(self, name: str, unless_said: str) -> str:
        return str(self.value(name, unless_said))

    def texts(self, name: str) -> list[str]:
        found = self.value(name)
        if not isinstance(found, list):
            raise ValueError(f"{self.path}: {name} must be a list of texts, but is {str(found)[:80]}")
        return found

    def _checked(self, check: Any, name: str, unless_said: Any, **allowed: Any) -> Any:
        try:
            return check(name, self.value(name, unless_said), **allowed)
        except TypeError as problem:
            raise ValueError(f"{self.path}: {problem}") from None
        except ValueError as problem:
            raise ValueError(
                str(problem) if str(problem).startswith(self.path) else f"{self.path}: {problem}"
            ) from None
