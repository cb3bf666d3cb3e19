"""Reading GGUF files (notebook 08): the numbers of each kind of tensor, and files not as they say."""

import hashlib
import random
import struct

import numpy as np
import pytest
from tiny_model import BOOL, F32, I32, KINDS, LIST, TEXT, U8, U32, U64, gguf, packed, published_model, tiny
from trusted import reference

from helpers.gguf import numbers, read_file

REFERENCE = reference("language_model")
FACTS = {
    "a.text": (TEXT, "é"),
    "a.count": (U32, 7),
    "a.large": (U64, 2**63 + 1),
    "a.real": (F32, 0.5),
    "a.flag": (BOOL, True),
    "a.byte": (U8, 255),
    "a.list": (LIST, (I32, [3, -1])),
    "a.texts": (LIST, (TEXT, ["one", ""])),
}


@pytest.fixture
def written(tmp_path):
    """Write a file and return its path."""

    def write(content):
        path = tmp_path / "some.gguf"
        path.write_bytes(content)
        return path

    return write


def one_tensor(kind=0, shape=(2, 32), content=bytes(256)):
    return {"some.weight": (kind, shape, content)}


def test_facts_of_each_kind(written):
    found = read_file(written(gguf(FACTS, {}))).facts
    assert found["a.list"].tolist() == [3, -1]
    assert {name: value for name, value in found.items() if name != "a.list"} == {
        "a.text": "é",
        "a.count": 7,
        "a.large": 2**63 + 1,
        "a.real": 0.5,
        "a.flag": True,
        "a.byte": 255,
        "a.texts": ["one", ""],
    }


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_of_each_kind(kind, written):
    array = np.random.default_rng(1).normal(0, 2, (3, 64))
    content, expected = packed(kind, array)
    tensor = read_file(written(gguf({}, one_tensor(KINDS[kind], (3, 64), content)))).tensors["some.weight"]
    assert (tensor.kind, tensor.shape) == (kind, (3, 64))
    found = numbers(tensor)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(found, array, atol={"F32": 1e-6, "F16": 4e-3, "Q8_0": 0.05, "Q4_1": 0.4}[kind])


def test_tensors_stand_where_the_header_says_whatever_the_alignment(written):
    arrays = {name: np.random.default_rng(seed).normal(size=(1, 5)) for seed, name in enumerate("ab")}
    tensors = {name: (0, (1, 5), packed("F32", array)[0]) for name, array in arrays.items()}
    file = read_file(written(gguf({"general.alignment": (U32, 64)}, tensors, step=64)))
    for name, array in arrays.items():
        np.testing.assert_array_equal(numbers(file.tensors[name]), array.astype(np.float32))


def test_reading_leaves_the_numbers_in_the_file(written):
    """A view of the mapped file: nothing is copied before the numbers are asked for."""
    tensor = read_file(written(gguf({}, one_tensor()))).tensors["some.weight"]
    assert not tensor.blocks.flags.owndata
    assert not tensor.blocks.flags.writeable


