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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from plrvo.training.alike import LARGEST_DOUBLE, alike, largest
from plrvo.training.layout import Layout
from plrvo.training.memory import give_back
from plrvo.training.operations import Operation, leading_to, started_from, tensors_of, written
from plrvo.training.others import Others, Turned, own_generator
from plrvo.training.recording import Recording
from plrvo.training.targets import Form, Laid, Seen

_TRIALS = 4  # rows that are tried
_LARGE = 10_000_000  # numbers in the outputs, beyond which one row is tried
_NOT_SMALL = 1 << 18  # numbers in the outputs, from which on memory is given back between two times
_MOST_TOLD = 3  # tensors of which each may be a constant
_FEW = 16  # rows: constants of more numbers are not of just this size by chance
_SIZES = (1e2, 1e4, 1e8, 1e-4)  # times which outputs are tried
_CLASSES = 1000  # labels that are tried
_NEARBY = (0.01, 0.1, 0.4)  # noise on copies of an output, relative to its size
_ENTRIES = 3  # single numbers that are changed
_CLOSE = 1e-4  # relative: the same operations on other rows, so that kernels may round otherwise


class CannotReplay(RuntimeError):
    """The operations do not give the same loss again: nothing can be said."""


@dataclass
class Replay:
    """What is known of the losses of one run, from trial to trial."""

    dimension: int = 0

    def __post_init__(self) -> None:
        self._before, self._now = Seen(), Seen()  # what losses of the step before were made of, and of this one

    def new_step(self) -> None:
        """Losses of one step may share their targets; what comes again in the next one is no target."""
        if self._now.tensors:
            self._before, self._now = self._now, Seen()

    def note(self, steps: Sequence[Operation]) -> None:
        """What a loss is made of, in every step: what comes again in the next one is a constant."""
        self._now.add(started_from(steps))
        self._now.add_made(t for step in steps for t in step.results)

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
        first = not self._before.tensors
        self._now.add(leaves)
        form = Form(rows, self.dimension, outputs)
        new = [t for t in leaves if not self._before.has(t)]
        targets = [(t, layout) for t in new if (layout := form.layout(t)) is not None]
        trial = _Trial(steps, loss, outputs, rows)
        same = trial.gradients(None)
        if not _are_true(same, loss, tensors):
            raise CannotReplay("its operations give another gradient when they are carried out again")
        trials = _TRIALS if sum(t.numel() for t in tensors) < _LARGE else 1
        # Whole numbers by example are labels; of few floating-point ones, any may be constants.
        labels: list[Laid] = [t for t in targets if not t[0].is_floating_point() or (rows > _FEW and _is_binary(t[0]))]
        certain = labels if first and rows <= _FEW else targets
        apart: Others | None = None
        start = secrets.randbelow(len(_NEARBY))
        for noise in [_NEARBY[(start + i) % len(_NEARBY)] for i in range(trials)]:
            row, other = _two_rows(rows)
            for source, of_targets in itertools.product((row, other), repeat=2):
                others = Others(row, source, of_targets)
                if trial.differs(same, others, targets):
                    if trial.differs(same, others, labels):
                        return True
                    apart = others
            if trial.differs_by_labels(same, row, other, labels):
                return True
            if trial.differs_nearby(same, row, noise, certain):
                return True
            if trial.differs_by_holes(same, row, other, certain):
                return True
        if apart is not None:
            if not first or rows > _FEW:
                return True
            unclear: list[Laid] = [t for t in targets if t[0].is_floating_point()]
            found = _tell(trial, same, apart, labels, unclear)
            if found is not False:
                many = len(unclear) > _MOST_TOLD
                return found or many or any(_is_binary(t) for t, _ in unclear) or None
        for t in new:
            if form.layout(t) is None and not self._before.has_value(t):
                of_the_batch = not first or (rows > _FEW and t.numel() % rows == 0)
                if of_the_batch and trial.spreads(same, t):
                    return True
        sizes = _SIZES if trials > 1 and not again else (secrets.choice(_SIZES),)
        return any(trial.differs_in_size(same, *_two_rows(rows), size) for size in sizes)


