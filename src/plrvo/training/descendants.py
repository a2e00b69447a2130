"""What was computed from a module's outputs, for as long as somebody holds it: also after the step that they are of.

An output that a loop keeps (a queue of features, a moving mean, prototypes of classes) carries its example into steps
that the example is not in, whether it is of a training pass or of one without gradients. So everything that torch
computes from outputs is known by its memory, with the step of the oldest output that went into it, copies in place
included: a loss, or an input of the module, that is made of an earlier step's is refused (`watch`). Only weak
references are held, so that what a loop logs costs no memory of ours. Numbers that pass through Python or NumPy
(`.item()`, `.numpy()`) are lost on the way.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from plrvo.training.modes import Listener, leave_stopped
from plrvo.training.operations import Operation, memory_of, tensors_of, written

_FEW = 64  # of what is known: so many are looked through for those that are gone in every step
_aten = torch.ops.aten
# They take a size from a tensor, and no number.
_SIZES_ONLY = {
    _aten.empty_like, _aten.zeros_like, _aten.ones_like, _aten.full_like, _aten.rand_like, _aten.randn_like,
    _aten.randint_like, _aten.new_empty, _aten.new_zeros, _aten.new_ones, _aten.new_full, _aten.new_empty_strided,
}  # fmt: skip
_OVERWRITES = {_aten.copy_, _aten.zero_, _aten.fill_}  # nothing of what was there before is left


class Descendants(Listener):
    """Of one module's outputs, by memory."""

    def __init__(self) -> None:
        super().__init__()
        self.step = 0
        self._known: dict[int, tuple[Any, int]] = {}  # a weak reference, and the step
        self._let_go = set[int]()  # those of them that nobody can compute once more
        self._next_look = _FEW
        _alive.add(self)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if any(memory_of(t) in self._known for t in tensors_of((args, kwargs))):
            self._follow(Operation(func, args, kwargs, tensors_of(result), True, None, None, 0), ())
        return result

    def add(self, tensors: Iterable[Tensor]) -> None:
        """Outputs of the step under way, which were let go."""
        for t in tensors:
            self._know(t, self.step)
            self._let_go.add(memory_of(t))

    def add_beside(self, tensors: Iterable[Tensor], *, at_a_batch: bool) -> None:
        """Outputs of a pass without gradients: of the batch under way, or of whatever else between two steps."""
        self.look()
        for t in tensors:
            self._know(t, self.step if at_a_batch else self.step - 1)

    def follow(self, operations: Sequence[Operation], outputs: Collection[int]) -> None:
        """What operations of the step under way have made from outputs, which are given by their memory."""
        for operation in operations:
            self._follow(operation, outputs, let_go=True)

    def is_one(self, t: Tensor) -> bool:
        """Whether it was let go: not what a pass without gradients gives in the step under way."""
        memory = memory_of(t)
        return memory in self._known and (memory in self._let_go or self.is_of_an_earlier_step(t))

    def is_of_an_earlier_step(self, t: Tensor) -> bool:
        found = self._known.get(memory_of(t))
        return found is not None and found[1] < self.step

    def new_step(self, inside: Mapping[int, Any] | None = None) -> None:
        """With weak references to memory that was made inside of passes of the last step, and is still there."""
        for memory, reference in (inside or {}).items():
            self._known.setdefault(memory, (reference, self.step))
        self.step += 1
        self.look()

    def look(self) -> None:
        """Forget what is gone: where much is known, each time that it has doubled."""
        if len(self._known) <= _FEW or len(self._known) >= self._next_look:
            self._known = {memory: found for memory, found in self._known.items() if not found[0].expired()}
            self._let_go &= self._known.keys()
            self._next_look = 2 * len(self._known)

    def resume(self) -> None:
        self.look()  # what the step under way has still held may be gone with it
        if self._known:
            super().resume()

    def forget(self) -> None:
        self.pause()
        self._known, self._let_go = {}, set()

    def _follow(self, operation: Operation, outputs: Collection[int], let_go: bool = False) -> None:
        function = getattr(operation.function, "overloadpacket", None)
        if function in _SIZES_ONLY:
            return
        changed = written(operation)
        if function in _OVERWRITES and _is_all_of_its_memory(changed[0]):
            self._known.pop(memory_of(changed[0]), None)
        steps = []
        for t in operation.given():
            memory = memory_of(t)
            let_go |= memory in self._let_go
            if memory in self._known:
                steps.append(self._known[memory][1])
            elif memory in outputs:
                steps.append(self.step)
        for t in (*operation.results, *changed) if steps else ():
            if memory_of(t) not in outputs:
                self._know(t, min(steps))
                if let_go:
                    self._let_go.add(memory_of(t))

    def _know(self, t: Tensor, step: int) -> None:
        memory = memory_of(t)
        found = self._known.get(memory)
        if found is not None:
            self._known[memory] = found[0], min(step, found[1])
        elif memory != id(t):  # sparse tensors have no memory of their own
            reference: Any = StorageWeakRef  # nothing else is at this address as long as the reference is there
            self._known[memory] = reference(t.untyped_storage()), step


def _is_all_of_its_memory(t: Tensor) -> bool:
    return t.layout == torch.strided and t.nbytes == t.untyped_storage().nbytes()


_alive: weakref.WeakSet[Descendants] = weakref.WeakSet()


@contextmanager
def not_followed() -> Iterator[None]:
    """For many operations that no output goes into (layers beneath the module), or that need not be each time."""
    running = [found for found in tuple(_alive) if found.is_running]
    for found in running:
        found.pause()
    try:
        yield
    finally:
        for found in running:
            found.resume()


def forget_descendants() -> None:
    """Where another engine begins, nobody goes on with those of the last one."""
    for found in tuple(_alive):
        found.forget()
    leave_stopped()
