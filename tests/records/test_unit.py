"""What one example is: of a preset task the task's words, of a loop of one's own the author's, told as that."""

import json
import shutil
from pathlib import Path

import pytest
from tests.records.receipts import KINDS, changed

from plrvo.audit.receipt import examine
from plrvo.cli.main import main
from plrvo.records.unit import EXAMPLE, PAIRS, PRESETS, Unit, check_author, differences, group_line, unit_line, unit_of
from plrvo.report.loading import read_run
from plrvo.report.page import make_page
from plrvo.tasks import catalog
from plrvo.validate import InvalidArgument

CLAIMS = [
    "one person; certified epsilon 0.1 at delta 1e-9",
    "one person (Epsilon 0.1)",
    "one person, \u03b5 = 0.1",
    "one person, \u03f5 = 0.1",
    "one person, \uff45\uff50\uff53\uff49\uff4c\uff4f\uff4e 0.1",
    "one person, guaranteed",
]
FORMS = [5, ["a"], None, "", " ", "one\nexample", "one\x1b[2J", "one \u202eexample", "x" * 121]
E2E = {"unit": PAIRS.unit, "group": PAIRS.group, "group_size": 16}
HOSPITAL = "one hospital with all of its patients"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return {name: KINDS[name](tmp_path_factory.mktemp(name)).parent for name in ("asked", "poisson", "grouped")}


def forged(folder, to, **task):
    """A copy of the run whose task was changed, and the receipt signed again."""
    path = Path(shutil.copytree(folder, to / "run")) / "receipt.json"
    receipt = json.loads(path.read_text())
    path.write_text(changed(receipt, (), lambda content, _: content["task"].update(task)))
    return path


def test_the_tasks_with_words_of_their_own_are_those_of_the_catalog():
    tables = next(family for family in catalog.FAMILIES if family.name == "tables")
    assert set(PRESETS) == set(tables.tasks)


@pytest.mark.parametrize("unit", [HOSPITAL, EXAMPLE, *CLAIMS, *FORMS])
def test_a_job_has_the_unit_of_its_task(made, unit, tmp_path):
    assert examine(made["asked"] / "receipt.json").differences == ()
    assert any("task.unit is" in line for line in examine(forged(made["asked"], tmp_path, unit=unit)).differences)


@pytest.mark.parametrize("unit", [*CLAIMS, *FORMS])
def test_an_author_cannot_claim_more_than_a_unit(made, unit, tmp_path):
    assert any("task.unit is" in line for line in examine(forged(made["poisson"], tmp_path, unit=unit)).differences)
    for name in ("unit", "group"):
        with pytest.raises(InvalidArgument, match=f"task\\['{name}'\\]"):
            check_author({name: unit, "group_size": 3})


def test_the_word_of_an_author_is_told_as_that(made, tmp_path, capsys):
    path = forged(made["poisson"], tmp_path, unit="one patient")
    (path.parent / "checkpoint.safetensors").unlink(missing_ok=True)  # which has the task of before
    assert main(["verify", str(path)]) == 0
    assert "  privacy unit, as its author says: one patient\n" in capsys.readouterr().out
    assert main(["verify", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["unit"], told["unit_by_author"]) == ("one patient", True)
    page = make_page([read_run(path.parent)]).decode()
    assert "Privacy unit, as its author says" in page
    assert "One patient." in page


def test_a_report_has_the_lines_of_verify(made, capsys):
    assert main(["verify", str(made["grouped"])]) == 0
    said = capsys.readouterr().out
    line = next(line.strip() for line in said.splitlines() if "for all scans of one writer" in line)
    assert "(at most 3 examples, as its author says): certified epsilon" in line
    assert line.endswith("at delta 1e-05")
    page = make_page([read_run(made["grouped"])]).decode()
    assert f"F{line[1:]}." in page
    assert "One training example." in page


def test_a_report_tells_of_a_group_for_which_nothing_is_certified():
    group = {"of": PAIRS.group, "size": 16, "certified": None, "delta": 1e-5}
    assert group_line(group, {"task": "e2e"}) == (
        "for all texts of one table (at most 16 examples, as the run recorded): no epsilon is certified at this delta"
    )


def test_a_report_says_nothing_of_the_unit_of_a_receipt_that_differs(made, tmp_path):
    page = make_page([read_run(forged(made["asked"], tmp_path, unit=HOSPITAL).parent)]).decode()
    assert "Privacy unit" not in page
    assert "One hospital" not in page


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, None),
        ({"unit": "one table with all of its texts"}, "task.unit"),
        ({"unit": None}, "task.unit"),
        ({"group": "one city"}, "task.group is"),
        ({"group": None}, "task.group is"),
        ({"group_size": None}, "task.group_size"),
    ],
    ids=str,
)
@pytest.mark.parametrize("task", PRESETS)
def test_a_table_has_its_words_and_a_size(task, change, said):
    words = {name: value for name, value in (E2E | change).items() if value is not None}
    found = list(differences(words, {"task": task}))
    assert found == [] if said is None else any(said in line for line in found)


def test_nothing_of_a_group_may_be_left_out_or_added():
    assert len(list(differences({}, {"task": "e2e"}))) == 3
    assert len(list(differences(E2E, {"task": "digits"}))) == 3
    assert list(differences({}, {"task": "digits"})) == list(differences({}, None)) == []
    assert len(list(differences({"unit": None}, {"task": "digits"}))) == 1


def test_a_group_is_no_larger_than_its_job_asked_for():
    assert list(differences(E2E, {"task": "e2e", "references": 16})) == []
    (said,) = differences(E2E, {"task": "e2e", "references": 15})
    assert "at most 15 texts" in said


def test_a_group_of_an_author_has_a_size():
    (said,) = differences({"group": "one writer"}, None)
    assert "group_size is missing" in said
    with pytest.raises(InvalidArgument, match="group_size"):
        check_author({"group": "one writer"})
    check_author({"group": "one writer", "group_size": 4, "unit": "one page"})
    check_author({})


@pytest.mark.parametrize("job", [[], 3, {"task": []}, {}], ids=str)
def test_a_job_without_a_task_has_no_words(job):
    assert len(list(differences(E2E, job))) == 3


def test_without_words_it_is_a_training_example():
    assert unit_of({}) == unit_of({"unit": 5}) == EXAMPLE
    assert unit_line({}, None) == unit_line({}, {"task": "digits"}) == f"privacy unit: {EXAMPLE}"
    assert Unit() == Unit(None, None)
