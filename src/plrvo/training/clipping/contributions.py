"""What one use of a parameter adds to its per-example gradients, in the form that is cheapest to keep.

| form | keeps | for |
|---|---|---|
| `PerExample` | the gradients themselves | biases, normalisation, small weights with many positions |
| `Outer` | the factors l, r of each position | linear layers |
| `Tokens` | token numbers and r: l is one-hot | embeddings |
| `Convolution` (`convolution`) | its input and output gradient | convolutions with few positions |

A parameter that is used more than once (tied weights, a layer called twice) has several contributions, whose
gradients add before the norm is taken: `squared_norms` adds the cross terms.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from plrvo.training.clipping.matrices import each_product, product
from plrvo.training.clipping.precision import wide
from plrvo.training.clipping.products import cleared, gram, largest, roundings_of, squared_lengths, with_rounding

# Ghost norms whose square rounding may have changed by more than this share are computed again in doubles. What it may
# have changed is added, so that examples are clipped to as little as 1 - 2^-7 of the clip, and never to more than it.
_SLACK = 2.0**-6
# How much larger than its factors a gradient may be. It is summed without another product of matrices, in less time
# even where it is larger still; but where memory does not lie ready, its pages cost more than that.
_WORTH = 1.75


class Contribution(ABC):
    """Per-example gradients of one parameter, without the factor that a mean loss puts in front of all of them."""

    @abstractmethod
    def squared_norms(self) -> Tensor:
        """||G_b||^2 for every example b, in doubles, and never too small: what rounding can hide is added."""

    @abstractmethod
    def weighted_sum(self, factors: Tensor) -> Tensor:
        """sum_b factors_b G_b, in the parameter's shape."""

    @abstractmethod
    def per_example(self) -> Tensor:
        """The gradients themselves, examples first."""

    @abstractmethod
    def without(self, rows: Tensor) -> Contribution:
        """With zeros in the place of these examples, whose numbers are none."""

    @abstractmethod
    def of(self, examples: Tensor) -> Contribution:
        """That of some examples only."""

    @abstractmethod
    def sizes(self) -> Tensor:
        """S_b = sum_t |l_t| |r_t| in doubles, at least: what G_b consists of, however much of it cancels."""

    @abstractmethod
    def largest(self) -> Tensor:
        """The largest number among the factors of each example; 0 where the gradients themselves are kept."""

    @property
    @abstractmethod
    def positions(self) -> int:
        """How many parts are added up to G_b."""

    @property
    @abstractmethod
    def dtype(self) -> torch.dtype: ...


@dataclass(frozen=True)
class PerExample(Contribution):
    """The gradients themselves; with `channels_last`, the parameter's second dimension comes last."""

    gradients: Tensor
    channels_last: bool = False

    def squared_norms(self) -> Tensor:
        return squared_lengths(self._flat)

    def weighted_sum(self, factors: Tensor) -> Tensor:
        flat = self._flat
        total = (factors.to(flat.dtype) @ flat).view(self.gradients.shape[1:])
        return total.movedim(-1, 1).contiguous() if self.channels_last else total

    @property
    def _flat(self) -> Tensor:
        return self.gradients[..., None].flatten(1)  # numbers, too, have one coordinate

    def per_example(self) -> Tensor:
        return self.gradients.movedim(-1, 2) if self.channels_last else self.gradients

    def sizes(self) -> Tensor:
        return self.squared_norms().sqrt()  # measured as it is

    def largest(self) -> Tensor:
        return self.gradients.new_zeros(len(self.gradients))

    @property
    def positions(self) -> int:
        return 1

    @property
    def dtype(self) -> torch.dtype:
        return self.gradients.dtype

    def without(self, rows: Tensor) -> PerExample:
        return PerExample(cleared(self.gradients, rows), self.channels_last)

    def of(self, examples: Tensor) -> PerExample:
        return PerExample(self.gradients[examples], self.channels_last)


class Factored(Contribution):
    """G_b = sum_t l_bt r_bt', in factors; `right` is (examples, positions, columns)."""

    right: Tensor

    def squared_norms(self) -> Tensor:
        return _ghost_norms([self])

    def sizes(self) -> Tensor:
        return (self.left_squares * squared_lengths(self.right)).sqrt().sum(dim=1)

    @property
    def positions(self) -> int:
        return self.right.shape[1]

    @property
    def dtype(self) -> torch.dtype:
        return self.right.dtype

    @property
    @abstractmethod
    def left_squares(self) -> Tensor:
        """|l_bt|^2 in doubles, from above."""

    @property
    @abstractmethod
    def terms(self) -> int:
        """How many products the two scalar products of a pair of positions add up."""

    @property
    @abstractmethod
    def roundings(self) -> int:
        """How many of these additions round at most, in a row (`_gram`)."""

    @abstractmethod
    def of(self, examples: Tensor) -> Factored: ...

    @abstractmethod
    def double(self) -> Factored:
        """The factors in doubles."""

    def _weighted_right(self, factors: Tensor) -> Tensor:
        return self.right * factors.to(self.right.dtype)[:, None, None]


