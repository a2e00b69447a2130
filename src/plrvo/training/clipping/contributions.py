"""What one use of a parameter adds to its per-example gradients, in the form that is cheapest to keep.

| form | keeps | for |
|---|---|---|
| `PerExample` | the gradients themselves | biases, normalisation, small weights with many positions |
| `Outer` | the factors l, r of each position | linear layers |
| `Tokens` | token numbers and r: l is one-hot | embeddings |
| `Convolution` | input and output gradient of a convolution | convolutions with few positions |

A parameter that is used more than once (tied weights, a layer called twice) has several contributions, whose
gradients add before the norm is taken: `squared_norms` adds the cross terms.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

# The ghost form adds up terms that may cancel. What rounding can hide is covered by this many units in the last place
# of the sum of the terms' sizes, so that a norm is not reported too small.
_UNITS = 2


class Contribution(ABC):
    """Per-example gradients of one parameter, without the factor that a mean loss puts in front of all of them."""

    @abstractmethod
    def squared_norms(self) -> Tensor:
        """||G_b||^2 for every example b, in single precision or better."""

    @abstractmethod
    def weighted_sum(self, factors: Tensor) -> Tensor:
        """sum_b factors_b G_b, in the parameter's shape."""

    @abstractmethod
    def per_example(self) -> Tensor:
        """The gradients themselves, examples first."""


@dataclass(frozen=True)
class PerExample(Contribution):
    """The gradients themselves; with `channels_last`, the parameter's second dimension comes last."""

    gradients: Tensor
    channels_last: bool = False

    def squared_norms(self) -> Tensor:
        return torch.linalg.vector_norm(_wide(self.gradients).flatten(1), dim=1).square()

    def weighted_sum(self, factors: Tensor) -> Tensor:
        flat = self.gradients.flatten(1)
        total = (factors.to(flat.dtype) @ flat).view(self.gradients.shape[1:])
        return total.movedim(-1, 1).contiguous() if self.channels_last else total

    def per_example(self) -> Tensor:
        return self.gradients.movedim(-1, 2) if self.channels_last else self.gradients


class Factored(Contribution):
    """G_b = sum_t l_bt r_bt', in factors; `right` is (examples, positions, columns)."""

    right: Tensor

    def squared_norms(self) -> Tensor:
        return _ghost_norms([self])

    def _weighted_right(self, factors: Tensor) -> Tensor:
        return self.right * factors.to(self.right.dtype)[:, None, None]


@dataclass(frozen=True)
class Outer(Factored):
    """Both factors are vectors; `left` is (examples, positions, rows)."""

    left: Tensor
    right: Tensor

    def weighted_sum(self, factors: Tensor) -> Tensor:
        if self.left.shape[2] < self.right.shape[2]:  # the weights go to the smaller factor
            weighted = self.left * factors.to(self.left.dtype)[:, None, None]
            return weighted.flatten(0, 1).t() @ self.right.flatten(0, 1)
        return self.left.flatten(0, 1).t() @ self._weighted_right(factors).flatten(0, 1)

    def per_example(self) -> Tensor:
        return self.left.transpose(1, 2) @ self.right


@dataclass(frozen=True)
class Tokens(Factored):
    """l is one-hot among `rows`, at the position's token."""

    tokens: Tensor
    right: Tensor
    rows: int

    def weighted_sum(self, factors: Tensor) -> Tensor:
        total = self.right.new_zeros(self.rows, self.right.shape[2])
        return total.index_add_(0, self.tokens.flatten(), self._weighted_right(factors).flatten(0, 1))

    def per_example(self) -> Tensor:
        examples, _, columns = self.right.shape
        total = self.right.new_zeros(examples, self.rows, columns)
        return total.scatter_add_(1, self.tokens[:, :, None].expand_as(self.right), self.right)


