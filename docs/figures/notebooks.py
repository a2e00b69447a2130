"""Executes the notebooks of examples/notebooks, and keeps what they show: `python -m docs.figures.notebooks`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "examples" / "notebooks"
_INLINE = "module://matplotlib_inline.backend_inline"  # pictures into the notebook, whatever the caller has


def executed(path: Path) -> Any:
    """The notebook with its outputs; an error in a cell is raised."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(path.parent)}})
    client.execute(env={**os.environ, "MPLBACKEND": _INLINE})
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times of day
    return notebook


if __name__ == "__main__":
    import nbformat

    for notebook in sorted(FOLDER.glob("*.ipynb")):
        nbformat.write(executed(notebook), notebook)
