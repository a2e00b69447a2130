"""Training without noise is asked for by itself, and says what it is; a plan brings its own noise."""

import pytest

import plrvo
from plrvo.cli.main import main

PLAIN = ["train", "digits", "--model", "logistic", "--noise", "none", "--steps", "2", "--sample-rate", "0.1"]


def refused(capsys, arguments):
    assert main(arguments) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    return lines[0]


@pytest.mark.parametrize(
    "beside",
    [
        ["--epsilon", "2"],
        ["--delta", "1e-5"],
        ["--exact"],
        ["--plan", "plan.json"],
        ["--correlation", "tree"],
        ["--noise-multiplier", "1"],
        ["--scale", "1"],
        ["--k", "10"],
        ["--theta", "1"],
        ["--shared"],
    ],
    ids=lambda words: words[0],
)
def test_no_noise_beside_a_wish_for_privacy_is_refused(beside, tmp_path, capsys):
    line = refused(capsys, [*PLAIN, *beside, "--out", str(tmp_path / "run")])
    assert beside[0] in line
    assert "without any privacy" in line
    assert not (tmp_path / "run").exists()


def test_no_noise_does_not_go_on_with_a_private_run(tmp_path, capsys):
    kept = tmp_path / "checkpoint.safetensors"
    kept.write_bytes(b"of a private run")
    assert "--resume" in refused(capsys, [*PLAIN, "--resume", "--out", str(tmp_path)])
    assert [path.name for path in tmp_path.iterdir()] == [kept.name]


def test_no_noise_is_said_at_the_start_and_at_the_end(tmp_path, capsys):
    assert main([*PLAIN, "--out", str(tmp_path / "run")]) == 0
    captured = capsys.readouterr()
    assert captured.err.startswith("plrvo: warning: NOT PRIVATE")
    assert captured.out.splitlines()[-1].startswith("NOT PRIVATE")


@pytest.mark.parametrize("beside", [["--noise", "gaussian"], ["--noise", "gamma"], ["--shared"], ["--k", "5"]], ids=str)
def test_a_noise_beside_a_plan_is_refused(beside, tmp_path, capsys):
    plan = tmp_path / "plan.json"
    plrvo.Plan.certify(plrvo.Laplace(2.0), plrvo.Workload(0.1, 2, 1.0, 650), 1e-5).save(plan)
    arguments = ["train", "digits", "--model", "logistic", "--plan", str(plan), "--out", str(tmp_path / "run")]
    line = refused(capsys, [*arguments, *beside])
    assert beside[0] in line
    assert "--plan" in line
    assert not (tmp_path / "run").exists()


def test_a_plan_of_gaussian_noise_for_one_coordinate_trains_any_model_and_verifies(tmp_path, capsys):
    plan = plrvo.Plan.certify(plrvo.Gaussian(4.0), plrvo.Workload(0.25, 2, 1.0, 1), 1e-5)
    plan.save(tmp_path / "plan.json")
    words = ["train", "digits", "--model", "logistic", "--plan", str(tmp_path / "plan.json")]
    assert main([*words, "--out", str(tmp_path / "run")]) == 0
    assert main(["verify", str(tmp_path / "run")]) == 0
    assert main(["train", "--resume", "--out", str(tmp_path / "run")]) == 0
