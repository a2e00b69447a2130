"""Factors of a gradient at the ends of the singles' range, and sums of very many examples: within the clip."""

import math

import pytest
import torch
from tests.training.clipping.helpers import Clipping
from tests.training.helpers import seeded
from torch import nn

from plrvo.training.clipping import check_clip
from plrvo.training.clipping.contributions import Outer, PerExample
from plrvo.training.clipping.module import Book
from plrvo.validate import InvalidArgument


def released(left: torch.Tensor, right: torch.Tensor, clip: float, reduction: str) -> torch.Tensor:
    """What a weight with these factors releases."""
    p = nn.Parameter(torch.zeros(left.shape[2], right.shape[2]))
    optimizer = Clipping(
        torch.optim.SGD([p], lr=0.1),
        noise_multiplier=0.0,
        max_grad_norm=clip,
        expected_batch_size=1,
        loss_reduction=reduction,
    )
    book = Book()
    book.batch_size = len(left)
    book.add(p, Outer(left, right))
    optimizer.keep(book)
    optimizer.clip_and_accumulate()
    return optimizer.sums[0].double()


def test_factors_that_would_overflow_leave_the_example_out() -> None:
    """Numbers of 3e38 times others of 1e-42 are a small gradient; 3e38 times the batch size is infinite."""
    left, right = torch.randn(2, 2, 2, 8, generator=seeded(5))
    left[1], right[1] = 1e-42, 3e38
    huge = released(left, right, 1.0, "mean")
    right[1] = 0
    assert torch.equal(huge, released(left, right, 1.0, "mean"))


@pytest.mark.parametrize("clip", [1.0, 1e-3, 2.0**-16, 2.0**-17, 1e-6, 1e-12, 1e-20])
@pytest.mark.parametrize("size", [2.0**40, 2.0**62, 2.0**126])
def test_factors_that_underflow_are_released_within_the_clip(clip: float, size: float) -> None:
    """l f below the normal numbers rounds by up to a half of itself: 1.95 clips were released."""
    for power in torch.linspace(0, 1, 9):
        for exponent in (-100.0, 20.0 - math.log2(size)):
            left = torch.full((1, 2, 63), 2.0 ** (exponent + float(power)))
            assert released(left, torch.full((1, 2, 64), size), clip, "sum").norm() <= clip


@pytest.mark.parametrize(("count", "columns", "most"), [(65_536, 16, 1.001), (262_144, 8, 1.01)])
def test_what_the_last_bits_of_a_large_sum_cost(count: int, columns: int, most: float) -> None:
    """Examples that point one way: the worst for partial sums in singles. docs/sharp-edges.md has these numbers."""
    gradients = 10 + torch.randn(count, columns, generator=seeded(6))

    def clipped(some: torch.Tensor) -> torch.Tensor:
        norms = PerExample(some).squared_norms().sqrt()
        return PerExample(some).weighted_sum((1 / norms).clamp(max=1.0)).double()

    whole = clipped(gradients)
    for i in (0, 1, count // 2, count - 1):
        assert (whole - clipped(torch.cat([gradients[:i], gradients[i + 1 :]]))).norm() <= most


def test_clips_that_singles_cannot_hold_are_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"clip=1e-21.*at least 1e-20"):
        check_clip(1e-21)
