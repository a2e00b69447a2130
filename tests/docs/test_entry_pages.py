"""The pages about the paper and the studies beside it are made from the result files."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from docs.figures.entry_pages import DOCS, IMAGES, OVERVIEW, RESULTS, image_of, page_of, pages
from docs.figures.entry_section import Reproduced

from plrvo.paper.catalog import ENTRIES, find
from plrvo.paper.document import sealed
from plrvo.paper.drawing import tells
from plrvo.paper.entry import Panel, Scale

EVERYTHING = [Reproduced.read(entry, RESULTS) for entry in ENTRIES]


@pytest.mark.parametrize("name", pages())
def test_a_page_is_made_from_the_result_files(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == pages()[name]


def test_every_entry_has_its_section_and_its_line() -> None:
    written = pages()
    for each in EVERYTHING:
        assert f"{{ #{each.entry.name} }}" in written[page_of(each)]
        assert f"plrvo reproduce {each.entry.name}" in written[page_of(each)]
        assert f"#{each.entry.name}" in written[OVERVIEW]


def test_every_result_is_of_an_entry() -> None:
    names = {entry.name for entry in ENTRIES}
    assert {path.parent.name for path in RESULTS.glob("*/reproduction.json")} <= names


def test_every_finished_result_has_a_small_picture_or_says_why_not() -> None:
    flat = [each for each in EVERYTHING if each.finished and not each.drawn]
    assert all("No picture: it would say no more" in each.section(image_of(each)) for each in flat)
    pictures = [DOCS / image_of(each) for each in EVERYTHING if each.drawn]
    pictures += [path.with_stem(f"{path.stem}-dark") for path in pictures]
    assert all(path.is_file() and path.stat().st_size < 80_000 for path in pictures)
    assert set(IMAGES.glob("*")) <= set(pictures)


def written(folder: Path, **changed: object) -> Path:
    """Results with one made-up row of the table of CNN-MNIST."""
    row = {
        "key": "a",
        "label": "epsilon 0.5",
        "parameters": {},
        "printed": {"gaussian": 91.44, "gamma": None},
        "measured": {"gaussian": 92.5, "gamma": 88.77},
        "epsilon": {"printed": 0.5, "published": 0.4, "certified": 0.70001, "lower": 0.69999},
        "flags": {"refuted": "an attack reaches more"},
        "details": {},
    }
    content = {"name": "table-cnn-mnist", "scale": "quick", "status": "finished", "stand_in": "one seed"}
    content |= {"columns": ["gaussian", "gamma"], "rows": [row], "findings": ["It is so."], **changed}
    (folder / "table-cnn-mnist").mkdir()
    (folder / "table-cnn-mnist" / "reproduction.json").write_text(json.dumps(sealed(content)))
    return folder


def test_numbers_are_shown_with_what_the_paper_prints_and_rounded_to_the_safe_side(tmp_path: Path) -> None:
    page = pages(written(tmp_path))
    images = page["paper-vision.md"]
    assert "| epsilon 0.5 ⚑ | 0.5 | 0.4 | 0.7001 | 0.6999 | 92.5 (91.44) | 88.77 |" in images
    assert "- ⚑ epsilon 0.5: an attack reaches more." in images
    assert "images/paper/table-cnn-mnist.png" in images
    assert "It is so. | quick, 1 row |" in page[OVERVIEW]
    assert "an epsilon is printed in 1 row: 1 with a flag (⚑), and in 1 an attack" in page[OVERVIEW]


def test_an_unfinished_result_says_so_and_has_no_picture(tmp_path: Path) -> None:
    page = pages(written(tmp_path, status="unfinished", findings=[]))
    assert "**Unfinished.** Rows so far: 1." in page["paper-vision.md"]
    assert "table-cnn-mnist.png" not in page["paper-vision.md"]
    assert "| - | quick, 1 row, unfinished |" in page[OVERVIEW]


def test_a_smoke_result_is_no_result(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="scale quick or full"):
        Reproduced.read(find("table-cnn-mnist"), written(tmp_path, scale=Scale.smoke.value))


def test_a_picture_that_would_be_flat_is_a_sentence() -> None:
    def rows(*audited: float) -> list[dict[str, object]]:
        return [{"measured": {"audited": value, "claimed": 8.0}, "printed": {}, "parameters": {}} for value in audited]

    panel = Panel("claimed", ("audited",), "certified epsilon", "audited epsilon")
    assert tells(panel, rows(0.0, 0.1, 0.2))
    assert not tells(panel, rows(0.0, 0.1))  # a sentence
    assert not tells(panel, rows(0.0, 0.0, 0.0))
    assert not tells(replace(panel, x="target"), rows(0.0, 0.1, 0.2))  # which have no place on it
    diagonal = replace(panel, diagonal=True)
    assert tells(diagonal, rows(0.0, 1.0, 2.0))
    assert not tells(diagonal, rows(0.0, 0.05, 0.1))
