"""Keep trained models in the user's cache folder, and never trust what is found there.

A file is found by a hash of the code and the settings, written whole or not at all, and read without pickle.
One that is damaged, or that something else wrote, is named, ignored and made anew.
"""

import functools
import hashlib
import io
import json
import os
import re
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from helpers import versions
from helpers.places import user_folder
from helpers.schemes import SCHEMES
from helpers.text import corpus

Arrays = dict[str, np.ndarray]

# What makes the numbers of a trained model, whichever scheme it has.
_TRAINING = ("training.train", "training.SNAPSHOTS", "measures.of_text")
RECALL = ("recall.train", "recall.of_recall")


def folder() -> Path:
    """Return the folder of kept models: the system's cache folder, or COURSE_CACHE if that is set.

    A user without a home has none; then it is one for temporary files, and what is kept is gone one day.
    """
    chosen = os.environ.get("COURSE_CACHE")
    if chosen:
        return Path(chosen)
    return user_folder("cache") or Path(tempfile.gettempdir()) / "positional-encodings-course"


def code_version(*schemes: str, more: Sequence[str] = ()) -> str:
    """Return a hash of the code and texts that the trained models of these schemes, or of all, depend on.

    schemes: names in SCHEMES. more: further definitions, as "module.name". Prose, checks and labels don't
    count (helpers/versions.py), and neither do other schemes than those that are named.
    """
    kinds = [SCHEMES[scheme].__name__ for scheme in schemes or SCHEMES]
    code = versions.version(*_TRAINING, *(f"schemes.{kind}" for kind in kinds), *more)
    return hashlib.sha256(f"{code} {text_version()}".encode()).hexdigest()


@functools.cache
def text_version() -> str:
    """Return a hash of the texts that models are trained on, however they are packed."""
    digest = hashlib.sha256()
    for name in ("tragedies", "novels"):
        for part in corpus(name)[:3]:
            digest.update(corpus(name).letters.encode() + part.astype("<i8").tobytes())
    return digest.hexdigest()


def path_of(settings: Mapping[str, object], *schemes: str) -> Path:
    """Return where what these settings made is kept, there or not; schemes: those that it depends on."""
    schemes = schemes or ([settings["scheme"]] if settings["scheme"] in SCHEMES else [])
    code = code_version(*schemes, more=RECALL if settings["task"] == "recall" else ())
    text = json.dumps(_floats({"code": code, **settings}), sort_keys=True)
    name = re.sub(r"[^a-z0-9]+", "_", f"{settings['task']} {'_'.join(schemes) or settings['scheme']}")
    return folder() / f"{name}-{settings['seed']}-{hashlib.sha256(text.encode()).hexdigest()[:20]}.npz"


def _floats(value: object) -> object:
    """Return settings in which 10 and 10.0, which are equal, are written alike."""
    if isinstance(value, Mapping):
        return {name: _floats(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_floats(one) for one in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def save(path: Path, arrays: Arrays) -> None:
    """Write arrays to path, whole or not at all."""
    stream = io.BytesIO()
    np.savez(stream, digest=np.array(_digest(arrays)), **arrays)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, stream.getvalue())


def write_atomically(path: Path, content: bytes) -> None:
    """Write content beside path and then move it there, so that nobody ever sees half of it."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def ship(path: Path, arrays: Arrays) -> None:
    """Write arrays well compressed, for all to read; the same arrays give the same bytes.

    With bz2 and not with lzma, which the Python of a browser lacks.
    """
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_BZIP2) as archive:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, np.asarray(array), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), member.getvalue(), zipfile.ZIP_BZIP2)
    write_atomically(path, stream.getvalue())
    path.chmod(0o644)


def load(path: Path) -> Arrays | None:
    """Return the arrays kept at path; None, with one printed sentence if a file is there but is not whole."""
    if not path.exists():
        return None
    try:
        # From memory, so that no half-read file stays open.
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        if str(arrays.pop("digest")) != _digest(arrays):
            raise ValueError("its content does not match its checksum")
    except Exception as error:  # whatever np.load makes of bytes that are not its own
        reason = f"damaged, or written by something else: {type(error).__name__}"
        print(f"The kept model {path.name} can't be used ({reason}); it is made anew.")
        return None
    return arrays


def _digest(arrays: Arrays) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
