"""Whether the loader makes an example longer for the sake of the others in its batch.

Lengths that change from batch to batch are the sign of padding to the longest. Where all batches are alike (the whole
data set in each step, or the first batch of a run) nothing changes, and the length of one example decides about all
others none the less. So examples of the batch at hand, a short one among them, are collated once more, each alone: a
dimension that is not of the batch's length for all of them follows the batch.
"""

from __future__ import annotations

import secrets
import weakref
from typing import Any

import torch

from plrvo.training.descendants import not_followed
from plrvo.training.draws import Draws
from plrvo.training.state import generators_aside, seed_all
from plrvo.training.structure import tensors_in

_OTHERS = 6  # examples, besides a short and the longest one


class Collated:
    """Asks the data set and the collate function of a loader, which it does not keep alive."""

    def __init__(self, loader: Any, draws: Draws) -> None:
        self._loader, self._draws = weakref.ref(loader), draws

    def follows(self, short: int, longest: int, rows: int, length: int) -> bool:
        """Whether a dimension of this length is as long as it is for the longest of these rows of the batch.

        Some examples more are asked for, as a collate function may put its rows in another order. Where nobody can tell
        it is taken to be: where the loader gives nothing of that length, as of texts that a loop makes numbers of, and
        where it cannot be asked once more.
        """
        indices = self._draws.under_way(rows)
        if indices is None:
            return True
        others = range(0, rows, max(1, rows // _OTHERS))
        found = [self._dimensions(indices[row], length) for row in dict.fromkeys((short, longest, *others))]
        return not all(found) or len(set(found)) > 1

    def _dimensions(self, index: int, length: int) -> int:
        """How many dimensions of what the loader makes of this example alone have that length."""
        loader: Any = self._loader()
        try:
            with generators_aside(torch.device("cpu")), not_followed():
                seed_all(secrets.randbits(32))
                several = getattr(loader.dataset, "__getitems__", None)
                examples = [loader.dataset[index]] if several is None else several([index])
                return sum([list(t.shape).count(length) for t in tensors_in(loader.collate_fn(examples))])
        except Exception:  # what cannot be asked once more tells nothing
            return 0
