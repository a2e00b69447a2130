"""`plrvo train --budget`: charged before the first batch, settled at the end, whatever happens in between."""

import json
import shutil

import pytest

from plrvo.budget import Account
from plrvo.cli.main import main
from plrvo.records.journal import Journal
from plrvo.tasks import kept
from plrvo.training import loop

RUN = ["train", "digits", "--model", "logistic", "--noise", "gaussian", "--noise-multiplier", "2"]
RUN += ["--sample-rate", "0.1", "--steps", "20", "--evaluate-every", "10", "--checkpoint-every", "10", "--json"]


@pytest.fixture(autouse=True)
def _without_plots(monkeypatch):
    monkeypatch.setattr("plrvo.report.curves.plot_curves", lambda *_: None)  # most of the time of a short run


@pytest.fixture
def account(tmp_path):
    return Account.create(tmp_path / "a.budget", name="digits", epsilon=2.0, delta=1e-5)


def train(account, folder, *others):
    place = account if isinstance(account, str) else str(account.path)
    return main([*RUN, "--budget", place, "--out", str(folder), *others])


def test_the_run_that_does_not_fit_is_refused_before_training(account, tmp_path, capsys):
    codes = [train(account, tmp_path / f"run-{i}") for i in range(3)]
    assert codes == [0, 0, 2]
    err = capsys.readouterr().err.splitlines()
    assert "expected room for 20 steps of gaussian noise" in err[-1]
    assert "left is at least" in err[-1]
    assert not any((tmp_path / "run-2").iterdir())
    state = account.state()
    assert [(entry.settled, entry.released) for entry in state.entries] == [(20, 20)] * 2
    assert state.standing().spent <= 2.0
    for i in range(2):
        assert main(["verify", str(tmp_path / f"run-{i}"), "--budget", str(account.path)]) == 0
    receipt = json.loads((tmp_path / "run-1" / "receipt.json").read_text())
    assert receipt["budget"]["entry"] == 2
    assert "budget" not in receipt["job"]


def test_a_receipt_of_another_account_or_of_none_differs(account, tmp_path, capsys):
    assert train(account, tmp_path / "run") == 0
    other = Account.create(tmp_path / "b.budget", name="b", epsilon=2.0, delta=1e-5)
    capsys.readouterr()
    assert main(["verify", str(tmp_path / "run"), "--budget", str(other.path)]) == 1
    out = capsys.readouterr().out
    known = (
        f"- the run belongs to the account '{account.state().id}' (entry 1); this is the account '{other.state().id}'"
    )
    assert f"{known}, called 'b'" in out
    assert "not as this account has it" in out
    assert "The receipt by itself is as recomputed:" in out
    assert "Rely on none" not in out
    assert "certified epsilon" in out
    assert main([*RUN, "--out", str(tmp_path / "free")]) == 0
    assert main(["verify", str(tmp_path / "free"), "--budget", str(account.path)]) == 1
    assert main(["verify", str(tmp_path / "free")]) == 0


def stopped_after(monkeypatch, step):
    """A crash as the first thing after this step's release."""
    release = kept.KeptRun.permits

    def permits(self, at, wanted):
        permitted = release(self, at, wanted)
        if permitted and at == step:
            raise RuntimeError("a crash")
        return permitted

    monkeypatch.setattr(kept.KeptRun, "permits", permits)


def crash(account, folder, monkeypatch, step):
    with monkeypatch.context() as patched:
        stopped_after(patched, step)
        with pytest.raises(RuntimeError, match="a crash"):
            train(account, folder)


def test_a_crashed_run_keeps_its_reservation_and_goes_on_with_it(account, tmp_path, monkeypatch):
    crash(account, tmp_path / "run", monkeypatch, 10)
    entry = account.state().entry(1)
    assert (entry.released, entry.charged, entry.settled) == (10, 20, None)
    shutil.move(account.path, tmp_path / "moved.budget")
    moved = Account(tmp_path / "moved.budget")
    again = ["train", "--resume", "--out", str(tmp_path / "run"), "--json"]
    assert main(again) == 2  # where the account was, there is none
    assert main([*again, "--budget", str(moved.path)]) == 0
    assert len(moved.state().entries) == 1
    assert moved.state().entry(1).settled == 20
    assert main(["verify", str(tmp_path / "run"), "--budget", str(moved.path)]) == 0


