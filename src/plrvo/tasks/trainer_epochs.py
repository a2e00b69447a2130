"""Epochs of a private trainer: the plan's steps, cut where the examples have been met once more on average.

Batches are drawn by coins, in one stream from the first step to the last; no epoch begins it anew. Epoch k ends after
ceil(k / q) steps, for batches of a share q of the examples, so that E epochs are E epochs also where 1/q is no whole
number: lengths differ by one then. What a `Trainer` does by epochs (evaluation, checkpoints, logs, early stopping) it
does there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from transformers import TrainerCallback

_ROUNDING = 1e-9  # of a step: 1/q is computed in floating point


@dataclass(frozen=True)
class Epochs:
    """`steps` steps, each of which meets a `share` of the examples.

    >>> Epochs(share=0.4, steps=8).ends
    [3, 5, 8]
    """

    share: float
    steps: int

    @property
    def ends(self) -> list[int]:
        """The last step of each; the last epoch may be a part of one."""
        return [min(self.steps, self._end(k)) for k in range(self.of(self.steps - 1) + 1)]

    @property
    def longest(self) -> int:
        return self._end(0)

    def of(self, step: int) -> int:
        """The number of the epoch, from 0, in which the step after so many is taken."""
        return math.floor((step + _ROUNDING) * self.share)

    def left(self, step: int) -> int:
        """How many steps its epoch still has after so many steps."""
        return min(self.steps, self._end(self.of(step))) - step

    def passed(self, step: int) -> float:
        """So many steps in epochs: a whole number where one ends."""
        k = self.of(step)
        begin = self._end(k - 1)
        return k + (step - begin) / (self._end(k) - begin)

    def _end(self, k: int) -> int:
        return math.ceil((k + 1) / self.share - _ROUNDING)


class EpochLoader:
    """A private loader that gives in each pass what is left of the epoch under way: a resumed run goes on in it.

    What a batch is, and which comes next, is the loader's: it is asked for the next ones, and for no more of them.
    """

    def __init__(self, loader: Any, epochs: Epochs, taken: Callable[[], int]) -> None:
        self._loader, self._epochs, self._taken = loader, epochs, taken

    def __len__(self) -> int:
        return self._epochs.longest

    def __iter__(self) -> Iterator[Any]:
        left = self._epochs.left(self._taken())
        return islice(self._loader, left) if left > 0 else iter(())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class CountEpochs(TrainerCallback):
    """Tells a Trainer's state the epoch by the steps that were taken: it counts those of its own loop only.

    Goes in front of callbacks that may look at it.
    """

    def __init__(self, epochs: Epochs) -> None:
        self._epochs = epochs

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        state.epoch = self._epochs.passed(state.global_step)
