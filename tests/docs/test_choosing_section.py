"""The guide to choosing noise begins with what the map of the studies found."""

import pytest
from docs.figures import choosing
from docs.figures.entry_pages import DOCS, STUDIES


def test_the_guide_begins_with_what_the_script_writes() -> None:
    rows, text = choosing.measured(), choosing.PAGE.read_text(encoding="utf-8")
    assert text == choosing.page(rows)
    assert choosing.section(rows) in text
    assert choosing.table(rows) in (DOCS / STUDIES).read_text(encoding="utf-8")


def test_every_place_where_a_noise_wins_is_in_the_table() -> None:
    rows = choosing.measured()
    lines = choosing.table(rows).splitlines()[2:]
    assert len(lines) == len({row["parameters"]["axis"] for row in rows})
    for place, kind in enumerate(choosing.NOISES):
        named = [cell for line in lines if (cell := line.split(" | ")[2 + place]) != "none"]
        assert sum(cell.count(",") + 1 for cell in named) == len(choosing.won(rows, kind))


def test_an_order_that_changes_twice_has_no_threshold() -> None:
    def row(at: int, error: float) -> dict[str, object]:
        return {"parameters": {"at": at}, "measured": {"laplace_error": error, "gamma_error": error}}

    assert choosing.threshold([row(1, 0.5), row(8, 0.9), row(16, 1.1)]) == ("8", "16")
    for errors in ((0.5, 1.1, 0.9), (1.1, 1.2), (0.5, 0.6)):
        with pytest.raises(ValueError, match="no single place"):
            choosing.threshold([row(at + 1, error) for at, error in enumerate(errors)])