def _tell(trial: _Trial, same: list[Any], apart: Others, labels: list[Laid], others: list[Laid]) -> bool | None:
    """Which of the others have rows: those that gradients are permuted with, as outputs are; None if that is not clear.

    A loss that two rows are apart in looks at others, if what has rows is among what it was tried with.
    """
    found: bool | None = None
    for chosen in itertools.product((False, True), repeat=len(others)) if len(others) <= _MOST_TOLD else ():
        with_rows = [*labels, *itertools.compress(others, chosen)]
        if trial.follows(same, with_rows):
            if trial.differs(same, apart, with_rows):
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


class _Trial:
    def __init__(self, steps: list[Operation], loss: Tensor, outputs: Sequence[Laid], rows: int) -> None:
        self._steps, self._loss, self._outputs, self._rows = steps, loss, outputs, rows
        self._is_large = sum(t.numel() for t, _ in outputs) >= _NOT_SMALL

    def differs(self, same: list[Any], others: Others, targets: Sequence[Laid], *, finite: bool = False) -> bool:
        """Whether the gradient at a row is another one beside others.

        Targets that are not of one piece (a mask, and what it has chosen from labels) are put in one after the other,
        but for masks, which choose from others.
        """
        try:
            return self._apart(same, self.gradients(others, targets), others.row, finite=finite)
        except CannotReplay as error:
            reason = error
        found = list[bool]()
        for chosen in ((), *((t,) for t in targets if t[0].dtype != torch.bool)) if targets else ():
            with suppress(CannotReplay):
                found.append(self._apart(same, self.gradients(others, chosen), others.row, finite=finite))
        if not found:
            raise reason
        return any(found)

    def differs_nearby(self, same: list[Any], row: int, noise: float, targets: Sequence[Laid]) -> bool:
        """Whether it is another one beside outputs that are nearly its own: a loss may look at neighbours alone.

        Some operations take no numbers beyond a range (`binary_cross_entropy`): they get such as are within it.
        """
        for within in (False, True):
            with suppress(CannotReplay):
                return self.differs(same, Others(row, row, noise=noise, within=within), targets, finite=True)
        return False

    def differs_by_holes(self, same: list[Any], row: int, source: int, targets: Sequence[Laid]) -> bool:
        """Whether it is another one where the others' targets are missing (no numbers)."""
        if not any(t.is_floating_point() for t, _ in targets):
            return False
        with suppress(CannotReplay):
            found = self.gradients(Others(row, source, holes=True), targets)
            return self._apart(same, found, row, finite=True)
        return False

    def spreads(self, same: list[Any], t: Tensor) -> bool:
        """Whether a single number of a tensor whose rows are not known changes gradients of more than one example.

        Of two, if it is a whole number: that may be the place of a row.
        """
        for at in torch.randint(t.numel(), (_ENTRIES,), generator=own_generator()).tolist() if t.numel() > 1 else ():
            try:
                found = self.gradients(None, replaced={id(t): _with_another(t, at)})
            except CannotReplay:
                continue
            if len(self._changed_rows(same, found)) > (1 if t.is_floating_point() or t.dtype == torch.bool else 2):
                return True
        return False

    def _changed_rows(self, same: list[Any], found: list[Any]) -> set[int]:
        return {row for row in range(self._rows) if self._apart(same, found, row, finite=True)}

    def differs_by_labels(self, same: list[Any], row: int, source: int, targets: Sequence[Laid]) -> bool:
        """Whether it is another one where all others have a label that the batch may have nowhere.

        Which labels there are, outputs say; a loss that takes no such labels is not tried with them. (On other devices
        than the processor, one that is too large would be the end of the run.)
        """
        present = {int(v) for t, _ in targets if t.device.type == "cpu" for v in set(t.flatten().tolist())}
        counts = {n for t, of in self._outputs if of is not None for d, n in enumerate(t.shape) if d != of.dimension}
        for count in {max(2, n) for n in counts} if present else ():
            new = [c for c in range(min(count, _CLASSES)) if c not in present] or list(range(min(count, _CLASSES)))
            ignored = sorted(c for c in present if c < 0)  # where there are none, a mean over all counts examples
            for label in (secrets.choice(new), *ignored[:2]):
                try:
                    found = self.gradients(Others(row, source, label=label), targets)
                except CannotReplay:
                    continue
                if self._apart(same, found, row):
                    return True
        return False

    def follows(self, same: list[Any], targets: Sequence[Laid]) -> bool:
        """Whether gradients turn as outputs and these targets do."""
        turned = Turned()
        found = self.gradients(turned, targets)
        return all(
            a is None or layout is None or _close(turned.placed_in(a, layout, self._rows), b)
            for a, b, (_, layout) in zip(same, found, self._outputs, strict=True)
        )

    def differs_in_size(self, same: list[Any], row: int, source: int, size: float) -> bool:
        """Whether it is another one where others are so many times as large: beside the row as it is, or as large."""
        tries = [
            (same, Others(row, source, of_others=size)),
            (same, Others(row, source, of_others=size, spikes=True)),
            (None, Others(row, source, of_others=size, of_row=size)),
        ]
        for beside, others in tries:
            try:
                expected = beside or self.gradients(Others(row, row, of_others=size, of_row=size))
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

    def gradients(
        self,
        others: Others | Turned | None,
        targets: Sequence[Laid] = (),
        replaced: Mapping[int, Tensor] | None = None,
    ) -> list[Any]:
        """At the outputs, with other rows in the place of all but one; the targets' are copied likewise."""
        if self._is_large:
            give_back()  # what the time before has left
        of_outputs, of_targets = (None, None) if others is None else (others.outputs, others.targets)
        made = {id(t): self._changed(t, layout, of_outputs).requires_grad_() for t, layout in self._outputs}
        leaves = [made[id(t)] for t, _ in self._outputs]
        made |= {id(t): self._changed(t, layout, of_targets) for t, layout in targets if id(t) not in made}
        made |= replaced or {}
        with torch.enable_grad(), _generators_kept(self._steps):
            for step in self._steps:
                _carry_out(step, made)
            loss = made.get(id(self._loss))
            made.clear()  # of it the way back keeps what it needs
            if self._is_large:
                give_back()
            if loss is None or not loss.requires_grad:
                raise CannotReplay("its operations do not lead to it")
            return list(torch.autograd.grad(loss, leaves, allow_unused=True))

    def _changed(self, values: Tensor, layout: Layout | None, others: Others | Turned | None) -> Tensor:
        values = values.detach()
        if others is None or layout is None:
            return values.clone()
        return others.placed_in(values, layout, self._rows)

    def _row(self, gradient: Tensor | None, layout: Layout | None, row: int) -> Tensor | None:
        return gradient if gradient is None or layout is None else layout.of(gradient, self._rows, [row])


