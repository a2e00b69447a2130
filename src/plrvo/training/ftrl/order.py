"""Batches in an order that is checked as they are handed out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch.utils.data import Sampler

from plrvo.accounting.correlated import Participation
from plrvo.records.visits import OwnOrder, VisitedOrder
from plrvo.training.draws import Draws
from plrvo.training.passes import Passes


class OrderedBatches(VisitedOrder, Passes, Sampler[list[int]]):  # type: ignore[misc]  # what remains is computed
    """A batch sampler that hands out what `Visits` has admitted."""

    def __init__(
        self,
        order: OwnOrder | Iterable[Sequence[int]],
        size: int,
        participation: Participation,
        steps: int,
        lengths: torch.Tensor | None = None,
        draws: Draws | None = None,
    ) -> None:
        super().__init__(order, size, participation, steps)
        self.lengths, self.draws = lengths, draws or Draws()

    def new(self) -> Iterator[list[int]]:
        for batch in self.admitted():
            yield self._by_length([int(i) for i in batch])

    def _by_length(self, batch: list[int]) -> list[int]:
        """A sum has no order; parts of a batch that is sorted need little padding."""
        lengths = self.lengths
        return batch if lengths is None else sorted(batch, key=lambda i: int(lengths[i]))
