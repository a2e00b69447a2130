"""Exact mode: what is released is made of integers from the example's clipped gradient on.

Each example's gradient is clipped in double precision and rounded to the grid of the plan's noise (`cells`). Then its
length is checked in integers, without rounding: an example that is longer than C + gamma sqrt(n)/2, or not finite, adds
nothing to the sum. The check looks at that example alone, and it never raises an error, which would tell something. So
the sensitivity that the accountant charges holds whatever floating point did before. Sums are 64-bit integers: an
example has at most 2^31 cells in a coordinate, and 2^31 of them fit. Integer noise is added, and the result is turned
into floating point once, at the end, which is post-processing.

What this cannot repair: an example's gradient is computed together with those of its batch, and the libraries' results
may depend in their last bits on the batch's size. `physical_batch=1` takes examples one by one (docs: exact mode).
"""

from __future__ import annotations

from typing import Any

import torch

from plrvo.accounting.exact import longest_square
from plrvo.noise import GridNoise, Keystream
from plrvo.training.cells import add_rounded, to_floats

_Base: Any = object  # Opacus's classes have no types


class ExactMixin(_Base):
    """Goes in front of the noise: sums integers, and adds integer noise."""

    noise: GridNoise
    generator: Keystream
    sums: Any

    @torch.no_grad()
    def clip_and_accumulate(self) -> None:
        """Sums of the examples' gradients in cells."""
        longest = longest_square(self.noise, self.clip, self.dimension)
        before = self.sums or [None] * len(self.params)
        self.sums = add_rounded(self.grad_samples, before, self.clip, self.noise.cell, longest)

    def add_noise(self) -> None:
        """p.grad = (sum + integer noise) * gamma: the only step into floating point."""
        self.noise.add_to(self.sums, self.generator)
        for number, p in enumerate(self.params):
            p.grad = to_floats(self.sums[number], self.noise.cell, like=p)
            self.sums[number] = None  # integers take twice the room of what they are turned into
