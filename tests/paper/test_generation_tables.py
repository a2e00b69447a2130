"""The six generation tables: every printed cell, and a line of each kind."""

import re

import pytest

from plrvo.paper.catalog import find
from plrvo.paper.entry import Context, Scale
from plrvo.paper.generation import METRICS, TABLES
from plrvo.paper.generation_tables import ENTRIES, PAIRS, findings, setting_of
from plrvo.paper.reproduce import Reproduction


@pytest.mark.parametrize(
    ("name", "noise", "epsilon", "metric", "value"),
    [
        ("table-e2e-distilgpt2", "gaussian", 0.2, "bleu", 25.29),
        ("table-e2e-gpt2", "gamma", 2.5, "cider", 2.2612),
        ("table-e2e-gpt2-medium", "gaussian", 0.5, "nist", 3.8638),
        ("table-e2e-gpt2-large", "gamma", 1.0, "meteor", 0.4179),
        ("table-dart-distilgpt2", "gaussian", 0.2, "rouge_l", 0.1023),
        ("table-dart-gpt2", "gamma", 0.2, "nist", 2.5579),
    ],
)
def test_golden_cells(name, noise, epsilon, metric, value):
    rows = {row.key: row for row in find(name).rows(Scale.full)}
    assert rows[f"{noise}-epsilon-{epsilon:g}"].printed[metric] == value


def cells_of(source: str, label: str) -> dict[tuple[str, float], tuple[float, ...]]:
    """The lines of one table of the paper's source, by noise and epsilon."""
    (table,) = [part for part in re.findall(r"\\begin\{table\}.*?\\end\{table\}", source, re.S) if label in part]
    found, noise = {}, ""
    for line in table.splitlines():
        if r"\multirow" in line:
            noise = "gamma" if "PLRV-O" in line else "gaussian"
        numbers = re.findall(r"\d+(?:\.\d+)?", line)
        if line.lstrip().startswith("&"):
            found[noise, float(numbers[0])] = tuple(float(number) for number in numbers[1:])
    return found


@pytest.mark.data
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_cell_is_the_papers(data_dir, table):
    paper = data_dir.parent / "paper" / "plrv-o.tex"
    if not paper.exists():
        pytest.skip("the paper's source is not there")
    here = {
        (noise, epsilon): cells
        for noise in ("gaussian", "gamma")
        for epsilon, cells in {"gaussian": table.gaussian, "gamma": table.gamma}[noise].items()
    }
    assert here == cells_of(paper.read_text(encoding="utf-8"), f"\\label{{{table.label}}}")
    assert len(here) == 8


def test_the_papers_settings_at_full_scale():
    e2e, dart = (setting_of(TABLES[i], Scale.full) for i in (0, 4))
    assert (e2e.recipe.model, e2e.recipe.steps, e2e.recipe.learning_rate) == ("distilgpt2", 411, 2e-3)
    assert e2e.recipe.sample_rate * e2e.pairs == pytest.approx(1024)
    assert (dart.recipe.model, dart.recipe.steps, dart.recipe.learning_rate) == ("distilgpt2", 266, 5e-4)
    assert e2e.delta == dart.delta == 1e-5


@pytest.mark.data
def test_the_sampling_rates_rest_on_the_data(data_dir):
    from plrvo.tasks.tables.data import training_data

    assert {name: len(training_data(name, data_dir).train.pairs) for name in PAIRS} == PAIRS


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_stand_ins_are_named(entry):
    quick, full = entry.stand_in[Scale.quick], entry.stand_in[Scale.full]
    assert "stories15M" in quick
    assert "k and theta" in quick
    assert "k and theta" in full
    assert ("WebNLG" in full) == ("dart" in entry.name)
    assert "stories15M" in entry.needs[Scale.quick].data
    assert "hub" in entry.needs[Scale.full].elsewhere


# At this scale one tiny model stands in for all of them: a table of each task.
OF_A_TASK = {table.task: entry.name for table, entry in zip(TABLES, ENTRIES, strict=True)}.values()
SLOW = [pytest.param(entry.name, marks=pytest.mark.slow) for entry in ENTRIES if entry.name not in OF_A_TASK]


@pytest.mark.data
@pytest.mark.parametrize("name", [*OF_A_TASK, *SLOW])
def test_smoke(data_dir, tmp_path, monkeypatch, name):
    monkeypatch.setenv("PLRVO_OFFLINE", "1")
    found = Reproduction(find(name), tmp_path, Context(Scale.smoke, tmp_path, data_dir)).run()
    assert found["status"] == "finished"
    assert found["columns"] == list(METRICS)
    plain, gaussian, gamma = found["rows"]
    assert plain["epsilon"]["certified"] is None
    for row in (gaussian, gamma):
        assert row["epsilon"]["printed"] == 2.5
        assert 2.4 < row["epsilon"]["certified"] <= 2.5
    assert gaussian["epsilon"]["published"] is None
    assert gamma["epsilon"]["published"] > 0
    assert gamma["details"]["workload"]["dimension"] == gaussian["details"]["workload"]["dimension"] > 1000
    assert (tmp_path / "runs" / gamma["key"] / "gamma" / "receipt.json").exists()
    assert all(row["measured"]["rouge_l"] is not None for row in found["rows"])


def test_findings_say_what_the_rows_say():
    table = TABLES[0]

    def row(noise, target, bleu, printed, **epsilon):
        values = {"parameters": {"noise": noise, "target": target}, "measured": {"bleu": bleu}}
        return values | {"printed": {"bleu": printed}, "epsilon": epsilon, "details": {"loss": bleu / 2}}

    told = findings(
        table,
        [
            row("none", None, 30.0, None),
            row("Gaussian", 0.2, 10.0, 25.29, lower=0.199, certified=0.2),
            row("Gamma (PLRV-O)", 0.2, 8.5, 58.50, lower=0.02, published=0.31, certified=0.2),
        ],
    )
    assert "losses are 4.25 and 5.00" in told[0]
    assert "between 0.02 and 0.2, and 0.31 by the published formula" in told[1]
    assert "a difference of -1.5; the paper prints +33.2" in told[0]
    assert "BLEU 30.0" in told[2]
    assert "64.16 at epsilon 0.5 and 63.63 at epsilon 1" in told[3]
