"""Gradients in the order in memory of their parameters, whatever order their sums came out in."""

import pytest
import torch
from tests.training.helpers import private, take_steps
from torch import nn

from plrvo.training.strides import lay_out


@pytest.mark.parametrize(
    "values",
    [torch.randn(2, 3, 4, 4), torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last), torch.randn(3, 2, 4, 4)],
    ids=["contiguous", "channels last", "transposed"],
)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_a_gradient_keeps_its_values_and_takes_its_parameters_strides(values, memory_format):
    p = nn.Parameter(torch.zeros(2, 3, 4, 4).to(memory_format=memory_format))
    p.grad = values if values.shape == p.shape else values.transpose(0, 1)
    before = p.grad.clone()
    lay_out([p])
    assert torch.equal(p.grad, before)
    assert p.grad.stride() == p.stride()
    assert not p.grad.requires_grad


def test_a_gradient_that_lies_as_its_parameter_does_is_not_copied():
    p = nn.Parameter(torch.zeros(4, 8, 1, 1))
    for grad in (torch.ones(4, 8, 1, 1), torch.ones(4, 8).as_strided((4, 8, 1, 1), (8, 1, 8, 8))):
        p.grad = grad  # the second differs in steps that nothing takes
        lay_out([p])
        assert p.grad is grad


@pytest.mark.parametrize("mode", ["auto", "bookkeeping", "hooks"])
@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_a_fused_optimizer_moves_the_weights_that_another_moves(mode, name):
    """Of weights in `channels_last`, whose sums come out in another order."""
    found = []
    for fused in (False, True):
        module = nn.Sequential(nn.Conv2d(1, 3, 3), nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(64, 4))
        with torch.no_grad():
            for p in module.parameters():
                p.copy_(torch.linspace(-0.1, 0.1, p.numel()).view(p.shape))
        _, model, optimizer, loss, loader = private(
            module=module.to(memory_format=torch.channels_last), mode=mode, steps=3
        )
        optimizer.original_optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.1, fused=fused)
        take_steps(model, optimizer, loss, loader)
        found.append([p.detach().clone() for p in model.parameters()])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)
