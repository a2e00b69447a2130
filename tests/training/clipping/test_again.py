"""Modules that give one number for all examples: its share of each example, or a refusal."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.training.clipping.helpers import by_loop
from tests.training.clipping.test_layers import normal, randomised
from tests.training.clipping.test_samples import Clipping
from torch import Tensor, nn

from plrvo.training.clipping import SamplesModule
from plrvo.training.clipping.again import Known, again
from plrvo.training.clipping.module import Inputs
from plrvo.training.clipping.samples import WholeModule
from plrvo.validate import InvalidArgument

ROWS = 5


class OwnLoss(nn.Module):
    """A parameter of its own, and the loss of what it gives."""

    def __init__(self, reduce: Callable[[Tensor], Tensor] | None = torch.mean, *, pair: bool = False) -> None:
        super().__init__()
        self.scale, self.linear, self.reduce, self.pair = nn.Parameter(torch.ones(6)), nn.Linear(6, 3), reduce, pair

    def forward(self, x: Tensor) -> Any:
        y = self.linear(x * self.scale)
        losses = y.square().sum(dim=1) - 2
        loss = losses if self.reduce is None else self.reduce(losses)
        return (y, loss) if self.pair else loss


@pytest.mark.parametrize("pair", [False, True])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("clip", [1e-2, 1e4])
@pytest.mark.parametrize("kind", [SamplesModule, WholeModule])
def test_a_number_goes_back_by_example(kind: Any, clip: float, reduction: str, pair: bool) -> None:
    module, x = randomised(OwnLoss(getattr(torch, reduction), pair=pair)), normal(ROWS, 6)
    wrapped = kind(module, loss_reduction=reduction)
    inner = torch.optim.SGD(module.parameters(), lr=0.1)
    optimizer = Clipping(
        inner, noise_multiplier=0.0, max_grad_norm=clip, expected_batch_size=1, loss_reduction=reduction
    )
    optimizer.keep(wrapped.book)
    output = wrapped(x)
    (output[1] if pair else output).backward()
    optimizer.clip_and_accumulate()
    wrapped.cleanup()
    module.reduce, module.pair = None, False
    for found, expected in zip(optimizer.sums, by_loop(module, x, clip, lambda losses: losses), strict=True):
        assert torch.allclose(found, expected, rtol=1e-4, atol=1e-6)


def shares(module: nn.Module, x: Tensor, known: Known, number: Tensor | None = None) -> Tensor:
    """Of each example, by the gradient of the bias: which is known in multiples of one."""
    number = module(x).detach() if number is None else number
    inputs = Inputs((x,), {}, rows=len(x), number=number, close=1e-3)
    return {p: c.per_example() for p, c in again(0, known, module, inputs, torch.ones(()))}[module.linear.bias]


def test_what_was_seen_once_is_remembered_where_numbers_do_not_tell() -> None:
    """Losses that add up to zero are the same as mean and as sum; those that are no numbers tell nothing."""
    x = torch.tensor([[2.0] * 6, [0.0] * 6])
    for reduce, others in ((torch.mean, "sum"), (torch.sum, "mean")):
        module = randomised(OwnLoss(reduce))
        alone = {row: shares(module, x[row : row + 1], Known())[0] for row in (0, 1)}
        losses = torch.stack([module(row[None]).detach() for row in x])
        zero = losses.sum() - losses.sum()
        known, divided = Known(others), 2 if reduce is torch.mean else 1
        guessed = shares(OwnLossShifted(module, losses.mean()), x, known, zero)
        assert torch.allclose(guessed[0], alone[0] / (1 if others == "sum" else 2))
        assert torch.allclose(shares(module, x, known)[0], alone[0] / divided)
        assert torch.allclose(shares(OwnLossShifted(module, losses.mean()), x, known, zero)[0], alone[0] / divided)
        assert torch.allclose(shares(module, x, known, torch.tensor(torch.nan))[0], alone[0] / divided)


class OwnLossShifted(nn.Module):
    """Losses around another middle."""

    def __init__(self, own: nn.Module, middle: Tensor) -> None:
        super().__init__()
        self.own, self.linear, self.middle = own, own.linear, middle

    def forward(self, x: Tensor) -> Tensor:
        loss: Tensor = self.own(x) - self.middle
        return loss


@pytest.mark.parametrize(
    "reduce",
    [lambda v: v.square().mean().sqrt(), lambda v: v.max(), lambda v: v.sum() / (len(v) + 1)],
    ids=["rms", "max", "other"],
)
def test_another_number_of_all_examples_is_refused(reduce: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(InvalidArgument, match=r"one number for all examples.*return the losses by example"):
        shares(randomised(OwnLoss(reduce)), normal(ROWS, 6), Known())


def test_a_number_without_a_gradient_asks_nothing() -> None:
    """One that is returned to be looked at, and has no part in the loss, may be any."""
    module, x = randomised(OwnLoss(torch.max)), normal(ROWS, 6)
    inputs = Inputs((x,), {}, rows=ROWS, number=module(x).detach(), close=1e-3)
    for _, contribution in again(0, Known(), module, inputs, torch.zeros(())):
        assert not contribution.per_example().any()


class TwoNames(nn.Module):
    """A layer that is in two places, beside a parameter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.inner = nn.Parameter(torch.ones(6)), nn.Sequential(nn.Linear(6, 6))
        self.other = self.inner[0]

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.inner(x * self.scale).tanh() + self.other(x)
        return found


class Within(nn.Module):
    """The same layer twice, and nothing beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(6, 6))
        self.other = self.inner[0]

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.other(self.inner(x).tanh())
        return found


@pytest.mark.parametrize("kind", [SamplesModule, WholeModule])
@pytest.mark.parametrize("make", [TwoNames, Within])
def test_a_layer_that_has_two_names_is_one_and_keeps_its_parameters(make: Any, kind: Any) -> None:
    module, x = randomised(make()), normal(ROWS, 6)
    weight, loss = module.other.weight, lambda y: y.square().sum(dim=1)
    wrapped = kind(module)
    for _ in range(2):
        wrapped.zero_grad()
        loss(wrapped(x)).mean().backward()
        found = {p: wrapped.book.contributions(p)[0].per_example() * ROWS for p in module.parameters()}
    wrapped.cleanup()
    assert module.other.weight is weight
    for row in range(ROWS):
        expected = torch.autograd.grad(loss(module(x[row : row + 1])).sum(), list(module.parameters()))
        for p, e in zip(module.parameters(), expected, strict=True):
            assert torch.allclose(found[p][row], e, rtol=1e-4, atol=1e-5)
