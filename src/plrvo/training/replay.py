"""A loss is computed once more with other examples: what one example is told must stay the same.

If the loss is a sum over examples, then the gradient at one example's outputs is a function of that example alone. From
the module's outputs to the backward pass, every operation is written down (`recording`). It is then carried out again,
from the same outputs and targets, and from others in which all rows but one are copies of one row. If the gradient at
the row that stayed changes, the loss has looked at the others: at their outputs (contrastive and ranking losses, hard
examples, a statistic of the batch, detached or not) or at their targets (weights of the classes in the batch, tokens
that are not padding).

A coupling may be far too small to be seen on ordinary outputs, and matter on others: the loss is also carried out with
all other rows, or all rows, many times as large or as small, and with single numbers that are large. There, only what
stays finite is compared: an example whose own numbers overflow is nobody else's business.

Every pass is recorded, so that a loss of a new form is tried when it first comes. What Python decided in between (an
`if`, a number that was taken out by `.item()`) stays as it was, and what was computed before the module was called is
not seen.
"""

from __future__ import annotations

import itertools
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
from plrvo.training.operations import Operation, leading_to, tensors_of, written
from plrvo.training.recording import Recording

_TRIALS = 4  # rows that are tried
_LARGE = 10_000_000  # numbers in the outputs, beyond which one row is tried
_MOST_TOLD = 3  # tensors of which each may be a constant
_FEW = 16  # rows: constants of more numbers are not of just this size by chance
_SIZES = (1e2, 1e4, 1e8, 1e-4)  # times which outputs are tried
_CLASSES = 1000  # labels that are tried
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

    def looks_at_others(
        self, recording: Recording, loss: Tensor, outputs: Sequence[Laid], rows: int, *, again: bool = False
    ) -> bool | None:
        """Whether the gradient at one example's outputs changes with other examples; None if it is not certain yet.

        A tensor that is no output may have the size of a small batch by chance (weights of so many classes). Whether
        it is a constant shows where rows change places, or in the next pass. A loss that was tried before (`again`)
        is tried with one size.
        """
        if recording.is_full:
            raise CannotReplay(
                "more was computed since the module's pass than can be kept (call other models, such as a teacher, "
                "before the module)"
            )
        tensors = [t for t, _ in outputs]
        steps, leaves = _needed(recording.operations, loss, tensors)
        if any(recording.descendants.is_one(t) for t in leaves):
            raise CannotReplay("it uses numbers of an earlier pass of the module, with many others in between")
        constants = {id(t) for reference in self._before if (t := reference()) is not None}
        first = not self._before
        self._before = [weakref.ref(t) for t in leaves]
        form = _Form(rows, self.dimension, outputs)
        targets = [(t, layout) for t in leaves if id(t) not in constants and (layout := form.layout(t)) is not None]
        trial = _Trial(steps, loss, outputs, rows)
        same = trial.gradients(None)
        if not _are_true(same, loss, tensors):
            raise CannotReplay("its operations give another gradient when they are carried out again")
        trials = _TRIALS if sum(t.numel() for t in tensors) < _LARGE else 1
        # Whole numbers by example are labels; of few floating-point ones, any may be constants.
        labels: list[Laid] = [t for t in targets if not t[0].is_floating_point() or (rows > _FEW and _is_binary(t[0]))]
        apart: tuple[int, int] | None = None
        for _ in range(trials):
            row, other = _two_rows(rows)
            for source in (row, other):
                if trial.differs(same, row, source, targets):
                    if trial.differs(same, row, source, labels):
                        return True
                    apart = row, source
            if trial.differs_by_labels(same, row, other, labels):
                return True
        if apart is not None:
            if not first or rows > _FEW:
                return True
            unclear: list[Laid] = [t for t in targets if t[0].is_floating_point()]
            found = _tell(trial, same, apart, labels, unclear)
            if found is not False:
                return found or any(_is_binary(t) for t, _ in unclear) or None
        sizes = _SIZES if trials > 1 and not again else (secrets.choice(_SIZES),)
        return any(trial.differs_in_size(same, *_two_rows(rows), size) for size in sizes)


