"""The front page says what the committed runs give."""

from docs.figures import accuracy


def test_the_front_page_is_what_the_script_writes() -> None:
    rows = accuracy.measured()
    assert rows
    assert accuracy.page(rows) == accuracy.PAGE.read_text(encoding="utf-8")
    assert accuracy.section(rows) in accuracy.PAGE.read_text(encoding="utf-8")


def test_every_published_result_has_a_mark() -> None:
    assert len({point.source for point in accuracy.PUBLISHED}) <= len(accuracy.MARKS)
    assert {point.task for point in accuracy.PUBLISHED} <= set(accuracy.NAMES)
