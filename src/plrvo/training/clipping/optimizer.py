"""Clips and sums: the part of an Opacus optimizer between the backward pass and the noise.

Both forms, books and per-example gradients, have one rule. An example's norm is computed in doubles, and an example
whose norm is no number, infinite or beyond any use contributes zero: 0 times infinity would make the whole release NaN,
which tells that the example is there.

Books keep factors l and r of gradients, and multiply one of them by f = factor * batch size before the two meet. Where
l is huge and r tiny, l f may overflow although the gradient is small; where l f is below the normal numbers it loses up
to 2^-150 of each entry, which a huge r makes large. So an example with a number beyond min(2^63, 2^87 C) among its
factors contributes zero, too. Then l f stays below 2^127 for batches of up to 2^63 examples, and T positions of a
parameter with n entries lose at most T sqrt(n) 2^-150 2^87 C in l2 norm: below 2^-21 C, half of the room that every
factor leaves, while T sqrt(n) < 2^42. Clips below 1e-20, at which ordinary numbers would be left out, are refused.

Automatic clipping (Bu et al., 2023) has the factor C/(||G|| + gamma) for every example, gamma = 0.01: norms are below C
whatever they were, and short gradients are lengthened, by C/gamma at most. Clips above 1e4 are refused with it, so that
factors are below 2^20 and l f below 2^127 for batches of up to 2^43 examples.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from plrvo.training.clipping.contributions import squared_norms
from plrvo.training.clipping.module import Book
from plrvo.training.clipping.precision import in_full_precision, wide
from plrvo.training.clipping.products import squared_lengths

_Base: Any = object  # Opacus's classes have no types

_LARGEST_NORM = 2.0**100  # beyond, a factor would leave the range of singles
_SMALLEST_FACTOR = 2.0**-122  # smaller ones lose digits in singles
_ROOM = 1 - 2.0**-20  # for the rounding of factors and products in singles
_LARGEST_NUMBER = 2.0**63  # among the factors of a gradient
_LARGEST_IN_CLIPS = 2.0**87
STABILISER = 0.01  # gamma of automatic clipping


class ClippingMixin(_Base):
    """Factors from norms (flat, automatic and per-layer l2 clipping, and l1), and sums of what they clip.

    The sums have no noise, so they are the optimizer's, which cannot be copied or written, and on no parameter.
    """

    clipping: str
    clip: float
    clips: dict[Any, float]  # of each parameter, if per layer
    book: Book
    sums: list[Tensor] | None = None  # of the parts so far, by parameter

    def keep(self, book: Book) -> None:
        self.book = book

    @property
    def rows(self) -> int:
        """How many examples the pass that came last had."""
        return 0 if self.book.is_empty else self.book.batch_size

    @property
    def scale(self) -> int:
        """What a mean loss has divided every gradient by."""
        return self.book.divided_by if self.loss_reduction == "mean" else 1

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.book.clear()
        if not self._is_last_step_skipped:
            self.sums = None
        super().zero_grad(set_to_none)

    def _add(self, totals: Iterable[Tensor]) -> None:
        if self.sums is None:
            self.sums = list(totals)
        else:
            for total, part in zip(self.sums, totals, strict=True):
                total += part

    def _factors(self, norms: list[Tensor]) -> tuple[list[Tensor], Tensor]:
        """A factor for each parameter and example, and which examples are left out; norms by parameter, in doubles."""
        # On one device, as the parameters of a model may be spread over several.
        stacked = torch.stack([n.to(norms[0].device) for n in norms])
        out = ~(stacked <= _LARGEST_NORM).all(dim=0)  # NaN is not smaller than anything
        if self.clipping == "per_layer":
            factors = [_factor(self.clips[p], n, out) for p, n in zip(self.params, stacked, strict=True)]
        else:
            order = 1 if self.clipping == "l1" else 2
            kind = _normalising if self.clipping == "automatic" else _factor
            factor = kind(self.clip, torch.linalg.vector_norm(stacked, order, dim=0), out)
            factors = [factor] * len(norms)
        return [f.to(p.device) for f, p in zip(factors, self.params, strict=True)], out


class BookkeepingMixin(ClippingMixin):
    """Goes in front of an Opacus optimizer class, behind the noise: clips what a book holds."""

    @torch.no_grad()
    @in_full_precision
    def clip_and_accumulate(self) -> None:
        """sum_b min(1, C/||G_b||) G_b, layer by layer; a layer's records are let go as it is summed."""
        factors, out = self._factors(self._norms())
        self._add(
            self._total(p, f, out if bool(out.any()) else None) for p, f in zip(self.params, factors, strict=True)
        )

    def _total(self, p: Any, factor: Tensor, out: Tensor | None) -> Tensor:
        total: Tensor | None = None
        for contribution in self.book.release(p):
            if out is not None:
                contribution = contribution.without(out.to(p.device))
            part = contribution.weighted_sum(factor * self.scale).to(p.dtype)
            total = part if total is None else total.add_(part)
        return self._nothing(p) if total is None else total

    def _nothing(self, p: Any) -> Tensor:
        return torch.zeros_like(p)

    def _norms(self) -> list[Tensor]:
        norms, limit = (
            [],
            min(_LARGEST_NUMBER, _LARGEST_IN_CLIPS * min(self.clips.values(), default=self.max_grad_norm)),
        )
        for p in self.params:
            held = self.book.contributions(p)
            total = torch.zeros(self.rows, device=p.device, dtype=torch.float64)
            if held:
                total = squared_norms(held).sqrt() * self.scale
            for contribution in held:
                total = total.masked_fill(~(contribution.largest() <= limit), math.inf)
            norms.append(total)
        return norms


