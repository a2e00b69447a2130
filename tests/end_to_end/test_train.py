"""`plrvo train` as its users run it: real processes, killed, interrupted, resumed and verified."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.patience import HANGS
from tests.processes import TORCHRUN
from tests.refusals import refusals

import plrvo
from plrvo.cli.main import main

BASE = ["digits", "--model", "logistic", "--noise", "gamma", "--epsilon", "3", "--sample-rate", "0.1", "--clip", "1"]
HOW = ["--seed", "7", "--evaluate-every", "10", "--checkpoint-every", "1"]
FAST = [*BASE, "--steps", "40", *HOW]


def start(*arguments: str, launcher: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *launcher, "-m", "plrvo", "train", *arguments, "--json"]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str], code: int = 0) -> dict:
    out, err = process.communicate(timeout=HANGS)
    assert process.returncode == code, err[-2000:]
    return json.loads(out.strip().splitlines()[-1]) if code == 0 else {}


def weights_in(folder: Path) -> dict:
    return load_file(folder / "model.safetensors")


def wait_for_step(folder: Path, step: int, process: subprocess.Popen[str]) -> None:
    """Until the receipt says so many steps; the process must not end before."""
    deadline = time.monotonic() + HANGS
    while time.monotonic() < deadline:
        assert process.poll() is None, "the run ended before it could be stopped"
        try:
            if json.loads((folder / "receipt.json").read_text())["steps"] >= step:
                return
        except (OSError, ValueError):
            pass
        time.sleep(0.01)
    raise AssertionError("no progress")


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> Path:
    """In this process, and so in as many threads as the others have."""
    folder, threads = tmp_path_factory.mktemp("uninterrupted"), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            assert main(["train", *FAST, "--out", str(folder), "--json"]) == 0
    finally:
        torch.set_num_threads(threads)
    assert json.loads(out.getvalue())["epsilon_certified"] <= 3
    return folder


@pytest.fixture(scope="module")
def planned(uninterrupted, tmp_path_factory) -> list[str]:
    """The same run by its plan: no process has to search for the noise again."""
    plan = tmp_path_factory.mktemp("plan") / "plan.json"
    plan.write_text(json.dumps(json.loads((uninterrupted / "receipt.json").read_text())["plan"]))
    return ["digits", "--model", "logistic", "--plan", str(plan), *HOW]


def same_as(folder: Path, other: Path) -> bool:
    ours, theirs = weights_in(folder), weights_in(other)
    metrics = [(path / "metrics.jsonl").read_text() for path in (folder, other)]
    return metrics[0] == metrics[1] and all(ours[name].equal(theirs[name]) for name in theirs)


def test_a_receipt_of_a_run_verifies_and_a_changed_one_does_not(uninterrupted, capsys, tmp_path):
    receipt = uninterrupted / "receipt.json"
    assert main(["verify", str(receipt), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["verdict"], told["differences"], told["seeded"]) == ("verified", [], True)
    changed = json.loads(receipt.read_text())
    changed["steps"] -= 1
    (tmp_path / "receipt.json").write_text(json.dumps(changed))
    assert main(["verify", str(tmp_path / "receipt.json")]) == 1


def test_interrupted_killed_and_resumed_equals_uninterrupted(tmp_path, uninterrupted, planned):
    """By Ctrl-C at one step, and by a kill at another; at any moment, and many times: `checks.torture`."""
    process = start(*planned, "--out", str(tmp_path))
    wait_for_step(tmp_path, 5, process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=HANGS)
    assert process.returncode == 130
    assert f"plrvo train --resume --out {tmp_path}" in err
    assert "Traceback" not in err
    process = start("--resume", "--out", str(tmp_path))
    wait_for_step(tmp_path, 17, process)
    process.kill()
    process.communicate()
    finish(start(*planned, "--out", str(tmp_path), "--resume"))
    assert same_as(tmp_path, uninterrupted)


def test_two_processes_train_through_the_command(tmp_path, uninterrupted, planned):
    result = finish(start(*planned, "--out", str(tmp_path), launcher=("-m", *TORCHRUN)))
    one = json.loads((uninterrupted / "receipt.json").read_text())
    two = json.loads((tmp_path / "receipt.json").read_text())
    assert two["run"]["processes"] == 2
    assert two["ledger"] == one["ledger"]
    assert two["run"]["expected_batch_size"] == one["run"]["expected_batch_size"]
    assert abs(result["accuracy"] - one["run"]["metrics"]["accuracy"]) < 0.02
    ours, theirs = weights_in(tmp_path), weights_in(uninterrupted)
    assert all(ours[name].allclose(theirs[name], atol=1e-4, rtol=1e-3) for name in theirs)


@pytest.mark.parametrize("noise", ["gaussian", "laplace", "none"])
def test_baselines_run_by_the_same_command(tmp_path, capsys, noise):
    budget = [] if noise == "none" else ["--epsilon", "3"]
    arguments = ["digits", "--model", "logistic", "--noise", noise, *budget, "--steps", "30", "--sample-rate", "0.1"]
    assert main(["train", *arguments, "--clip", "1", "--seed", "1", "--out", str(tmp_path), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["accuracy"] > 0.5
    assert (tmp_path / "curves.png").stat().st_size > 5000


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["digits", "--delta", "0.01", "--epsilon", "1"], "--delta 0.01"),
        (["digits"], "--epsilon (missing)"),
        (["digits", "--epsilon", "1", "--theta", "3"], "--theta 3.0"),
        (["nothing", "--epsilon", "1"], "nothing"),
        (["digits", "--epsilon", "1", "--model", "abacus"], "--model abacus"),
        (["digits", "--epsilon", "1", "--optimizer", "magic"], "--optimizer magic"),
        (["digits", "--epsilon", "1", "--resume"], "--resume"),
        (["mnist", "--epsilon", "1", "--data-dir", "no-such-folder"], "--data-dir"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(tmp_path, capsys, arguments, named):
    out = tmp_path / "run"
    assert main(["train", *arguments, "--out", str(out), "--steps", "5"]) == 2
    captured = capsys.readouterr()
    lines = refusals(captured.err)
    assert len(lines) == 1
    assert named in lines[0]
    assert not out.exists()


@pytest.mark.parametrize("noise", [[], ["--noise", "none"]])
def test_a_folder_that_holds_a_run_is_not_overwritten(uninterrupted, capsys, noise):
    before = (uninterrupted / "receipt.json").read_bytes()
    assert main(["train", *FAST, *noise, "--out", str(uninterrupted)]) == 2
    assert "--resume" in capsys.readouterr().err
    assert (uninterrupted / "receipt.json").read_bytes() == before


def test_a_run_is_not_resumed_with_other_settings(uninterrupted, capsys):
    before = (uninterrupted / "receipt.json").read_bytes()
    assert main(["train", *FAST, "--lr", "3", "--resume", "--out", str(uninterrupted)]) == 2
    assert "--lr 3.0" in capsys.readouterr().err
    assert (uninterrupted / "receipt.json").read_bytes() == before


def test_a_plan_brings_everything_and_takes_nothing_beside_it(tmp_path, capsys):
    work = plrvo.Workload(sample_rate=0.1, steps=4, clip=1.0, dimension=650)
    plan = tmp_path / "plan.json"
    plrvo.Plan.certify(plrvo.Laplace(2.0), work, 1e-5, 30.0).save(plan)
    base = ["train", "digits", "--model", "logistic", "--plan", str(plan), "--seed", "1"]
    assert main([*base, "--steps", "9", "--out", str(tmp_path / "a")]) == 2
    assert "--steps 9" in capsys.readouterr().err
    assert main([*base, "--out", str(tmp_path / "b"), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["steps"] == 4
    assert result["noise"] == {"noise": "laplace", "b": 2.0}
    assert main([*base[:-4], "--plan", str(tmp_path / "b" / "receipt.json"), "--out", str(tmp_path / "c")]) == 2
    assert "plan" in capsys.readouterr().err


def test_a_file_in_place_of_the_folder_is_one_line(tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("")
    assert main(["train", *FAST, "--out", str(file)]) == 2
    assert "--out" in capsys.readouterr().err
