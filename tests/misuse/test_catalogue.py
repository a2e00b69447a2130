"""Every misuse of the catalogue, in every mode that it applies to, ends as docs/misuse.md says."""

import pytest
from tests.misuse.catalogue import ROWS


@pytest.mark.parametrize(
    ("row", "mode"),
    [pytest.param(row, mode, id=f"{row.section[0]}-{row.does[:60]}-{mode}") for row in ROWS for mode in row.modes],
)
def test_misuse(row, mode):
    row.check(mode)


def test_there_are_enough_rows_in_every_part():
    assert len(ROWS) >= 60
    assert {row.section[0] for row in ROWS} == set("ABCDEF")