@dataclass(frozen=True)
class Outer(Factored):
    """Both factors are vectors; `left` is (examples, positions, rows), its products with itself are there if known."""

    left: Tensor
    right: Tensor
    left_products: Tensor | None = None

    def weighted_sum(self, factors: Tensor) -> Tensor:
        rows, columns = self.left.shape[2], self.right.shape[2]
        if rows <= columns:  # the weights go to the smaller factor
            weighted = self.left * factors.to(self.left.dtype)[:, None, None]
            return product(weighted.flatten(0, 1).t(), self.right.flatten(0, 1))
        left, right = self.left.flatten(0, 1), self._weighted_right(factors).flatten(0, 1)
        # What comes first is turned on the way into the product: the larger factor, or the smaller one and the result,
        # of which each number takes twice as long.
        if 2 * rows * columns >= len(left) * (rows - columns):
            return product(left.t(), right)
        return product(right.t(), left).t().contiguous()

    def per_example(self) -> Tensor:
        return each_product(self.left.transpose(1, 2), self.right)

    @property
    def left_squares(self) -> Tensor:
        return squared_lengths(self.left)

    @property
    def terms(self) -> int:
        return self.left.shape[2] + self.right.shape[2]

    @property
    def roundings(self) -> int:
        return roundings_of(self.left.shape[2]) + roundings_of(self.right.shape[2])

    def largest(self) -> Tensor:
        return torch.maximum(largest(self.left), largest(self.right))

    def of(self, examples: Tensor) -> Outer:
        known = None if self.left_products is None else self.left_products[examples]
        return Outer(self.left[examples], self.right[examples], known)

    def double(self) -> Outer:
        return Outer(self.left.double(), self.right.double())

    def without(self, rows: Tensor) -> Outer:
        return Outer(cleared(self.left, rows), cleared(self.right, rows))


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

    @property
    def left_squares(self) -> Tensor:
        return torch.ones(self.tokens.shape, dtype=torch.float64, device=self.tokens.device)

    @property
    def terms(self) -> int:
        return self.right.shape[2]

    @property
    def roundings(self) -> int:
        return roundings_of(self.right.shape[2])

    def largest(self) -> Tensor:
        return largest(self.right)

    def of(self, examples: Tensor) -> Tokens:
        return Tokens(self.tokens[examples], self.right[examples], self.rows)

    def double(self) -> Tokens:
        return Tokens(self.tokens, self.right.double(), self.rows)

    def without(self, rows: Tensor) -> Tokens:
        return Tokens(self.tokens, cleared(self.right, rows), self.rows)


def squared_norms(contributions: list[Contribution]) -> Tensor:
    """||sum of the contributions||^2 for every example, from above."""
    if len(contributions) == 1:
        return contributions[0].squared_norms()
    factored = [c for c in contributions if isinstance(c, Factored)]
    if len(factored) == len(contributions):
        return _ghost_norms(factored)
    # The sum is released part by part, each rounded by itself: what may be left of parts that cancel is added.
    parts = [c.per_example()[..., None].flatten(1).double() for c in contributions]
    whole = torch.linalg.vector_norm(torch.stack(parts).sum(dim=0), dim=1)
    sizes = torch.stack([c.sizes() for c in contributions]).sum(dim=0)
    positions = max(c.positions for c in contributions)
    return with_rounding(whole, sizes, (len(parts) + 2) * (positions + 3), contributions[0].dtype).square()


def _left_products(one: Factored, other: Factored) -> Tensor:
    """<l_s, l'_t> for all positions s of one and t of the other: (examples, s, t)."""
    match one, other:
        case Outer(), Outer():
            known = one.left_products if one is other else None
            return gram(one.left, other.left) if known is None else known
        case Tokens(), Tokens():
            return wide((one.tokens[:, :, None] == other.tokens[:, None, :]).to(one.right.dtype))
        case Outer(), Tokens():
            picked = other.tokens[:, None, :].expand(-1, one.left.shape[1], -1)
            return wide(one.left.gather(2, picked))
        case _:
            return _left_products(other, one).transpose(1, 2)


