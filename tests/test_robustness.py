"""Notebooks used as people use them: run twice in one kernel, restarted in the middle, two at once."""

import asyncio
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
PATHS = sorted(NOTEBOOKS.glob("*.ipynb"))
SECONDS_PER_CELL = 600

pytestmark = pytest.mark.whole


def client_of(path):
    notebook = nbformat.read(path, as_version=4)
    return NotebookClient(
        notebook,
        kernel_name="python3",
        timeout=SECONDS_PER_CELL,
        resources={"metadata": {"path": str(NOTEBOOKS)}},
    )


def run(client, cells):
    """Run these cells; the client raises what a cell raises."""
    for number in cells:
        client.execute_cell(client.nb.cells[number], number)


def printed(client):
    """Return what each cell printed or showed in words, but for cells whose output may differ."""
    return [
        "".join(
            output["text"]
            if output.output_type == "stream"
            else str(output.get("data", {}).get("text/plain"))
            for output in cell.get("outputs", [])
        )
        for cell in client.nb.cells
        if "nbval-ignore-output" not in cell.metadata.get("tags", [])
    ]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("path", PATHS, ids=[path.stem for path in PATHS])
def test_twice_in_one_kernel(path):
    client = client_of(path)
    cells = range(len(client.nb.cells))
    with client.setup_kernel():
        run(client, cells)
        first = printed(client)
        run(client, cells)
    assert printed(client) == first


@pytest.mark.parametrize("name", ["02_sinusoidal", "05_relative_bias"])
def test_a_restart_in_the_middle_is_harmless(name):
    client = client_of(NOTEBOOKS / f"{name}.ipynb")
    count = len(client.nb.cells)
    stored = printed(client)
    with client.setup_kernel():
        run(client, range(count // 2))
    with client.setup_kernel():
        run(client, range(count))
    assert printed(client) == stored


def test_two_at_once_do_not_disturb_each_other():
    clients = [client_of(NOTEBOOKS / f"{name}.ipynb") for name in ("02_sinusoidal", "04_rope")]
    stored = [printed(client) for client in clients]

    async def run_both():
        await asyncio.gather(*(client.async_execute() for client in clients))

    asyncio.run(run_both())
    assert [printed(client) for client in clients] == stored