class SamplesMixin(ClippingMixin):
    """The same, for a book of per-example gradients."""

    @property
    def grad_samples(self) -> list[Tensor]:
        """The gradients of every example, of a sum of losses; the book lets go of them."""
        rows = self.rows  # before the book lets go of the first
        return [self._gradients(p, rows) for p in self.params]

    def _gradients(self, p: Any, rows: int) -> Tensor:
        for contribution in self.book.release(p):
            return wide(contribution.per_example()) * self.scale
        return p.new_zeros(rows, *p.shape)  # the loss does not depend on it

    @torch.no_grad()
    @in_full_precision
    def clip_and_accumulate(self) -> None:
        """sum_b f_b G_b."""
        samples = self.grad_samples
        factors, out = self._factors(
            [self._norms_of(g.reshape(len(g), p.numel())) for g, p in zip(samples, self.params, strict=True)]
        )
        if bool(out.any()):
            samples = [g.masked_fill(out.to(g.device).view(-1, *[1] * (g.ndim - 1)), 0) for g in samples]
        self._add(
            torch.einsum("i,i...", f.to(g), g).to(p.dtype)
            for p, f, g in zip(self.params, factors, samples, strict=True)
        )

    def _norms_of(self, gradients: Tensor) -> Tensor:
        if self.clipping == "l1":
            return torch.linalg.vector_norm(gradients, 1, dim=1, dtype=torch.float64)
        return squared_lengths(gradients).sqrt()


def _factor(clip: float, norms: Tensor, out: Tensor) -> Tensor:
    """min(1, C/norm), slightly less where it clips; 0 for examples that are left out, or whose factor singles lack."""
    factors = (clip * _ROOM / (norms + 1e-6)).clamp(max=1.0)
    return factors.masked_fill(out | (factors < _SMALLEST_FACTOR), 0.0)


def _normalising(clip: float, norms: Tensor, out: Tensor) -> Tensor:
    """C/(norm + gamma), slightly less; 0 as above."""
    factors = clip * _ROOM / (norms + STABILISER)
    return factors.masked_fill(out | (factors < _SMALLEST_FACTOR), 0.0)


def shares_of(clip: float, parameters: list[Any]) -> dict[Any, float]:
    """Equal shares of the clip, whose squares add up to no more than its own; also where some parameters freeze."""
    return dict.fromkeys(parameters, clip / math.sqrt(len(parameters)) * (1 - 1e-12))
