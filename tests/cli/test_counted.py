"""One step is a step, wherever numbers are told."""

import pytest
from tests.records.receipts import KINDS

from plrvo.cli.main import main
from plrvo.validate import counted

ONE = ["account", "--noise-multiplier", "5", "--sample-rate", "1"]


@pytest.mark.parametrize(("steps", "told"), [("1", "\n1 step, sampling"), ("2", "\n2 steps, sampling")])
def test_an_account_counts_its_steps(steps, told, capsys):
    assert main([*ONE, "--steps", steps]) == 0
    assert told in capsys.readouterr().out


def test_nouns():
    assert [counted(n, "step") for n in (0, 1, 2)] == ["0 steps", "1 step", "2 steps"]
    assert counted(2, "process") == "2 processes"


def test_a_page_counts_its_steps(tmp_path):
    receipt = KINDS["poisson"](tmp_path / "run")
    assert main(["report", str(receipt.parent), "--out", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "After 6 steps:" in page
    assert "rate 0.1, 6 steps" in page
