"""A loss is computed once more with other examples: what one example is told must stay the same.

If the loss is a sum over examples, then the gradient at one example's outputs is a function of that example alone. From
the module's outputs to the backward pass, every operation is written down (`Recording`). It is then carried out again,
from the same outputs and targets, and from others in which all rows but one are copies of one row. If the gradient at
the row that stayed changes, the loss has looked at the others: at their outputs (contrastive and ranking losses, hard
examples, a statistic of the batch, detached or not) or at their targets (weights of the classes in the batch, tokens
that are not padding).

What Python decided in between (an `if`, a number that was taken out by `.item()`) stays as it was, and what was
computed before the module was called is not seen.
"""

from __future__ import annotations

import secrets
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _python_dispatch
from torch.utils._pytree import tree_flatten, tree_map

_MOST, _MOST_BYTES = 20_000, 1 << 30  # operations, and what they gave: losses are small
_TRIALS = 4  # rows that are tried
_LARGE = 10_000_000  # numbers in the outputs, beyond which one row is tried
_FEW = 16  # rows: constants of more numbers are not of just this size by chance
_CLOSE = 1e-4  # relative: the same operations on other rows, so that kernels may round otherwise


class CannotReplay(RuntimeError):
    """The operations do not give the same loss again: nothing can be said."""


@dataclass(frozen=True)
class _Operation:
    function: Any
    args: Any
    kwargs: Any
    results: list[Tensor]
    with_gradient: bool
    generator: torch.Generator | None  # that it draws from, and the state of that before
    state: Tensor | None

    @staticmethod
    def carried_out(function: Any, args: Any, kwargs: Any) -> tuple[_Operation, Any]:
        """With the result that it had."""
        generator = state = None
        if torch.Tag.nondeterministic_seeded in function.tags:
            own = [g for g in (*args, *kwargs.values()) if isinstance(g, torch.Generator)]
            generator = own[0] if own else torch.default_generator
            state = generator.get_state()
        result = function(*args, **kwargs)
        made = _Operation(function, args, kwargs, _tensors(result), torch.is_grad_enabled(), generator, state)
        return made, result


_Mode: Any = _python_dispatch.TorchDispatchMode  # which has no types


