"""The reference has every public name, once, and is as its script writes it."""

import inspect
import re
from enum import Enum
from pathlib import Path

import pytest
from docs.figures.reference import PAGE, SECTIONS, page, section_of, target

import plrvo

ROOT = Path(__file__).parents[2]
TEXT = PAGE.read_text(encoding="utf-8")


def test_the_page_is_as_its_script_writes_it() -> None:
    assert page() == TEXT


@pytest.mark.parametrize("name", [f"plrvo.{name}" for name in plrvo.__all__])
def test_every_public_name_has_one_line_and_one_entry(name: str) -> None:
    assert len(re.findall(rf"^- `{re.escape(name)}`: \S", TEXT, re.MULTILINE)) == 1
    assert len(re.findall(rf"^::: {re.escape(target(name))}$", TEXT, re.MULTILINE)) == 1


def test_nothing_stands_twice() -> None:
    entries = re.findall(r"^::: (\S+)$", TEXT, re.MULTILINE)
    assert len(entries) == len(set(entries)) == sum(len(section.names) for section in SECTIONS)


def test_a_name_without_a_section_is_not_left_out_silently() -> None:
    with pytest.raises(LookupError, match="no section"):
        section_of("plrvo.files.read_json")


RESULTS = {"Epsilon", "Design", "InvalidArgument"}  # made by plrvo, and not by its users


@pytest.fixture(scope="module")
def package():
    griffe = pytest.importorskip("griffe")
    from docs.extensions.parameters import Parameters

    extensions = griffe.load_extensions(Parameters())
    return griffe.load("plrvo", search_paths=[ROOT / "src"], extensions=extensions, docstring_parser="google")


def sections(package, name: str) -> dict[str, set[str]]:
    """The titles of the docstring as the reference shows it, and the names below each."""
    shown = getattr(plrvo, name)
    found = package[f"{shown.__module__.removeprefix('plrvo.')}.{shown.__qualname__}"]
    titles = {}
    for section in found.docstring.parsed:
        if section.kind.value != "text":
            titles[section.kind.value] = {getattr(each, "name", "") for each in section.value}
    return titles


@pytest.mark.parametrize("name", plrvo.__all__)
def test_every_public_name_says_what_goes_in_and_comes_out_and_what_is_refused(package, name: str) -> None:
    shown, told = getattr(plrvo, name), sections(package, name)
    if inspect.isabstract(shown) or (inspect.isclass(shown) and issubclass(shown, Enum)):
        methods = [part for key, part in vars(shown).items() if not key.startswith("_") and callable(part)]
        assert all(inspect.getdoc(part) for part in methods)
        return
    described = told.get("parameters", set()) | told.get("attributes", set())
    inner = package[f"{shown.__module__.removeprefix('plrvo.')}.{shown.__qualname__}"]
    asked = {p.name for p in inner.parameters} - {"self"}
    assert asked
    assert asked <= described, asked - described
    assert inspect.isclass(shown) or "returns" in told
    assert "raises" in told or name in RESULTS
