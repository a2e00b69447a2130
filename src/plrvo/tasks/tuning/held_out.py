"""The part of the private data that trials are scored on, and their noisy scores.

An example is held out by a coin of its own, which neither the other examples nor their number change: two neighbouring
data sets are split alike but for the one example. The score of a trial is the number of held-out examples that its
model gets right, in which one example counts at most once, with noise in integers. Test data has no part in it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

from plrvo.accounting import Ledger, Workload
from plrvo.accounting.selection import Count
from plrvo.accounting.selection.search import fitted
from plrvo.noise import Gaussian, GridNoise, Keystream
from plrvo.tasks.evaluation import classification_metrics
from plrvo.tasks.preset import Task
from plrvo.validate import InvalidArgument

CELL = 2.0**-10  # of one right answer: the grid of the noise
_ONE = Workload(sample_rate=1.0, steps=1, clip=1.0, dimension=1)
_FEWEST = 20  # examples in either part: fewer choose and train by chance


class Part(Dataset[Any]):
    """Some of the examples, by their places."""

    def __init__(self, data: Any, places: np.ndarray) -> None:
        self._data, self._places = data, places
        lengths = getattr(data, "lengths", None)
        if lengths is not None:
            self.lengths = lengths[torch.as_tensor(places)]

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: int) -> Any:
        return self._data[int(self._places[index])]

    def __getitems__(self, indices: list[int]) -> Any:
        return self._data.__getitems__([int(self._places[i]) for i in indices])


@dataclass(frozen=True)
class Split:
    """A task on the part that is trained on, and the part that is held out."""

    training: Task
    held_out: Part

    @staticmethod
    def of(task: Task, share: float, coins: Keystream) -> Split:
        """`share` of the examples are held out on average. The same coins give the same split."""
        if task.metric != "accuracy":
            metric = f"a task with right and wrong answers; this one has the metric {task.metric}"
            raise InvalidArgument("task", task.description.get("name"), metric)
        held = coins.words(task.size) < np.uint64(int(share * 2.0**64))
        outside, inside = np.flatnonzero(held), np.flatnonzero(~held)
        if min(len(outside), len(inside)) < _FEWEST:
            raise InvalidArgument("held_out", share, f"a share that leaves {_FEWEST} examples in either part")
        public = [*task.description.get("treated_as_public", ()), "held_out"]
        told = {"examples": len(inside), "held_out": len(outside), "treated_as_public": public}
        description = {**task.description, **told}
        part = replace(task, data=Part(task.data, inside), size=len(inside), description=description)
        return Split(part, Part(task.data, outside))

    def noisy_right(self, module: nn.Module, noise: GridNoise, keystream: Keystream) -> int:
        """How many held-out examples the model gets right, in cells of the noise."""
        found = classification_metrics(module, self.held_out)
        total = np.array([round(found["accuracy"] * len(self.held_out)) * round(1 / noise.cell)], dtype=np.int64)
        noise.add_to([total], keystream)
        return int(total[0])


def score_noise(count: Count, epsilon: float, delta: float) -> GridNoise:
    """The narrowest noise on a count with which the search keeps the budget for whoever is held out."""
    ((found, _),) = fitted(count, [(Gaussian(1.0), _ONE)], epsilon, delta)
    longer = GridNoise(found, CELL).sensitivity(_ONE.clip, _ONE.dimension)  # as the account has it
    return GridNoise(found.scaled(longer * (1 + 1e-9)), CELL)


def score_ledger(noise: GridNoise) -> Ledger:
    """One count."""
    return Ledger().plus(noise, _ONE)
