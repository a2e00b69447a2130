"""Two processes that share out a module's parameters (FSDP2) release what one process releases that has them all."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.processes import two_processes
from tests.training.sharded_worker import CASES, STEPS, train

import plrvo

WORKER = Path(__file__).with_name("sharded_worker.py")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """What two processes leave, which also meet their refusals: once, for all tests."""
    out = tmp_path_factory.mktemp("sharded")
    two_processes(WORKER, out)
    return out


@pytest.fixture(scope="module")
def two(folder) -> dict[str, torch.Tensor]:
    return load_file(folder / "found.safetensors")


@pytest.mark.parametrize("name", CASES)
def test_two_processes_give_the_weights_and_the_noisy_sums_of_one(two, name):
    """With the same seeds, so equality up to the order of summation, for noise with one scale for all coordinates too.

    Noise of processes' own, or added twice, or an example clipped twice, would each move what hooks are shown by many
    times the tolerance (the noise has size 0.5 at sum scale). Adam is given a gradient of each size.
    """
    one = train(name, several=False)
    assert one["steps"].item() == two[f"{name}.steps"].item() == STEPS
    assert torch.equal(two[f"{name}.sizes"].sum(dim=0), one["sizes"])
    for shown in two[f"{name}.shown"]:
        torch.testing.assert_close(shown, one["shown"], atol=1e-5, rtol=1e-4)
    for what in ("weights", "average"):
        torch.testing.assert_close(two[f"{name}.{what}"], one[what], atol=1e-5, rtol=1e-4)


def test_batches_without_examples_in_one_process_take_their_step(two):
    sizes = two["empty.sizes"]
    assert ((sizes == 0).any(dim=0) & (sizes > 0).any(dim=0)).any()


def test_each_process_has_half_of_weights_gradients_and_state(two):
    weights, gradients, state = two["memory.whole"][0].tolist()
    assert weights == gradients == state / 2
    assert two["memory.sharded"].sum(dim=0).tolist() == [weights, gradients, state]
    assert (two["memory.sharded"] == two["memory.whole"] / 2).all()


def test_noise_of_shares_is_fresh_in_each_process_and_as_wide_as_planned(two):
    """20,200 coordinates of standard deviation 1, keys of the operating system: 5 standard errors each, 1e-6 in all.

    Of 1e8 pairs of singles some are equal by chance, two on average.
    """
    noise = two["noise"].double()
    own, other = noise[:10_000], noise[10_000:20_000]
    assert abs(noise.var().item() - 1) < 5 * (2 / len(noise)) ** 0.5
    assert abs((own * other).mean().item()) < 5 / len(own) ** 0.5
    assert len(set(own.tolist()) & set(other.tolist())) < 30


def test_one_receipt_of_two_processes_verifies(folder):
    receipt = json.loads((folder / "receipt.json").read_text())
    assert receipt["run"]["processes"] == 2
    assert receipt["run"]["grad_sample_mode"] == "bookkeeping"
    assert receipt["run"]["seeded"] is False
    assert receipt["steps"] == STEPS == sum(entry["workload"]["steps"] for entry in receipt["ledger"])
    assert plrvo.verify(folder / "receipt.json") == []
