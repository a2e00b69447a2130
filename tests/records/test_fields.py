"""A value of another kind than is needed is bad input that names the file and the place."""

from pathlib import Path

import pytest

from plrvo.records.fields import Fields, as_number
from plrvo.validate import InvalidArgument

PATH = Path("some.json")
CONTENT = {"run": {"n": 2, "below": -1.5, "word": "x", "words": ["a"], "rows": [{"n": 1}, 3], "m": {"a": 1, "b": None}}}
RUN = Fields.of(CONTENT, PATH, "a run").part("run")


def test_values_of_the_right_kind_are_given():
    assert (RUN.number("below"), RUN.amount("n"), RUN.text("word"), RUN.texts("words")) == (-1.5, 2.0, "x", ["a"])
    assert (RUN.amount_or_none("no"), RUN.text_or_none("no"), RUN.texts("no")) == (None, None, [])
    assert RUN.measures("m") == {"a": 1.0, "b": None}
    assert "n" in RUN
    assert "no" not in RUN


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (lambda: RUN.part("n"), "an object in run.n"),
        (lambda: RUN.parts("n"), "a list in run.n"),
        (lambda: RUN.parts("rows"), r"an object in run.rows\[1\]"),
        (lambda: RUN.number("word"), "a number in run.word"),
        (lambda: RUN.number("no"), "a number in run.no"),
        (lambda: RUN.amount("below"), "zero or above in run.below"),
        (lambda: RUN.text("n"), "a text in run.n"),
        (lambda: RUN.texts("rows"), "a list of texts in run.rows"),
        (lambda: RUN.measures("run"), "an object in run.run"),
        (lambda: Fields.of([], PATH, "a run"), "a run"),
    ],
)
def test_anything_else_is_refused_by_file_and_place(read, said):
    with pytest.raises(InvalidArgument, match=rf"^runs='some.json': .*{said}"):
        read()


@pytest.mark.parametrize(
    "value", [True, "1", None, float("nan"), float("inf"), 1e101, 10**400, [1]], ids=lambda v: str(v)[:9]
)
def test_what_no_page_can_show_is_no_number(value):
    assert as_number(value) is None


def test_numbers_are_floats():
    assert as_number(3) == 3.0
    assert as_number(-1e100) == -1e100
