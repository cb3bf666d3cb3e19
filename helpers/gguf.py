"""Read a model's weights from a GGUF file, the format of llama.cpp (notebook 08).

Such a file is four parts, all numbers little-endian: (1) "GGUF", the version, how many tensors and how many
facts; (2) the facts, each a name, a kind and a value ("llama.rope.freq_base", float, 100000.0); (3) for each
tensor its name, its widths, its kind and where its numbers begin; (4) the numbers. To save space most numbers
are kept in blocks of 32: a small integer for each, and a scale (and in Q4_1 a lowest value) that they share.

The file is mapped into memory, nothing in it is executed, and nothing in it is believed: every count is held
against what the file can hold before anything is made of it.
Source: the format's description in the ggml project, docs/gguf.md.
"""

import math
import struct
from os import PathLike
from typing import Any, NamedTuple

import numpy as np

VERSIONS = 2, 3
# The kinds of facts by their number, as the struct module writes them; 8 is a text, and 9 a list.
_FACTS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _LIST = 8, 9
# The kinds of tensors by their number: a name, how many numbers stand in a block, and what a block is.
_KINDS = {
    0: ("F32", 1, np.dtype("<f4")),
    1: ("F16", 1, np.dtype("<f2")),
    3: ("Q4_1", 32, np.dtype([("scale", "<f2"), ("lowest", "<f2"), ("pairs", "u1", 16)])),
    8: ("Q8_0", 32, np.dtype([("scale", "<f2"), ("steps", "i1", 32)])),
}


class Tensor(NamedTuple):
    """One tensor as the file has it; `numbers` makes floats of it. The last axis is the one of the blocks."""

    kind: str
    shape: tuple[int, ...]
    blocks: np.ndarray


class File(NamedTuple):
    """What a GGUF file says, by name: facts (numbers, texts, or lists of them) and tensors."""

    path: str
    facts: dict[str, Any]
    tensors: dict[str, Tensor]


def numbers(tensor: Tensor) -> np.ndarray:
    """Return a tensor's numbers: float32 of its shape.

    Q8_0: scale * step, with steps from -128 to 127. Q4_1: scale * step + lowest, with steps from 0 to 15, two
    in a byte: the lower halves of the 16 bytes are the first 16 numbers, the upper halves the last.
    """
    blocks = tensor.blocks
    if tensor.kind == "Q8_0":
        found = blocks["scale"].astype(np.float32)[:, None] * blocks["steps"]
    elif tensor.kind == "Q4_1":
        steps = np.concatenate([blocks["pairs"] & 15, blocks["pairs"] >> 4], axis=1)
        found = blocks["scale"].astype(np.float32)[:, None] * steps
        found += blocks["lowest"].astype(np.float32)[:, None]
    else:
        found = blocks.astype(np.float32)
    return found.reshape(tensor.shape)


