"""A training set with canaries behind its own examples, drawn by the engine's sampler like all others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset


class Planted(Dataset[Any]):
    """`data`, which gives whole batches of (inputs, targets), followed by examples with these targets.

    Their inputs are `inputs`, shaped as the data's own; without any, ones everywhere, for canaries whose input does not
    matter. `lengths` go on with ones where the data has lengths.
    """

    def __init__(self, data: Any, targets: Tensor, inputs: Tensor | None = None) -> None:
        self.data, self.inputs, self.targets = data, inputs, targets
        self._size = len(data)
        lengths = getattr(data, "lengths", None)
        self.lengths = None if lengths is None else torch.cat([lengths, lengths.new_ones(len(targets))])

    def __len__(self) -> int:
        return self._size + len(self.targets)

    def __getitems__(self, indices: list[int]) -> Any:
        chosen = torch.as_tensor(indices, dtype=torch.long)
        planted = chosen >= self._size
        if not planted.any():
            return self.data.__getitems__(indices)
        # A batch of the right form, with a real example in each canary's place, which is then overwritten.
        real = chosen[~planted]
        inputs, targets = self.data.__getitems__(torch.where(planted, real[0] if len(real) else 0, chosen).tolist())
        which = chosen[planted] - self._size
        value = 1 if self.inputs is None else self.inputs[which]
        return overwritten(inputs, planted, value), overwritten(targets, planted, self.targets[which])


def overwritten(batch: Any, rows: Tensor, value: Any) -> Any:
    """A copy of the batch with `value` in these rows, whatever containers it is made of."""
    if isinstance(batch, Mapping):
        return {key: overwritten(item, rows, value) for key, item in batch.items()}
    if isinstance(batch, (list, tuple)):
        return type(batch)(overwritten(item, rows, value) for item in batch)
    copied: Tensor = batch.clone()
    copied[rows] = value
    return copied
