"""The operations between a forward pass of a module and the backward pass of its loss, but for those inside of it.

They are kept so that the loss can be carried out once more (`replay`), as long as somebody may still go back from them:
a pass whose outputs nobody holds when another begins, as one to look at metrics, is let go.
"""

from __future__ import annotations

import math
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _python_dispatch

from plrvo.training.layout import Layout

_MOST = 100_000  # operations
_MOST_BYTES = 1 << 30  # that they have made, or so many times what the module gave: losses are small
_MOST_TIMES = 16
_PENDING = 4  # passes that numbers may still be used of, though nobody can go back from them
_MANY = 16  # uses of one operation with one weight, from which on more are not told apart: loops over examples


@dataclass(frozen=True, eq=False)
class Operation:
    """One of torch's own, as it was carried out."""

    function: Any
    args: Any
    kwargs: Any
    results: list[Tensor]
    with_gradient: bool
    generator: torch.Generator | None  # that it draws from, and the state of that before
    state: Tensor | None
    turn: int  # after how many passes

    @staticmethod
    def carried_out(function: Any, args: Any, kwargs: Any, turn: int) -> tuple[Operation, Any]:
        """With the result that it had."""
        generator = state = None
        if torch.Tag.nondeterministic_seeded in function.tags:
            own = [g for g in (*args, *kwargs.values()) if isinstance(g, torch.Generator)]
            generator = own[0] if own else torch.default_generator
            state = generator.get_state()
        result = function(*args, **kwargs)
        made = Operation(function, args, kwargs, tensors_of(result), torch.is_grad_enabled(), generator, state, turn)
        return made, result

    def given(self) -> list[Tensor]:
        return tensors_of((self.args, self.kwargs))

    def nbytes(self) -> int:
        """What it has made, and not been given."""
        known = {memory_of(t) for t in self.given()}
        return sum([t.nbytes for t in self.results if memory_of(t) not in known])


_Mode: Any = _python_dispatch.TorchDispatchMode  # which has no types


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


class Recording(_Mode):
    """What was computed since a pass that nobody has gone back from yet."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[Operation] = []
        self.turn = 0  # passes so far
        self._outputs: set[int] = set()  # the memory of what the module gave
        self._gone: dict[int, Any] = {}  # what was computed from it by operations that were let go, by its memory
        self._is_running = self.is_full = self.is_forgotten = False
        self._bytes, self._most_bytes = 0, _MOST_BYTES
        _alive.add(self)
        self._thread = threading.get_ident()  # modes are of a thread; passes back may have threads of their own

    def resume(self, of: Sequence[Tensor] = ()) -> None:
        """Go on, after a pass that gave such outputs."""
        self._most_bytes = max(self._most_bytes, _MOST_TIMES * sum(t.nbytes for t in of))
        self._outputs |= {memory_of(t) for t in of}
        if not self._is_running and not self.is_forgotten and self._thread == threading.get_ident():
            self._is_running = True
            with _lifted(_modes()):  # under those of others, who will leave theirs from the top
                self.__enter__()

    def pause(self) -> None:
        if self._is_running and self._thread == threading.get_ident():
            self._is_running = False
            modes = _modes()
            if any(mode is self for mode in modes):  # a compiler may have cleared all modes in between
                with _lifted(modes[[mode is self for mode in modes].index(True) + 1 :]):
                    self.__exit__(None, None, None)

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
        self._gone = {memory: reference for memory, reference in self._gone.items() if not reference.expired()}

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
        old.difference_update(_leading_to(self.operations, wanted))
        old_outputs = {o for o in old_outputs if memory_of(o.tensor) not in wanted}
        self._bytes -= sum(s.nbytes() for s in old)
        self._let_go([s for s in self.operations if s in old])
        self._outputs -= {memory_of(o.tensor) for o in old_outputs}
        self._gone |= {memory_of(o.tensor): _weak(o.tensor) for o in old_outputs}
        self.operations = [s for s in self.operations if s not in old]
        outputs[:] = [o for o in outputs if o not in old_outputs]
        return bool(old or old_outputs)

    def is_gone(self, t: Tensor) -> bool:
        """Whether it was computed from a pass, or a part of one, that was let go."""
        reference = self._gone.get(memory_of(t))
        return reference is not None and not reference.expired()

    def _let_go(self, operations: Sequence[Operation]) -> None:
        """Remember what they have computed from the module's outputs, as long as somebody holds it."""
        for s in operations:
            if any(memory_of(t) in self._gone or memory_of(t) in self._outputs for t in s.given()):
                made = [t for t in (*s.results, *written(s)) if memory_of(t) not in self._outputs]
                self._gone |= {memory_of(t): _weak(t) for t in made}


