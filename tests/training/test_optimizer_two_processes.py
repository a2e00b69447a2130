"""Two processes (gloo) release what one process releases: the same batches, the noise added once."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from tests.processes import two_processes
from tests.training.two_process_worker import MODES, train

WORKER = Path(__file__).with_name("two_process_worker.py")


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> dict[str, torch.Tensor]:
    """What two processes find, which take seconds to start: once, for all modes."""
    out = tmp_path_factory.mktemp("two") / "found.safetensors"
    two_processes(WORKER, out)
    return load_file(out)


@pytest.mark.parametrize("mode", MODES)
def test_two_processes_give_the_weights_of_one(two, mode):
    """Same seeds, so equality up to the order of summation: stronger than equality in distribution.

    Noise added by both processes, or divided by their number, or batches of other sizes, would each move the weights by
    many times the tolerance (the noise has size 0.5 at sum scale).
    """
    one = train(mode, several=False)
    assert one["steps"].item() == two[f"{mode}.steps"].item() == 6
    torch.testing.assert_close(two[f"{mode}.weights"], one["weights"], atol=2e-6, rtol=1e-4)


def test_an_optimizer_whose_state_is_shared_out_takes_the_same_steps(two):
    """`ZeroRedundancyOptimizer`: each process has the state of some parameters, and together they have it all."""
    one = train("auto", several=False)
    assert one["steps"].item() == two["apart.steps"].item()
    torch.testing.assert_close(two["apart.weights"], one["weights"], atol=2e-6, rtol=1e-4)
    assert two["apart.state"].sum() == one["state"]
    assert (two["apart.state"] > 0).all()


@pytest.mark.parametrize("mode", MODES)
def test_hooks_of_every_process_see_the_noisy_mean_of_all(two, mode):
    """And never the sum of a process's own examples, to which only the first has added noise."""
    one = train(mode, several=False)["shown"]
    for shown in two[f"{mode}.shown"]:
        torch.testing.assert_close(shown, one, atol=2e-6, rtol=1e-4)
