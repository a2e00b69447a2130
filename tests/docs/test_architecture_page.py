"""The page and its pictures say what the code is."""

import pkgutil
import re
from pathlib import Path

import pytest
from docs.figures.architecture import IMAGES, PICTURES, ROOT, layers

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "src" / "plrvo"
FOLDERS = re.findall(r"^\| `(\w+)(/|\.py)` \| .* \| (.*)\|$", PAGE, re.MULTILINE)


def test_the_folders_of_the_page_are_the_layers_and_the_folders() -> None:
    named = [name for name, _, _ in FOLDERS]
    assert named == layers()
    there = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert {name for name, kind, _ in FOLDERS if kind == "/"} == there
    files = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__", "__main__"}
    assert {name for name, kind, _ in FOLDERS if kind == ".py"} == files


@pytest.mark.parametrize(("name", "modules"), [(name, modules) for name, kind, modules in FOLDERS if kind == "/"])
def test_the_modules_to_begin_with_exist(name: str, modules: str) -> None:
    begin = re.findall(r"`(\w+)`", modules)
    assert begin
    assert all((PACKAGE / name / f"{module}.py").exists() for module in begin)


def test_every_name_of_the_page_can_be_imported() -> None:
    names = re.findall(r"`(plrvo\.[\w.]+)`", PAGE)
    assert len(names) > 8
    for name in names:
        pkgutil.resolve_name(name)


def test_every_folder_that_the_page_names_exists() -> None:
    beside = re.findall(r"^\| ((?:`\w+/`(?:, )?)+) \| ", PAGE, re.MULTILINE)
    names = [name for row in beside for name in re.findall(r"`(\w+)/`", row)]
    assert {"tests", "results", "docs"} <= set(names)
    assert all((ROOT / name).is_dir() or (PACKAGE / name).is_dir() for name in names)


@pytest.mark.parametrize("name", PICTURES)
def test_the_pictures_are_as_their_script_draws_them(name: str) -> None:
    assert Path(IMAGES / name).read_text(encoding="utf-8") == PICTURES[name]()
