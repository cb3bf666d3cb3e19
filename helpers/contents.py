"""How the course's server saves and opens notebooks: panels are kept as pictures, and live while they can.

A panel's output holds a view, which only its own kernel can fill, and the picture and sentence that it last
showed. A page that finds a view shows nothing else, not even when the kernel is gone. So a saved notebook
holds the picture alone, as every reader of the file can show it, and the view is put back when the notebook
is opened while that kernel runs. Named in helpers/jupyter_config.
"""

from collections.abc import Collection, Iterator
from typing import Any

from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager

VIEW = "application/vnd.jupyter.widget-view+json"
ASIDE = "panel"  # the name of the view in an output's metadata


class Contents(AsyncLargeFileManager):
    """Jupyter's own manager of files, but for the views of panels."""

    async def save(self, model: dict[str, Any], path: str = "") -> dict[str, Any]:
        """Save a file; of a notebook's panels, their pictures."""
        if model.get("type") == "notebook" and model.get("content"):
            lay_aside(model["content"])
        return await super().save(model, path)

    async def get(self, path: str, *args: Any, **options: Any) -> dict[str, Any]:
        """Return a file; in a notebook, the panels whose kernel runs are alive again."""
        model = await super().get(path, *args, **options)
        if model["type"] == "notebook" and model.get("content"):
            lay_aside(model["content"])  # a file that another server saved has its views still
            put_back(model["content"], self.running())
        return model

    def running(self) -> set[int]:
        """Return the processes of all kernels that run."""
        kernels = self.parent.kernel_manager
        found = (kernels.get_kernel(name).provisioner for name in kernels.list_kernel_ids())
        return {getattr(process, "pid", None) for process in found} - {None}


def lay_aside(notebook: dict[str, Any]) -> None:
    """Move the view of every output that has a picture, too, from its data to its metadata, in place."""
    for output in _outputs(notebook):
        if VIEW in output["data"] and "image/png" in output["data"]:
            processes = output["metadata"].pop(VIEW, {}).get("processes", [])
            output["metadata"][ASIDE] = {"view": output["data"].pop(VIEW), "processes": processes}


def put_back(notebook: dict[str, Any], running: Collection[int]) -> None:
    """Give every output whose view was laid aside its view again if its process runs, in place."""
    for output in _outputs(notebook):
        aside = output["metadata"].pop(ASIDE, None)
        if aside and set(aside["processes"]) & set(running):
            output["data"][VIEW] = aside["view"]
            output["metadata"][VIEW] = {"processes": aside["processes"]}


def _outputs(notebook: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for cell in notebook.get("cells", []):
        for output in cell.get("outputs", []):
            if "data" in output and "metadata" in output:
                yield output
