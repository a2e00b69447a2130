"""A loss is computed once more with other examples: what one example is told must stay the same.

If the loss is a sum over examples, then the gradient at one example's outputs is a function of that example alone. From
the module's outputs to the backward pass, every operation is written down (`recording`). It is then carried out again,
from the same outputs and targets, and from others in which all rows but one are copies of one row. If the gradient at
the row that stayed changes, the loss has looked at the others: at their outputs (contrastive and ranking losses, hard
examples, a statistic of the batch, detached or not) or at their targets (weights of the classes in the batch, tokens
that are not padding).

Every pass is recorded, so that a loss of a new form is tried when it first comes. What Python decided in between (an
`if`, a number that was taken out by `.item()`) stays as it was, and what was computed before the module was called is
not seen.
"""

from __future__ import annotations

import secrets
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from plrvo.training.layout import Layout
from plrvo.training.recording import Operation, Recording, leading_to, tensors_of, written

_TRIALS = 4  # rows that are tried
_LARGE = 10_000_000  # numbers in the outputs, beyond which one row is tried
_FEW = 16  # rows: constants of more numbers are not of just this size by chance
_CLOSE = 1e-4  # relative: the same operations on other rows, so that kernels may round otherwise


class CannotReplay(RuntimeError):
    """The operations do not give the same loss again: nothing can be said."""


Laid = tuple[Tensor, Layout | None]  # with the place of its rows; None for a number


@dataclass
class Replay:
    """What is known of the losses of one run, from trial to trial."""

    dimension: int = 0

    def __post_init__(self) -> None:
        self._before: list[weakref.ref[Tensor]] = []  # what came up in the pass before

    def looks_at_others(self, recording: Recording, loss: Tensor, outputs: Sequence[Laid], rows: int) -> bool | None:
        """Whether the gradient at one example's outputs changes with other examples; None if it is not certain yet.

        A tensor that is no output may have the size of a small batch by chance (weights of so many classes). Whether
        it is a constant shows in the next pass.
        """
        if recording.is_full:
            raise CannotReplay(
                "more was computed since the module's pass than can be kept (call other models, such as a teacher, "
                "before the module)"
            )
        tensors = [t for t, _ in outputs]
        steps, leaves = _needed(recording.operations, loss, tensors)
        if any(recording.is_gone(t) for t in leaves):
            raise CannotReplay("it uses numbers of an earlier pass of the module, with many others in between")
        constants = {id(t) for reference in self._before if (t := reference()) is not None}
        first = not self._before
        self._before = [weakref.ref(t) for t in leaves]
        form = _Form(rows, self.dimension, outputs)
        targets = [(t, layout) for t in leaves if id(t) not in constants and (layout := form.layout(t)) is not None]
        trial = _Trial(steps, loss, outputs, rows)
        same = trial.gradients(None, None)
        if not _are_true(same, loss, tensors):
            raise CannotReplay("its operations give another gradient when they are carried out again")
        trials = _TRIALS if sum(t.numel() for t in tensors) < _LARGE else 1
        certain = True
        for _ in range(trials):
            row, other = _two_rows(rows)
            for source in (row, other):
                if trial.differs(same, row, source, targets):
                    # Whole numbers by example are labels; floating-point ones may be constants.
                    if trial.differs(same, row, source, [t for t in targets if not t[0].is_floating_point()]):
                        return True
                    certain = False
        if certain:
            return False
        return None if first and rows <= _FEW else True


def _are_true(gradients: Sequence[Any], loss: Tensor, outputs: Sequence[Tensor]) -> bool:
    """Whether autograd finds the same at the outputs, of which some may have been computed from others."""
    true: list[Any] = list(torch.autograd.grad(loss, outputs, retain_graph=True, allow_unused=True))
    pairs = [(o, g) for o, g in zip(outputs, gradients, strict=True) if g is not None]
    if not pairs:
        return not any(g is not None and bool(g.nan_to_num().any()) for g in true)
    heads, at_heads = zip(*pairs, strict=True)
    found: list[Any] = list(torch.autograd.grad(heads, outputs, at_heads, retain_graph=True, allow_unused=True))
    return all(_close(a, b) for a, b in zip(found, true, strict=True))


