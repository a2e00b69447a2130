"""`plrvo verify` says what is certified, what is not private, and nothing that a receipt whispers to the terminal."""

import io
import json
import shutil
from pathlib import Path

import pytest
from tests.records.receipts import KINDS, changed
from tests.test_validate import HARMFUL

from plrvo.audit.receipt import Examined
from plrvo.cli import verify
from plrvo.cli.main import main
from plrvo.report.loading import read_run
from plrvo.report.page import make_page

FIRST = Path(__file__).parents[1] / "records" / "first_receipts"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return {name: KINDS[name](tmp_path_factory.mktemp(name)) for name in ("poisson", "exact", "correlated", "audited")}


def told(receipt, capsys, code=0):
    assert main(["verify", str(receipt), "--json"]) == code
    return json.loads(capsys.readouterr().out)


def printed(receipt, capsys, code=0):
    assert main(["verify", str(receipt)]) == code
    return capsys.readouterr().out


def forged(receipt, folder, change):
    """A copy of the run whose receipt was changed and signed again."""
    copy = Path(shutil.copytree(receipt.parent, folder / "run")) / "receipt.json"
    copy.write_text(changed(json.loads(receipt.read_text()), (), lambda content, _: change(content)))
    return copy


@pytest.mark.parametrize("name", ["poisson", "exact", "correlated", "audited"])
def test_a_verified_receipt_names_its_guarantee(runs, name, capsys):
    receipt, found = json.loads(runs[name].read_text()), told(runs[name], capsys)
    assert (found["verdict"], found["differences"]) == ("verified", [])
    assert found["epsilon_certified"] == receipt["epsilon"]["certified"]
    assert found["delta"] == receipt["delta"]
    assert found["adjacency"] == receipt["adjacency"]
    assert found["steps"] == found["planned_steps"] == 6
    assert found["metrics_covered"] is True
    text = printed(runs[name], capsys)
    assert "certified epsilon" in text
    assert "at delta 1e-05" in text
    assert f"adjacency: {receipt['adjacency']}" in text
    assert "privacy unit: one training example" in text
    assert (found["unit"], found["unit_by_author"]) == ("one training example", False)
    assert "steps: 6 of the plan's 6" in text
    assert f"arithmetic: {receipt['arithmetic']}" in text


@pytest.mark.parametrize(
    ("certified", "line"),
    [
        (
            9.0,
            "(at most 3 examples, as its author says): certified epsilon 9 at delta 1e-05",
        ),
        (
            None,
            "(at most 3 examples, as its author says): no epsilon is certified at this delta",
        ),
    ],
)
def test_the_unit_of_privacy_and_the_number_of_a_group_are_told(runs, certified, line, capsys, monkeypatch):
    group = {"of": "all texts of one table", "size": 3, "certified": certified, "delta": 1e-5}

    def examined(path, account):
        content = json.loads(Path(path).read_text())
        content["task"]["unit"] = "one pair of a table and a text"
        return Examined({**content, "group": group}, path)

    monkeypatch.setattr(verify, "examine", examined)
    text = printed(runs["poisson"], capsys)
    assert "privacy unit, as its author says: one pair of a table and a text\n" in text
    assert f"for all texts of one table {line}" in text
    assert told(runs["poisson"], capsys)["group"] == group


@pytest.mark.parametrize(("name", "seeded"), [("poisson", False), ("exact", True), ("audited", True)])
def test_a_seed_is_told_before_the_epsilon(runs, name, seeded, capsys):
    assert told(runs[name], capsys)["seeded"] is seeded
    text = printed(runs[name], capsys)
    assert ("NOT PRIVATE" in text) == seeded
    page = make_page([read_run(runs[name].parent)]).decode()
    assert ("NOT PRIVATE" in page) == seeded
    if seeded:
        assert text.index("NOT PRIVATE") < text.index("certified epsilon")
        assert page.index("NOT PRIVATE") < page.index("epsilon is at most")


def test_streams_of_a_seed_are_told_even_where_the_settings_have_none(tmp_path, capsys):
    from tests.records.receipts import DELTA, WORK

    import plrvo
    from plrvo.tasks import catalog
    from plrvo.tasks.experiment import run_private
    from plrvo.tasks.settings import Settings, Streams

    streams = Streams.from_seed(5)
    preset = catalog.prepare(catalog.Request("digits", "logistic", None, {}), streams.weights)
    plan = plrvo.Plan.certify(plrvo.Laplace(2.0), WORK, DELTA)
    run_private(preset.task, preset.module, plan, Settings(tmp_path, 0.3), streams)
    assert told(tmp_path / "receipt.json", capsys)["seeded"] is True


def test_unsafe_diagnostics_are_noted(runs, capsys):
    assert any("unsafe diagnostics" in note for note in told(runs["audited"], capsys)["notes"])
    assert "unsafe diagnostics" in printed(runs["audited"], capsys)