def _weak(t: Tensor) -> Any:
    """A reference to its memory, which nothing else has as long as the reference is there."""
    reference: Any = StorageWeakRef
    return reference(t.untyped_storage())


def _modes() -> list[Any]:
    return list(_python_dispatch._get_current_dispatch_mode_stack())


@contextmanager
def _lifted(modes: Sequence[Any]) -> Iterator[None]:
    """Without the uppermost modes, which come back afterwards."""
    for _ in modes:
        _python_dispatch._pop_mode()
    try:
        yield
    finally:
        for mode in modes:
            _python_dispatch._push_mode(mode)


_alive: weakref.WeakSet[Recording] = weakref.WeakSet()  # those of refused losses are paused, and may go on later


def forget_recordings() -> None:
    """Let go of passes that nobody has gone back from, and that nobody will where another engine begins."""
    for recording in tuple(_alive):
        recording.pause()
        recording.operations.clear()
        # For good: its engine may still live, and look on at backward passes of others.
        recording.is_full = recording.is_forgotten = True


def form(recording: Recording, loss: Tensor, outputs: Sequence[Tensor]) -> int:
    """A number that changes when the loss is made of other operations, or a term of it comes to count.

    A term may be multiplied by a weight that is zero at first, or small: numbers that meet what was computed from the
    outputs are told by their size, in powers of eight, and single numbers that were by whether they are zero.
    """
    of_outputs = {memory_of(t) for t in outputs}
    uses = Counter[Any]()
    for step in leading_to(recording.operations, loss):
        sizes: list[Any] = []
        if any(memory_of(t) in of_outputs for t in step.given()):
            of_outputs |= {memory_of(t) for t in (*step.results, *written(step))}
            given = _values((step.args, step.kwargs))
            sizes = [_size(v) for v in given if not (isinstance(v, Tensor) and memory_of(v) in of_outputs)]
            sizes += [_size(t) is None for t in step.results if t.numel() == 1]
        uses[step.function, tuple(size for size in sizes if size is not False)] += 1
    # Operations without numbers come as often as there are rows, in a loop over examples.
    return hash(frozenset((use, min(count, _MANY) if use[1] else 0) for use, count in uses.items()))


def _size(value: Any) -> int | bool | None:
    """None for zero, the power of eight of other numbers, False for what has no size that matters."""
    if isinstance(value, Tensor):
        if not value.is_floating_point() or not value.numel() or value.is_meta or value.layout != torch.strided:
            return False
        value = float(torch.stack(torch.aminmax(value.detach())).abs().max())
    elif type(value) is int:
        return None if value == 0 else False  # a dimension, a number of rows
    elif type(value) is not float:
        return False
    return None if value == 0 else math.frexp(value)[1] // 3


def leading_to(operations: Sequence[Operation], loss: Tensor) -> list[Operation]:
    """The operations that lead to the loss: told by memory, since a tensor may be written to through another."""
    return _leading_to(operations, {memory_of(loss)})


def _leading_to(operations: Sequence[Operation], wanted: set[int]) -> list[Operation]:
    """Those that lead to the memory that is wanted, which grows by what they were given."""
    steps = []
    for operation in reversed(operations):
        if any(memory_of(t) in wanted for t in (*operation.results, *written(operation))):
            steps.append(operation)
            wanted |= {memory_of(t) for t in operation.given()}
    steps.reverse()
    return steps


def written(operation: Operation) -> list[Tensor]:
    """The tensors that an operation changes in place."""
    schema = operation.function._schema
    if not schema.is_mutable:
        return []
    values = [*operation.args, *([None] * len(schema.arguments))][: len(schema.arguments)]
    changed = []
    for argument, value in zip(schema.arguments, values, strict=True):
        if argument.alias_info is not None and argument.alias_info.is_write:
            changed += tensors_of(operation.kwargs.get(argument.name, value))
    return changed


def tensors_of(value: Any) -> list[Tensor]:
    """All that are in what an operation takes or gives."""
    return [v for v in _values(value) if isinstance(v, Tensor)]


def _values(value: Any) -> list[Any]:
    """Operations have tuples, lists and keywords, and no other containers."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if not isinstance(value, (tuple, list)):
        return [value]
    return [v for item in value for v in (_values(item) if isinstance(item, (tuple, list, dict)) else (item,))]


def memory_of(t: Tensor) -> int:
    """A name for the memory that a tensor and its views share."""
    try:
        return t.untyped_storage()._cdata
    except (RuntimeError, NotImplementedError):  # of a kind without memory of its own
        return id(t)
