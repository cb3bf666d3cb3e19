"""From text to tokens and back: byte pair encoding as GPT-2 has it, for the model of notebook 08.

A text is cut into words, and a word into its bytes. Then the two neighbours whose pair stands first in the
list of merges become one, again and again, until no pair of neighbours is in the list. Tokens are left.
Sources: Sennrich et al. 2016, arXiv:1508.07909 (merges); Radford et al. 2019 (GPT-2: bytes, and the cut).
"""

import itertools
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from helpers import arguments

# The spaces of Unicode. Python's own \s also has the four separators 0x1C to 0x1F.
_SPACE = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
# English endings; letters; other signs; spaces, of which the last one goes with the word after it. A run of
# letters or signs takes a space before it along. [^\W_] is a letter here, since numbers are cut out before.
_WORDS = re.compile(
    rf"'(?:s|t|re|ve|m|ll|d)| ?[^\W_]+| ?(?:(?![{_SPACE}])[\W_])+|[{_SPACE}]+(?![^{_SPACE}])|[{_SPACE}]+"
)


class Tokenizer(NamedTuple):
    """A vocabulary and its merges.

    pieces: the bytes of each token. numbers: the token of each piece. ranks: for each pair that may be
    merged, its place in the list. special: tokens that no merge makes, such as the end of a text.
    """

    pieces: Sequence[bytes]
    numbers: Mapping[bytes, int]
    ranks: Mapping[tuple[bytes, bytes], int]
    special: Mapping[str, int]


def byte_letters() -> dict[str, int]:
    """Return the letter that stands for each of the 256 bytes where a vocabulary is written as text.

    Bytes that print stand for themselves, the others for the letters from 256 on: a space is "Ġ".
    """
    printed = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printed]
    return {chr(byte): byte for byte in printed} | {chr(256 + i): byte for i, byte in enumerate(others)}


def new_tokenizer(vocabulary: Sequence[str], merges: Sequence[str], special: Sequence[int]) -> Tokenizer:
    """Return the tokenizer of a vocabulary written in byte letters, with merges such as "Ġ t", best first.

    special: the tokens that are taken as they stand. Raises ValueError for what is no such vocabulary.
    """
    letters = byte_letters()
    names = {vocabulary[token]: token for token in special}
    try:
        pieces = [
            text.encode() if text in names else bytes(letters[letter] for letter in text)
            for text in vocabulary
        ]
        parts = [tuple(bytes(letters[one] for one in part) for part in pair.split(" ")) for pair in merges]
    except KeyError as unknown:
        raise ValueError(f"the vocabulary must be written in byte letters, but has {unknown}") from None
    numbers = {piece: token for token, piece in enumerate(pieces) if vocabulary[token] not in names}
    if len(numbers) + len(names) < len(pieces):
        raise ValueError("the vocabulary must have each token once, but has one twice")
    for pair, written in zip(parts, merges, strict=True):
        if len(pair) != 2 or not {*pair, b"".join(pair)} <= numbers.keys():
            raise ValueError(f"a merge must make a token of two others, but there is {written!r}")
    return Tokenizer(pieces, numbers, {pair: rank for rank, pair in enumerate(parts)}, names)


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    """Return the tokens of a text. A special token that stands in it, such as <|im_start|>, is one token.

    Raises ValueError for a text of no tokens, or with a character that the vocabulary can't write (for the
    model of notebook 08 these are six control characters, and lone surrogates).
    """
    if not isinstance(text, str):
        raise TypeError(f"text must be a str, but got {text!r}")
    if not text:
        raise ValueError("text must have at least one token, but got ''")
    known: dict[str, list[int]] = {}  # words come again
    tokens: list[int] = []
    # The longest first, where one begins like another.
    names = "|".join(re.escape(name) for name in sorted(tokenizer.special, key=len, reverse=True))
    for part in re.split(f"({names})", text) if names else [text]:
        if part in tokenizer.special:
            tokens.append(tokenizer.special[part])
            continue
        for word in words(part):
            if word not in known:
                known[word] = _tokens(tokenizer, word)
            tokens += known[word]
    return tokens


def words(text: str) -> list[str]:
    """Cut a text into what merges never cross: words, each digit or other number alone, signs, spaces."""
    found: list[str] = []
    for are_numbers, run in itertools.groupby(text, key=lambda one: unicodedata.category(one)[0] == "N"):
        run = "".join(run)
        found += list(run) if are_numbers else _WORDS.findall(run)
    return found


def merge(word: bytes, ranks: Mapping[tuple[bytes, bytes], int]) -> list[bytes]:
    """Merge neighbours, the pair that stands first in the list first, until none of them is in the list."""
    parts = [word[i : i + 1] for i in range(len(word))]
    while pairs := [pair for pair in itertools.pairwise(parts) if pair in ranks]:
        best = min(pairs, key=ranks.__getitem__)
        merged: list[bytes] = []
        i = 0
        while i < len(parts):
            together = tuple(parts[i : i + 2]) == best
            merged.append(b"".join(best) if together else parts[i])
            i += 2 if together else 1
        parts = merged
    return parts


def decode(tokenizer: Tokenizer, tokens: Sequence[int]) -> str:
    """Return the text of tokens; bytes that are no whole character come out as "\N{REPLACEMENT CHARACTER}".

    Raises ValueError for a token that the vocabulary does not have.
    """
    tokens = arguments.int_array("tokens", tokens, ndim=1)
    wrong = tokens[(tokens < 0) | (tokens >= len(tokenizer.pieces))]
    if wrong.size:
        raise ValueError(f"tokens must be from 0 to {len(tokenizer.pieces) - 1}, but got {wrong[0]}")
    return b"".join(tokenizer.pieces[token] for token in tokens).decode(errors="replace")


def _tokens(tokenizer: Tokenizer, word: str) -> list[int]:
    try:
        return [tokenizer.numbers[piece] for piece in merge(word.encode(), tokenizer.ranks)]
    except UnicodeEncodeError as problem:
        raise ValueError(f"text must be Unicode without lone surrogates, but has {word!r}") from problem
    except KeyError as byte:
        raise ValueError(f"text must be of bytes that the vocabulary has, but {word!r} has {byte}") from None
