"""What a page says first of a run."""

from tests.records.receipts import KINDS

from plrvo.report.findings import Tone, training_findings
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
