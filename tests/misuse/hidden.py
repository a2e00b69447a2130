"""B, continued. Layers that mix examples where a first batch, or the weights that a model starts with, hide it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from tests.misuse.sensitivity import WITHIN, B
from tests.misuse.setting import CLASSES, FEATURES, Private, data, effect_of_first
from torch import Tensor, nn

from plrvo.validate import InvalidArgument


class Fills(nn.Module):
    """What is missing in its inputs is filled in."""

    def __init__(self, fill: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.fill, self.into, self.out = fill, nn.Linear(FEATURES, 8), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.relu(self.into(self.fill(x))))  # type: ignore[no-any-return]


def _by_the_mean(x: Tensor) -> Tensor:
    return torch.where(x.isnan(), x.nanmean(dim=0), x)


def _by_the_median(x: Tensor) -> Tensor:
    return torch.where(x.isinf(), x.median(dim=0).values, x)


def _with_holes(value: float, share: float = 0.3) -> tuple[Tensor, Tensor]:
    x, y = (t[:40] for t in data().tensors)
    return x.masked_fill(torch.rand(x.shape, generator=torch.Generator().manual_seed(2)) < share, value), y * 0


for _what, _fill, _value, _share in (
    ("missing values (NaN) by the mean of the batch", _by_the_mean, math.nan, 0.3),
    ("infinities by the median of the batch", _by_the_median, math.inf, 0.3),
    ("missing values by the mean of the batch, with none missing in the first batches", _by_the_mean, math.nan, 0.0),
):

    @B.row(
        f"fill in {_what}, inside of the module",
        "refused on the first batch: rows are tried as they came, and with numbers that are none beside others",
        modes=("bookkeeping", "hooks"),
        error=InvalidArgument,
        match="mixes them",
    )
    def fills(mode: str, fill: Any = _fill, value: float = _value, share: float = _share) -> None:
        x, y = _with_holes(value, share)
        Private(mode, Fills(fill)).released(x, y)


@B.row(
    "fill in missing values by a constant, or by something of the example's own",
    "works: one example moves the sum by one clip at most",
    modes=("bookkeeping", "hooks"),
)
def fills_by_itself(mode: str) -> None:
    x, y = _with_holes(math.nan)
    x[0] = 1000.0
    for fill in (torch.nan_to_num, lambda x: torch.where(x.isnan(), x.nanmean(dim=1, keepdim=True), x)):
        assert effect_of_first(mode, x, y, Fills(fill)) <= WITHIN
