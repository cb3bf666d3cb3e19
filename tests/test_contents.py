"""What the course's server keeps of panels, and when they are live again."""

import copy

import pytest

from helpers.contents import ASIDE, VIEW, lay_aside, put_back
from helpers.live import VIEW as VIEW_OF_A_PANEL


def output(processes=(7, 3), picture="iVBO"):
    data = {VIEW: {"model_id": "abc", "version_major": 2}, "text/plain": "Now base = 3."}
    data |= {"image/png": picture} if picture else {}
    return {
        "output_type": "execute_result",
        "data": data,
        "metadata": {VIEW: {"processes": list(processes)}, "image/png": {"width": 1000}},
    }


def notebook(*outputs):
    return {"cells": [{"cell_type": "markdown"}, {"cell_type": "code", "outputs": list(outputs)}]}


def first(book):
    return book["cells"][1]["outputs"][0]


def test_panels_and_the_server_mean_the_same_view():
    assert VIEW == VIEW_OF_A_PANEL


def test_a_saved_panel_is_a_picture_and_a_sentence():
    book = notebook(output())
    lay_aside(book)
    assert first(book)["data"] == {"text/plain": "Now base = 3.", "image/png": "iVBO"}
    assert first(book)["metadata"]["image/png"] == {"width": 1000}
    assert first(book)["metadata"][ASIDE] == {"view": output()["data"][VIEW], "processes": [7, 3]}


@pytest.mark.parametrize("running", [{7}, {3, 9}])
def test_a_panel_whose_kernel_runs_is_as_it_was(running):
    book = notebook(output())
    before = copy.deepcopy(book)
    lay_aside(book)
    lay_aside(book)  # as when a file is saved and then opened
    put_back(book, running)
    assert book == before


@pytest.mark.parametrize("running", [set(), {8}])
def test_a_panel_whose_kernel_is_gone_stays_a_picture(running):
    book = notebook(output())
    lay_aside(book)
    put_back(book, running)
    assert VIEW not in first(book)["data"]
    assert ASIDE not in first(book)["metadata"]


def test_a_view_without_a_picture_is_left_alone():
    """A progress bar, say, or a widget of the learner's own: there is nothing to show in its place."""
    book = notebook(output(picture=None))
    before = copy.deepcopy(book)
    lay_aside(book)
    put_back(book, {7})
    assert book == before


def test_a_view_that_another_server_saved_is_laid_aside_too():
    old = output()
    del old["metadata"][VIEW]
    book = notebook(old)
    lay_aside(book)
    put_back(book, {7})
    assert VIEW not in first(book)["data"]


def test_other_outputs_are_left_alone():
    book = notebook({"output_type": "stream", "name": "stdout", "text": "hello"})
    before = copy.deepcopy(book)
    lay_aside(book)
    put_back(book, {7})
    assert book == before
