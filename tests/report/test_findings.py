"""What a page says first of a run."""

import json
from dataclasses import replace

import pytest
from tests.records.receipts import KINDS
from tests.report.samples import POISSON

from plrvo.accounting.printed import rounded_up
from plrvo.report.auditing import read_audits
from plrvo.report.findings import Tone, audit_finding, summary, training_findings
from plrvo.report.loading import read_run


def test_a_page_says_which_files_were_not_there_to_be_compared(tmp_path):
    folder = KINDS["grouped"](tmp_path / "run").parent
    whole = training_findings(read_run(folder))[0]
    assert (whole.tone, whole.word) == (Tone.good, "Verified")
    for name in ("model.safetensors", "journal.jsonl", "checkpoint.safetensors"):
        (folder / name).unlink()
    part = training_findings(read_run(folder))[0]
    assert (part.tone, part.word) == (Tone.warning, "Account verified")
    assert "model.safetensors and journal.jsonl not here" in part.text


def test_many_runs_are_summed_up_in_a_sentence_that_hides_nothing(tmp_path):
    run = read_run(KINDS["grouped"](tmp_path / "run").parent)
    certified = rounded_up(run.receipt.bracket.certified)
    assert summary([run] * 100).startswith(f"100 runs: epsilon is at most {certified}.")
    forged = replace(run, receipt=replace(run.receipt, differences=("another epsilon",)))
    told = summary([run, forged, replace(run, receipt=None)])
    assert told.startswith(f"3 runs, of which 1 verify: epsilon is at most {certified}.")
    assert "1 added no noise, 1 do not verify" in told


@pytest.mark.parametrize(("claim", "label", "told"), [("certified", "2.01", "2.001"), ("published", "2", "2")])
@pytest.mark.parametrize("audited", [0.5, 3.0])
def test_a_certified_claim_is_never_told_smaller(claim, label, told, audited):
    content = json.loads(POISSON.read_text()) | {"claim": claim, "epsilon_claimed": 2.00001}
    (result,) = read_audits(content, POISSON).results
    assert result.label.endswith(f"epsilon {label}")
    finding = audit_finding(replace(result, audited=audited, differences=(), unknown=None))
    assert f" claim of {told} " in finding.text
