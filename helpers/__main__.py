"""`python -m helpers lab` starts the course the same way on every system; `lecture 04` shows a notebook as
slides, `slides` writes all of them for a browser alone, `fresh 02` copies one anew, and `model` fetches the
language model that notebook 08 opens.

The learner works in `my/`, on copies of the notebooks that the course ships in `notebooks/`. So running the
course never changes what was shipped, and an update never meets a learner's edits.
"""

import argparse
import importlib.util
import itertools
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Loopback only, no list of extensions from the internet, and no pop-up that asks about news (no option of the
# command line turns that off). Here and not on the command line, where Jupyter takes a setting only once, so
# that the learner can still give another one there.
JUPYTER_CONFIG = Path(__file__).resolve().parent / "jupyter_config"
# The deck is on from the start, its slides have large type and the whole window.
LECTURE_SETTINGS = Path(__file__).resolve().parent / "lecture" / "settings"
FIRST_NOTEBOOK = "00_start_here.ipynb"
EXTRA = "in your own environment, pip install -e '.[lecture]'"


class CannotStart(Exception):
    """Something the learner can put right; its text is one plain sentence."""


def create_file(target, content):
    """Write a new file whole or not at all, and say whether it was written.

    False means that something of that name, even a folder or a link that leads nowhere, was there: it is
    never replaced, nor when it appears while this runs.
    """
    if os.path.lexists(target):
        return False
    # Jupyter does not list hidden files, so nobody opens the half-written one.
    partial = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with open(partial, "xb") as file:
            file.write(content)
        publish(partial, target)
    except FileExistsError:
        return False
    finally:
        partial.unlink(missing_ok=True)
    return True


def publish(partial, target):
    """Give a finished file its name; FileExistsError when the name is taken."""
    if os.name == "nt":
        os.rename(partial, target)  # refuses to replace, unlike on other systems
        return
    try:
        os.link(partial, target)
    except FileExistsError:
        raise
    except OSError:
        # Some network and memory-stick file systems have no links. There the name is taken first, which is
        # as safe for a file that exists, and a copy that fails half-way is removed.
        with open(target, "xb") as file:
            try:
                file.write(partial.read_bytes())
                file.flush()
            except BaseException:
                target.unlink()
                raise


def copy_missing(source, learner):
    """Copy the notebooks that the learner's folder lacks, and return their names."""
    notebooks = sorted(source.glob("*.ipynb"))
    if not notebooks:
        raise CannotStart(
            f"There are no notebooks in {source}: start the course from a full checkout of its repository."
        )
    try:
        learner.mkdir(exist_ok=True)
        # The bytes alone are copied, so that a read-only original gives a copy that can be saved.
        return [path.name for path in notebooks if create_file(learner / path.name, path.read_bytes())]
    except OSError as error:
        raise CannotStart(
            f"The notebooks could not be copied to {learner} ({error.strerror or error})."
        ) from None


def find_notebook(source, wanted):
    """Return the notebook of this number, or of a name that begins so, such as "02" or "02_sinusoidal"."""
    notebooks = sorted(source.glob("*.ipynb"))
    number = wanted.zfill(2) if wanted.isdigit() else wanted
    found = [path for path in notebooks if number and path.name.startswith(number)]
    if len(found) != 1:
        names = ", ".join(path.stem for path in notebooks)
        raise CannotStart(f"Say which notebook, by its number, such as 01: {wanted!r} is none of {names}.")
    return found[0]


def fresh_copy(source, learner, wanted):
    """Put a clean copy of a notebook beside the learner's own, under a name that is free, and return it."""
    original = find_notebook(source, wanted)
    content = original.read_bytes()
    try:
        learner.mkdir(exist_ok=True)
        for number in itertools.count(1):
            target = learner / f"{original.stem}-fresh{'' if number == 1 else f'-{number}'}.ipynb"
            if create_file(target, content):
                return target
    except OSError as error:
        raise CannotStart(
            f"The notebook could not be copied to {learner} ({error.strerror or error})."
        ) from None


def lab_command(learner, jupyter_args, first=FIRST_NOTEBOOK):
    """Return the command line that starts JupyterLab in the learner's folder, with a notebook open."""
    command = [sys.executable, "-m", "jupyterlab", f"--ServerApp.root_dir={learner}"]
    if (learner / first).is_file():
        command.append(f"--LabApp.default_url=/lab/tree/{first}")
    # In a container one is often root, and Jupyter then wants to be told. Windows has no such user.
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")
    return [*command, *jupyter_args]


def lab_environment():
    """Return the environment for JupyterLab; the learner's own Jupyter settings are read but not written."""
    environment = dict(os.environ)
    # Kernels find the helpers beside these notebooks.
    put_first(environment, "PYTHONPATH", ROOT)
    put_first(environment, "JUPYTER_CONFIG_PATH", JUPYTER_CONFIG)
    return environment


def lecture_environment(folder):
    """Return the environment for lecture mode, which has settings of its own: it always starts alike."""
    settings = folder / "settings"
    shutil.copytree(LECTURE_SETTINGS, settings)
    environment = lab_environment()
    environment["JUPYTERLAB_SETTINGS_DIR"] = str(settings)
    environment["JUPYTERLAB_WORKSPACES_DIR"] = str(folder / "workspaces")
    environment.setdefault("COURSE_PIXEL_RATIO", "2")  # a projector shows every pixel
    return environment


def put_first(environment, name, folder):
    """Set a list of folders in an environment to this folder and then what was there."""
    others = environment.get(name)
    environment[name] = f"{folder}{os.pathsep}{others}" if others else str(folder)


def run(command, environment):
    """Run a program to its end and return its exit code; Ctrl-C and a request to stop are left to it."""
    process = subprocess.Popen(command, env=environment)
    previous = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                continue  # the terminal sent it to Jupyter as well, which asks whether to stop
    finally:
        signal.signal(signal.SIGTERM, previous)


def lab(args, jupyter_args):
    """Copy the notebooks that are missing, then start JupyterLab on the learner's copies."""
    learner = ready_to_start()
    return run(lab_command(learner, jupyter_args), lab_environment())


def ready_to_start():
    """Copy the notebooks that the learner's folder lacks, say so, and return the folder."""
    learner = ROOT / "my"
    need(
        "jupyterlab",
        "JupyterLab is not installed for this Python: set the course up first, as its README says.",
    )
    copied = copy_missing(ROOT / "notebooks", learner)
    if copied:
        count = "1 notebook" if len(copied) == 1 else f"{len(copied)} notebooks"
        print(f"Copied {count} to {learner}: work there, your copies are never overwritten.", flush=True)
    else:
        print(f"Your copies of the notebooks are in {learner}; none was missing.", flush=True)
    return learner


def need(module, problem):
    """Raise CannotStart with this sentence unless a module is installed."""
    if importlib.util.find_spec(module) is None:
        raise CannotStart(problem)


def lecture(args, jupyter_args):
    """Show the learner's copy of one notebook as slides with working sliders."""
    notebook = find_notebook(ROOT / "notebooks", args.notebook)
    need(
        "jupyterlab_deck",
        f"Lecture mode is an extra: make lecture NB={notebook.name[:2]} installs it, or {EXTRA}.",
    )
    learner = ready_to_start()
    own = learner / notebook.name
    if b'"slide_type"' not in own.read_bytes():
        print(
            f"Your copy of {notebook.stem} was made before the course had slides, and is one long slide: "
            "rename it, and start again for a new one.",
            flush=True,
        )
    print(
        "The notebook opens as slides. Ctrl+Shift+Enter runs all of it, so that the sliders work, and comes "
        "back to the first slide. Space goes on, Shift+Space back; F4 ends the show, and goes on with it. "
        "Ctrl+C here ends all.",
        flush=True,
    )
    with tempfile.TemporaryDirectory(prefix="course-lecture-") as folder:
        return run(lab_command(learner, jupyter_args, notebook.name), lecture_environment(Path(folder)))


def slides(args, _):
    """Write all notebooks as static slides."""
    need("sphinx_revealjs", f"Slides are an extra: make slides installs what they need, or {EXTRA}.")
    from helpers.slides import export

    index = export(sorted((ROOT / "notebooks").glob("*.ipynb")), ROOT / "build" / "slides")
    print(f"Open {index} in a browser: it needs no network, and the folder can be given away.")
    return 0


def fresh(args, _):
    """Copy one notebook anew; the learner's own stays as it is."""
    target = fresh_copy(ROOT / "notebooks", ROOT / "my", args.notebook)
    print(f"A clean copy is in {target}; your own notebook is as it was.")
    return 0


def model(args, _):
    """Fetch the language model of notebook 08."""
    from helpers import fetch_model

    try:
        fetch_model.fetch()
    except (fetch_model.CannotFetch, ValueError) as problem:
        raise CannotStart(str(problem)) from None
    return 0


def build_parser():
    """Return the parser; each command names the function that runs it, and whether it passes arguments on."""
    parser = argparse.ArgumentParser(prog="python -m helpers", allow_abbrev=False, description="The course.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser(
        "lab",
        allow_abbrev=False,
        usage="python -m helpers lab [JUPYTER ARGUMENTS]",
        help="start the course in JupyterLab",
        description="Start the course in JupyterLab. Other arguments, such as --no-browser or --port 8899, "
        "are passed on to it.",
    )
    command.set_defaults(run=lab, passes_on=True)
    command = commands.add_parser(
        "lecture",
        allow_abbrev=False,
        usage="python -m helpers lecture NOTEBOOK [JUPYTER ARGUMENTS]",
        help="show a notebook as live slides",
        description="Show your copy of a notebook as slides on which the sliders work. Other arguments are "
        "passed on to JupyterLab.",
    )
    command.add_argument("notebook", help="its number, such as 04")
    command.set_defaults(run=lecture, passes_on=True)
    command = commands.add_parser(
        "slides",
        allow_abbrev=False,
        help="write all notebooks as slides that need no kernel",
        description="Write all notebooks as slides into build/slides: web pages that open from a disk.",
    )
    command.set_defaults(run=slides, passes_on=False)
    command = commands.add_parser(
        "fresh",
        allow_abbrev=False,
        help="put a clean copy of a notebook beside yours",
        description="Put a clean copy of a notebook into my/, beside yours, which stays as it is.",
    )
    command.add_argument("notebook", help="its number, such as 02")
    command.set_defaults(run=fresh, passes_on=False)
    command = commands.add_parser(
        "model",
        allow_abbrev=False,
        help="fetch the language model of notebook 08",
        description="Fetch the language model that notebook 08 opens (93 MB), unless it is there.",
    )
    command.set_defaults(run=model, passes_on=False)
    return parser


def main(argv=None):
    """Run one command and return its exit code."""
    parser = build_parser()
    args, rest = parser.parse_known_args(argv)
    if rest and not args.passes_on:
        parser.error(f"unknown arguments: {' '.join(rest)}")
    try:
        return args.run(args, rest)
    except CannotStart as problem:
        print(problem, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
