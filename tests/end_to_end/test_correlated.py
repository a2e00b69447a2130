"""`plrvo train --correlation` as its users run it."""

import contextlib
import io
import json
from pathlib import Path

import pytest
from safetensors.torch import load_file
from tests.grids import one_in
from tests.refusals import refusals

from plrvo.cli.main import main

BASE = ["train", "digits", "--model", "logistic", "--noise", "laplace", "--epsilon", "3", "--delta", "1e-4"]
SHORT = [*BASE, "--epochs", "2", "--batch-size", "150", "--clip", "1", "--seed", "3"]


def run(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict:
    assert main(list(arguments)) == code
    return json.loads(capsys.readouterr().out) if code == 0 else {}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder and the result of a short run with a correlation, made once for all tests that look at it."""
    known: dict[str, tuple[Path, dict]] = {}

    def of(correlation: str) -> tuple[Path, dict]:
        if correlation not in known:
            folder, out = tmp_path_factory.mktemp("run"), io.StringIO()
            with contextlib.redirect_stdout(out):
                assert main([*SHORT, "--correlation", correlation, "--out", str(folder), "--json"]) == 0
            known[correlation] = folder, json.loads(out.getvalue())
        return known[correlation]

    return of


@pytest.mark.parametrize(
    "correlation", one_in(3, ["tree", "identity", "tree:completed", "banded:4", "sqrt", "blt:2", "blt"])
)
def test_every_correlation_trains_certifies_and_verifies(trained, capsys, correlation):
    folder, result = trained(correlation)
    assert result["steps"] == 2 * 10
    assert 2.99 < result["epsilon_certified"] <= 3
    assert 0 < result["epsilon_lower"] <= result["epsilon_certified"] <= result["epsilon_published"]
    assert result["accuracy"] > 0.5
    receipt = json.loads((folder / "receipt.json").read_text())
    assert receipt["run"]["expected_batch_size"] == round(receipt["visits"]["size"] / 10)
    assert receipt["visits"]["largest_count"] == 2
    assert receipt["visits"]["smallest_separation"] == 10
    assert run(capsys, "verify", str(folder / "receipt.json"), "--json")["verdict"] == "verified"


def test_sampling_by_turns_trains_certifies_verifies_and_needs_less_noise(trained, capsys):
    folder, sampled = trained("banded:4:cyclic")
    receipt = json.loads((folder / "receipt.json").read_text())
    assert 2.99 < sampled["epsilon_certified"] <= 3
    assert sampled["epsilon_lower"] <= sampled["epsilon_certified"]
    assert "visits" not in receipt  # the coins are secret
    assert receipt["run"]["expected_batch_size"] == 150
    assert run(capsys, "verify", str(folder / "receipt.json"), "--json")["verdict"] == "verified"
    _, in_order = trained("banded:4")
    assert sampled["noise"]["b"] < in_order["noise"]["b"]


HOW = {  # without a score as well: tests/training/ftrl
    "score": ["tree", "--restart-every", "1", "--postprocess", "score"],
    "cyclic": ["banded:4:cyclic"],
}


@pytest.mark.parametrize("how", HOW)
def test_a_run_that_stopped_and_went_on_equals_one_that_did_not(tmp_path, capsys, how):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    arguments = [*SHORT, "--correlation", *HOW[how], "--checkpoint-every", "7"]
    run(capsys, *arguments, "--out", str(whole), "--json")

    from plrvo.training import loop

    def stop(run: loop.Run) -> None:
        if run.step >= 7:
            raise KeyboardInterrupt

    original = loop.record
    try:
        loop.record = stop  # as if the process ended between two checkpoints
        assert main([*arguments, "--out", str(parts), "--json", "--evaluate-every", "9"]) == 130
    finally:
        loop.record = original
    capsys.readouterr()
    assert json.loads((parts / "receipt.json").read_text())["steps"] == 7
    run(capsys, *arguments, "--out", str(parts), "--resume", "--json")
    ours, theirs = load_file(parts / "model.safetensors"), load_file(whole / "model.safetensors")
    assert all(ours[name].equal(theirs[name]) for name in theirs)


def test_separated_visits_restarts_and_a_schedule_are_charged(trained, tmp_path, capsys):
    options = ["--separation", "8", "--schedule", "linear", "--correlation", "banded:4"]
    result = run(capsys, *SHORT, *options, "--out", str(tmp_path / "a"), "--json")
    receipt = json.loads((tmp_path / "a" / "receipt.json").read_text())
    assert receipt["sampler"] == "separated order"
    assert 8 <= receipt["visits"]["smallest_separation"] < 10
    assert result["epsilon_certified"] <= 3
    restarted = run(
        capsys, *SHORT, "--correlation", "tree", "--restart-every", "1", "--out", str(tmp_path / "b"), "--json"
    )
    _, once = trained("tree")
    assert restarted["noise"]["b"] < once["noise"]["b"]


def test_a_saved_plan_with_a_correlation_trains(trained, tmp_path, capsys):
    folder, _ = trained("tree")
    plan = json.loads((folder / "receipt.json").read_text())["plan"]
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    words = ["train", "digits", "--model", "logistic", "--plan", str(tmp_path / "plan.json"), "--seed", "3"]
    result = run(capsys, *words, "--out", str(tmp_path / "b"), "--json")
    assert result["epsilon_certified"] == plan["epsilon_certified"]
    ours, theirs = (load_file(path / "model.safetensors") for path in (tmp_path / "b", folder))
    assert all(ours[name].equal(theirs[name]) for name in theirs)


def test_no_noise_has_no_correlation(tmp_path, capsys):
    words = ["train", "digits", "--model", "logistic", "--noise", "none", "--correlation", "tree", "--epochs", "2"]
    assert main([*words, "--out", str(tmp_path / "run")]) == 2
    assert "plrvo: --correlation tree: expected" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--correlation", "tree"], "--epochs (missing)"),
        (["--correlation", "forest", "--epochs", "2"], "--correlation forest"),
        (["--correlation", "banded", "--epochs", "2"], "--correlation banded"),
        (["--correlation", "banded:0", "--epochs", "2"], "--correlation banded:0"),
        (["--correlation", "banded:999", "--epochs", "2"], "--correlation banded:999"),
        (["--correlation", "tree", "--epochs", "0"], "--epochs 0"),
        (["--correlation", "tree", "--epochs", "2", "--batch-size", "100000"], "--batch-size 100000"),
        (["--correlation", "tree", "--epochs", "2", "--steps", "5"], "--steps 5"),
        (["--correlation", "tree", "--epochs", "2", "--sample-rate", "0.1"], "--sample-rate 0.1"),
        (["--correlation", "tree", "--epochs", "2", "--separation", "50"], "--separation 50"),
        (["--correlation", "tree", "--epochs", "2", "--restart-every", "0"], "--restart-every 0"),
        (["--correlation", "tree", "--epochs", "2", "--clipping", "l1"], "--clipping l1"),
        (["--correlation", "tree", "--epochs", "2", "--audit", "100"], "--audit 100"),
        (["--correlation", "tree:cyclic", "--epochs", "2"], "--correlation tree:cyclic"),
        (["--correlation", "banded:50:cyclic", "--epochs", "2"], "--correlation banded:50:cyclic"),
        (["--correlation", "banded:4:cyclic", "--epochs", "2", "--separation", "4"], "--separation 4"),
        (["--epochs", "2"], "--epochs 2"),
        (["--batch-size", "20"], "--batch-size 20"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(tmp_path, capsys, arguments, named):
    out = tmp_path / "run"
    assert main([*BASE, *arguments, "--out", str(out)]) == 2
    lines = refusals(capsys.readouterr().err)
    assert len(lines) == 1
    assert named in lines[0]
    assert not out.exists()


@pytest.mark.slow
@pytest.mark.data
def test_the_command_of_the_guide_certifies_and_verifies(tmp_path: Path, capsys, data_dir):
    words = ["train", "mnist", "--data-dir", str(data_dir), "--model", "cnn-tanh", "--correlation", "banded:8"]
    words += ["--noise", "gaussian", "--epsilon", "0.9", "--epochs", "3", "--out", str(tmp_path), "--json"]
    result = run(capsys, *words)
    assert result["epsilon_certified"] <= 0.9
    assert result["accuracy"] > 0.8
    assert run(capsys, "verify", str(tmp_path / "receipt.json"), "--json")["verdict"] == "verified"
