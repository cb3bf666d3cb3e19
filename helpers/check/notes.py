"""Which exercises are solved, kept on the learner's machine: one small file each, so nothing can be lost."""

import os
from pathlib import Path

from helpers.places import user_folder


def folder() -> Path:
    """Return where solved exercises are noted: the system's folder for data, or COURSE_PROGRESS if set.

    Raises OSError if there is none.
    """
    chosen = os.environ.get("COURSE_PROGRESS")
    if chosen:
        return Path(chosen)
    data = user_folder("data")
    if data is None:
        raise OSError("this user has no folder for data; the variable COURSE_PROGRESS may name one")
    return data / "solved"


def note(notebook: str, name: str) -> str:
    """Note that an exercise is solved; return what is to be said if that is not possible."""
    where = ""
    try:
        where = f" in {folder()}"
        folder().mkdir(parents=True, exist_ok=True)
        (folder() / f"{notebook}-{name}").touch()
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        return f" (It can't be noted{where}: {getattr(error, 'strerror', None) or error}.)"
    return ""


def solved(notebook: str, name: str) -> bool:
    """Return whether an exercise was ever solved on this machine."""
    try:
        return (folder() / f"{notebook}-{name}").exists()
    except (OSError, ValueError):
        return False