def _tell(
    trial: _Trial, same: list[Any], apart: tuple[int, int], labels: list[Laid], others: list[Laid]
) -> bool | None:
    """Which of the others have rows: those that gradients are permuted with, as outputs are; None if that is not clear.

    A loss that two rows are apart in looks at others, if what has rows is among what it was tried with.
    """
    found: bool | None = None
    for chosen in itertools.product((False, True), repeat=len(others)) if len(others) <= _MOST_TOLD else ():
        with_rows = [*labels, *itertools.compress(others, chosen)]
        if trial.follows(same, with_rows):
            if trial.differs(same, *apart, with_rows):
                return True
            found = False
    return found


def _is_binary(values: Tensor) -> bool:
    """Zeros and ones: labels of two classes, or of several."""
    return bool(((values == 0) | (values == 1)).all())


def _are_true(gradients: Sequence[Any], loss: Tensor, outputs: Sequence[Tensor]) -> bool:
    """Whether autograd finds the same at the outputs, of which some may have been computed from others."""
    true: list[Any] = list(torch.autograd.grad(loss, outputs, retain_graph=True, allow_unused=True))
    pairs = [(o, g) for o, g in zip(outputs, gradients, strict=True) if g is not None]
    if not pairs:
        return not any(g is not None and bool(g.nan_to_num().any()) for g in true)
    heads, at_heads = zip(*pairs, strict=True)
    found: list[Any] = list(torch.autograd.grad(heads, outputs, at_heads, retain_graph=True, allow_unused=True))
    return all(_close(a, b) for a, b in zip(found, true, strict=True))


