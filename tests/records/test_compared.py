"""What is written is what it should be: equal to the last digits, in the same form, and finite."""

import pytest

from plrvo.records.compared import differing, is_count, is_finite, same


def test_no_comparison_holds_for_what_is_not_finite():
    for value in (float("inf"), float("nan"), 10**400):
        assert not is_finite(value)
        assert not same(value, value)
        assert not same(1.0, value)
        assert not same(value, 1.0)
    assert not same(True, 1)
    assert not same(1, True)
    assert same(1.0 + 1e-12, 1.0)
    assert not same(1.0 + 1e-8, 1.0)
    assert same([{"a": None}], [{"a": None}])
    assert not same([{}], [{"a": None}])
    assert not same([1, 2], [1])
    assert not is_count(True)
    assert not is_count(2.0)


@pytest.mark.parametrize(
    ("written", "due", "said"),
    [
        ({"a": 1}, {"a": 1, "b": 2}, ["run.b is missing"]),
        ({"a": 1, "b": 2}, {"a": 1}, ["run.b is not a part of it"]),
        ({"a": [1, 2]}, {"a": [1, 3]}, ["it says run.a[1] 2; recomputed, it is 3"]),
        ({"a": "1"}, {"a": 1}, ["it says run.a '1'; recomputed, it is 1"]),
        ({"lower": 2.0, "certified": 1.0}, {"lower": 2.0, "certified": 1.0}, ["it says run.lower 2.0, above 1.0"]),
    ],
    ids=["missing", "too much", "in a list", "a word", "crossed"],
)
def test_every_difference_is_a_sentence_that_names_its_place(written, due, said):
    found = list(differing("run", written, due))
    assert len(found) == len(said)
    assert all(line.startswith(start) for line, start in zip(found, said, strict=True))


def test_older_code_may_have_certified_more_and_never_less():
    due = {"certified": 2.0, "lower": 1.0}
    assert list(differing("", {"certified": 2.5, "lower": 0.5}, due, older=True)) == []
    assert len(list(differing("", {"certified": 2.5, "lower": 0.5}, due))) == 2
    assert len(list(differing("", {"certified": 1.9, "lower": 0.5}, due, older=True))) == 1
    assert len(list(differing("", {"certified": 2.5, "lower": 2.1}, due, older=True))) == 1  # above today's certified
