"""Whether two tensors have the same numbers, up to rounding: in doubles, a piece at a time.

What a try compares may be as large as all that a module gives. Doubles of the whole, and what a comparison makes of
them on its way, would be ten times as much again, and the peak of a run's memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from plrvo.noise.stretches import pieces

LARGEST_DOUBLE = math.nextafter(math.inf, 0)


def alike(one: Tensor, other: Tensor, *, relative: float, absolute: float = 0.0, finite: bool = False) -> bool:
    """Whether |one - other| <= absolute + relative |other| everywhere, as `torch.allclose` has it; none equals none.

    `finite`: where both are numbers.
    """
    if one.shape != other.shape:
        return False
    one, other = one.detach(), other.detach()
    if one.dtype == other.dtype and torch.equal(one, other):  # as most are, which takes no memory to see
        return True
    return all(
        _close(a.double(), b.double(), relative, absolute, finite)
        for a, b in zip(pieces(one), pieces(other), strict=True)
    )


def _close(one: Tensor, other: Tensor, relative: float, absolute: float, finite: bool) -> bool:
    if finite:
        both = one.isfinite() & other.isfinite()
        one, other = one[both], other[both]
    return torch.allclose(one, other, rtol=relative, atol=absolute, equal_nan=True)


def largest(values: Tensor, *, infinite: float = 0.0) -> float:
    """The largest number, whatever its sign; what is none counts for nothing, and what is infinite for `infinite`."""
    return max((float(sizes.max()) for sizes in _sizes(values, infinite)), default=0.0)


def usual(values: Tensor) -> float:
    """The mean of the numbers without their signs; what is none or infinite counts as 0."""
    return sum(float(sizes.sum()) for sizes in _sizes(values, 0.0)) / max(1, values.numel())


def _sizes(values: Tensor, infinite: float) -> Iterator[Tensor]:
    if values.numel():
        yield from (piece.double().abs().nan_to_num_(0.0, infinite, infinite) for piece in pieces(values.detach()))
