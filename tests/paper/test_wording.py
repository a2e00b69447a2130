"""Findings tell numbers in one way, and read well where there are few rows."""

import re

import pytest
from docs.figures.entry_pages import RESULTS
from docs.figures.entry_section import Reproduced

from plrvo.paper.catalog import ENTRIES
from plrvo.paper.cnn import unlike_printed
from plrvo.paper.wording import share, spread, told

DONE = [each for entry in ENTRIES if (each := Reproduced.read(entry, RESULTS)).finished]
REACHED = re.compile(r"(?:provably reaches|provably loses|audited) (\d[\d.e+]*\d|\d)(?![\d %])")
CERTIFY = re.compile(r"certify epsilon (\d[\d.]*\d)")
ODD = re.compile(r"(?<![\d.,])1 [a-z]+s\b(?! [a-z]+s\b)|\b0 of \d|\b(\d+) of (?:the )?\1\b|(?<!\S)(\S+) to \2(?!\S)")


@pytest.mark.parametrize("each", DONE, ids=lambda each: each.entry.name)
def test_findings_are_those_of_the_rows_and_read_well(each: Reproduced) -> None:
    found = each.entry.findings(each.rows)
    assert found == each.findings  # words may be chosen better: write them anew, the digest covers numbers only
    assert [text for text in found if ODD.search(text)] == []


@pytest.mark.parametrize("each", DONE, ids=lambda each: each.entry.name)
def test_what_an_attack_reaches_is_never_told_larger(each: Reproduced) -> None:
    for row in each.rows:
        for remark in row["flags"].values():
            for number in REACHED.findall(remark):
                assert float(number) <= row["epsilon"]["lower"], remark
    most = max((row["epsilon"]["lower"] for row in each.rows if row["epsilon"].get("lower") is not None), default=0)
    assert all(float(number) <= most for text in each.findings for number in REACHED.findall(text))


def test_a_certified_epsilon_in_a_remark_is_never_told_smaller() -> None:
    (remark,) = unlike_printed(0.46, 0.31650781, certified=True).values()
    assert "certify epsilon 0.3166," in remark
    remarks = [(row, remark) for each in DONE for row in each.rows for remark in row["flags"].values()]
    said = [(row["epsilon"]["certified"], found[1]) for row, remark in remarks if (found := CERTIFY.search(remark))]
    assert said
    assert all(float(number) >= certified for certified, number in said)


def test_a_number_of_a_row_is_told_by_its_name() -> None:
    assert [told(name, 2.00001) for name in ("certified", "by_moments", "printed", "gamma")] == [
        "2.001",
        "2.001",
        "2",
        "2",
    ]
    assert {told(name, 1.99999) for name in ("lower", "audited", "could_show_at_most")} == {"1.999"}


def test_what_reads_badly_is_found() -> None:
    bad = ("in 1 rows,", "0 of 4 rows", "3 of 3 rows", "4 of the 4 rows", "+0.0 to +0.0")
    assert all(ODD.search(text) for text in bad)
    assert not any(ODD.search(text) for text in ("in 1 of 3 rows", "13 of 15", "-0.1 to +0.1", "1.5 times"))


def test_few_rows_are_told_in_words() -> None:
    for whole in range(1, 6):
        for part in range(whole + 1):
            assert ODD.search(f"In {share(part, whole, 'point')} it is so.") is None
    assert spread([2.0], ".1f") == "2.0"
