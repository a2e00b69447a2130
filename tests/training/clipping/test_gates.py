"""The gates' gradients give those of the weights, as autograd has them through torch's own kernels."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.training.clipping.test_layers import normal
from torch import nn

from plrvo.training.clipping.gates import Steps, Weights, through_time

STEPS, ROWS, WIDTH, SIZE = 4, 3, 2, 5
LAYERS: dict[str, Any] = {"LSTM": nn.LSTM, "GRU": nn.GRU, "RNN_TANH": nn.RNN}


def weights_of(layer: Any) -> Weights:
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    return Weights(*(getattr(layer, name).detach() for name in names))


@pytest.mark.parametrize("kind", LAYERS)
def test_sums_of_outer_products_are_the_gradients_of_the_weights(kind: str) -> None:
    layer, x, towards = LAYERS[kind](WIDTH, SIZE), normal(STEPS, ROWS, WIDTH), normal(STEPS, ROWS, SIZE)
    y, last = layer(x)
    expected = torch.autograd.grad(y, list(layer.parameters()), towards)
    zeros = tuple(torch.zeros(ROWS, SIZE) for _ in (last if isinstance(last, tuple) else (last,)))
    steps = Steps(x, y.detach(), zeros)
    found = through_time(kind, weights_of(layer), steps, towards, zeros)
    sums = (
        torch.einsum("tbg,tbi->gi", found.of_inputs, x),
        torch.einsum("tbg,tbi->gi", found.of_states, steps.before),
        found.of_inputs.sum(dim=(0, 1)),
        found.of_states.sum(dim=(0, 1)),
    )
    for one, other in zip(sums, expected, strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", LAYERS)
def test_a_step_without_an_example_has_no_part_and_leaves_the_state(kind: str) -> None:
    layer, x = LAYERS[kind](WIDTH, SIZE), normal(STEPS, ROWS, WIDTH)
    zeros = tuple(torch.zeros(ROWS, SIZE) for _ in range(2 if kind == "LSTM" else 1))
    last = tuple(normal(ROWS, SIZE) for _ in zeros)
    short = Steps(x[:2], layer(x[:2])[0].detach(), zeros)
    padded = torch.cat([short.outputs, torch.zeros(STEPS - 2, ROWS, SIZE)])
    there = (torch.arange(STEPS) < 2)[:, None, None].expand(STEPS, ROWS, 1)
    one = through_time(kind, weights_of(layer), short, torch.zeros(2, ROWS, SIZE), last)
    other = through_time(kind, weights_of(layer), Steps(x, padded, zeros, there), torch.zeros(STEPS, ROWS, SIZE), last)
    assert torch.allclose(other.of_inputs[:2], one.of_inputs, atol=1e-6)
    assert not other.of_inputs[2:].any()
    assert not other.of_states[2:].any()
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(one.first, other.first, strict=True))
