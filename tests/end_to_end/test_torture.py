"""A small campaign of `python -m checks.torture`, with every kind of fault in it; `make torture` runs the full one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.patience import HANGS

ROOT = Path(__file__).parents[2]


# Every kind of fault comes first, once, however small the campaign.
@pytest.mark.parametrize(("kills", "corruptions"), [(2, 2), pytest.param(10, 4, marks=pytest.mark.slow)])
def test_a_small_campaign_loses_nothing(tmp_path, kills, corruptions):
    out = tmp_path / "torture.json"
    size = ["--kills", str(kills), "--corruptions", str(corruptions), "--seed", "3"]
    command = [sys.executable, "-m", "checks.torture", *size, "--out", str(out)]
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=HANGS, check=False
    )
    assert out.exists(), done.stderr[-2000:]
    result = json.loads(out.read_text())
    assert result["lost"] == []
    assert done.returncode == 0
    counts = result["counts"]
    assert counts["SIGKILL"] >= kills
    assert counts["corruptions"] >= corruptions
    for kind in (
        "clocks turned back",
        "second processes refused",
        "read-only folders refused",
        "disks full",
        "SIGTERM",
    ):
        assert counts.get(kind, 0) >= 1, kind


def test_the_committed_campaign_is_large_enough_and_lost_nothing():
    result = json.loads((ROOT / "results" / "torture.json").read_text())
    assert result["lost"] == []
    assert result["counts"]["SIGKILL"] >= 500
    assert result["counts"]["corruptions"] >= 20
