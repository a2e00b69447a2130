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
from torch.multiprocessing.reductions import StorageWeakRef

from plrvo.training.descendants import SIZES_ONLY
from plrvo.training.modes import Listener
from plrvo.training.operations import Operation, memory_of, tensors_of, written

_FIRST = 8
_AGAIN = 16  # one in so many later passes


class Inside(Listener):
    """The memory that was made in a pass, or several of a step."""

    def __init__(self) -> None:
        super().__init__()
        self._passes = 0
        self._given = set[int]()
        self._made: dict[int, Any] = {}  # weak references

    def begin(self, inputs: Iterable[int]) -> None:
        """Before a pass of the module, with the memory of what it is given."""
        self._passes += 1
        if self._passes <= _FIRST or not secrets.randbelow(_AGAIN):
            self._given = set(inputs)
            self.resume()

    def end(self, outputs: Iterable[Tensor]) -> None:
        """After it: what it gives is looked at elsewhere, as is what it was given."""
        self.pause()
        for memory in (*self._given, *map(memory_of, outputs)):
            self._made.pop(memory, None)

    def made(self, t: Tensor) -> bool:
        found = self._made.get(memory_of(t))
        return found is not None and not found.expired()

    def new_step(self) -> dict[int, Any]:
        """What is still there after the step; and none is known from here on."""
        self.pause()
        left = {memory: reference for memory, reference in self._made.items() if not reference.expired()}
        self._made = {}
        return left

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        given = {memory_of(t) for t in tensors_of((args, kwargs))}
        if func.overloadpacket in SIZES_ONLY or not any(m in self._given or m in self._made for m in given):
            return result  # a constant
        results = tensors_of(result)
        operation = Operation(func, args, kwargs, results, True, None, None, 0)
        for t in (*(t for t in results if memory_of(t) not in given), *written(operation)):
            if memory_of(t) != id(t):  # sparse tensors have no memory of their own
                reference: Any = StorageWeakRef
                self._made[memory_of(t)] = reference(t.untyped_storage())
        return result
