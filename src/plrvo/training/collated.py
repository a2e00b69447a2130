"""Whether the loader makes an example longer for the sake of the others in its batch.

Lengths that change from batch to batch are the sign of padding to the longest. Where all batches are alike (the whole
data set in each step, or the first batch of a run) nothing changes, and the length of one example decides about all
others none the less. So two examples of the batch at hand, a short and the longest one, are collated once more,
together and the short one alone: a dimension that is longer in the first case follows the batch.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import torch

from plrvo.training.descendants import not_followed
from plrvo.training.draws import Draws
from plrvo.training.state import generators_aside, seed_all
from plrvo.training.structure import tensors_in


class Collated:
    """Asks a data set and its collate function."""

    def __init__(self, dataset: Any, collate: Callable[[list[Any]], Any], draws: Draws) -> None:
        self._dataset, self._collate, self._draws = dataset, collate, draws

    def follows(self, short: int, longest: int, rows: int, length: int) -> bool:
        """Whether a dimension of this length is as long as it is for the longest of these rows of the batch.

        Where nobody can tell it is taken to be: where the loader gives nothing of that length, as of texts that a loop
        makes numbers of, and where it cannot be asked once more.
        """
        indices = self._draws.under_way(rows)
        if indices is None:
            return True
        one, other = indices[short], indices[longest]
        alone, together = self._sizes([one], length), self._sizes([one, other], length)
        return alone is None or not together or alone < together

    def _sizes(self, indices: list[int], length: int) -> int | None:
        """How many dimensions of what the loader makes of these examples have that length."""
        several = getattr(self._dataset, "__getitems__", None)
        try:
            with generators_aside(torch.device("cpu")), not_followed():
                seed_all(secrets.randbits(32))
                examples = [self._dataset[i] for i in indices] if several is None else several(indices)
                return sum(list(t.shape).count(length) for t in tensors_in(self._collate(examples)))
        except Exception:  # what cannot be asked once more tells nothing
            return None
