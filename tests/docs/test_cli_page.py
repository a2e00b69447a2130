"""The page of the command line is as its script writes it."""

from docs.figures.cli import PAGE, page


def test_the_page_is_as_its_script_writes_it() -> None:
    assert page() == PAGE.read_text(encoding="utf-8"), "python -m docs.figures.cli writes it anew"