@dataclass(frozen=True)
class _Others:
    """Copies of the row `source` in the place of all but `row`, in other sizes; `spikes`: of one number in each.

    With a `label`, that in the place of those of all others which are no less than zero.
    """

    row: int
    source: int
    of_others: float = 1.0
    of_row: float = 1.0
    spikes: bool = False
    label: int | None = None

    def placed_in(self, values: Tensor, layout: Layout, rows: int) -> Tensor:
        placed = layout.of(values, rows, [i if i == self.row else self.source for i in range(rows)])
        if self.label is not None and values.numel():
            others = (torch.arange(rows) != self.row)[:, None].expand(rows, placed.numel() // rows)
            return placed.masked_fill(layout.from_rows(others, placed).to(placed.device) & (placed >= 0), self.label)
        if self.of_others == 1.0 or not values.is_floating_point():
            return placed
        factors = torch.full((rows, placed.numel() // rows), 1.0 if self.spikes else self.of_others)
        if self.spikes and factors.numel():
            where = torch.randint(factors.shape[1], (rows,), generator=_own_generator())
            factors[torch.arange(rows), where] = self.of_others
        factors[self.row] = self.of_row
        return placed * layout.from_rows(factors, placed).to(placed)


@dataclass(frozen=True)
class _Turned:
    """All rows one place further."""

    label: None = None

    def placed_in(self, values: Tensor, layout: Layout, rows: int) -> Tensor:
        return layout.of(values, rows, [(i + 1) % rows for i in range(rows)])


def _own_generator() -> torch.Generator:
    return torch.Generator().manual_seed(secrets.randbits(60))  # not the loop's, whose draws are its own


class _Trial:
    def __init__(self, steps: list[Operation], loss: Tensor, outputs: Sequence[Laid], rows: int) -> None:
        self._steps, self._loss, self._outputs, self._rows = steps, loss, outputs, rows

    def differs(self, same: list[Any], row: int, source: int, targets: Sequence[Laid]) -> bool:
        """Whether the gradient at `row` is another one where all others are copies of `source`."""
        return self._apart(same, self.gradients(_Others(row, source), targets), row)

    def differs_by_labels(self, same: list[Any], row: int, source: int, targets: Sequence[Laid]) -> bool:
        """Whether it is another one where all others have a label that the batch may have nowhere.

        Which labels there are, outputs say; a loss that takes no such labels is not tried with them. (On other devices
        than the processor, one that is too large would be the end of the run.)
        """
        present = {int(v) for t, _ in targets if t.device.type == "cpu" for v in set(t.flatten().tolist())}
        counts = {n for t, of in self._outputs if of is not None for d, n in enumerate(t.shape) if d != of.dimension}
        for count in {max(2, n) for n in counts} if present else ():
            new = [c for c in range(min(count, _CLASSES)) if c not in present] or list(range(min(count, _CLASSES)))
            try:
                found = self.gradients(_Others(row, source, label=secrets.choice(new)), targets)
            except CannotReplay:
                continue
            if self._apart(same, found, row):
                return True
        return False

    def follows(self, same: list[Any], targets: Sequence[Laid]) -> bool:
        """Whether gradients turn as outputs and these targets do."""
        turned = _Turned()
        found = self.gradients(turned, targets)
        return all(
            a is None or layout is None or _close(turned.placed_in(a, layout, self._rows), b)
            for a, b, (_, layout) in zip(same, found, self._outputs, strict=True)
        )

    def differs_in_size(self, same: list[Any], row: int, source: int, size: float) -> bool:
        """Whether it is another one where others are so many times as large: beside the row as it is, or as large."""
        tries = [
            (same, _Others(row, source, of_others=size)),
            (same, _Others(row, source, of_others=size, spikes=True)),
            (None, _Others(row, source, of_others=size, of_row=size)),
        ]
        for beside, others in tries:
            try:
                expected = beside or self.gradients(_Others(row, row, of_others=size, of_row=size))
                found = self.gradients(others)
            except CannotReplay:  # an operation that takes no such numbers
                continue
            if self._apart(expected, found, row, finite=True):
                return True
        return False

    def _apart(self, same: list[Any], found: list[Any], row: int, *, finite: bool = False) -> bool:
        return any(
            not _close(self._row(a, layout, row), self._row(b, layout, row), whole=a, finite=finite)
            for a, b, (_, layout) in zip(same, found, self._outputs, strict=True)
        )

    def gradients(self, others: _Others | _Turned | None, targets: Sequence[Laid] = ()) -> list[Any]:
        """At the outputs, with other rows in the place of all but one; the targets' are copied likewise."""
        of_outputs = _Others(others.row, others.row) if others is not None and others.label is not None else others
        made = {id(t): self._changed(t, layout, of_outputs).requires_grad_() for t, layout in self._outputs}
        leaves = [made[id(t)] for t, _ in self._outputs]
        copies = _Others(others.row, others.source, label=others.label) if isinstance(others, _Others) else others
        made |= {id(t): self._changed(t, layout, copies) for t, layout in targets if id(t) not in made}
        with torch.enable_grad(), _generators_kept(self._steps):
            for step in self._steps:
                _carry_out(step, made)
            loss = made.get(id(self._loss))
            if loss is None or not loss.requires_grad:
                raise CannotReplay("its operations do not lead to it")
            return list(torch.autograd.grad(loss, leaves, allow_unused=True))

    def _changed(self, values: Tensor, layout: Layout | None, others: _Others | _Turned | None) -> Tensor:
        values = values.detach()
        if others is None or layout is None:
            return values.clone()
        return others.placed_in(values, layout, self._rows)

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


def _close(one: Tensor | None, other: Tensor | None, whole: Tensor | None = None, *, finite: bool = False) -> bool:
    """`finite`: where both are numbers."""
    if one is None or other is None:
        return all(t is None or not bool(t.nan_to_num().any()) for t in (one, other))
    a, b = one.detach().double(), other.detach().double()
    size = float((a if whole is None else whole.detach().double()).abs().nan_to_num().max()) if a.numel() else 0.0
    if finite:
        both = a.isfinite() & b.isfinite()
        a, b = a[both], b[both]
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
