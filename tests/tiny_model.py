"""A writer of GGUF files, and a language model of random weights that is small enough for every test.

It shares nothing with the helpers: layouts and names are written down here once more.
"""

import os
import struct

import numpy as np
import pytest

from helpers import fetch_model

KINDS = {"F32": 0, "F16": 1, "Q4_1": 3, "Q8_0": 8}
U8, I32, U32, F32, BOOL, TEXT, LIST, U64 = 0, 5, 4, 6, 7, 8, 9, 10
FORMS = {U8: "B", I32: "i", U32: "I", F32: "f", BOOL: "?", U64: "Q"}
D_MODEL, N_HEADS, N_KV_HEADS, HEAD_DIM, D_HIDDEN, N_LAYERS = 32, 4, 2, 8, 64, 3
BASE, EPSILON = 500.0, 1e-5
MERGES = ["t h", "Ġ th", "th e", "Ġ a", "Ġth e"]
SPECIAL = ["<|endoftext|>", "<|im_end|>"]


def text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


def value(kind, content):
    """A fact's value: its kind and then itself; a list is (kind of what it lists, things)."""
    if kind == TEXT:
        return struct.pack("<I", TEXT) + text(content)
    if kind == LIST:
        inside, things = content
        body = b"".join(
            text(one) if inside == TEXT else struct.pack("<" + FORMS[inside], one) for one in things
        )
        return struct.pack("<IIQ", LIST, inside, len(things)) + body
    return struct.pack("<I" + FORMS[kind], kind, content)


def packed(kind, array):
    """The bytes of an array, and the numbers that they stand for, block by block."""
    if kind in ("F32", "F16"):
        kept = array.astype("<f4" if kind == "F32" else "<f2")
        return kept.tobytes(), kept.astype(np.float32)
    content, numbers = b"", []
    for block in array.reshape(-1, 32):
        if kind == "Q8_0":
            scale = np.float16(np.abs(block).max() / 127)
            steps = np.rint(block / np.float32(scale)).astype(np.int8)
            content += scale.tobytes() + steps.tobytes()
            numbers.append([np.float32(scale) * np.float32(step) for step in steps])
        else:
            scale, lowest = np.float16((block.max() - block.min()) / 15), np.float16(block.min())
            steps = np.clip(np.rint((block - np.float32(lowest)) / np.float32(scale)), 0, 15).astype(int)
            content += scale.tobytes() + lowest.tobytes()
            content += bytes(int(steps[i]) + 16 * int(steps[i + 16]) for i in range(16))
            numbers.append([np.float32(scale) * np.float32(step) + np.float32(lowest) for step in steps])
    return content, np.array(numbers, np.float32).reshape(array.shape)


def gguf(facts, tensors, *, magic=b"GGUF", version=3, counts=None, step=32):
    """A file's bytes. facts: {name: (kind, content)}. tensors: {name: (number of its kind, shape, bytes)}.

    Either may be a list of pairs, in which a name can come twice.
    """
    facts, tensors = (list(one.items()) if isinstance(one, dict) else one for one in (facts, tensors))
    n_tensors, n_facts = counts or (len(tensors), len(facts))
    head = magic + struct.pack("<IQQ", version, n_tensors, n_facts)
    for name, (kind, content) in facts:
        head += text(name) + value(kind, content)
    body = b""
    for name, (kind, shape, content) in tensors:
        head += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape[::-1])
        head += struct.pack("<IQ", kind, len(body))
        body += content + bytes(-len(content) % step)
    return head + bytes(-len(head) % step) + body


def vocabulary():
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printed]
    letters = [chr(byte) for byte in printed] + [chr(256 + i) for i in range(len(others))]
    return [*SPECIAL, *letters, *(merge.replace(" ", "") for merge in MERGES)]


def facts():
    words = vocabulary()
    kinds = [3 if word in SPECIAL else 1 for word in words]
    return {
        "general.architecture": (TEXT, "llama"),
        "general.name": (TEXT, "Tiny"),
        "llama.block_count": (U32, N_LAYERS),
        "llama.context_length": (U32, 64),
        "llama.embedding_length": (U32, D_MODEL),
        "llama.feed_forward_length": (U32, D_HIDDEN),
        "llama.attention.head_count": (U32, N_HEADS),
        "llama.attention.head_count_kv": (U32, N_KV_HEADS),
        "llama.rope.freq_base": (F32, BASE),
        "llama.attention.layer_norm_rms_epsilon": (F32, EPSILON),
        "llama.rope.dimension_count": (U32, HEAD_DIM),
        "tokenizer.ggml.model": (TEXT, "gpt2"),
        "tokenizer.ggml.pre": (TEXT, "smollm"),
        "tokenizer.ggml.tokens": (LIST, (TEXT, words)),
        "tokenizer.ggml.token_type": (LIST, (I32, kinds)),
        "tokenizer.ggml.merges": (LIST, (TEXT, MERGES)),
        "tokenizer.ggml.eos_token_id": (U32, 1),
    }


def weights(seed=0):
    """Random weights by their names in the file: {name: (kind, array)}, of all the kinds that are read."""
    rng = np.random.default_rng(seed)
    kv = N_KV_HEADS * HEAD_DIM

    def matrix(*shape):
        return rng.normal(0, 1.5 * shape[-1] ** -0.5, shape)

    found = {
        "token_embd": ("Q8_0", rng.normal(0, 1, (len(vocabulary()), D_MODEL))),
        "output_norm": ("F32", rng.uniform(0.5, 1.5, D_MODEL)),
    }
    for layer in range(N_LAYERS):
        own = {
            "attn_norm": ("F32", rng.uniform(0.5, 1.5, D_MODEL)),
            "attn_q": ("Q4_1", 2 * matrix(D_MODEL, D_MODEL)),
            "attn_k": ("Q4_1", 2 * matrix(kv, D_MODEL)),
            "attn_v": ("F16", matrix(kv, D_MODEL)),
            "attn_output": ("Q4_1", matrix(D_MODEL, D_MODEL)),
            "ffn_norm": ("F32", rng.uniform(0.5, 1.5, D_MODEL)),
            "ffn_gate": ("Q8_0", matrix(D_HIDDEN, D_MODEL)),
            "ffn_up": ("F16", matrix(D_HIDDEN, D_MODEL)),
            "ffn_down": ("Q4_1", matrix(D_MODEL, D_HIDDEN)),
        }
        found |= {f"blk.{layer}.{name}": what for name, what in own.items()}
    return found


def tiny(changed_facts=None, changed_weights=None):
    """A tiny model's file and the numbers in it; None in place of a fact or a weight leaves it out."""
    said = {name: fact for name, fact in (facts() | (changed_facts or {})).items() if fact is not None}
    tensors, numbers = {}, {}
    for name, what in (weights() | (changed_weights or {})).items():
        if what is not None:
            kind, array = what
            content, numbers[name] = packed(kind, np.asarray(array))
            tensors[f"{name}.weight"] = (KINDS[kind], np.shape(array), content)
    return gguf(said, tensors), numbers


def published_model():
    """The path of the course's language model, or the test is skipped; in CI its absence is a failure."""
    path = None if os.environ.get("COURSE_MODEL") else fetch_model.find()
    if path is None and os.environ.get("COURSE_REQUIRE_MODEL") == "1":
        pytest.fail("The language model is missing, and COURSE_REQUIRE_MODEL=1 asks for it")
    if path is None:
        pytest.skip(fetch_model.MISSING)
    return path
