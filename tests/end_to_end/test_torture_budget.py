"""A small campaign of `python -m checks.budgets`; `make budgets` runs the full one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from checks.budgets import Campaign, Lost
from tests.budget.conftest import postgresql_server
from tests.patience import HANGS

from plrvo.budget import Account

__all__ = ["postgresql_server"]
ROOT = Path(__file__).parents[2]


def rounds_until_lost(folder, most, server=None):
    campaign = Campaign(folder, seed=1, server=server)
    for number in range(most):
        try:
            campaign.round()
        except Lost:
            return number
    return None


def test_a_few_rounds_lose_nothing(tmp_path):
    assert rounds_until_lost(tmp_path, 4) is None


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forks beside threads
def test_a_few_rounds_on_a_server_lose_nothing(tmp_path, postgresql_server):
    assert rounds_until_lost(tmp_path, 4, postgresql_server) is None


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_campaign_finds_releases_that_are_not_written_down(tmp_path, monkeypatch):
    monkeypatch.setattr(Account, "release", lambda self, *_: self.state().events[-1])
    assert rounds_until_lost(tmp_path, 20) is not None


@pytest.mark.slow
def test_a_campaign_with_real_runs_loses_nothing(tmp_path):
    command = [sys.executable, "-m", "checks.budgets", "--kills", "20", "--real", "2", "--out", str(tmp_path / "out")]
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, check=True, capture_output=True, timeout=HANGS)
    result = json.loads((tmp_path / "out").read_text())
    assert result["lost"] == []
    assert result["counts"]["SIGKILL of plrvo train"] >= 1


def test_the_committed_campaign_is_large_enough_and_lost_nothing():
    result = json.loads((ROOT / "results" / "budgets.json").read_text())
    assert result["lost"] == []
    assert result["counts"]["SIGKILL"] >= 500
    assert result["counts"]["SIGKILL of plrvo train"] >= 1


def test_the_committed_campaign_on_a_server_lost_nothing_either():
    result = json.loads((ROOT / "results" / "budgets-database.json").read_text())
    assert result["lost"] == []
    assert result["counts"]["SIGKILL"] >= 100
    assert result["counts"]["connections cut"] >= 50
