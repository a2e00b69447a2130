"""What is computed inside of a module's pass, and does not come out of it.

A hook, or `forward` itself, may write a statistic of the batch to a place outside of the module, from where a loss
takes it: no output, so that nothing is carried out again with other examples, and nothing that the module keeps. So
the memory that a pass makes from its inputs, or writes that to, is known as long as somebody holds it: a loss of the
same step that starts from it is refused, and after the step it counts as an output of that (`descendants`). To hear of
every operation takes time: the first passes are listened to, and some later ones at random.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Any

from torch import Tensor

from plrvo.training.descendants import Descendants
from plrvo.training.operations import memory_of

_FIRST = 8
_AGAIN = 16  # one in so many later passes


class Inside(Descendants):
    """What passes of one step compute from their inputs, by memory."""

    def __init__(self) -> None:
        super().__init__()
        self._passes = 0
        self._given = set[int]()

    def begin(self, inputs: Iterable[Tensor]) -> None:
        """Before a pass of the module."""
        self._passes += 1
        if self._passes <= _FIRST or not secrets.randbelow(_AGAIN):
            for t in inputs:
                self._know(t, self.step)
                self._given.add(memory_of(t))
            self.resume()

    def end(self, outputs: Iterable[Tensor]) -> None:
        """After it: what it gives is looked at elsewhere, as is what it was given."""
        self.pause()
        for memory in (*self._given, *map(memory_of, outputs)):
            self._known.pop(memory, None)

    def made(self, t: Tensor) -> bool:
        found = self._known.get(memory_of(t))
        return found is not None and not found[0].expired()

    def let_go(self) -> dict[int, Any]:
        """Weak references to what is still there after the step, by memory; and nothing is known from here on."""
        left = {memory: reference for memory, (reference, _) in self._known.items() if not reference.expired()}
        self.forget()
        self._given = set()
        return left
