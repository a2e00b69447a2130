"""The ghost form of a convolution: what went in and the gradient of what came out, unfolded when norms are taken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from plrvo.training.clipping.contributions import Contribution, Outer
from plrvo.training.clipping.products import cleared, largest


@dataclass(frozen=True)
class Convolution(Contribution):
    """A convolution in ghost form; `factors_of` unfolds its input into (l, r), groups beside the examples."""

    input: Tensor
    output_gradient: Tensor
    factors_of: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    weight_gradient: Callable[[Tensor, Tensor], Tensor]

    def _grouped(self) -> tuple[Outer, tuple[int, int]]:
        left, right = self.factors_of(self.input, self.output_gradient)  # (examples, groups, positions, .)
        return Outer(left.flatten(0, 1), right.flatten(0, 1)), (left.shape[0], left.shape[1])

    def squared_norms(self) -> Tensor:
        grouped, shape = self._grouped()
        return grouped.squared_norms().view(shape).sum(dim=1)

    def sizes(self) -> Tensor:
        grouped, shape = self._grouped()
        return grouped.sizes().view(shape).sum(dim=1)

    def largest(self) -> Tensor:
        return torch.maximum(largest(self.input), largest(self.output_gradient))

    @property
    def positions(self) -> int:
        return self.output_gradient[0, 0].numel()

    @property
    def dtype(self) -> torch.dtype:
        return self.input.dtype

    def weighted_sum(self, factors: Tensor) -> Tensor:
        shape = (-1, *[1] * (self.output_gradient.ndim - 1))
        return self.weight_gradient(self.input, self.output_gradient * factors.to(self.input.dtype).view(shape))

    def per_example(self) -> Tensor:
        together = self.weight_gradient(self.input[:0], self.output_gradient[:0])
        gradients = together.new_empty(len(self.input), *together.shape)
        for i in range(len(self.input)):
            gradients[i] = self.weight_gradient(self.input[i : i + 1], self.output_gradient[i : i + 1])
        return gradients

    def without(self, rows: Tensor) -> Convolution:
        return replace(self, input=cleared(self.input, rows), output_gradient=cleared(self.output_gradient, rows))

    def of(self, examples: Tensor) -> Convolution:
        return replace(self, input=self.input[examples], output_gradient=self.output_gradient[examples])