@dataclass(frozen=True)
class Convolution(Contribution):
    """A convolution in ghost form; `factors_of` unfolds its input into (l, r), groups beside the examples."""

    input: Tensor
    output_gradient: Tensor
    factors_of: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    weight_gradient: Callable[[Tensor, Tensor], Tensor]

    def squared_norms(self) -> Tensor:
        left, right = self.factors_of(self.input, self.output_gradient)  # (examples, groups, positions, .)
        examples, groups = left.shape[:2]
        grouped = Outer(left.flatten(0, 1), right.flatten(0, 1))
        return grouped.squared_norms().view(examples, groups).sum(dim=1)

    def weighted_sum(self, factors: Tensor) -> Tensor:
        shape = (-1, *[1] * (self.output_gradient.ndim - 1))
        return self.weight_gradient(self.input, self.output_gradient * factors.to(self.input.dtype).view(shape))

    def per_example(self) -> Tensor:
        together = self.weight_gradient(self.input[:0], self.output_gradient[:0])
        gradients = together.new_empty(len(self.input), *together.shape)
        for i in range(len(self.input)):
            gradients[i] = self.weight_gradient(self.input[i : i + 1], self.output_gradient[i : i + 1])
        return gradients


def squared_norms(contributions: list[Contribution]) -> Tensor:
    """||sum of the contributions||^2 for every example."""
    if len(contributions) == 1:
        return contributions[0].squared_norms()
    factored = [c for c in contributions if isinstance(c, Factored)]
    if len(factored) == len(contributions):
        return _ghost_norms(factored)
    return PerExample(torch.stack([c.per_example() for c in contributions]).sum(dim=0)).squared_norms()


def _left_products(one: Factored, other: Factored) -> Tensor:
    """<l_s, l'_t> for all positions s of one and t of the other: (examples, s, t)."""
    match one, other:
        case Outer(), Outer():
            return _gram(one.left, other.left)
        case Tokens(), Tokens():
            return _wide((one.tokens[:, :, None] == other.tokens[:, None, :]).to(one.right.dtype))
        case Outer(), Tokens():
            picked = other.tokens[:, None, :].expand(-1, one.left.shape[1], -1)
            return _wide(one.left.gather(2, picked))
        case _:
            return _left_products(other, one).transpose(1, 2)


def _ghost_norms(parts: Sequence[Factored]) -> Tensor:
    """Terms over all pairs of positions, and an allowance for rounding: (sum_t |l_t| |r_t|)^2 bounds their sizes."""
    terms = sizes = _wide(parts[0].right).new_zeros(len(parts[0].right))
    for i, one in enumerate(parts):
        left, right = _left_products(one, one), _gram(one.right, one.right)
        terms = terms + (left * right).sum(dim=(1, 2))
        sizes = sizes + (left.diagonal(dim1=1, dim2=2) * right.diagonal(dim1=1, dim2=2)).sqrt().sum(dim=1)
        for other in parts[:i]:
            terms = terms + 2 * (_left_products(one, other) * _gram(one.right, other.right)).sum(dim=(1, 2))
    return terms.clamp(min=0) + _UNITS * torch.finfo(terms.dtype).eps * sizes.square()


def outer(left: Tensor, right: Tensor) -> Contribution:
    """l and r with one or more dimensions of positions, in whichever form is smaller to keep and cheaper to use."""
    # Contiguous once, since every product below would copy otherwise.
    left, right = rows_of_positions(left).contiguous(), rows_of_positions(right).contiguous()
    _, positions, rows = left.shape
    columns = right.shape[2]
    factored = Outer(left, right)
    return PerExample(factored.per_example()) if is_direct(positions, rows, columns) else factored


def is_direct(positions: int, rows: int, columns: int) -> bool:
    """Whether G (rows x columns) is smaller than its factors; it is then cheaper to compute with as well."""
    return rows * columns <= positions * (rows + columns)


def rows_of_positions(values: Tensor) -> Tensor:
    """(examples, positions, values), from any number of dimensions of positions, none included."""
    return values[:, None, :] if values.ndim == 2 else values.flatten(1, -2)


def _gram(one: Tensor, other: Tensor) -> Tensor:
    """<one_s, other_t> for all pairs of positions."""
    one, other = _wide(one), _wide(other)
    if one.shape[1] == other.shape[1] == 1:
        return (one * other).sum(dim=2, keepdim=True)
    return one @ other.transpose(1, 2)


def _wide(values: Tensor) -> Tensor:
    return values if values.dtype in (torch.float32, torch.float64) else values.float()
