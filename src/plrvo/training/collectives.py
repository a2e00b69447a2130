"""What comes from other processes: neither a module nor a loss may be made of it.

An example is in one process, and is clipped there. Where a module or a loss gathers what others have (features for a
contrastive loss, a mean over all processes), an example changes the gradients of examples elsewhere, each by up to
twice the clip, and tries of one process see nothing of it: in them only its own rows change. They would also wait for
processes that try nothing. So collectives are refused where a module is tried, in which FSDP's own are silenced
(`sharded`), and among the operations that lead to a loss. To look at numbers of all processes is fine.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.utils import _python_dispatch

from plrvo.training.operations import Operation, memory_of, tensors_of
from plrvo.validate import InvalidArgument

_Mode: Any = _python_dispatch.TorchDispatchMode  # which has no types
_IN_PLACE, _FUNCTIONAL = ("c10d",), ("_c10d_functional", "_c10d_functional_autograd", "c10d_functional")
_INTO_NOTHING = ("send", "barrier", "monitored_barrier_")


def alone() -> AbstractContextManager[Any]:
    """For passes of a try: a module that asks other processes for something is refused."""
    return _Refusing() if torch.distributed.is_available() and torch.distributed.is_initialized() else nullcontext()


class _Refusing(_Mode):
    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function.namespace in _IN_PLACE + _FUNCTIONAL:
            raise InvalidArgument(
                "module",
                f"{function.namespace}.{function.overloadpacket.__name__}",
                "a module that works on its own process's examples; what it gathers from others carries their examples "
                "into the gradients of these",
            )
        return function(*args, **(kwargs or {}))


def gathered(operations: Sequence[Operation], steps: Sequence[Operation], loss: Tensor) -> str | None:
    """The name of a collective whose outcome some steps, which lead to a loss, are given; None where there is none."""
    wanted = {memory_of(loss)} | {memory_of(t) for step in steps for t in step.given()}
    for operation in operations:
        if any(memory_of(t) in wanted for t in _received(operation)):
            return str(operation.function.overloadpacket.__name__)
    return None


def _received(operation: Operation) -> list[Tensor]:
    """The tensors that hold what other processes have sent; in place they come first among the arguments."""
    kind, name = operation.function.namespace, operation.function.overloadpacket.__name__
    if kind in _IN_PLACE and name not in _INTO_NOTHING:
        return [*tensors_of(operation.args[:1]), *operation.results]
    return operation.results if kind in _FUNCTIONAL else []
