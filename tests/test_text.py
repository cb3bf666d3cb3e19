"""The texts that the decoders read: what they are, their three parts, and the pieces taken of them."""

import bz2
import hashlib
import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from bad_input import refuses

from helpers import text
from helpers.text import LENGTH, corpus

DATA = Path(text.__file__).parent / "data"
PARTS = ("train", "choose", "test")
both = pytest.mark.parametrize("name", ["tragedies", "novels"])

# Where each play or novel lies in its file, and a word that stands in no other.
WORKS = {
    "tragedies": {
        "train": {0: "HAMLET\n", 2: "OTHELLO\n", 3: "KING LEAR\n"},
        "choose": {1: "MACBETH\n"},
        "test": {4: "ROMEO\n"},
    },
    "novels": {
        "train": {0: "Wentworth"},
        "choose": {1: "Catherine"},
        "test": {2: "Elinor"},
    },
}


def packed(name):
    return (DATA / f"{name}.txt.bz2").read_bytes()


def whole_text(name):
    return bz2.decompress(packed(name)).decode("ascii")


def works(name):
    """The plays or novels of a file, in its order."""
    return whole_text(name).split("\f")


def part_of(name, part):
    """A part as it is read, from its numbers."""
    found = corpus(name)
    return "".join(found.letters[number] for number in getattr(found, part))


def sum_of(content):
    return hashlib.sha256(content).hexdigest()


# the files


@both
def test_the_text_is_the_one_that_its_script_makes(name):
    script = (DATA / f"make_{name}.py").read_text(encoding="utf-8")
    assert sum_of(whole_text(name).encode()) == re.search(r'^TEXT_SHA256 = "(\w+)"$', script, re.M).group(1)


@both
def test_the_readme_describes_the_file(name):
    """Its section states the length and the checksums of the file and of the text."""
    readme = (DATA / "README.md").read_text(encoding="utf-8")
    file = f"{name}.txt.bz2"
    assert f"\n## {file}\n" in readme
    section = readme.split(f"\n## {file}\n")[1].split("\n## ")[0]
    for of, content in ((f"`{file}`", packed(name)), ("the text", whole_text(name).encode())):
        row = re.search(rf"\| {re.escape(of)} \(([\d,]+) bytes\) \| `([0-9a-f]{{64}})` \|", section)
        assert row.groups() == (f"{len(content):,}", sum_of(content))


@both
def test_works_are_printable_lines(name):
    """Each begins with a letter and ends with its last line, so that no two run together."""
    for work in works(name):
        assert work == work.strip() + "\n"
        assert not re.search(r"[^\n -~]", work)


def test_tragedies_have_the_62_symbols_of_the_readme():
    letters = corpus().letters
    symbols = {"\n", *" !',-.:;?", *(chr(n) for n in range(65, 91)), *(chr(n) for n in range(97, 123))}
    assert letters == "".join(sorted(symbols))
    assert len(letters) == 62


@both
def test_letters_are_those_of_the_text_in_order(name):
    assert corpus(name).letters == "".join(sorted(set(whole_text(name)) - {"\f"}))
    assert {"tragedies": 62, "novels": 76}[name] == len(corpus(name).letters)


@both
def test_there_are_enough_letters_for_strings_to_recall(name):
    """helpers/recall.py draws 16 different small letters, amid capitals."""
    assert sum(letter.islower() for letter in corpus(name).letters) >= 16
    assert sum(letter.isupper() for letter in corpus(name).letters) >= 16


# the three parts


@both
def test_parts_together_are_the_whole_file(name):
    """Each play or novel stands whole in one part, and in one only."""
    whole, places = works(name), [place for part in PARTS for place in WORKS[name][part]]
    assert sorted(places) == list(range(len(whole)))
    for part in PARTS:
        assert part_of(name, part) == "".join(whole[place] for place in sorted(WORKS[name][part]))
    assert sum(len(getattr(corpus(name), part)) for part in PARTS) == sum(map(len, whole))


@both
def test_parts_hold_the_works_that_are_named(name):
    for part in PARTS:
        for place, word in WORKS[name][part].items():
            found = [at for at, work in enumerate(works(name)) if word in work]
            assert found == [place]
            assert [other for other in PARTS if word in part_of(name, other)] == [part]


