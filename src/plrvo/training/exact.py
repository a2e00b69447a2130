"""Exact mode: what is released is made of integers from the example's clipped gradient on.

Each example's gradient is clipped in double precision and rounded to the grid of the plan's noise. Then its length is
checked in integers, without rounding: an example that is longer than C + gamma sqrt(n)/2, or not finite, adds nothing
to the sum. The check looks at that example alone, and it never raises an error, which would tell something. So the
sensitivity that the accountant charges holds whatever floating point did before. Sums are 64-bit integers: an example
has less than 2^31 cells in a coordinate, and 2^31 of them fit. Integer noise is added, and the result is turned into
floating point once, at the end, which is post-processing.

What this cannot repair: an example's gradient is computed together with those of its batch, and the libraries' results
may depend in their last bits on the batch's size. `physical_batch=1` takes examples one by one (docs: exact mode).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from opacus.optimizers.optimizer import _check_processed_flag, _mark_as_processed
from torch import Tensor

from plrvo.noise import GridNoise, Keystream
from plrvo.validate import InvalidArgument

_Base: Any = object  # Opacus's classes have no types
_CHUNK = 1 << 22  # numbers in double precision at a time


def check_exact(clipping: str, distributed: bool, grad_sample_mode: str) -> str:
    """Refuse what exact mode does not cover; returns the mode of per-example gradients."""
    if clipping != "flat":
        raise InvalidArgument("clipping", clipping, "flat: exact mode rounds gradients whose l2 norm is clipped")
    if distributed:
        raise InvalidArgument("exact", True, "one process: several add up their sums in floating point")
    if grad_sample_mode not in ("auto", "hooks"):
        raise InvalidArgument(
            "grad_sample_mode",
            grad_sample_mode,
            "hooks: exact mode rounds each example's gradient, which others never form",
        )
    return "hooks"


def longest_square(noise: GridNoise, clip: float, dimension: int) -> int:
    """The largest squared length, in cells, of a rounded gradient: (C/gamma + sqrt(n)/2)^2, a hair less."""
    return math.floor((clip / noise.cell + math.sqrt(dimension) / 2) ** 2 * (1 - 2.0**-40))


def rounded(samples: list[Tensor], clip: float, cell: float, longest: int) -> list[Tensor]:
    """Clipped gradients of each example in cells: int64, of the shapes of `samples`, first dimension the example."""
    wide = [sample.reshape(len(sample), -1).double() for sample in samples]
    norms = torch.stack([torch.linalg.vector_norm(g, dim=1) for g in wide]).square().sum(dim=0).sqrt()
    # A hair below the clip, so that rounding errors of the norm do not decide; NaN stays NaN and is caught below.
    factors = (clip / norms).clamp(max=1.0) * ((1 - 2.0**-40) / cell)
    cells = [g.mul_(factors[:, None]).round_() for g in wide]
    roughly = torch.stack([g.square().sum(dim=1) for g in cells]).sum(dim=0)
    fits = roughly <= 1.5 * longest  # then no square and no sum of them overflows; False for NaN
    integers = [torch.where(fits[:, None], g, 0.0).to(torch.int64) for g in cells]
    fits &= torch.stack([g.square().sum(dim=1) for g in integers]).sum(dim=0) <= longest
    return [(g * fits[:, None]).view(s.shape) for g, s in zip(integers, samples, strict=True)]


class ExactMixin(_Base):
    """Goes in front of the noise: sums integers, and adds integer noise."""

    noise: GridNoise
    generator: Keystream

    @torch.no_grad()
    def clip_and_accumulate(self) -> None:
        """summed_grad = sum of the examples' gradients in cells."""
        parameters, samples = self.params, self.grad_samples
        longest = longest_square(self.noise, self.clip, self.dimension)
        chunk = max(1, _CHUNK // self.dimension)
        for p in parameters:
            _check_processed_flag(p.grad_sample)
            if p.summed_grad is None:
                p.summed_grad = torch.zeros(p.shape, dtype=torch.int64, device=p.device)
        for start in range(0, len(samples[0]), chunk):
            part = rounded([s[start : start + chunk] for s in samples], self.clip, self.noise.cell, longest)
            for p, cells in zip(parameters, part, strict=True):
                p.summed_grad += cells.sum(dim=0)
        for p in parameters:
            _mark_as_processed(p.grad_sample)

    def add_noise(self) -> None:
        """p.grad = (sum + integer noise) * gamma: the only step into floating point."""
        parameters: list[Any] = self.params
        for p in parameters:
            _check_processed_flag(p.summed_grad)
        self.noise.add_to([p.summed_grad for p in parameters], self.generator)
        for p in parameters:
            p.grad = (p.summed_grad.double() * self.noise.cell).to(p.dtype)
            _mark_as_processed(p.summed_grad)
