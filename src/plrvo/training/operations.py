"""Torch's own operations as they were carried out, and which of them lead to a tensor, told by its memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


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


def leading_to(operations: Sequence[Operation], loss: Tensor) -> list[Operation]:
    """The operations that lead to the loss: told by memory, since a tensor may be written to through another."""
    return leading_to_memory(operations, {memory_of(loss)})


def leading_to_memory(operations: Sequence[Operation], wanted: set[int]) -> list[Operation]:
    """Those that lead to the memory that is wanted, which grows by what they were given."""
    steps = []
    for operation in reversed(operations):
        if any(memory_of(t) in wanted for t in (*operation.results, *written(operation))):
            steps.append(operation)
            wanted |= {memory_of(t) for t in operation.given()}
    steps.reverse()
    return steps


def started_from(steps: Sequence[Operation]) -> list[Tensor]:
    """What operations are given that none of them has made."""
    made, found = set[int](), dict[int, Tensor]()
    for step in steps:
        found |= {id(t): t for t in step.given() if id(t) not in made}
        made |= {id(t) for t in step.results}
    return list(found.values())


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
    return [v for v in values_in(value) if isinstance(v, Tensor)]


def values_in(value: Any) -> list[Any]:
    """Operations have tuples, lists and keywords, and no other containers."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if not isinstance(value, (tuple, list)):
        return [value]
    return [v for item in value for v in (values_in(item) if isinstance(item, (tuple, list, dict)) else (item,))]


def memory_of(t: Tensor) -> int:
    """A name for the memory that a tensor and its views share."""
    try:
        return t.untyped_storage()._cdata
    except (RuntimeError, NotImplementedError):  # of a kind without memory of its own
        return id(t)
