"""Processes that torchrun or accelerate starts train one model with a PrivateTrainer, and release what one would."""

import json
from pathlib import Path

import pytest
import torch
from tests.processes import ACCELERATE, TORCHRUN, two_processes
from tests.tasks.test_trainer import STEPS
from tests.tasks.trainer_worker import MODES, found

from plrvo.audit.receipt import verify

WORKER = Path(__file__).with_name("trainer_worker.py")


def started(launcher, what, folder):
    """What each of two processes has found."""
    two_processes(WORKER, what, folder, launcher=launcher)
    return [torch.load(folder / f"{what}-{rank}.pt", weights_only=True) for rank in (0, 1)]


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """Of torchrun, which takes seconds to start: once, for all that is asked of it."""
    folder = tmp_path_factory.mktemp("two")
    return folder, *started(TORCHRUN, "everything", folder)


def check_same(ours, other, one):
    """Both processes and one that trains alone: same batches, noise once, same weights."""
    assert torch.equal(ours["weights"], other["weights"])
    # The noise is the same, so that clipped sums differ by no more than what was released does.
    assert ours["sums"].shape == one["sums"].shape
    assert (ours["sums"] - one["sums"]).abs().max() < 1e-5
    assert (ours["weights"] - one["weights"]).abs().max() < 1e-5
    for mine in (ours, other):
        assert mine["steps"] == mine["global_step"] == one["steps"] == STEPS
        assert mine["rows"] == one["rows"]
        assert mine["epsilon"] == one["epsilon"]
        assert mine["evaluated"] == one["evaluated"] == 2
        assert mine["metrics"] == pytest.approx(one["metrics"], rel=1e-5)
        assert mine["after"] == pytest.approx(one["after"], rel=1e-5)
    assert ours["told"] == one["told"]
    assert other["told"] == 0


@pytest.mark.parametrize("mode", MODES)
def test_two_processes_release_what_one_does(two, tmp_path, mode):
    folder, first, second = two
    check_same(first[mode], second[mode], found(tmp_path, mode))
    assert verify(folder / mode / "receipt.json") == []
    receipt = json.loads((folder / mode / "receipt.json").read_text())
    assert receipt["run"]["processes"] == 2
    assert receipt["run"]["expected_batch_size"] == 6
    assert receipt["complete"]
    assert receipt["steps"] == STEPS
    assert first[mode]["epsilon"] == receipt["epsilon"]["certified"]


def test_accelerate_launches_the_same_run(tmp_path):
    first, second = started(ACCELERATE, "one", tmp_path)
    check_same(first, second, found(tmp_path / "alone"))
    assert verify(tmp_path / "one" / "receipt.json") == []
    assert json.loads((tmp_path / "one" / "receipt.json").read_text())["run"]["processes"] == 2


def test_two_processes_go_on_from_the_checkpoint_of_the_first(two):
    folder, first, second = two
    for mine in (first["resumed"], second["resumed"]):
        assert torch.equal(mine["weights"], mine["whole"])
        assert mine["steps"] == STEPS
        assert mine["batches"] == [3, 3]
    assert verify(folder / "run" / "receipt.json") == []
    assert json.loads((folder / "run" / "receipt.json").read_text())["complete"]
    assert (folder / "run" / "checkpoint-2" / "private.safetensors").stat().st_mode & 0o077 == 0  # it is secret


def test_without_a_seed_batches_are_drawn_together_and_noise_is_secret(two):
    folder, *found = two
    first, second = (mine["unseeded"] for mine in found)
    assert torch.equal(first["weights"], second["weights"])
    assert first["batches"] == second["batches"]
    assert first["noise"] != second["noise"]
    assert verify(folder / "unseeded" / "receipt.json") == []
    assert json.loads((folder / "unseeded" / "receipt.json").read_text())["run"]["seeded"] is False


def test_an_account_is_charged_once(two):
    folder, first, second = two
    assert first["charged"] == second["charged"] == [STEPS]
    assert verify(folder / "charged" / "receipt.json", budget=folder / "charged" / "a.budget") == []


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("shuffled", "in the same order"),
        ("shorter", "data_loader='not the same in all"),
        ("other_plan", "plan='not the same in all"),
        ("each_node", "save_on_each_node"),
    ],
)
def test_every_process_refuses_what_would_be_no_run_together(two, what, said):
    folder, first, second = two
    assert said in first[what]
    assert first[what] == second[what]
    assert first[what].isprintable()
    assert not (folder / what / "receipt.json").exists()
