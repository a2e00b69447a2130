"""Findings tell numbers in one way, and read well where there are few rows."""

import re

import pytest
from docs.figures.entry_pages import RESULTS
from docs.figures.entry_section import Reproduced

from plrvo.paper.catalog import ENTRIES
from plrvo.paper.wording import share, spread

DONE = [each for entry in ENTRIES if (each := Reproduced.read(entry, RESULTS)).finished]
ODD = re.compile(r"(?<![\d.,])1 [a-z]+s\b(?! [a-z]+s\b)|\b0 of \d|\b(\d+) of (?:the )?\1\b|(?<!\S)(\S+) to \2(?!\S)")


@pytest.mark.parametrize("each", DONE, ids=lambda each: each.entry.name)
def test_findings_are_those_of_the_rows_and_read_well(each: Reproduced) -> None:
    told = each.entry.findings(each.rows)
    assert told == each.findings  # words may be chosen better: write them anew, the digest covers numbers only
    assert [text for text in told if ODD.search(text)] == []


def test_what_reads_badly_is_found() -> None:
    bad = ("in 1 rows,", "0 of 4 rows", "3 of 3 rows", "4 of the 4 rows", "+0.0 to +0.0")
    assert all(ODD.search(text) for text in bad)
    assert not any(ODD.search(text) for text in ("in 1 of 3 rows", "13 of 15", "-0.1 to +0.1", "1.5 times"))


def test_few_rows_are_told_in_words() -> None:
    for whole in range(1, 6):
        for part in range(whole + 1):
            assert ODD.search(f"In {share(part, whole, 'point')} it is so.") is None
    assert spread([2.0], ".1f") == "2.0"
