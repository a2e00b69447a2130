"""Clips and sums: the part of an Opacus optimizer between the backward pass and the noise.

Both forms, books and per-example gradients, have one rule. An example's norm is computed in doubles, and an example
whose norm is no number, infinite or beyond any use contributes zero: 0 times infinity would make the whole release NaN,
which tells that the example is there.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from opacus.optimizers.optimizer import _check_processed_flag, _mark_as_processed
from torch import Tensor

from plrvo.training.clipping.contributions import in_full_precision, squared_lengths, squared_norms, wide
from plrvo.training.clipping.module import Book
from plrvo.training.watch import Watch

_Base: Any = object  # Opacus's classes have no types

_LARGEST_NORM = 2.0**100  # beyond, a factor would leave the range of singles
_SMALLEST_FACTOR = 2.0**-122  # smaller ones lose digits in singles
_ROOM = 1 - 2.0**-20  # for the rounding of factors and products in singles


class ClippingMixin(_Base):
    """Factors from norms: flat and per-layer l2 clipping, and l1."""

    clipping: str
    watch: Watch
    clips: tuple[float, ...]  # one for each parameter if per layer, else one

    def _factors(self, norms: list[Tensor]) -> tuple[list[Tensor], Tensor]:
        """A factor for each parameter and example, and which examples are left out; norms by parameter, in doubles."""
        # On one device, as the parameters of a model may be spread over several.
        stacked = torch.stack([n.to(norms[0].device) for n in norms])
        out = ~(stacked <= _LARGEST_NORM).all(dim=0)  # NaN is not smaller than anything
        if self.clipping == "per_layer":
            factors = [_factor(c, n, out) for c, n in zip(self.clips, stacked, strict=True)]
        else:
            order = 1 if self.clipping == "l1" else 2
            factor = _factor(self.clips[0], torch.linalg.vector_norm(stacked, order, dim=0), out)
            factors = [factor] * len(norms)
        return [f.to(p.device) for f, p in zip(factors, self.params, strict=True)], out


class BookkeepingMixin(ClippingMixin):
    """Goes in front of an Opacus optimizer class, behind the noise: clips what a book holds."""

    book: Book

    def keep(self, book: Book) -> None:
        self.book = book

    @property
    def grad_samples(self) -> list[Any]:
        """Never formed; Opacus asks only whether there are parameters at all."""
        return list(self.params)

    @property
    def accumulated_iterations(self) -> int:
        return 1

    @property
    def rows(self) -> int:
        """How many examples the pass that came last had."""
        return 0 if self.book.is_empty else self.book.batch_size

    def zero_grad(self, set_to_none: bool = False) -> None:
        self.book.clear()
        super().zero_grad(set_to_none)

    @torch.no_grad()
    @in_full_precision
    def clip_and_accumulate(self) -> None:
        """summed_grad = sum_b min(1, C/||G_b||) G_b, layer by layer; a layer's records are let go as it is summed."""
        # A mean loss has divided every gradient by the batch size.
        scale = self.book.batch_size if self.loss_reduction == "mean" else 1
        factors, out = self._factors(self._norms(scale))
        any_out = bool(out.any())
        for p, factor in zip(self.params, factors, strict=True):
            total: Any = None
            for contribution in self.book.release(p):
                if any_out:
                    contribution = contribution.without(out.to(p.device))
                part = contribution.weighted_sum(factor * scale).to(p.dtype)
                total = part if total is None else total.add_(part)
            if total is None:
                total = torch.zeros_like(p)
            p.summed_grad = total if p.summed_grad is None else p.summed_grad.add_(total)

    def _norms(self, scale: int) -> list[Tensor]:
        norms = []
        for p in self.params:
            held = self.book.contributions(p)
            none = torch.zeros(self.book.batch_size, device=p.device, dtype=torch.float64)
            norms.append(squared_norms(held).sqrt() * scale if held else none)
        return norms


class SamplesMixin(ClippingMixin):
    """The same, for per-example gradients in `grad_sample`."""

    @property
    def rows(self) -> int:
        """How many examples the gradients have, which is the same for all parameters.

        None for a pass without examples, whatever the module worked on in their place.
        """
        if self.watch.rows == 0:
            return 0
        sizes = {len(sample) for sample in self.grad_samples}
        if len(sizes) > 1:
            raise RuntimeError(f"per-example gradients of {sorted(sizes)} rows in one batch: expected one size for all")
        return sizes.pop()

    @torch.no_grad()
    @in_full_precision
    def clip_and_accumulate(self) -> None:
        """summed_grad = sum_b f_b G_b."""
        if self.watch.rows == 0:
            for p in self.params:
                p.summed_grad = torch.zeros_like(p) if p.summed_grad is None else p.summed_grad
            return
        samples = [wide(sample) for sample in self.grad_samples]
        factors, out = self._factors([self._norms_of(g.reshape(len(g), -1)) for g in samples])
        any_out = bool(out.any())
        for p, sample, factor in zip(self.params, samples, factors, strict=True):
            _check_processed_flag(p.grad_sample)
            if any_out:
                sample = sample.masked_fill(out.to(p.device).view(-1, *[1] * (sample.ndim - 1)), 0)
            total = torch.einsum("i,i...", factor.to(sample), sample).to(p.dtype)
            p.summed_grad = total if p.summed_grad is None else p.summed_grad.add_(total)
            _mark_as_processed(p.grad_sample)

    def _norms_of(self, gradients: Tensor) -> Tensor:
        if self.clipping == "l1":
            return torch.linalg.vector_norm(gradients, 1, dim=1, dtype=torch.float64)
        return squared_lengths(gradients).sqrt()


def _factor(clip: float, norms: Tensor, out: Tensor) -> Tensor:
    """min(1, C/norm), slightly less where it clips; 0 for examples that are left out, or whose factor singles lack."""
    factors = (clip * _ROOM / (norms + 1e-6)).clamp(max=1.0)
    return factors.masked_fill(out | (factors < _SMALLEST_FACTOR), 0.0)


def clips_of(clipping: str, clip: float, parameters: int) -> tuple[float, ...]:
    """The clip, or the equal share of each parameter in it, whose squares add up to no more than the clip's."""
    if clipping != "per_layer":
        return (clip,)
    return (clip / math.sqrt(parameters) * (1 - 1e-12),) * parameters
