"""Gradients of single examples from what a book holds of them, one at a time: all at once may not fit into memory."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from plrvo.training.clipping.contributions import Contribution
from plrvo.training.clipping.precision import in_full_precision


class Rows:
    """Those of one parameter, by the sums that a step releases."""

    def __init__(self, parameter: nn.Parameter, contributions: list[Contribution], count: int) -> None:
        self._device, self._contributions, self._count = parameter.device, contributions, count

    def __getitem__(self, row: int) -> Tensor:
        chosen = torch.tensor([row], device=self._device)
        return self._total([c.of(chosen) for c in self._contributions], 1)

    def __iter__(self) -> Iterator[Tensor]:
        return (self[row] for row in range(self._count))

    def total(self) -> Tensor:
        """Of all examples together."""
        return self._total(self._contributions, self._count)

    @torch.no_grad()
    @in_full_precision
    def _total(self, contributions: list[Contribution], count: int) -> Tensor:
        first, *others = (c.weighted_sum(torch.ones(count, device=self._device)) for c in contributions)
        return sum(others, start=first)
