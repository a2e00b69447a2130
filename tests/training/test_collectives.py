"""What other processes have is no part of a module or a loss; a group of one process asks all the same."""

import pytest
import torch
from tests.training.helpers import private
from torch import distributed, nn

from plrvo.training.loss_form import NotASum
from plrvo.validate import InvalidArgument


@pytest.fixture(autouse=True)
def one_process():
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def in_place(t):
    everywhere = [torch.zeros_like(t)]
    distributed.all_gather(everywhere, t)
    return everywhere[0]


def as_a_function(t):
    operations = torch.ops._c10d_functional
    return operations.wait_tensor(operations.all_gather_into_tensor(t, 1, distributed.group.WORLD.group_name)).clone()


class Gathers(nn.Module):
    def __init__(self, gather):
        super().__init__()
        self.linear, self.gather = nn.Linear(64, 4), gather

    def forward(self, x):
        found = self.linear(x.flatten(1))
        return found + self.gather(torch.ones(1)) * 1e-3


@pytest.mark.parametrize("gather", [in_place, as_a_function])
@pytest.mark.parametrize("mode", ["bookkeeping", "functorch"])
def test_a_module_that_asks_other_processes_is_refused(gather, mode):
    _, model, _, _, loader = private(module=Gathers(gather), mode=mode)
    with pytest.raises(InvalidArgument, match="works on its own process's examples"):
        model(next(iter(loader))[0])


@pytest.mark.parametrize("gather", [in_place, as_a_function])
@pytest.mark.parametrize("sample_rate", [0.1, 0.004])  # also of one example, which has no other beside it here
def test_a_loss_of_what_other_processes_have_is_refused(gather, sample_rate):
    _, model, optimizer, loss, loader = private(sample_rate=sample_rate, steps=40)
    for x, y in loader:
        optimizer.zero_grad()
        outputs = model(x)
        factor = 1 + gather(outputs.detach().sum().reshape(1)) ** 2
        if len(x):
            with pytest.raises(NotASum, match="other processes"):
                (loss(outputs, y) * factor).sum().backward()
            return
        optimizer.step()
    raise AssertionError("no batch had an example")


def test_a_loop_may_look_at_what_all_processes_have():
    _, model, optimizer, loss, loader = private(steps=3)
    for x, y in loader:
        optimizer.zero_grad()
        outputs = model(x)
        in_place(outputs.detach())
        value = loss(outputs, y)
        distributed.all_reduce(value.detach().clone())
        value.backward()
        optimizer.step()