def _ghost_norms(parts: Sequence[Factored]) -> Tensor:
    """||G_b||^2 from above, as sums over all pairs of positions.

    With S = sum_t |l_t| |r_t| (the *sizes*; ||G|| <= S always) and u the unit roundoff, a scalar product of d terms is
    off by at most d u times the lengths of its vectors, whatever the order of summation. Longer ones are taken in parts
    of d terms, and p parts are added up in doubles: by Cauchy and Schwarz the same holds of their sum, with d + p
    (`roundings`). So the sum of all products, added up in doubles, is off by at most (d_l + d_r + 8) u S^2, and by what
    underflow loses: 2^-126 for each term of a scalar product in singles. This bound is added. Where it is no small
    share of the norm, terms have cancelled, and the example is computed again in doubles, whose range holds every
    product of four singles.

    The gradient itself is summed in the parameter's own precision, from the same factors. In whatever order the T
    positions are added up, rounding leaves at most (T + 3) u S of it, which is added to the norm: what is released of
    one example has that norm at most, rounding included.
    """
    if len(parts) == 1 and parts[0].right.shape[1] == 1:  # one position: nothing adds up
        return (parts[0].left_squares * squared_lengths(parts[0].right)).squeeze(1)
    squares, error, sizes = _measured(parts)
    doubtful = ~(error <= _SLACK * squares)
    if parts[0].right.dtype != torch.float64 and bool(doubtful.any()):
        (again,) = doubtful.nonzero(as_tuple=True)
        squares[again], error[again], sizes[again] = _measured([part.of(again).double() for part in parts])
    positions = sum(part.positions for part in parts)
    return with_rounding((squares + error).sqrt(), sizes, positions + 3, parts[0].dtype).square()


def _measured(parts: Sequence[Factored]) -> tuple[Tensor, Tensor, Tensor]:
    """The sum over all pairs of positions of the products of their scalar products, its error at most, and the sizes.

    A vector's scalar product with itself cannot cancel, so that the lengths come out of the same products.
    """
    total, hidden, sizes = torch.zeros(3, len(parts[0].right), dtype=torch.float64, device=parts[0].right.device)
    kind = torch.finfo(parts[0].right.dtype)
    share = (max(part.roundings for part in parts) + 8) * kind.eps / 2
    if share >= 0.5:
        share = math.inf  # too long for singles: doubtful, all of them
    for i, one in enumerate(parts):
        left, right = _left_products(one, one), gram(one.right, one.right)
        total += (left * right).sum(dim=(1, 2), dtype=torch.float64)
        for other in parts[:i]:
            products = _left_products(one, other) * gram(one.right, other.right)
            total += 2 * products.sum(dim=(1, 2), dtype=torch.float64)
        lengths = [_diagonal(product, share, one.terms * kind.tiny) for product in (left, right)]
        sizes += (lengths[0] * lengths[1]).sum(dim=1)
        longest = torch.stack(lengths).sum(dim=2).square().sum(dim=0)
        hidden += len(parts) * one.terms * kind.tiny * (longest + one.right.shape[1] ** 2)
    return total.clamp(min=0), hidden + share * sizes.square(), sizes


def _diagonal(products: Tensor, share: float, lost: float) -> Tensor:
    """The lengths of vectors from above, given their scalar products."""
    squares = products.diagonal(dim1=1, dim2=2).double() + lost
    return (squares / max(1 - share, 0.0)).sqrt()


def outer(left: Tensor, right: Tensor) -> Contribution:
    """l and r with one or more dimensions of positions, in whichever form is smaller to keep and cheaper to use."""
    # Contiguous once, since every product below would copy otherwise.
    left, right = rows_of_positions(left).contiguous(), rows_of_positions(right).contiguous()
    _, positions, rows = left.shape
    columns = right.shape[2]
    factored = Outer(left, right)
    return PerExample(factored.per_example()) if is_direct(positions, rows, columns) else factored


def outers(left: Tensor, rights: Sequence[Tensor]) -> list[Contribution]:
    """The same for several weights with one l: what is known of it serves all, as if r had the columns of all."""
    left = rows_of_positions(left).contiguous()
    _, positions, rows = left.shape
    if is_direct(positions, rows, sum(right.shape[-1] for right in rights)):
        return [outer(left, right) for right in rights]
    known = gram(left, left)
    return [Outer(left, rows_of_positions(right).contiguous(), known) for right in rights]


def is_direct(positions: int, rows: int, columns: int) -> bool:
    """Whether G (rows x columns) is about as small as its factors."""
    return rows * columns <= _WORTH * positions * (rows + columns)


def rows_of_positions(values: Tensor) -> Tensor:
    """(examples, positions, values), from any number of dimensions of positions, none included."""
    return values[:, None, :] if values.ndim == 2 else values.flatten(1, -2)
