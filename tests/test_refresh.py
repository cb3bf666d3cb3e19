"""`make refresh` stores what a reader sees, and nothing else."""

import os
import sys

import nbformat
import pytest
from nbconvert.exporters import ScriptExporter
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from refresh import KEEP_TAG, NOTEBOOKS, WIDGET_VIEW, clean_outputs, main, output_text


def code(source, *tags, **parts):
    metadata = {"tags": list(tags)} if tags else {}
    return new_code_cell(source, metadata=metadata | parts.pop("metadata", {}), **parts)


def write(folder, *cells, name="a.ipynb", **metadata):
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
    path = folder / name
    nbformat.write(new_notebook(cells=list(cells), metadata=metadata), path)
    return path


def refresh(path):
    """Refresh one file and return its cells."""
    assert main([path.name], folder=path.parent) == 0
    return nbformat.read(path, as_version=4)


def test_the_second_run_leaves_the_file_as_it_is(tmp_path, capsys):
    path = write(
        tmp_path,
        new_markdown_cell("# Größe α"),
        code("print('α')\nprint('two')"),
        code("import matplotlib.pyplot as plt\nplt.figure(figsize=(1, 1))\nplt.plot([1, 2])\nplt.show()"),
        code(""),
        code("6 * 7"),
    )
    notebook = refresh(path)
    first = path.read_bytes()
    modified = path.stat().st_mtime_ns
    refresh(path)
    assert path.read_bytes() == first
    assert path.stat().st_mtime_ns == modified
    assert capsys.readouterr().out.split() == ["a.ipynb:", "changed", "a.ipynb:", "unchanged"]

    assert [cell.id for cell in notebook.cells] == [f"cell-{number}" for number in range(5)]
    assert [cell.get("execution_count") for cell in notebook.cells] == [None, 1, 2, None, 3]
    assert notebook.cells[1].outputs[0].text == "α\ntwo\n"
    assert "image/png" in notebook.cells[2].outputs[0].data
    assert notebook.cells[4].outputs[0].execution_count == 3
    assert "α".encode() in first
    assert first.startswith(b'{\n "cells"')
    assert first.endswith(b"}\n")
    assert not first.endswith(b"\n\n")
    assert os.listdir(tmp_path) == ["a.ipynb"]


def test_widgets_leave_only_their_text(tmp_path):
    path = write(
        tmp_path,
        code("import ipywidgets\nslider = ipywidgets.IntSlider()\nslider"),
        widgets={"application/vnd.jupyter.widget-state+json": {"state": {}}},
    )
    notebook = refresh(path)
    assert list(notebook.cells[0].outputs[0].data) == ["text/plain"]
    assert "widget" not in path.read_text(encoding="utf-8").replace("ipywidgets", "")


def test_metadata_is_the_same_on_every_machine(tmp_path):
    path = write(
        tmp_path,
        code(
            "1",
            metadata={"execution": {"iopub.status.busy": "2020-01-01"}, "ExecuteTime": {"end_time": "now"}},
        ),
        new_markdown_cell("text", metadata={"execution": {}}),
        kernelspec={"name": "mine", "display_name": "Mine", "language": "python"},
        language_info={"name": "python", "version": "3.99"},
        title="kept nowhere",
    )
    notebook = refresh(path)
    assert [cell.metadata for cell in notebook.cells] == [{}, {}]
    assert notebook.metadata == {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
        "language_info": {"name": "python", "file_extension": ".py", "mimetype": "text/x-python"},
    }


def test_tagged_cells_keep_their_stored_output(tmp_path):
    path = write(
        tmp_path,
        code(
            "import random\nrandom.random()",
            KEEP_TAG,
            execution_count=9,
            outputs=[new_output("execute_result", {"text/plain": "stored"}, execution_count=9)],
        ),
        code("print('now')", KEEP_TAG),
        code("print('now')", outputs=[new_output("stream", text="stale\n")]),
    )
    kept, without_stored, untagged = refresh(path).cells
    assert kept.outputs[0].data == {"text/plain": "stored"}
    assert kept.execution_count == kept.outputs[0].execution_count == 1
    assert without_stored.outputs[0].text == "now\n"
    assert untagged.outputs[0].text == "now\n"


def test_what_was_printed_in_pieces_is_joined():
    pieces = [
        new_output("stream", name="stdout", text="a\n"),
        new_output("stream", name="stdout", text="b\n"),
        new_output("stream", name="stderr", text="c\n"),
        new_output("display_data", {WIDGET_VIEW: {"model_id": "1"}}),
        new_output("stream", name="stderr", text="d\n"),
        new_output("display_data", {"text/plain": "e", WIDGET_VIEW: {"model_id": "1"}}),
        new_output("stream", name="stderr", text="f\n"),
    ]
    joined = clean_outputs(pieces)
    assert [output.get("text") or output.data for output in joined] == [
        "a\nb\n",
        "c\nd\n",
        {"text/plain": "e"},
        "f\n",
    ]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("raise ValueError('on purpose')", "ValueError: on purpose"),
        ("import os, signal\nos._exit(1)", "died"),
        ("import sys\nprint(sys.prefix + '/x')", "names the folder"),
    ],
    ids=["error", "dead kernel", "path of the machine"],
)
def test_a_failure_names_notebook_and_cell_and_changes_nothing(tmp_path, capsys, source, message):
    path = write(tmp_path, code("print('fine')"), code(source))
    later = write(tmp_path, code("1 + 1"), name="b.ipynb")
    before = path.read_bytes(), later.read_bytes()
    assert main([], folder=tmp_path) == 1
    assert (path.read_bytes(), later.read_bytes()) == before
    printed = capsys.readouterr().err.lower()
    assert "a.ipynb, cell 2 (id cell-1)" in printed
    assert message.lower() in printed
    assert sorted(os.listdir(tmp_path)) == ["a.ipynb", "b.ipynb"]


def test_a_picture_is_not_searched_for_paths():
    picture = new_output(
        "display_data", {"text/html": f'<img alt="x" src="data:image/png;base64,{sys.prefix}/">'}
    )
    assert sys.prefix not in output_text(picture)
    assert sys.prefix in output_text(new_output("display_data", {"text/html": f"<p>{sys.prefix}/</p>"}))


def test_the_names_choose_and_a_wrong_one_is_refused(tmp_path, capsys):
    path = write(tmp_path, code("1 + 1"))
    other = write(tmp_path, code("1 + 1"), name="b.ipynb")
    before = other.read_bytes()
    refresh(path)
    assert other.read_bytes() == before
    assert main(["c.ipynb"], folder=tmp_path) == 1
    assert "no notebook c.ipynb" in capsys.readouterr().err


def test_cells_run_in_the_folder_of_their_notebook(tmp_path):
    (tmp_path / "beside.txt").write_text("found")
    path = write(tmp_path, code("print(open('beside.txt').read())"))
    assert refresh(path).cells[0].outputs[0].text == "found\n"


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_nbconvert_makes_a_script_that_python_runs(path):
    notebook = nbformat.read(path, as_version=4)
    script, resources = ScriptExporter().from_notebook_node(notebook)
    assert resources["output_extension"] == ".py"
    compile(script.replace("get_ipython()", "None"), path.stem, "exec")
