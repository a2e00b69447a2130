"""Embeddings that are added up, or averaged, by bag: `nn.EmbeddingBag`.

A bag's output is sum_t w_t E[token_t], so that the gradient of the table, for the one example of a bag, is an outer
product: of its counts c_v = sum of the w_t whose token is v, and of the gradient g of the output. Its norm is |c| |g|.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from plrvo.training.clipping.contributions import Contribution
from plrvo.training.clipping.products import cleared, largest, squared_lengths, with_rounding


@dataclass(frozen=True)
class Bags(Contribution):
    """Tokens of all bags in one row, with the number of the bag and the weight of each; `right` is (bags, columns)."""

    tokens: Tensor
    bags: Tensor
    weights: Tensor
    right: Tensor
    rows: int

    def squared_norms(self) -> Tensor:
        return with_rounding(self._lengths * self._counts, self.sizes(), self.positions + 3, self.dtype).square()

    def weighted_sum(self, factors: Tensor) -> Tensor:
        parts = (self.right * factors.to(self.dtype)[:, None])[self.bags] * self.weights[:, None]
        return self.right.new_zeros(self.rows, self.right.shape[1]).index_add_(0, self.tokens, parts)

    def per_example(self) -> Tensor:
        total = self.right.new_zeros(len(self.right) * self.rows, self.right.shape[1])
        total.index_add_(0, self.bags * self.rows + self.tokens, self.right[self.bags] * self.weights[:, None])
        return total.view(len(self.right), self.rows, -1)

    def sizes(self) -> Tensor:
        return self._by_bag(self.weights.double().abs()) * self._lengths

    def largest(self) -> Tensor:
        return torch.maximum(largest(self.right), self._by_bag(self.weights.abs()))  # all of a bag's, at most

    def without(self, rows: Tensor) -> Bags:
        return replace(self, right=cleared(self.right, rows), weights=self.weights.masked_fill(rows[self.bags], 0))

    def of(self, examples: Tensor) -> Bags:
        places, bags = (self.bags[:, None] == examples).nonzero(as_tuple=True)
        return Bags(self.tokens[places], bags, self.weights[places], self.right[examples], self.rows)

    @property
    def positions(self) -> int:
        return int(torch.bincount(self.bags, minlength=1).max())

    @property
    def dtype(self) -> torch.dtype:
        return self.right.dtype

    @property
    def _lengths(self) -> Tensor:
        return squared_lengths(self.right).sqrt()

    @property
    def _counts(self) -> Tensor:
        """|c| of each bag, in doubles: a token that comes twice counts with the sum of its weights."""
        places, order = (self.bags * self.rows + self.tokens).sort()
        pairs, which = torch.unique_consecutive(places, return_inverse=True)
        counts = torch.zeros(len(pairs), dtype=torch.float64, device=places.device)
        counts.index_add_(0, which, self.weights.double()[order])
        found = torch.zeros(len(self.right), dtype=torch.float64, device=places.device)
        return found.index_add_(0, pairs // self.rows, counts.square()).sqrt()

    def _by_bag(self, values: Tensor) -> Tensor:
        return values.new_zeros(len(self.right)).index_add_(0, self.bags, values)


def embedding_bag(
    layer: Any, tokens: Tensor, g: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
) -> Iterator[tuple[nn.Parameter, Contribution]]:
    """Bags as the rows of a matrix of tokens, or one after the other, each from its offset on."""
    if tokens.ndim == 2:
        bags = torch.arange(len(tokens), device=tokens.device).repeat_interleave(tokens.shape[1])
    else:
        given = offsets if offsets is not None else tokens.new_zeros(0)
        starts = given[:-1] if layer.include_last_offset else given
        bags = torch.searchsorted(starts.long(), torch.arange(len(tokens), device=tokens.device), right=True) - 1
    tokens = tokens.flatten().long()
    weights = g.new_ones(len(tokens)) if per_sample_weights is None else per_sample_weights.detach().flatten().to(g)
    if layer.padding_idx is not None:  # it is in no bag
        weights = weights * (tokens != layer.padding_idx)
    if layer.mode == "mean":
        numbers = g.new_zeros(len(g)).index_add_(0, bags, weights)
        weights = weights / numbers.clamp(min=1)[bags]
    yield layer.weight, Bags(tokens, bags, weights, g, layer.num_embeddings)
