"""What is told of a delta that nobody chose, of the account of a run, and of the texts that a model writes."""

import plrvo
from plrvo.cli.main import main
from plrvo.cli.train import _default_delta
from plrvo.cli.train_result import finish
from plrvo.tasks.job import Job


def test_a_delta_that_follows_from_the_data_is_told():
    told = _default_delta(Job("sst2", epsilon=3.0), 67_349, 1 / (2 * 67_349))
    assert told == " Delta is 7.425e-06, 1/(2N) for N = 67,349 examples; --delta sets another."


def test_a_delta_that_was_asked_for_or_is_the_usual_one_is_not():
    assert _default_delta(Job("sst2", epsilon=3.0, delta=1 / 200), 100, 1 / 200) == ""
    assert _default_delta(Job("digits", epsilon=3.0), 1437, 1e-5) == ""
    assert _default_delta(Job("cifar-10", epsilon=3.0), 50_000, 1e-5) == ""
    plan = plrvo.Plan.certify(plrvo.Laplace(2.0), plrvo.Workload(0.1, 4, 1.0, 650), 1 / 200)
    assert _default_delta(Job("sst2", plan=plan), 100, 1 / 200) == ""


def test_an_account_is_shown_by_its_name(tmp_path, capsys):
    account, out = str(tmp_path / "digits.budget"), str(tmp_path / "run")
    assert main(["budget", "create", account, "--name", "the digits", "--epsilon", "5"]) == 0
    small = ["--model", "logistic", "--noise", "gaussian", "--steps", "1", "--sample-rate", "1"]
    assert main(["train", "digits", "--epsilon", "3", *small, "--budget", account, "--out", out]) == 0
    capsys.readouterr()
    assert main(["verify", out, "--budget", account]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "account:" in line]
    assert line.startswith(f"  account: the digits ({account}), ")
    assert line.endswith(", entry 1")
    assert main(["verify", out]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "account:" in line]
    assert line.endswith(", entry 1 (--budget FILE compares it)")


def test_how_good_the_texts_are_is_told_beside_the_loss(tmp_path, capsys):
    history = [{"step": 1, "loss": 1.5, "bleu": 0.39967, "rouge_l": 0.5}]
    finish(tmp_path, history, "e2e", False, {"loss": 1.5, "private": False}, "loss")
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["test loss 1.5", "bleu 0.3997, rouge l 0.5"]
