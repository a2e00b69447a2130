"""The table of recipes: its commands train as its rows were trained, and its numbers are those of the rows."""

import shlex

import pytest
from docs.figures.entry_pages import RESULTS
from docs.figures.entry_section import Reproduced
from docs.figures.recipes import Reached, reached, section
from tests.docs.test_walk import check_words, command_of

from plrvo.paper.catalog import ENTRIES
from plrvo.tasks.catalog import Request, usual

ROWS = {each.entry.name: each.rows for each in (Reproduced.read(entry, RESULTS) for entry in ENTRIES)}
FOUND = reached(ROWS)


def test_images_sentences_and_tables_are_there() -> None:
    assert {"mnist", "fashion-mnist", "cifar-10", "sst2", "e2e"} <= {each.recipe.task for each in FOUND}
    assert all(each.certified <= each.epsilon for each in FOUND)
    [cifar] = [each for each in FOUND if each.recipe.task == "cifar-10"]
    row = next(row for row in ROWS["study-scattering"] if row["key"] == "cifar-10-3-gaussian")
    assert cifar.accuracy == row["measured"]["accuracy"]
    assert cifar.reached.startswith(f"{cifar.accuracy:.2f} ±")
    assert "69.3 %" in cifar.others
    assert section({}) == []


@pytest.mark.parametrize("each", FOUND, ids=lambda each: f"{each.recipe.task}-{each.epsilon:g}-{each.model}")
def test_a_command_trains_as_its_row_was_trained(each: Reached) -> None:
    words = shlex.split(each.command)
    check_words(words[1:])
    command, rest = command_of(words[1:])
    given = command.make_context("plrvo", rest).params
    options = {name: given[name] for name in each.recipe.options if given.get(name) is not None}
    found = usual(Request(each.recipe.task, given["model"], None, options))
    plain = found.defaults.at(each.epsilon)
    assert (given["epsilon"], given["noise"], given["model"] or found.model) == (
        each.epsilon,
        "gaussian",
        each.recipe.model,
    )
    for name, value in each.recipe.options.items():
        assert given.get(name) == value or found.parts.get(name) == value
    for name in ("sample_rate", "steps", "learning_rate", "optimizer", "schedule", "average"):
        trained = getattr(plain, name) if given.get(name) is None else given[name]
        wanted = getattr(each.recipe, name)
        assert trained == (pytest.approx(wanted, rel=1e-5) if isinstance(wanted, float) else wanted)
    assert (given.get("clip") or plain.clip) == each.clip
