"""Make novels.txt.bz2: prose by Jane Austen, as plain ASCII text, for the second text of notebook 06.

They come from Debian's package r-cran-janeaustenr, version 1.0.0-1, which holds her six novels (nothing else
here needs it; it is read, not run). Fetch it and run this script on the file of its data:

    apt-get download r-cran-janeaustenr && dpkg-deb -x r-cran-janeaustenr_1.0.0-1_all.deb FOLDER
    python make_novels.py FOLDER/usr/lib/R/site-library/janeaustenr/data/Rdata.rdb

Three pieces are parted by form feeds: all of Persuasion, to train on; the beginning of Northanger Abbey, to
choose by; and the beginning of Sense and Sensibility, to test with. Each is as long as the plays that serve
the same purpose. The file is written beside this script; running it again gives the same bytes.
"""

import bz2
import hashlib
import sys
import zlib
from pathlib import Path

# Each novel's first lines in the package, where its first chapter begins, and how many characters are taken.
PIECES = (
    ("Persuasion", "Chapter 1", None),
    ("NORTHANGER ABBEY", "CHAPTER 1", 95_000),
    ("SENSE AND SENSIBILITY", "CHAPTER 1", 134_000),
)
RDB_SHA256 = "8fb5198960d0da724b1562f96e4221e5c1b41ff455000280b02c55980c3d8f21"
TEXT_SHA256 = "09c9a2a4fe82e10784333a8254b9a833b577d83c23fbc2da836f23163b7db130"
OUT = Path(__file__).resolve().parent / "novels.txt.bz2"


def check(what, data, expected):
    found = hashlib.sha256(data).hexdigest()
    if found != expected:
        raise SystemExit(f"{what}: sha256 is {found}, expected {expected}")


def objects(packed):
    """The objects of R's lazy-loading file: each has a length (4 bytes), then R's format, zipped."""
    while packed:
        unpack = zlib.decompressobj()
        yield unpack.decompress(packed[4:])
        packed = unpack.unused_data


def lines(stored):
    """The lines of a vector of strings: 27 bytes, a count, and each string behind its flags and length."""
    count, place = int.from_bytes(stored[27:31]), 31
    for _ in range(count):
        length = int.from_bytes(stored[place + 4 : place + 8])
        yield stored[place + 8 : place + 8 + length].decode()
        place += 8 + length


def main():
    if len(sys.argv) != 2:
        raise SystemExit("usage: python make_novels.py Rdata.rdb")
    rdb = Path(sys.argv[1]).read_bytes()
    check("Rdata.rdb", rdb, RDB_SHA256)
    novels = ["\n".join(lines(stored)) for stored in objects(rdb)]
    pieces = []
    for title, first, length in PIECES:
        [novel] = [one for one in novels if one.startswith(title)]
        body = novel[novel.index(f"\n{first}\n") :].replace("_", "").strip("\n") + "\n"
        end = len(body) if length is None else body.rindex("\n\n", 0, length) + 1  # a whole paragraph
        pieces.append(body[:end])
        print(f"{title}: {end:,} characters")
    text = "\f".join(pieces)
    alphabet = "".join(sorted(set(text) - {"\f"}))
    print(f"{len(text):,} characters, {len(alphabet)} symbols: {alphabet!r}")
    data = text.encode("ascii")
    check("the text", data, TEXT_SHA256)
    OUT.write_bytes(bz2.compress(data, 9))
    print(f"{OUT.name}: {OUT.stat().st_size:,} bytes, sha256 {hashlib.sha256(OUT.read_bytes()).hexdigest()}")


if __name__ == "__main__":
    main()
