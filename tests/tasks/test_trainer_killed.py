"""Whatever happens to the process of a private trainer: what was seen is in the journal, and the run ends."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.tasks.test_trainer import STEPS

from plrvo.audit.receipt import verify
from plrvo.records.journal import Journal

WORKER = Path(__file__).with_name("trainer_killer.py")
ROOT = WORKER.parents[2]


def found(kind, folder, points):
    """What became of each of the runs that something happened to."""
    words = [sys.executable, "-m", "tests.tasks.trainer_killer", kind, str(folder), str(points)]
    subprocess.run(words, check=True, cwd=ROOT, capture_output=True)
    return json.loads((folder / "told.json").read_text())


def check(kind, folder, points):
    whole, resumed = folder / "whole", 0
    for told in found(kind, folder, points):
        where, run = f"{told['fault']} at call {told['at']}", Path(told["folder"])
        assert told["code"] == (-9 if told["fault"] == "kill" else 0), where
        written = set(Journal.open(run / "run/journal.jsonl").weights_at.values())
        seen = {json.loads(line)[1] for line in (run / "seen").read_text().splitlines()}
        assert seen <= written, where
        if "resumed" not in told:
            continue  # before the first checkpoint
        resumed += 1
        assert (told["resumed"], told["said"]) == (0, "NoneType: None"), where
        assert verify(run / "run/receipt.json") == [], where
        receipt = json.loads((run / "run/receipt.json").read_text())
        assert (receipt["steps"], receipt["complete"]) == (STEPS, True), where
        if kind == "seeded":
            assert torch.equal(torch.load(run / "weights.pt"), torch.load(whole / "weights.pt")), where
    assert resumed >= points


@pytest.mark.parametrize("kind", ["fresh", "seeded"])
def test_nothing_is_seen_uncounted_and_every_run_is_resumed(tmp_path, kind):
    check(kind, tmp_path, 1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fresh", "seeded", "correlated"])
def test_so_it_is_at_many_points(tmp_path, kind):
    check(kind, tmp_path, 12)
