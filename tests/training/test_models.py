"""What the page about models says of each of them is what the engine does."""

import json

import pytest
from docs.figures.models import PAGE, RESULTS, page
from tests.training.models import LAYERS, architectures, measured

MOST = 1e-3  # of a clip
QUICK = ("Conv2d, circular padding", "Conv2d, channels last", "ConvTranspose2d", "EmbeddingBag", "nn.LSTM")


def check(case):
    known = {row["name"]: row for rows in json.loads(RESULTS.read_text()).values() for row in rows}
    found = measured(case)
    assert found.way == known[case.name]["way"], found.said
    assert (found.difference is None) == (found.way == "refused")
    assert found.difference is None or found.difference < MOST
    if found.way in ("functorch", "refused"):
        assert found.said


@pytest.mark.parametrize("name", QUICK)
def test_a_few_layers_are_as_the_page_says(name):
    check(next(case for case in LAYERS if case.name == name))


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in LAYERS if case.name not in QUICK], ids=lambda case: case.name)
def test_a_layer_is_as_the_page_says(case):
    check(case)


@pytest.mark.slow
def test_architectures_are_as_the_page_says():
    for case in architectures():
        check(case)


def test_the_page_is_written_from_what_was_measured():
    assert PAGE.read_text(encoding="utf-8") == page()
    known = [row for rows in json.loads(RESULTS.read_text()).values() for row in rows]
    assert {case.name for case in (*LAYERS, *architectures())} == {row["name"] for row in known}
    assert all(row["way"] == "refused" or row["difference"] < MOST for row in known)