def read_file(path: str | PathLike) -> File:
    """Return the facts and the tensors of a GGUF file; tensors are views of the file, read when needed.

    Raises ValueError, which names the file, the value and what is allowed, for a file that can't be read, is
    of another format or version, is cut short, contradicts itself, or has tensors of another kind.
    """
    path = str(path)
    try:
        content = np.memmap(path, np.uint8, mode="r")
    except (OSError, ValueError) as problem:  # an empty file is a ValueError
        raise ValueError(f"{path} must be a GGUF file, but can't be read: {problem}") from None
    reader = _Reader(path, content)
    if (magic := reader.take(4)) != b"GGUF":
        raise ValueError(f"{path} must begin with b'GGUF', but begins with {magic!r}")
    reader.one_of("version", reader.number("I"), VERSIONS)
    n_tensors, n_facts = (reader.count(what, at_least) for what, at_least in (("tensors", 24), ("facts", 13)))
    facts: dict[str, Any] = {}
    for _ in range(n_facts):
        name = reader.new_name("fact", facts)
        facts[name] = reader.value(name)
    places: dict[str, tuple[int, tuple[int, ...], int]] = {}
    for _ in range(n_tensors):
        name = reader.new_name("tensor", places)
        reader.one_of(f"the number of axes of {name}", n_axes := reader.number("I"), range(1, 5))
        shape = tuple(reader.number("Q") for _ in range(n_axes))[::-1]  # the file has the last axis first
        places[name] = reader.number("I"), shape, reader.number("Q")
    step = facts.get("general.alignment", 32)
    if not isinstance(step, int) or step < 8 or step & (step - 1):
        raise ValueError(f"{path}: general.alignment must be 8, 16, 32, …, but is {step!r}")
    start = -(-reader.at // step) * step
    return File(path, facts, {name: reader.tensor(name, start, *place) for name, place in places.items()})


class _Reader:
    """A place in the file that moves on as things are read, and never past the end."""

    def __init__(self, path: str, content: np.ndarray) -> None:
        self.path, self.content, self.at = path, content, 0
        self.bytes = memoryview(content)  # of which a slice takes a third of the time

    def take(self, size: int) -> bytes:
        if size > (left := len(self.content) - self.at):
            raise ValueError(f"{self.path} is cut short: {size} bytes must follow byte {self.at}, not {left}")
        self.at += size
        return bytes(self.bytes[self.at - size : self.at])

    def number(self, kind: str) -> Any:
        return struct.unpack(f"<{kind}", self.take(struct.calcsize(f"<{kind}")))[0]

    def count(self, what: str, at_least: int) -> int:
        """Return how many things follow, each of which takes so many bytes or more."""
        found = self.number("Q")
        if found > (allowed := (len(self.content) - self.at) // at_least):
            raise ValueError(f"{self.path} can hold at most {allowed} {what}, but claims {found}")
        return found

    def text(self) -> str:
        content = self.take(self.number("Q"))
        try:
            return content.decode()
        except UnicodeDecodeError:
            raise ValueError(f"{self.path}: texts must be UTF-8, but one is {content[:40]!r}") from None

    def value(self, name: str) -> Any:
        """Return a fact of any kind; a list of numbers comes as an array."""
        self.one_of(f"the kind of {name}", kind := self.number("I"), (*_FACTS, _TEXT, _LIST))
        if kind == _TEXT:
            return self.text()
        if kind != _LIST:
            return self.number(_FACTS[kind])
        self.one_of(f"the kind of what {name} lists", kind := self.number("I"), (*_FACTS, _TEXT))
        if kind == _TEXT:
            return [self.text() for _ in range(self.count(f"texts in {name}", 8))]
        width = struct.calcsize(_FACTS[kind])
        content = self.take(width * self.count(f"numbers in {name}", width))
        return np.frombuffer(content, np.dtype(_FACTS[kind]).newbyteorder("<"))

    def new_name(self, what: str, known: dict) -> str:
        if (name := self.text()) in known:
            raise ValueError(f"{self.path} must have each {what} once, but has {name!r} twice")
        return name

    def tensor(self, name: str, start: int, kind: int, shape: tuple[int, ...], offset: int) -> Tensor:
        if kind not in _KINDS:
            known = ", ".join(f"{number} ({word})" for number, (word, *_) in _KINDS.items())
            raise ValueError(f"{self.path}: the kind of {name!r} must be one of {known}, but is {kind}")
        word, together, layout = _KINDS[kind]
        if 0 in shape or shape[-1] % together:
            raise ValueError(
                f"{self.path}: {name!r} of kind {word} must have widths above 0, the last a multiple of "
                f"{together}, but its shape is {shape}"
            )
        first = start + offset
        last = first + math.prod(shape) // together * layout.itemsize
        if last > len(self.content):
            raise ValueError(
                f"{self.path} is cut short: {name!r} of shape {shape} must end at byte {last}, "
                f"but the file has {len(self.content)}"
            )
        return Tensor(word, shape, self.content[first:last].view(layout))

    def one_of(self, what: str, value: int, allowed: Any) -> None:
        if value not in allowed:
            known = ", ".join(map(str, allowed))
            raise ValueError(f"{self.path}: {what} must be one of {known}, but is {value}")
