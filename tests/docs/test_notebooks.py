"""The notebooks run from top to bottom."""

import pytest
from docs.figures.notebooks import FOLDER, executed

NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def test_there_are_two() -> None:
    assert len(NOTEBOOKS) >= 2


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_something(path) -> None:
    cells = [cell for cell in executed(path).cells if cell.cell_type == "code"]
    assert any(output.output_type == "display_data" for cell in cells for output in cell.outputs)
    assert not any(output.output_type == "error" for cell in cells for output in cell.outputs)
