"""The operations between a forward pass of a module and the backward pass of its loss, but for those inside of it.

They are kept so that the loss can be carried out once more (`replay`), as long as somebody may still go back from them:
a pass whose outputs nobody holds when another begins, as one to look at metrics, is let go.
"""

from __future__ import annotations

import math
import sys
import weakref
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from plrvo.training.descendants import Descendants
from plrvo.training.layout import Layout
from plrvo.training.modes import Listener
from plrvo.training.operations import Operation, leading_to_memory, memory_of, values_in, written

_MOST = 100_000  # operations
_MOST_BYTES = 1 << 30  # that they have made, or so many times what the module gave: losses are small
_MOST_TIMES = 16
_PENDING = 4  # passes that numbers may still be used of, though nobody can go back from them
_MANY = 16  # uses of one operation with one weight, from which on more are not told apart: loops over examples


@dataclass(frozen=True, eq=False)
class Output:
    """What the module gave: a tensor, its node and version as it came out, and where its rows are."""

    tensor: Tensor
    node: Any
    version: int
    is_sum: bool  # as far as a try has shown, if it is one number
    layout: Layout | None
    learns_before: bool  # whether something in front of the module gets a gradient through it
    turn: int  # after how many passes
    place: int  # among all tensors that it gave
    hooks: frozenset[int] = frozenset()  # on its gradient, which it came with


class Recording(Listener):
    """What was computed since a pass that nobody has gone back from yet."""

    def __init__(self, descendants: Descendants | None = None) -> None:
        super().__init__()
        self.operations: list[Operation] = []
        self.turn = 0  # passes so far
        self.descendants = descendants or Descendants()  # what was computed by operations that were let go
        self._outputs: set[int] = set()  # the memory of what the module gave
        self.is_full = self.is_forgotten = False
        self._bytes, self._most_bytes = 0, _MOST_BYTES
        _alive.add(self)

    def resume(self, of: Sequence[Tensor] = ()) -> None:
        """Go on, after a pass that gave such outputs."""
        self._most_bytes = max(self._most_bytes, _MOST_TIMES * sum(t.nbytes for t in of))
        self._outputs |= {memory_of(t) for t in of}
        if not self.is_forgotten:
            super().resume()

    def end(self, outputs: Sequence[Output]) -> None:
        """Nobody goes back from here any more; what was computed from these outputs is known as long as it is there."""
        self.pause()
        self.descendants.add(o.tensor for o in outputs)
        self._outputs = set()
        self._let_go(self.operations)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        operation, result = Operation.carried_out(func, args, kwargs or {}, self.turn)
        self.operations.append(operation)
        self._bytes += operation.nbytes()
        if self.is_full or len(self.operations) >= _MOST or self._bytes > self._most_bytes:
            self._let_go(self.operations)  # no loss
            self.operations.clear()
            self.is_full, self._bytes = True, 0
        return result

    def begin_pass(self, outputs: list[Output]) -> None:
        """Leave of the outputs of earlier passes those that somebody may still go back from; the rest is let go.

        Of the last few passes everything is kept. Of older ones (to look at metrics, say) what tensors are computed
        from that somebody else holds, and that want a gradient.
        """
        self.turn += 1
        self.is_full &= self.is_forgotten
        while self._let_go_of_old(outputs):
            pass  # what was held by that alone goes next
        self.descendants.look()

    def _let_go_of_old(self, outputs: list[Output]) -> bool:
        """Whether there was anything."""
        old = {s for s in self.operations if s.turn <= self.turn - _PENDING}
        old_outputs = {o for o in outputs if o.turn <= self.turn - _PENDING}
        if not old and not old_outputs:
            return False
        ours = Counter(id(t) for s in self.operations for t in (*s.given(), *s.results))
        ours.update(id(o.tensor) for o in outputs)
        made = [*(o.tensor for o in outputs), *(t for s in self.operations for t in s.results)]
        tensors = list({id(t): t for t in made}.values())
        del made
        # Beside our own references there is one by this list, by the loop, and by the call.
        held = [t for t in tensors if t.requires_grad and sys.getrefcount(t) > ours[id(t)] + 3]
        wanted = {memory_of(t) for t in held}
        old.difference_update(leading_to_memory(self.operations, wanted))
        old_outputs = {o for o in old_outputs if memory_of(o.tensor) not in wanted}
        self._bytes -= sum(s.nbytes() for s in old)
        self._let_go([s for s in self.operations if s in old])
        self._outputs -= {memory_of(o.tensor) for o in old_outputs}
        self.descendants.add(o.tensor for o in old_outputs)
        self.operations = [s for s in self.operations if s not in old]
        outputs[:] = [o for o in outputs if o not in old_outputs]
        return bool(old or old_outputs)

    def _let_go(self, operations: Sequence[Operation]) -> None:
        """Remember what they have computed from the module's outputs, as long as somebody holds it."""
        self.descendants.follow(operations, self._outputs)


_alive: weakref.WeakSet[Recording] = weakref.WeakSet()  # those of refused losses are paused, and may go on later


def forget_recordings() -> None:
    """Let go of passes that nobody has gone back from, and that nobody will where another engine begins."""
    for recording in tuple(_alive):
        recording.pause()
        recording.operations.clear()
        # For good: its engine may still live, and look on at backward passes of others.
        recording.is_full = recording.is_forgotten = True


def form(steps: Sequence[Operation], outputs: Sequence[Tensor]) -> int:
    """A number that changes when the loss is made of other operations, or a term of it comes to count.

    Given are those that lead to it. A term may be multiplied by a weight that is zero at first, or small: numbers that
    meet what was computed from the outputs are told by their size, in powers of eight, and single numbers that were by
    whether they are zero.
    """
    of_outputs = {memory_of(t) for t in outputs}
    uses = Counter[Any]()
    for step in steps:
        sizes: list[Any] = []
        if any(memory_of(t) in of_outputs for t in step.given()):
            of_outputs |= {memory_of(t) for t in (*step.results, *written(step))}
            given = values_in((step.args, step.kwargs))
            sizes = [_size(v) for v in given if not (isinstance(v, Tensor) and memory_of(v) in of_outputs)]
            sizes += [_size(t) is None for t in step.results if t.numel() == 1]
        uses[step.function, tuple(size for size in sizes if size is not False)] += 1
    # Operations without numbers come as often as there are rows, in a loop over examples.
    return hash(frozenset((use, min(count, _MANY) if use[1] else 0) for use, count in uses.items()))


def _size(value: Any) -> int | bool | None:
    """None for zero, the power of eight of other numbers, False for what has no size that matters.

    Of whole numbers, whether some are negative.
    """
    if isinstance(value, Tensor):
        if not value.numel() or value.is_meta or value.layout != torch.strided:
            return False
        if not value.is_floating_point():  # labels that are passed over
            return -1 if value.dtype.is_signed and not value.is_complex() and int(value.min()) < 0 else False
        value = float(torch.stack(torch.aminmax(value.detach())).abs().max())
    elif type(value) is int:
        return None if value == 0 else False  # a dimension, a number of rows
    elif type(value) is not float:
        return False
    return None if value == 0 else math.frexp(value)[1] // 3
