"""The learner's copies of the notebooks: each is whole or not there, what she changed stays, and it is known
which version of the course it came from.

`my/.copied.json` holds the hash of each original as it was last copied. So after an update it can be told
whether an original is newer, and whether her copy is still what the course put there.
"""

import contextlib
import hashlib
import itertools
import json
import os
import secrets
import stat

# Hidden, so that Jupyter does not list it.
RECORD = ".copied.json"


class CannotStart(Exception):
    """Something the learner can put right; its text is one plain sentence."""


def copy_notebooks(source, learner):
    """Copy the notebooks that the learner's folder lacks, renew those that she has not touched, and return
    {kind: names}.

    copied: they were missing. renewed: they were what the course had put there, and it has newer ones.
    newer: the course has another version than the one that hers came from, and hers has changes.
    unknown: hers is not the course's, and nothing says what it came from. broken: no notebook can be read
    there; of those and of the two before, the learner's own stay as they are.
    """
    found = {"copied": [], "renewed": [], "newer": [], "unknown": [], "broken": []}
    originals = notebooks_in(source)
    try:
        learner.mkdir(exist_ok=True)
        record = read_record(learner)
        for original in originals:
            # The bytes alone are copied, so that a read-only original gives a copy that can be saved.
            content, name = original.read_bytes(), original.name
            kind = copy_or_compare(learner / name, content, record.get(name))
            if kind in ("copied", "renewed", "same"):
                record[name] = version_of(content)
            if kind in found:
                found[kind].append(name)
    except OSError as error:
        raise cannot_copy(learner, error) from None
    write_record(learner, record)
    return found


def copy_or_compare(own, content, copied_version):
    """Return which kind the learner's file is, after it was copied or renewed if that takes nothing away."""
    if create_file(own, content):
        return "copied"
    mine = read_notebook(own)
    if mine is None:
        return "broken"
    if mine == content:
        return "same"
    if version_of(content) == copied_version:
        return "changed by her"
    if version_of(mine) == copied_version and renew(own, mine, content):
        return "renewed"
    return "newer" if copied_version else "unknown"


def notebooks_in(source):
    """Return the course's notebooks."""
    notebooks = sorted(source.glob("*.ipynb"))
    if not notebooks:
        raise CannotStart(
            f"There are no notebooks in {source}: start the course from a full checkout of its repository."
        )
    return notebooks


def cannot_copy(learner, error):
    """Return what to raise when the system refuses to write."""
    return CannotStart(f"The notebooks could not be copied to {learner} ({error.strerror or error}).")


def find_notebook(source, wanted):
    """Return the notebook of this number, or of a name that begins so, such as "02" or "02_sinusoidal"."""
    notebooks = sorted(source.glob("*.ipynb"))
    number = wanted.zfill(2) if wanted.isdigit() else wanted
    found = [path for path in notebooks if number and path.name.startswith(number)]
    if len(found) != 1:
        names = ", ".join(path.stem for path in notebooks)
        raise CannotStart(f"Say which notebook, by its number, such as 01: {wanted!r} is none of {names}.")
    return found[0]


def fresh_copy(original, learner):
    """Put a clean copy of a notebook beside the learner's own, under a name that is free, and return it."""
    content = original.read_bytes()
    try:
        learner.mkdir(exist_ok=True)
        for number in itertools.count(1):
            target = learner / f"{original.stem}-fresh{'' if number == 1 else f'-{number}'}.ipynb"
            if create_file(target, content):
                break
    except OSError as error:
        raise cannot_copy(learner, error) from None
    # She has this version now, if under another name.
    write_record(learner, read_record(learner) | {original.name: version_of(content)})
    return target


def create_file(target, content):
    """Write a new file whole or not at all, and say whether it was written.

    False means that something of that name, even a folder or a link that leads nowhere, was there: it is
    never replaced, nor when it appears while this runs.
    """
    if os.path.lexists(target) and not is_claim(target):
        return False
    try:
        with finished_beside(target, content) as finished:
            publish(finished, target)
    except FileExistsError:
        return False
    return True


@contextlib.contextmanager
def finished_beside(target, content):
    """Write content beside the target, under a hidden name that is gone at the end, and give its path."""
    # Jupyter does not list hidden files, so nobody opens the half-written one.
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with open(partial, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())  # else a stick that is pulled out can have the name without the content
        yield partial
    finally:
        partial.unlink(missing_ok=True)


def publish(finished, target):
    """Give a finished file its name; FileExistsError when the name is taken."""
    if is_claim(target):
        os.replace(finished, target)
    elif os.name == "nt":
        os.rename(finished, target)  # refuses to replace, unlike on other systems
    else:
        try:
            os.link(finished, target)
        except FileExistsError:
            raise
        except OSError:
            # Some network and memory-stick file systems have no links. There an empty file claims the name,
            # which fails if it is taken, and is then replaced in one step.
            open(target, "xb").close()
            os.replace(finished, target)


def is_claim(target):
    """Return whether a file is empty: there is nothing of anybody's in it, and a killed copy leaves one."""
    try:
        found = os.lstat(target)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size == 0


def renew(own, mine, content):
    """Replace the learner's file by a newer one if it still holds `mine`, and say whether that was done."""
    if own.is_symlink():
        return False
    try:
        with finished_beside(own, content) as finished:
            if own.read_bytes() != mine:
                return False
            os.replace(finished, own)
    except OSError:  # she works on with the copy that she has
        return False
    return True


def read_notebook(path):
    """Return the bytes of a notebook, or None if there is none that can be opened."""
    if not path.is_file():
        return None
    try:
        content = path.read_bytes()
        notebook = json.loads(content.decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(notebook, dict) and isinstance(notebook.get("cells"), list) else None


def version_of(content):
    """Return what tells one version of a notebook from another."""
    return hashlib.sha256(content).hexdigest()


def read_record(learner):
    """Return {name: version of the original that was last copied}, empty without a good record."""
    try:
        record = json.loads((learner / RECORD).read_bytes().decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def write_record(learner, record):
    """Keep what was copied. Where that can't be done, an update is noticed less exactly, and that is all."""
    if record == read_record(learner):
        return
    target = learner / RECORD
    text = json.dumps(record, indent=1, sort_keys=True) + "\n"
    with contextlib.suppress(OSError), finished_beside(target, text.encode("utf-8")) as finished:
        os.replace(finished, target)
