"""The scripts in examples/ that Opacus has no counterpart of."""

import re
import runpy
import warnings
from pathlib import Path

import pytest
import torch
from tests.processes import two_processes

FOLDER = Path(__file__).parents[2] / "examples"


def told(output: str) -> list[float]:
    return [float(found) for found in re.findall(r"(?:epoch|round) \d: epsilon (\d+\.\d+)", output)]


def check(epsilons: list[float], number: int) -> None:
    assert len(epsilons) == number
    assert epsilons == sorted(set(epsilons))
    assert epsilons[0] > 0


@pytest.mark.parametrize("name", ["alone", "gpt2", "federated", "images"])
def test_an_example_runs(name, capsys):
    example = runpy.run_path(str(FOLDER / f"{name}.py"))
    with warnings.catch_warnings(), torch.random.fork_rng():
        warnings.simplefilter("ignore")
        torch.manual_seed(1)
        example["main"](2)
    check(told(capsys.readouterr().out), 2)


def test_updates_of_clients_are_no_longer_than_the_clip_whatever_they_are():
    clipped = runpy.run_path(str(FOLDER / "federated.py"))["clipped"]
    for update in (torch.ones(7), torch.full((7,), 1e-3), torch.full((7,), 1e20), torch.full((7,), torch.inf)):
        assert clipped(update).norm() <= 1.0
    assert not clipped(torch.tensor([torch.nan, 1.0])).any()
    torch.testing.assert_close(clipped(torch.full((7,), 1e-3)).float(), torch.full((7,), 1e-3))


def in_two_processes(name: str) -> str:
    output = two_processes(FOLDER / f"{name}.py")
    check(told(output), 3)
    return output


def test_two_processes_tell_one_epsilon():
    in_two_processes("ddp")


def test_processes_that_share_out_a_model_have_what_the_guide_says():
    output = in_two_processes("fsdp2")
    found = re.findall(
        r"process \d: (\d+) of (\d+) bytes of weights, (\d+) of gradients, (\d+) of Adam's state", output
    )
    assert len(found) == 2
    assert found[0] == found[1]
    weights, total, gradients, state = map(int, found[0])
    assert (2 * weights, 2 * gradients, 2 * state) == (total, total, 2 * total)
    guide = (FOLDER.parent / "docs" / "guide-opacus.md").read_text()
    line = (
        f"`examples/fsdp2.py`, {total // 4} parameters, in each of two processes | {weights} | {gradients} | {state} |"
    )
    assert line in guide