def test_metrics_of_a_first_receipt_are_told_to_be_uncovered(capsys):
    found = told(FIRST / "corr" / "receipt.json", capsys)
    assert (found["verdict"], found["metrics_covered"], found["seeded"]) == ("verified", False, False)
    assert "metrics.jsonl is not covered: receipts of the first" in printed(FIRST / "corr" / "receipt.json", capsys)
    assert "metrics not covered by the receipt" in make_page([read_run(FIRST / "corr")]).decode()
    assert told(FIRST / "audited" / "receipt.json", capsys)["seeded"] is True


def test_a_receipt_without_metrics_says_so(runs, tmp_path, capsys):
    def without(receipt):
        receipt |= {"metrics": None, "journal": None}
        receipt["run"]["metrics"] = receipt["weights"]["trained"] = None

    copy = forged(runs["poisson"], tmp_path, without)
    for name in ("metrics.jsonl", "journal.jsonl", "checkpoint.safetensors"):
        copy.with_name(name).unlink()
    assert "made without a metrics.jsonl" in printed(copy, capsys)


def test_a_folder_stands_for_its_receipt(runs, tmp_path, capsys):
    assert printed(runs["poisson"].parent, capsys) == printed(runs["poisson"], capsys)
    assert main(["verify", str(tmp_path)]) == 2
    assert "receipt.json" in capsys.readouterr().err


def test_a_receipt_that_differs_names_no_epsilon(runs, tmp_path, capsys):
    copy = forged(runs["poisson"], tmp_path, lambda receipt: receipt["epsilon"].update(certified=0.123))
    found = told(copy, capsys, code=1)
    assert found["verdict"] == "differs"
    assert found["epsilon_certified"] is found["delta"] is found["seeded"] is None
    text = printed(copy, capsys, code=1)
    assert "certified epsilon 0.123" not in text
    assert "Rely on none of its numbers" in text


@pytest.mark.parametrize("harm", HARMFUL)
def test_nothing_in_a_receipt_reaches_the_terminal_or_the_page(runs, tmp_path, capsys, harm):
    text = f"{HARMFUL[harm]}receipt.json: verified"

    def poison(receipt):
        receipt["task"] |= {"name": text, "model": text}
        receipt["run"] |= {"clipping": text, "randomness": text, "seeded": text}
        receipt |= {"adjacency": text, "sampler": text, "arithmetic": text, text: text}
        receipt["weights"]["file"] = text

    copy = forged(runs["poisson"], tmp_path, poison)
    shown = printed(copy, capsys, code=1)
    assert all(line.isprintable() for line in shown.split("\n"))
    assert [line for line in shown.split("\n") if line.endswith(": verified")] == []
    assert main(["report", str(copy.parent), "--out", str(tmp_path / "page.html")]) == 1
    captured = capsys.readouterr()
    assert all(line.isprintable() for line in captured.out.split("\n"))
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert all(line.isprintable() for line in page.split("\n"))
    assert main(["audit", "mechanism", "--receipt", str(copy)]) == 2
    error = capsys.readouterr().err
    assert error.endswith("\n")
    assert error[:-1].isprintable()


def test_words_in_a_verified_receipt_are_escaped_too(runs, tmp_path, capsys):
    words = "a fixed seed\x1b[2K\u202e"  # of a seeded run, where they are free
    copy = forged(runs["poisson"], tmp_path, lambda receipt: receipt["run"].update(randomness=words, seeded=True))
    assert all(line.isprintable() for line in printed(copy, capsys).split("\n"))


@pytest.mark.parametrize("seed", [[], ["--seed", "3"]])
def test_training_says_at_its_start_and_its_end_that_a_seed_is_not_private(tmp_path, capsys, seed):
    fast = ["digits", "--model", "logistic", "--noise", "laplace", "--epsilon", "9", "--steps", "3", "--clip", "1"]
    assert main(["train", *fast, "--sample-rate", "0.1", *seed, "--out", str(tmp_path / "run")]) == 0
    captured = capsys.readouterr()
    assert ("NOT PRIVATE" in captured.err) == bool(seed)
    assert ("NOT PRIVATE" in captured.out) == bool(seed)


@pytest.mark.parametrize("harm", [*HARMFUL.values(), "[bold]refuted[/bold]"])
def test_rows_of_a_reproduction_are_shown_as_they_are_written(harm):
    from rich.console import Console

    from plrvo.cli.show import harmless

    console = Console(record=True, width=200, file=io.StringIO())
    row = harmless({"rows": [{"label": f"a{harm}b", f"c{harm}": 1.5}]})["rows"][0]
    for text in (row["label"], list(row)[1]):
        console.print(text, highlight=False)
    shown = console.export_text()
    assert all(line.isprintable() for line in shown.splitlines())
    assert "[bold]" in shown or "\\" in shown
