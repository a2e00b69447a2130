"""The reference has every public name, once, and is as its script writes it."""

import re

import pytest
from docs.figures.reference import PAGE, SECTIONS, page, section_of, target

import plrvo

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
