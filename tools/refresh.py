"""Run the notebooks again and store their output: `make refresh`, with ARGS="02_sinusoidal.ipynb" that one.

A file stays the same byte for byte when nothing changed, so that a diff shows only what a reader would see.
"""

import argparse
import copy
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellControlSignal, CellExecutionError, DeadKernelError

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
# Output under this tag depends on the machine or on a live run: what is stored stays.
KEEP_TAG = "nbval-ignore-output"
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
TIMING_METADATA = ("execution", "ExecuteTime")
SECONDS_PER_CELL = 1800


class RefreshError(Exception):
    """A notebook that can't be stored; the text names the notebook and the cell."""


def execute(notebook, path):
    """Run all cells in a new kernel, as far as they go without an error."""
    client = NotebookClient(
        notebook,
        kernel_name="python3",
        timeout=SECONDS_PER_CELL,
        record_timing=False,
        resources={"metadata": {"path": str(path.parent)}},
    )
    with client.setup_kernel():
        for number, cell in enumerate(notebook.cells):
            try:
                client.execute_cell(cell, number)
            except (CellControlSignal, DeadKernelError) as error:
                # The whole traceback would hide the line that says what is wrong.
                failed = isinstance(error, CellExecutionError)
                reason = f"{error.ename}: {error.evalue}" if failed else str(error)
                raise RefreshError(f"{describe(path, cell, number)}: {reason}") from None


def describe(path, cell, number):
    """Name a cell so that it can be found."""
    return f"{path.name}, cell {number + 1} (id {cell.get('id')})"


def clean_outputs(outputs):
    """Drop what only means something to a running kernel, and join what was printed in several pieces."""
    cleaned = []
    for output in outputs:
        if "data" in output:
            output.data.pop(WIDGET_VIEW, None)
            if not output.data:
                continue
        previous = cleaned[-1] if cleaned else {}
        if output.output_type == "stream" and output.name == previous.get("name"):
            previous["text"] += output.text
        else:
            cleaned.append(output)
    return cleaned


def number_cells(cells):
    """Count the executed cells from 1, in their order."""
    executed = [cell for cell in cells if cell.get("execution_count")]
    for count, cell in enumerate(executed, start=1):
        cell.execution_count = count
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = count


def machine_paths():
    """Return the folders of this machine that no stored output may name."""
    folders = {NOTEBOOKS.parent, Path(sys.prefix), Path(sys.base_prefix), Path.home(), tempfile.gettempdir()}
    return sorted(str(folder).rstrip(os.sep) + os.sep for folder in folders if len(str(folder)) > 1)


def output_text(output):
    """Return all text of an output, without the pictures in it."""
    parts = [output.get("text", ""), *output.get("traceback", [])]
    for mime, content in output.get("data", {}).items():
        if mime.startswith("text/") or mime == "image/svg+xml":
            parts.append(re.sub(r"data:[^\"')\s]*", "", content))
    return "\n".join(parts)


def refresh_cells(notebook, path):
    """Run a notebook and leave in it exactly what is to be stored."""
    stored = {
        number: copy.deepcopy(cell.outputs)
        for number, cell in enumerate(notebook.cells)
        if cell.cell_type == "code" and cell.outputs and KEEP_TAG in cell.metadata.get("tags", [])
    }
    execute(notebook, path)
    for number, cell in enumerate(notebook.cells):
        for key in TIMING_METADATA:
            cell.metadata.pop(key, None)
        if cell.cell_type != "code":
            continue
        cell.outputs = clean_outputs(stored.get(number, cell.outputs))
        for folder in machine_paths():
            if any(folder in output_text(output) for output in cell.outputs):
                raise RefreshError(f"{describe(path, cell, number)}: its output names the folder {folder}")
    number_cells(notebook.cells)
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            # Of what a kernel says, the parts that no machine changes: nbconvert names a script by them.
            "language_info": {"name": "python", "file_extension": ".py", "mimetype": "text/x-python"},
        }
    )


def refresh(path):
    """Refresh one file and say whether it changed; an error leaves it as it was."""
    before = path.read_bytes()
    notebook = nbformat.reads(before.decode("utf-8"), as_version=4)
    if notebook.nbformat_minor < 5:
        notebook = nbformat.v4.upgrade(notebook)  # gives each cell its id
    refresh_cells(notebook, path)
    # nbformat writes indented by 1 and keeps letters beyond ASCII readable.
    after = nbformat.writes(notebook).rstrip("\n").encode("utf-8") + b"\n"
    if after == before:
        return False
    # A reader of the folder finds the old file or the new one, never a half.
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(after)
        shutil.copymode(path, name)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return True


def choose(names, folder):
    """Return the notebooks of these names, or all of them."""
    if not names:
        return sorted(folder.glob("*.ipynb"))
    paths = [folder / Path(name).name for name in names]
    for path in paths:
        if not path.is_file():
            raise RefreshError(f"There is no notebook {path.name} in {folder.name}/.")
    return paths


def main(argv=None, folder=NOTEBOOKS):
    """Refresh the chosen notebooks and return the exit code."""
    parser = argparse.ArgumentParser(description="Run notebooks again and store their output.")
    parser.add_argument("notebook", nargs="*", help="a file of notebooks/ (default: all)")
    args = parser.parse_args(argv)
    try:
        for path in choose(args.notebook, folder):
            print(f"{path.name}: ", end="", flush=True)
            print("changed" if refresh(path) else "unchanged", flush=True)
    except RefreshError as error:
        print(f"stopped\n{error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