def _with_another(t: Tensor, at: int) -> Tensor:
    """With one number that is another: of those that are there, if they are whole ones, as others may be no labels."""
    made = t.detach().clone(memory_format=torch.contiguous_format)
    flat = made.view(-1)
    if t.dtype == torch.bool:
        flat[at] = ~flat[at]
    elif t.is_floating_point() or t.is_complex():
        flat[at] = 3 * flat[at] + 1
    else:
        there = [v for v in set(flat.tolist()) if v != int(flat[at])]
        flat[at] = secrets.choice(there) if there else flat[at] + (1 if int(flat[at]) <= 0 else -1)
    return made


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


def _two_rows(rows: int) -> tuple[int, int]:
    one = secrets.randbelow(rows)
    return one, (one + 1 + secrets.randbelow(rows - 1)) % rows


def _close(one: Tensor | None, other: Tensor | None, whole: Tensor | None = None, *, finite: bool = False) -> bool:
    """`finite`: where both are numbers."""
    if one is None or other is None:
        return all(t is None or not bool(t.nan_to_num().any()) for t in (one, other))
    size = largest(one if whole is None else whole, infinite=LARGEST_DOUBLE) if one.numel() else 0.0
    return alike(one, other, relative=_CLOSE, absolute=_CLOSE * 1e-2 * size, finite=finite)


@contextmanager
def _generators_kept(steps: Sequence[Operation]) -> Iterator[None]:
    """Whatever is drawn inside, generators are as they were afterwards."""
    kept = {step.generator: step.generator.get_state() for step in steps if step.generator is not None}
    try:
        yield
    finally:
        for generator, state in kept.items():
            generator.set_state(state)