class _Trial:
    def __init__(self, steps: list[Operation], loss: Tensor, outputs: Sequence[Laid], rows: int) -> None:
        self._steps, self._loss, self._outputs, self._rows = steps, loss, outputs, rows

    def differs(self, same: list[Any], row: int, source: int, targets: Sequence[Laid]) -> bool:
        """Whether the gradient at `row` is another one where all others are copies of `source`."""
        found = self.gradients(row, source, targets)
        return any(
            not _close(self._row(a, layout, row), self._row(b, layout, row), whole=a)
            for a, b, (_, layout) in zip(same, found, self._outputs, strict=True)
        )

    def gradients(self, row: int | None, source: int | None, targets: Sequence[Laid] = ()) -> list[Any]:
        """At the outputs, with copies of the row `source` in the place of all rows but `row`."""
        made = {id(t): self._changed(t, layout, row, source).requires_grad_() for t, layout in self._outputs}
        leaves = [made[id(t)] for t, _ in self._outputs]
        made |= {id(t): self._changed(t, layout, row, source) for t, layout in targets if id(t) not in made}
        with torch.enable_grad(), _generators_kept(self._steps):
            for step in self._steps:
                _carry_out(step, made)
            loss = made.get(id(self._loss))
            if loss is None or not loss.requires_grad:
                raise CannotReplay("its operations do not lead to it")
            return list(torch.autograd.grad(loss, leaves, allow_unused=True))

    def _changed(self, values: Tensor, layout: Layout | None, row: int | None, source: int | None) -> Tensor:
        values = values.detach()
        if row is None or source is None or layout is None:
            return values.clone()
        return layout.of(values, self._rows, [i if i == row else source for i in range(self._rows)])

    def _row(self, gradient: Tensor | None, layout: Layout | None, row: int) -> Tensor | None:
        return gradient if gradient is None or layout is None else layout.of(gradient, self._rows, [row])


def _carry_out(step: Operation, made: dict[int, Tensor]) -> None:
    def mapped(value: Any) -> Any:
        return made.get(id(value), value) if isinstance(value, Tensor) else value

    if step.generator is not None and step.state is not None:
        step.generator.set_state(step.state)
    with torch.set_grad_enabled(step.with_gradient):
        try:
            result = step.function(*tree_map(mapped, step.args), **tree_map(mapped, step.kwargs))
        except (RuntimeError, IndexError, ValueError) as error:
            raise CannotReplay(str(error)) from None
    for before, after in zip(step.results, tensors_of(result), strict=False):
        made[id(before)] = after


def _needed(
    operations: Sequence[Operation], loss: Tensor, outputs: Sequence[Tensor]
) -> tuple[list[Operation], list[Tensor]]:
    """The operations that lead to the loss, and the tensors that they start from beside the outputs."""
    steps = leading_to(operations, loss)
    known = {id(o) for o in outputs}
    leaves: dict[int, Tensor] = {}
    counted: set[int] = set()  # how long parts are that follow one another: nobody's rows
    for step in steps:
        if any(id(t) not in known for t in written(step)):
            raise CannotReplay("it writes into a tensor that was there before")
        if "ctc_loss" in str(step.function):
            counted |= {id(t) for t in tensors_of(step.args[1:])}
        leaves |= {id(t): t for t in step.given() if id(t) not in known}
        known |= {id(t) for t in step.results}
    return steps, [t for t in leaves.values() if id(t) not in counted]


class _Form:
    """In which tensors, and where, the examples of a batch have rows."""

    def __init__(self, rows: int, dimension: int, outputs: Sequence[Laid]) -> None:
        self._rows = rows
        layouts = [layout for _, layout in outputs if layout is not None]
        self._by_row = list(dict.fromkeys([Layout(dimension), Layout(0), *(Layout(o.dimension) for o in layouts)]))
        # Labels of all positions in one row come in the order of the outputs, where that is known.
        own = next((o for o in layouts if not o.rows_first or o.dimension > dimension), None)
        self._flat = Layout(0, rows_first=own is None)
        self._positions = {n for t, layout in outputs if layout is not None for n in _positions(t, layout, rows)} - {1}

    def layout(self, values: Tensor) -> Layout | None:
        for layout in self._by_row:
            if values.ndim > layout.dimension and values.shape[layout.dimension] == self._rows:
                return layout
        # As many as the outputs have: other sizes are not the batch's.
        if values.ndim == 1 and not values.is_floating_point() and len(values):
            positions, rest = divmod(len(values), self._rows)
            return self._flat if rest == 0 and positions in self._positions else None
        return None


def _positions(output: Tensor, layout: Layout, rows: int) -> Iterator[int]:
    """How many labels each row of an output may have."""
    yield output.shape[layout.dimension] // rows
    inner = [n for d, n in enumerate(output.shape) if d != layout.dimension]
    if len(inner) > 1:
        yield from (output.numel() // rows // n for n in inner if n)


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
def _generators_kept(steps: Sequence[Operation]) -> Iterator[None]:
    """Whatever is drawn inside, generators are as they were afterwards."""
    kept = {step.generator: step.generator.get_state() for step in steps if step.generator is not None}
    try:
        yield
    finally:
        for generator, state in kept.items():
            generator.set_state(state)