HUGE = 2**64 - 1
REFUSED = {
    "empty": (b"", "can't be read"),
    "another format": (gguf({}, {}, magic=b"PK\x03\x04"), r"begin with b'GGUF', but begins with b'PK"),
    "version 1": (gguf({}, {}, version=1), "version must be one of 2, 3, but is 1"),
    "big-endian": (gguf({}, {}, version=3 << 24), "version must be one of 2, 3, but is 50331648"),
    "tensors beyond measure": (gguf({}, {}, counts=(HUGE, 0)), f"at most 0 tensors, but claims {HUGE}"),
    "facts beyond measure": (gguf({}, {}, counts=(0, HUGE)), f"at most 0 facts, but claims {HUGE}"),
    "a fact twice": (gguf([("a", (U8, 1)), ("a", (U8, 2))], {}), "each fact once, but has 'a' twice"),
    "a tensor twice": (
        gguf({}, 2 * [*one_tensor().items()]),
        "each tensor once, but has 'some.weight' twice",
    ),
    "no UTF-8": (gguf({"zz": (U8, 1)}, {}).replace(b"zz", b"\xff\xff"), "must be UTF-8"),
    "unknown kind of fact": (
        gguf({"a": (U8, 1)}, {}).replace(b"a\0\0", b"a\x63\0"),
        "kind of a must be one of",
    ),
    "axes": (
        gguf({}, one_tensor(shape=(1, 1, 1, 2, 32))),
        "axes of some.weight must be one of 1, 2, 3, 4, but",
    ),
    "no axis": (gguf({}, one_tensor(shape=())), "axes of some.weight must be one of 1, 2, 3, 4, but is 0"),
    "another kind": (gguf({}, one_tensor(kind=12)), r"'some.weight' must be one of .*3 \(Q4_1\).*but is 12"),
    "half a block": (
        gguf({}, one_tensor(kind=3, shape=(2, 16))),
        r"multiple of 32, but its shape is \(2, 16\)",
    ),
    "width 0": (gguf({}, one_tensor(shape=(2, 0))), r"widths above 0.*\(2, 0\)"),
    "too large": (gguf({}, one_tensor(shape=(2**40, 2**40))), "must end at byte .*but the file has"),
    "overflow": (gguf({}, one_tensor(shape=(2**63, 2**63))), "must end at byte .*but the file has"),
    "alignment 0": (gguf({"general.alignment": (U32, 0)}, {}), "general.alignment must be 8, 16, .*but is 0"),
    "alignment 24": (gguf({"general.alignment": (U32, 24)}, {}), "but is 24"),
    "alignment in words": (gguf({"general.alignment": (TEXT, "32")}, {}), "but is '32'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_such_file_is_refused_by_name(case, written):
    content, message = REFUSED[case]
    path = written(content)
    with pytest.raises(ValueError, match=message) as problem:
        read_file(path)
    assert str(path) in str(problem.value)


def test_a_nested_list_is_refused(written):
    inside = struct.pack("<IQ", LIST, 1) + struct.pack("<IQB", U8, 1, 5)
    content = gguf({"a": (U8, 1)}, {})
    at = content.index(b"a\0\0") + 1
    with pytest.raises(ValueError, match="kind of what a lists must be one of"):
        read_file(written(content[:at] + struct.pack("<I", LIST) + inside + bytes(64)))


@pytest.mark.parametrize("what", ["missing", "folder"])
def test_a_path_that_is_no_file_is_named(what, tmp_path):
    path = tmp_path if what == "folder" else tmp_path / "nothing.gguf"
    with pytest.raises(ValueError, match=str(path)):
        read_file(path)


def test_a_file_cut_short_anywhere_is_refused(written):
    content, _ = tiny()
    rng = random.Random(0)
    for length in [
        0,
        3,
        4,
        7,
        8,
        23,
        24,
        len(content) - 1,
        *(rng.randrange(len(content)) for _ in range(100)),
    ]:
        with pytest.raises(ValueError, match=r"some\.gguf"):
            read_file(written(content[:length]))


def test_a_file_damaged_anywhere_is_read_or_refused(written):
    """Bytes of the header changed at random: never another error, nor memory for what is not there."""
    content, _ = tiny()
    rng = random.Random(0)
    refused = []
    for _ in range(600):
        spoiled = bytearray(content)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(rng.choice([40, 400, 12_000]))
            width = rng.choice([1, 1, 4, 8])
            spoiled[at : at + width] = rng.choice([rng.randbytes(width), b"\xff" * width, bytes(width)])
        try:
            for tensor in read_file(written(bytes(spoiled))).tensors.values():
                assert numbers(tensor).shape == tensor.shape
        except ValueError as problem:
            refused.append(str(problem))
    assert 200 < len(refused) < 600
    assert [problem for problem in refused if "some.gguf" not in problem] == []


def test_all_numbers_of_the_published_file_are_those_of_the_gguf_package():
    file = read_file(published_model())
    assert len(file.tensors) == 272
    for name, expected in REFERENCE["tensors"].items():
        tensor = file.tensors[name]
        found = numbers(tensor)
        assert (tensor.kind, list(found.shape)) == (expected["kind"], expected["shape"])
        assert found.ravel()[:20].tolist() == expected["first"]
        assert hashlib.sha256(found.tobytes()).hexdigest() == expected["sha256"]
    whole = hashlib.sha256()
    for name in sorted(file.tensors):
        whole.update(name.encode() + numbers(file.tensors[name]).tobytes())
    assert whole.hexdigest() == REFERENCE["sha256_of_all_tensors_by_name"]
