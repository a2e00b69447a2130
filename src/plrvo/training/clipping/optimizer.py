"""Clips and sums what the book holds: the part of an Opacus optimizer that per-example gradients would feed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from plrvo.training.clipping.contributions import squared_norms
from plrvo.training.clipping.module import Book

_Base: Any = object  # Opacus's classes have no types


class BookkeepingMixin(_Base):
    """Goes in front of an Opacus optimizer class, behind the noise; flat and per-layer clipping."""

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

    def zero_grad(self, set_to_none: bool = False) -> None:
        self.book.clear()
        super().zero_grad(set_to_none)

    @torch.no_grad()
    def clip_and_accumulate(self) -> None:
        """summed_grad = sum_b min(1, C/||G_b||) G_b, layer by layer; a layer's records are let go as it is summed."""
        # A mean loss has divided every gradient by the batch size.
        scale = self.book.batch_size if self.loss_reduction == "mean" else 1
        factors = self._factors(scale)
        for p, factor in zip(self.params, factors, strict=True):
            total: Any = None
            for contribution in self.book.release(p):
                part = contribution.weighted_sum(factor * scale).to(p.dtype)
                total = part if total is None else total.add_(part)
            if total is None:
                total = torch.zeros_like(p)
            p.summed_grad = total if p.summed_grad is None else p.summed_grad.add_(total)

    def _factors(self, scale: int) -> list[Tensor]:
        squares = []
        for p in self.params:
            held = self.book.contributions(p)
            none = torch.zeros(self.book.batch_size, device=p.device)
            squares.append((squared_norms(held) if held else none).double())
        clips: list[float] | None = getattr(self, "max_grad_norms", None)
        if clips is not None:
            return [_factor(c, s.sqrt() * scale) for c, s in zip(clips, squares, strict=True)]
        # Sums over layers on one device, as the parameters of a model may be spread over several.
        norms = torch.stack([s.to(squares[0].device) for s in squares]).sum(dim=0).sqrt() * scale
        factor = _factor(self.max_grad_norm, norms)
        return [factor.to(p.device) for p in self.params]


def _factor(clip: float, norms: Tensor) -> Tensor:
    return (clip / (norms + 1e-6)).clamp(max=1.0)
