"""`python -m helpers lab` starts the course the same way on every system; `lecture 04` shows a notebook as
slides, `slides` writes all of them for a browser alone, `fresh` puts clean copies beside the learner's own,
and `model` fetches the language model that helpers/language_model.py runs.

The learner works in `my/`, on copies of the notebooks that the course ships in `notebooks/`. So running the
course never changes what was shipped, and an update never meets a learner's edits.
"""

import argparse
import importlib.util
import ipaddress
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from helpers.copies import CannotStart, copy_notebooks, find_notebook, fresh_copy, notebooks_in

ROOT = Path(__file__).resolve().parent.parent
# Loopback only, kernels that no other user can listen to, no list of extensions from the internet, and no
# pop-up that asks about news (no option of the command line turns that off). Here and not on the command
# line, where Jupyter takes a setting only once, so that the learner can still give another one there.
JUPYTER_CONFIG = Path(__file__).resolve().parent / "jupyter_config"
# The deck is on from the start, its slides have large type and the whole window.
LECTURE_SETTINGS = Path(__file__).resolve().parent / "lecture" / "settings"
FIRST_NOTEBOOK = "00_start_here.ipynb"
EXTRA = "in your own environment, pip install -e '.[lecture]'"


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
    environment.setdefault("PYTHONUTF8", "1")  # names of folders are in UTF-8, whatever the terminal's locale
    # Kernels find the helpers beside these notebooks.
    put_first(environment, "PYTHONPATH", ROOT)
    put_first(environment, "JUPYTER_CONFIG_PATH", JUPYTER_CONFIG)
    return environment


def lecture_environment(folder):
    """Return the environment for lecture mode, which has settings of its own: it always starts alike."""
    settings = folder / "settings"
    try:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(LECTURE_SETTINGS, settings, copy_function=shutil.copyfile, dirs_exist_ok=True)
    except OSError as error:  # shutil's own kind of it has a list instead of a reason
        raise CannotStart(
            f"Lecture mode could not write to {folder} ({error.strerror or 'no reason given'})."
        ) from None
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
    """Become another program. So whatever ends this one, ends that: Ctrl-C, a closed terminal, a kill."""
    if os.name == "nt":
        return wait_for(command, environment)
    sys.stdout.flush()
    os.execve(command[0], command, environment)


def wait_for(command, environment):
    """Run a program to its end and return its exit code; Ctrl-C is left to it."""
    process = subprocess.Popen(command, env=environment)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue  # the terminal sent it to Jupyter as well, which asks whether to stop


def lab(args, jupyter_args):
    """Copy the notebooks that are missing, then start JupyterLab on the learner's copies."""
    learner, _ = ready_to_start()
    warn_of_network(jupyter_args)
    return run(lab_command(learner, jupyter_args), lab_environment())


def ready_to_start():
    """Copy the notebooks that the learner's folder lacks; return the folder and what copy_notebooks found."""
    need(
        "jupyterlab",
        "JupyterLab is not installed for this Python: set the course up first, as its README says.",
    )
    try:
        str(ROOT).encode()
    except UnicodeEncodeError:
        raise CannotStart(
            f"Jupyter needs names in UTF-8, and {ROOT} is not: give the folder another name."
        ) from None
    learner = ROOT / "my"
    found = copy_notebooks(ROOT / "notebooks", learner)
    need_jupyters_folders()
    for sentence in sentences_about(found, learner):
        print(sentence, flush=True)
    return learner, found


def sentences_about(found, learner):
    """Return what a learner should know about her copies, one sentence a line."""
    if found["copied"]:
        count = "1 notebook" if len(found["copied"]) == 1 else f"{len(found['copied'])} notebooks"
        sentences = [f"Copied {count} to {learner}: work there, what you change is never overwritten."]
    else:
        sentences = [f"Your copies of the notebooks are in {learner}; none was missing."]
    if found["renewed"]:
        them = "it" if len(found["renewed"]) == 1 else "them"
        sentences.append(f"Brought up to date, as you had not changed {them}: {listed(found['renewed'])}.")
    if newer := sorted(found["newer"] + found["unknown"]):
        one = len(newer) == 1
        have = "may have" if found["unknown"] else "has" if one else "have"
        what = "a newer version" if one else "newer versions"
        sentences.append(
            f"{listed(newer)} {have} {what} in the course: make fresh, or python -m helpers fresh, "
            f"puts {'it' if one else 'them'} beside yours."
        )
    return sentences + [broken_copy(learner / name) for name in found["broken"]]


