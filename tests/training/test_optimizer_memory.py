"""A private step needs no second copy of the gradient: its peak of memory is that of a step without privacy.

Peaks are those of this process, which Linux tells and lets one reset. Tensors are so long that each has pages of its
own, which go back when it is let go.
"""

from pathlib import Path

import pytest
import torch
from tests.training.helpers import given, private
from torch import nn

SIDE = 3200
GRADIENT = 4 * SIDE * SIDE  # bytes: one parameter, which is the largest there can be
BUFFERS = 20 << 20  # blocks in which noise is drawn, and what is small
LOADED = 40 << 20  # what libraries load and set up when they are first used
RESET, STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def kilobytes(name):
    return int(STATUS.read_text().split(f"{name}:")[1].split()[0])


def peak(work):
    """Bytes beyond those there were before."""
    before = kilobytes("VmRSS")
    RESET.write_text("5")
    work()
    return 1024 * (kilobytes("VmHWM") - before)


def resets():
    try:
        RESET.write_text("5")
    except OSError:
        return False
    return STATUS.exists() and "VmHWM" in STATUS.read_text()


@pytest.mark.skipif(not resets(), reason="peaks of memory are told and reset by Linux")
@pytest.mark.parametrize("postprocess", [None, "score"])
def test_a_step_has_room_for_one_gradient_and_its_trials_for_two(postprocess):
    x, y = torch.randn(4, SIDE), torch.randint(0, SIDE, (4,))
    module = nn.Linear(SIDE, SIDE, bias=False)
    data = torch.utils.data.TensorDataset(x, y)
    _, model, optimizer, loss, _ = private(
        mode="bookkeeping", module=module, data=data, sample_rate=1.0, postprocess=postprocess
    )

    def step():
        optimizer.zero_grad()
        given(optimizer, len(x))
        loss(model(x), y).backward()
        optimizer.step()

    assert peak(step) < 2 * GRADIENT + BUFFERS + LOADED  # gradients of a row, and of the same row by another way
    optimizer.zero_grad()
    for _ in range(2):
        assert peak(step) < GRADIENT + BUFFERS
        optimizer.zero_grad()