@both
def test_parts_share_no_memory(name):
    found = corpus(name)
    for one, other in itertools.combinations(PARTS, 2):
        assert not np.shares_memory(getattr(found, one), getattr(found, other))


@both
@pytest.mark.parametrize(("one", "other"), [("choose", "train"), ("test", "train"), ("test", "choose")])
def test_parts_share_no_passage(name, one, other):
    """The works repeat no passage as long as a trained piece, so what is measured is measured on new text."""
    mine, theirs = part_of(name, one), part_of(name, other)
    pieces = [mine[at : at + LENGTH + 1] for at in range(0, len(mine) - LENGTH, 50)]
    assert len(pieces) > 1000
    assert not [piece for piece in pieces if piece in theirs]


@both
def test_parts_are_numbers_of_letters(name):
    found = corpus(name)
    assert (found.train.min(), found.train.max()) == (0, len(found.letters) - 1)
    for part in PARTS:
        numbers = getattr(found, part)
        assert numbers.ndim == 1
        assert numbers.dtype.kind == "i"
        assert 0 <= numbers.min() <= numbers.max() < len(found.letters)


def test_parts_of_the_novels_are_as_long_as_those_of_the_plays():
    assert [len(part) for part in corpus()[:3]] == [461_455, 95_201, 134_101]
    for one, other in zip(corpus("novels")[:3], corpus()[:3], strict=True):
        assert abs(len(one) / len(other) - 1) < 0.02


def test_tragedies_are_what_is_read_by_default():
    for mine, named in zip(corpus(), corpus("tragedies"), strict=True):
        np.testing.assert_array_equal(mine, named)


def test_a_text_that_there_is_not():
    refuses(lambda: corpus("comedies"), ValueError, "name", "comedies")
    refuses(lambda: corpus(None), TypeError, "name", None)


# pieces to train on


def test_random_pieces_are_pieces_of_the_text():
    numbers = np.arange(100, 110)
    pieces = text.random_pieces(numbers, 300, 4, np.random.default_rng(0))
    assert pieces.shape == (300, 4)
    np.testing.assert_array_equal(pieces, pieces[:, :1] + np.arange(4))
    assert set(pieces[:, 0]) == set(range(100, 107))  # both ends are reached, and nothing beyond
    np.testing.assert_array_equal(
        text.random_pieces(numbers, 2, 10, np.random.default_rng(0)), [numbers, numbers]
    )


def test_random_pieces_are_the_seeds():
    one, same, other = (
        text.random_pieces(corpus().train, 5, 9, np.random.default_rng(seed)) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()


# pieces to measure with


@pytest.mark.parametrize("length", [1, 2, 7, 13, 60])
def test_even_pieces_do_not_overlap_and_lie_evenly(length):
    numbers = np.arange(100, 160)
    for count in range(1, 60 // length + 1):
        pieces = text.even_pieces(numbers, count, length)
        assert pieces.shape == (count, length)
        np.testing.assert_array_equal(pieces, pieces[:, :1] + np.arange(length))  # pieces of the text
        assert pieces[0, 0] == 100
        assert pieces[-1, -1] < 160
        assert len(np.unique(pieces)) == pieces.size
        distances = np.diff(pieces[:, 0])
        assert set(distances) <= {60 // count, -(-60 // count)}


def test_even_pieces_can_be_the_whole_text():
    numbers = np.arange(60)
    np.testing.assert_array_equal(text.even_pieces(numbers, 4, 15).ravel(), numbers)


@pytest.mark.parametrize(("count", "length", "most"), [(5, 15, 4), (2, 31, 1), (61, 1, 60), (1, 61, 0)])
def test_even_pieces_refuse_to_overlap(count, length, most):
    message = refuses(lambda: text.even_pieces(np.arange(60), count, length), ValueError, "count", count)
    assert f"at most {most} for pieces of {length} " in message
    assert most == 0 or text.even_pieces(np.arange(60), most, length).shape == (most, length)


def test_even_pieces_are_the_same_each_time():
    once, again = (text.even_pieces(corpus().test, 64, 513) for _ in range(2))
    np.testing.assert_array_equal(once, again)