class Recording(_Mode):
    """The operations between a forward pass and its backward pass, but for those inside of the module."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[_Operation] = []
        self._is_running = self._is_full = False
        self._bytes = 0
        self._thread = threading.get_ident()  # modes are of a thread; passes back may have threads of their own

    def resume(self) -> None:
        if not self._is_running and not self._is_full and self._thread == threading.get_ident():
            self._is_running = True
            _running.append(self)
            self.__enter__()

    def pause(self) -> None:
        if self._is_running and self._thread == threading.get_ident():
            self._is_running = False
            _running.remove(self)
            with suppress(RuntimeError):  # a compiler may have cleared all modes in between
                self.__exit__(None, None, None)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._is_full:
            return func(*args, **(kwargs or {}))
        operation, result = _Operation.carried_out(func, args, kwargs or {})
        self.operations.append(operation)
        self._bytes += sum(t.nbytes for t in operation.results)
        if len(self.operations) >= _MOST or self._bytes > _MOST_BYTES:  # no loss: nothing of it is kept
            self._is_full = True
            self.operations.clear()
        return result


_running: list[Recording] = []  # torch keeps modes on one stack for all: so must whoever wants to leave them


def forget_recordings() -> None:
    """Let go of passes that nobody has gone back from, and that nobody will where another engine begins."""
    for recording in tuple(_running):
        recording.pause()
        recording.operations.clear()


@dataclass
class Replay:
    """What is known of the losses of one run, from trial to trial."""

    dimension: int = 0

    def __post_init__(self) -> None:
        self._before: list[weakref.ref[Tensor]] = []  # what came up in the pass before

    def looks_at_others(self, recording: Recording, loss: Tensor, outputs: Sequence[Tensor], rows: int) -> bool | None:
        """Whether the gradient at one example's outputs changes with other examples; None if it is not certain yet.

        A tensor that is no output may have the size of a small batch by chance (weights of so many classes). Whether
        it is a constant shows in the next pass.
        """
        steps, leaves = _needed(recording.operations, loss, outputs)
        constants = {id(t) for reference in self._before if (t := reference()) is not None}
        first = not self._before
        self._before = [weakref.ref(t) for t in leaves]
        form = _Form(rows, self.dimension, outputs)
        targets = [t for t in leaves if id(t) not in constants and form.places(t) is not None]
        learned = [o for o in outputs if o.requires_grad]
        true: list[Any] = list(torch.autograd.grad(loss, learned, retain_graph=True, allow_unused=True))
        trial = _Trial(steps, loss, learned, form)
        same = trial.gradients(None, None)
        if not all(_close(a, b) for a, b in zip(same, true, strict=True)):
            raise CannotReplay("its operations give another gradient when they are carried out again")
        trials = _TRIALS if sum(o.numel() for o in learned) < _LARGE else 1
        certain = True
        for _ in range(trials):
            row, other = _two_rows(rows)
            for source in (row, other):
                if trial.differs(same, row, source, targets):
                    # Whole numbers by example are labels; floating-point ones may be constants.
                    if trial.differs(same, row, source, [t for t in targets if not t.is_floating_point()]):
                        return True
                    certain = False
        if certain:
            return False
        return None if first and rows <= _FEW else True


class _Trial:
    def __init__(
        self,
        steps: list[_Operation],
        loss: Tensor,
        outputs: list[Tensor],
        form: _Form,
    ) -> None:
        self._steps, self._loss, self._outputs, self._form = steps, loss, outputs, form

    def differs(self, same: list[Any], row: int, source: int, targets: Sequence[Tensor]) -> bool:
        """Whether the gradient at `row` is another one where all others are copies of `source`."""
        found = self.gradients(row, source, targets)
        return any(not _close(self._row(a, row), self._row(b, row), whole=a) for a, b in zip(same, found, strict=True))

    def gradients(self, row: int | None, source: int | None, targets: Sequence[Tensor] = ()) -> list[Any]:
        """At the outputs, with copies of the row `source` in the place of all rows but `row`."""
        made = {id(o): self._changed(o.detach(), row, source).requires_grad_() for o in self._outputs}
        leaves = [made[id(o)] for o in self._outputs]
        made |= {id(t): self._changed(t.detach(), row, source) for t in targets if id(t) not in made}
        with torch.enable_grad(), _generators_kept(self._steps):
            for step in self._steps:
                _carry_out(step, made)
            loss = made.get(id(self._loss))
            if loss is None or not loss.requires_grad:
                raise CannotReplay("its operations do not lead to it")
            return list(torch.autograd.grad(loss, leaves, allow_unused=True))

    def _changed(self, values: Tensor, row: int | None, source: int | None) -> Tensor:
        places, rows = self._form.places(values), self._form.rows
        if row is None or source is None or places is None:
            return values.clone()
        dimension, blocks = places
        shaped = values.reshape(rows, blocks, *values.shape[1:]) if blocks > 1 else values
        index = torch.full((rows,), source, device=values.device)
        index[row] = row
        return shaped.index_select(dimension, index).reshape(values.shape)

    def _row(self, gradient: Tensor | None, row: int) -> Tensor | None:
        if gradient is None:
            return None
        return gradient.select(self._form.dimension if gradient.ndim > self._form.dimension else 0, row)


def _carry_out(step: _Operation, made: dict[int, Tensor]) -> None:
    def mapped(value: Any) -> Any:
        return made.get(id(value), value) if isinstance(value, Tensor) else value

    if step.generator is not None and step.state is not None:
        step.generator.set_state(step.state)
    with torch.set_grad_enabled(step.with_gradient):
        try:
            result = step.function(*tree_map(mapped, step.args), **tree_map(mapped, step.kwargs))
        except (RuntimeError, IndexError, ValueError) as error:
            raise CannotReplay(str(error)) from None
    for before, after in zip(step.results, _tensors(result), strict=False):
        made[id(before)] = after


def _needed(
    operations: Sequence[_Operation], loss: Tensor, outputs: Sequence[Tensor]
) -> tuple[list[_Operation], list[Tensor]]:
    """The operations that lead to the loss, and the tensors that they start from beside the outputs.

    Told by memory rather than by name, since a tensor may be written to through another.
    """
    wanted, steps = {_memory(loss)}, []
    for operation in reversed(operations):
        if any(_memory(t) in wanted for t in (*operation.results, *_written(operation))):
            steps.append(operation)
            wanted |= {_memory(t) for t in _tensors((operation.args, operation.kwargs))}
    steps.reverse()
    known = {id(o) for o in outputs}
    leaves: dict[int, Tensor] = {}
    counted: set[int] = set()  # how long parts are that follow one another: nobody's rows
    for step in steps:
        if any(id(t) not in known for t in _written(step)):
            raise CannotReplay("it writes into a tensor that was there before")
        if "ctc_loss" in str(step.function):
            counted |= {id(t) for t in _tensors(step.args[1:])}
        leaves |= {id(t): t for t in _tensors((step.args, step.kwargs)) if id(t) not in known}
        known |= {id(t) for t in step.results}
    return steps, [t for t in leaves.values() if id(t) not in counted]


def _written(operation: _Operation) -> list[Tensor]:
    """The tensors that an operation changes in place."""
    schema = operation.function._schema
    if not schema.is_mutable:
        return []
    values = [*operation.args, *([None] * len(schema.arguments))][: len(schema.arguments)]
    changed = []
    for argument, value in zip(schema.arguments, values, strict=True):
        if argument.alias_info is not None and argument.alias_info.is_write:
            changed += _tensors(operation.kwargs.get(argument.name, value))
    return changed


class _Form:
    """In which tensors, and where, the examples of a batch have rows."""

    def __init__(self, rows: int, dimension: int, outputs: Sequence[Tensor]) -> None:
        self.rows, self.dimension = rows, dimension
        inner = [(o.shape[1], o.shape[-1], o.numel() // rows) for o in outputs if o.ndim > 2]
        self._positions = {n for first, last, all_ in inner for n in (first, all_ // last, all_ // first)} - {1}

    def places(self, values: Tensor) -> tuple[int, int] | None:
        """The dimension, and how many numbers of each example follow one another there."""
        if values.ndim > self.dimension and values.shape[self.dimension] == self.rows:
            return self.dimension, 1
        if values.ndim and values.shape[0] == self.rows:
            return 0, 1
        # Labels of all positions in one row, as many as the outputs have: other sizes are not the batch's.
        if self.dimension == 0 and values.ndim == 1 and not values.is_floating_point() and len(values):
            blocks, rest = divmod(len(values), self.rows)
            return (0, blocks) if rest == 0 and blocks in self._positions else None
        return None


def _two_rows(rows: int) -> tuple[int, int]:
    one = secrets.randbelow(rows)
    return one, (one + 1 + secrets.randbelow(rows - 1)) % rows


def _close(one: Tensor | None, other: Tensor | None, whole: Tensor | None = None) -> bool:
    if one is None or other is None:
        return all(t is None or not bool(t.nan_to_num().any()) for t in (one, other))
    a, b = one.detach().double(), other.detach().double()
    size = float((a if whole is None else whole.detach().double()).abs().nan_to_num().max()) if a.numel() else 0.0
    return torch.allclose(a, b, rtol=_CLOSE, atol=_CLOSE * 1e-2 * size, equal_nan=True)


@contextmanager
def _generators_kept(steps: Sequence[_Operation]) -> Iterator[None]:
    """Whatever is drawn inside, generators are as they were afterwards."""
    kept = {step.generator: step.generator.get_state() for step in steps if step.generator is not None}
    try:
        yield
    finally:
        for generator, state in kept.items():
            generator.set_state(state)


def _tensors(value: Any) -> list[Tensor]:
    return [t for t in tree_flatten(value)[0] if isinstance(t, Tensor)]


def _memory(t: Tensor) -> int:
    try:
        return t.untyped_storage()._cdata
    except (RuntimeError, NotImplementedError):  # of a kind without memory of its own
        return id(t)