def test_a_settled_run_is_not_resumed(account, tmp_path, monkeypatch, capsys):
    crash(account, tmp_path / "run", monkeypatch, 10)
    assert main(["budget", "settle", str(account.path), "1"]) == 0
    capsys.readouterr()
    assert main(["train", "--resume", "--out", str(tmp_path / "run")]) == 2
    assert "this one has ended" in capsys.readouterr().err
    assert account.state().entry(1).charged == 10


def test_an_older_copy_of_a_run_is_not_resumed(account, tmp_path, monkeypatch, capsys):
    crash(account, tmp_path / "run", monkeypatch, 10)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    assert main(["train", "--resume", "--out", str(tmp_path / "run"), "--json"]) == 0
    assert main(["train", "--resume", "--out", str(tmp_path / "copy"), "--json"]) == 2
    assert "this one has ended" in capsys.readouterr().err
    assert account.state().entry(1).charged == 20


def test_nothing_is_shown_where_the_account_cannot_be_written(account, tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(loop, "record", lambda run: shown.append(run.step))
    monkeypatch.setattr(Account, "release", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left", "a.budget")))
    assert train(account, tmp_path / "run") == 2
    assert shown == []
    assert not (tmp_path / "run" / "model.safetensors").exists()
    assert Journal.open(tmp_path / "run" / "journal.jsonl").steps == 10
    assert account.state().entry(1).charged == 20


def test_a_closed_account_is_refused_before_data_is_read(account, tmp_path, monkeypatch, capsys):
    account.close()
    monkeypatch.setattr("plrvo.tasks.catalog.prepare", lambda *_: pytest.fail("data was read"))
    assert train(account, tmp_path / "run") == 2
    assert "takes no more plans" in capsys.readouterr().err


def test_a_run_that_was_not_charged_is_not_resumed_with_an_account(account, tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as patched:
        stopped_after(patched, 10)
        with pytest.raises(RuntimeError):
            main([*RUN, "--out", str(tmp_path / "run")])
    assert main(["train", "--resume", "--out", str(tmp_path / "run"), "--budget", str(account.path)]) == 2
    assert "began without an account" in capsys.readouterr().err


def test_a_budget_beside_no_noise_is_refused(account, tmp_path, capsys):
    out = str(tmp_path / "run")
    assert main(["train", "digits", "--noise", "none", "--budget", str(account.path), "--out", out]) == 2
    assert "--budget" in capsys.readouterr().err


AUDIT = ["audit", "one-run", "digits", "--model", "logistic", "--noise", "gaussian", "--noise-multiplier", "2"]
AUDIT += ["--sample-rate", "0.1", "--steps", "20", "--clip", "1", "--canaries", "100", "--json"]


def test_an_audit_that_trains_is_charged_and_refused_where_the_account_is_short(account, tmp_path, capsys, monkeypatch):
    budget = ["--budget", str(account.path)]
    assert main([*AUDIT, *budget]) == 0
    told = json.loads(capsys.readouterr().out)
    entry = account.state().entry(1)
    assert (entry.name, entry.settled) == ("digits in one-run audit", 20)
    assert told["budget"]["account"] == account.state().id
    assert train(account, tmp_path / "run") == 0
    receipt = ["audit", "one-run", "--receipt", str(tmp_path / "run" / "receipt.json"), "--canaries", "100", "--json"]
    capsys.readouterr()
    assert main([*receipt, *budget]) == 2
    assert "--budget" in (err := capsys.readouterr().err)
    assert "expected room for 20 steps" in err
    account.close()
    monkeypatch.setattr("plrvo.tasks.catalog.prepare", lambda *_: pytest.fail("data was read"))
    assert main([*AUDIT, *budget]) == 2
    assert len(account.state().entries) == 2
