"""Sums of products in single precision, and what rounding can hide of them: lengths from above, scalar products."""

from __future__ import annotations

import torch
from torch import Tensor

from plrvo.training.clipping.matrices import each_product
from plrvo.training.clipping.precision import wide

_HIDDEN = 2.0**-8
_STRETCH = 128  # numbers whose squares are added up in singles
_LONG = 512  # terms of a scalar product that are


def with_rounding(norms: Tensor, sizes: Tensor, additions: int, dtype: torch.dtype) -> Tensor:
    """Norms of what is released, rounding included, and no smaller than a share of what cancels in it.

    An example that consists of huge parts which cancel would make the partial sums of a batch huge, and so the
    rounding of all others coarse: its presence would show in them. So it counts for 2^-8 of its parts at least.
    """
    unit = torch.finfo(dtype).eps / 2
    return torch.maximum(norms + additions * unit * sizes, sizes * _HIDDEN) * (1 + 2.0**-40)


def squared_lengths(values: Tensor) -> Tensor:
    """The sum of squares over the last dimension, in doubles and from above.

    Singles are added up in stretches of 128 only. A sum of k squares, which cannot cancel, is off by at most k + 4
    units, a share below 2^-16, which is added; the stretches are then added up in doubles. (To convert everything to
    doubles first takes ten times as long.) Underflow loses less than the smallest normal number of a square, added too.
    """
    whole = values.shape[-1] // _STRETCH * _STRETCH
    stretches = values[..., :whole].reshape(*values.shape[:-1], whole // _STRETCH, _STRETCH)
    total = torch.linalg.vector_norm(stretches, dim=-1).double().square().sum(dim=-1)
    total += torch.linalg.vector_norm(values[..., whole:], dim=-1).double().square()
    return total * (1 + 2.0**-16) + values.shape[-1] * torch.finfo(values.dtype).tiny


def largest(values: Tensor) -> Tensor:
    """The largest number of each example, whatever its sign."""
    flat = values.flatten(1)  # two passes, of which each takes a tenth of the time of a norm
    return torch.maximum(flat.amax(dim=1), -flat.amin(dim=1)) if flat.shape[1] else flat.new_zeros(len(flat))


def cleared(values: Tensor, rows: Tensor) -> Tensor:
    """With zeros in the place of these examples."""
    return values.masked_fill(rows.view(-1, *[1] * (values.ndim - 1)), 0)


def gram(one: Tensor, other: Tensor) -> Tensor:
    """<one_s, other_t> for all pairs of positions."""
    one, other = wide(one), wide(other)
    number = _parts(one.shape[2])
    if number == 1:
        if one.shape[1] == other.shape[1] == 1:
            return (one * other).sum(dim=2, keepdim=True)
        return each_product(one, other.transpose(1, 2))
    total = torch.zeros(len(one), one.shape[1], other.shape[1], dtype=torch.float64, device=one.device)
    for part, beside in zip(one.chunk(number, dim=2), other.chunk(number, dim=2), strict=True):
        total += each_product(part, beside.transpose(1, 2))
    return total


def _parts(terms: int) -> int:
    """In how many parts a scalar product of so many terms is taken."""
    return max(1, -(-terms // _LONG))


def roundings_of(terms: int) -> int:
    """How many additions of such a scalar product round at most, in a row: of a part in singles, then of parts."""
    return terms if _parts(terms) == 1 else _LONG + _parts(terms)
