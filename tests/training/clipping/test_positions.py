"""Positions that are looked up once for all examples, and cut to the length of the batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.training.clipping.helpers import Clipping, by_loop, squares
from tests.training.clipping.test_layers import normal
from torch import Tensor, nn

from plrvo.training.clipping.mode import wrapper_of
from plrvo.validate import InvalidArgument

MOST, WIDTH = 9, 3


class Cut(nn.Module):
    """Looks all positions up, and takes some of them."""

    def __init__(self, take: Any) -> None:
        super().__init__()
        self.take = take
        with torch.random.fork_rng():
            torch.manual_seed(3)
            self.into, self.positions, self.out = (
                nn.Linear(WIDTH, WIDTH),
                nn.Embedding(MOST, WIDTH),
                nn.Linear(WIDTH, 2),
            )
        self.register_buffer("numbers", torch.arange(MOST))

    def forward(self, x: Tensor) -> Tensor:
        return self.out((self.into(x) + self.take(self.positions(self.numbers), x.shape[1])).tanh())


def sums(module: nn.Module, x: Tensor) -> list[Tensor]:
    wrapped = wrapper_of("bookkeeping", module)(module)
    optimizer = Clipping(
        torch.optim.SGD(module.parameters(), lr=0.1), noise_multiplier=0.0, max_grad_norm=0.3, expected_batch_size=1
    )
    optimizer.keep(wrapped.book)
    try:
        squares(wrapped(x)).mean().backward()
        optimizer.clip_and_accumulate()
    finally:
        wrapped.cleanup()
    return optimizer.sums


@pytest.mark.parametrize("rows", [4, MOST, MOST + 2])  # fewer than positions, as many, more
@pytest.mark.parametrize("take", [lambda p, n: p[:n], lambda p, n: p[:n, :], lambda p, n: p[None, :n]])
def test_cut_positions_give_the_sums_of_a_loop(take, rows):
    module, x = Cut(take), normal(rows, 5, WIDTH)
    expected = by_loop(module, x, 0.3)
    size = sum(float(e.square().sum()) for e in expected) ** 0.5
    for found, by_hand in zip(sums(module, x), expected, strict=True):
        assert float((found - by_hand).norm()) <= 2.0**-7 * size


def test_other_ways_of_taking_them_are_refused():
    with pytest.raises(InvalidArgument, match="functorch"):
        sums(Cut(lambda p, n: p[torch.arange(n)]), normal(4, 5, WIDTH))