def listed(names):
    """Return names as they stand in a sentence."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def broken_copy(path):
    """Return what to say of something in a notebook's place that can't be opened."""
    return (
        f"{path} can't be opened as a notebook: give it another name and start again, "
        "then there is a clean copy in its place."
    )


def need_jupyters_folders():
    """Raise CannotStart unless Jupyter can write where it must; it would say so in 170 lines."""
    from jupyter_core import paths

    folder = "your home folder"
    try:
        for find in (paths.jupyter_config_dir, paths.jupyter_data_dir, paths.jupyter_runtime_dir):
            folder = find()
            Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home folder
        way_out = "" if os.name == "nt" else """; with HOME="$PWD/my" make lab, it writes into my/"""
        reason = getattr(error, "strerror", None) or error
        raise CannotStart(f"Jupyter can't write to {folder} ({reason}){way_out}.") from None


def warn_of_network(jupyter_args):
    """Say what it means when the arguments open the server to more than this computer."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--ip", "--ServerApp.ip", nargs="?", default="localhost")
    ip = parser.parse_known_args(jupyter_args)[0].ip
    try:
        alone = ip == "localhost" or ipaddress.ip_address(ip or "").is_loopback
    except ValueError:  # a name, or all addresses
        alone = False
    if not alone:
        print(
            "This opens the server to the network: whoever learns its token can run programs as you, and "
            "without a certificate (--certfile) the token can be overheard.",
            flush=True,
        )


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
    learner, found = ready_to_start()
    own = learner / notebook.name
    if notebook.name in found["broken"]:
        return 1  # that was said
    if b'"slide_type"' not in own.read_bytes():
        print(
            f"Your copy of {notebook.stem} was made before the course had slides, and is one long slide: "
            "rename it, and start again for a new one.",
            flush=True,
        )
    warn_of_network(jupyter_args)
    environment = lecture_environment(learner / ".lecture" / notebook.stem)
    print(
        "The notebook opens as slides. Ctrl+Shift+Enter runs all of it, so that the sliders work, and comes "
        "back to the first slide. Space goes on, Shift+Space back; F4 ends the show, and goes on with it. "
        "Ctrl+C here ends all.",
        flush=True,
    )
    return run(lab_command(learner, jupyter_args, notebook.name), environment)


def slides(args, _):
    """Write all notebooks as static slides."""
    need("sphinx_revealjs", f"Slides are an extra: make slides installs what they need, or {EXTRA}.")
    from helpers.slides import export

    folder = ROOT / "build" / "slides"
    try:
        index = export(notebooks_in(ROOT / "notebooks"), folder)
    except OSError as error:
        raise CannotStart(
            f"The slides could not be written to {folder} ({error.strerror or error})."
        ) from None
    print(f"Open {index} in a browser: it needs no network, and the folder can be given away.")
    return 0


def fresh(args, _):
    """Copy notebooks anew; the learner's own stay as they are."""
    source, learner = ROOT / "notebooks", ROOT / "my"
    if args.notebook:
        originals = [find_notebook(source, wanted) for wanted in args.notebook]
    else:
        found = copy_notebooks(source, learner)
        newer = found["newer"] + found["unknown"]
        originals = [path for path in notebooks_in(source) if path.name in newer]
        if not originals:
            print("No notebook has a newer version than your copy; fresh 02 would copy 02 all the same.")
    for original in originals:
        print(f"A clean copy is in {fresh_copy(original, learner)}; your own notebook is as it was.")
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
        help="put clean copies of notebooks beside yours",
        description="Put clean copies of notebooks into my/, beside yours, which stay as they are.",
    )
    command.add_argument(
        "notebook", nargs="*", help="its number, such as 02 (default: all with a newer version than yours)"
    )
    command.set_defaults(run=fresh, passes_on=False)
    command = commands.add_parser(
        "model",
        allow_abbrev=False,
        help="fetch a published language model",
        description="Fetch the model that helpers/language_model.py runs (93 MB), unless it is there.",
    )
    command.set_defaults(run=model, passes_on=False)
    return parser


def main(argv=None):
    """Run one command and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a folder's name can have letters that the terminal lacks
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
