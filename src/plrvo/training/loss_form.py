"""Whether a loss is a sum over examples: what clipping example by example takes for granted.

If the loss is sum_b c l_b, with l_b a function of example b alone and c the same in every step (up to 1/rows, which a
mean brings and the clipping undoes), then removing an example removes its own gradient and changes no other. Otherwise
it may change all of them, each by up to twice the clip. What goes wrong in practice can mostly be seen on the autograd
graph between the loss and the model's outputs, before the backward pass:

- *the factor*: a mean over the tokens that are not padding, or over the weights of the classes in the batch, divides
  by something of the batch. The factors between the loss and its terms are read off the graph (`factors`). They must be
  numbers, not tensors, and the same in every step; and once examples have been summed, only sums and products with
  numbers may follow (no root, no absolute value, no clamp of the batch's loss).
- *the terms*: contrastive losses, a softmax over the batch, weights of the classes in the batch. The gradient at one
  example's outputs must stay when the others change: the loss is computed once more with others (`replay`). Where that
  is not possible, its derivative by the other outputs must be zero (`crossing`).
- *the way*: every parameter is reached through the outputs of the module that the engine watches (`detours`).

What cannot be seen here: what was mixed or computed before the module was called, and what Python decided by a look at
the batch (an `if`, `.item()`), unless it changes a factor.
"""

from __future__ import annotations

import copy
import math
import weakref
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from plrvo.validate import InvalidArgument

_MOST_NODES = 5000  # between the loss and the outputs: losses are small
_MEAN = 1  # torch's number for reduction="mean"
# What may act on the batch's loss, one number, and what may make that number of rows.
_LINEAR = {"Add", "Sub", "Neg", "Mul", "Div", "View", "Reshape", "ReshapeAlias", "UnsafeView", "Squeeze", "Unsqueeze"}
_LINEAR |= {"Clone", "ToCopy", "Alias", "Expand", "Copy", "CopyBackwards", "Select", "Index", "Unbind", "Stack", "Cat"}
_LINEAR |= {"Sum", "Mean", "Nansum", "Dot", "Mv", "Mm", "Permute", "Transpose", "T", "Split", "Slice", "As_strided"}
_LINEAR |= {"AsStrided", "Where", "BackwardHookFunction"}


class NotASum(RuntimeError):
    """The loss is no sum over examples; nothing of the step was released."""


class Factors:
    """Compares the factors of every step with those of the first, each of its backward passes by itself."""

    def __init__(self, reduction: str) -> None:
        self._reduction = reduction
        self._first: list[tuple[tuple[float, ...], int]] = []

    def check(self, loss: Tensor, stops: Collection[Any], rows: int, weight: float = 1.0, turn: int = 0) -> None:
        """Raise unless the loss of a batch with so many rows has the factors that the first one had.

        `turn` counts the backward passes of a step. A number that the module itself gave is a mean already.
        """
        if rows == 0 or loss.grad_fn is None:
            return
        scale = rows if self._reduction == "mean" else 1
        found = _distinct(f * weight * (1 if own else scale) for f, own in factors(loss, stops, rows))
        if turn >= len(self._first):
            self._first.append((found, rows))
            return
        first, first_rows = self._first[turn]
        if len(found) != len(first) or not all(map(_equal, found, first)):
            if all(_equal(f * first_rows, g * rows) for f, g in zip(found, first, strict=False)):
                raise NotASum(
                    f"loss: expected a {self._reduction} over examples; it is a "
                    f"{'sum' if self._reduction == 'mean' else 'mean'}. Pass loss_reduction to make_private accordingly"
                )
            raise NotASum(
                f"loss: expected a {self._reduction} over examples; it weighs them by {_shown(found)} in a batch of "
                f"{rows} and by {_shown(first)} in one of {first_rows}, as a mean over tokens or weights "
                "of the batch does. Average within each example first, then over examples (loss_reduction says which; "
                "a schedule that looks at no data: make_private(public_loss_weights=True))"
            )


def factors(loss: Tensor, stops: Collection[Any], rows: int) -> set[tuple[float, bool]]:
    """The products of the numbers that stand between the loss and the outputs, one for each way through the graph.

    With each, whether the way ends at a number that the module gave.
    """
    found: set[tuple[float, bool]] = set()
    seen: set[tuple[Any, float]] = set()
    waiting: list[tuple[Any, float]] = [(loss.grad_fn, 1.0)]
    while waiting and len(seen) < _MOST_NODES:
        node, factor = waiting.pop()
        if (node, factor) in seen:
            continue
        seen.add((node, factor))
        below = [] if node in stops or "_Tap" in node.name() else [n for n, _ in node.next_functions if n is not None]
        if not below:
            found.add((factor, node in stops and _is_number(node)))
            continue
        here = _factor(node, rows)
        waiting += [(child, factor * here) for child in below]
    return found


def _factor(node: Any, rows: int) -> float:
    """What a node multiplies its operands by, if that is one number for all rows; 1 for everything else."""
    kind, number = _kind(node), _is_number(node)
    if number and kind not in _LINEAR and not hasattr(node, "_saved_reduction"):
        raise NotASum(
            f"loss: expected a sum over examples; {kind} acts on the loss of the whole batch, so that each example's "
            "gradient depends on all others. Apply it to each example's loss, then sum (or announce a loss that is a "
            "sum all the same: make_private(public_loss_weights=True))"
        )
    if kind in ("Mul", "Div"):
        other = _other(node, rows, number)
        return 1.0 if other is None else other if kind == "Mul" else 1 / other if other else 1.0
    if kind == "Mean":
        sizes, over = tuple(node._saved_self_sym_sizes), tuple(getattr(node, "_saved_dim", ()) or ())
        if number:
            return 1 / max(1, int(node._saved_self_sym_numel))
        return 1 / rows if sizes and sizes[0] == rows and any(d % len(sizes) == 0 for d in over) else 1.0
    return _of_loss(node) if number and hasattr(node, "_saved_reduction") else 1.0


def _of_loss(node: Any) -> float:
    """The factor of torch's own losses that reduce by themselves."""
    if node._saved_reduction != _MEAN:
        return 1.0
    total = getattr(node, "_saved_total_weight", None)
    if total is None:
        return 1 / max(1, node._saved_self.numel())
    count, weight = node._saved_target.numel(), float(total)
    if count and abs(weight - count) > 1e-6 * count:
        raise NotASum(
            f"loss: expected a sum over examples; cross entropy divides by {weight:g} for {count} targets, the weights "
            "of classes or the targets that are not ignored in this batch. Use reduction='none', average within each "
            "example, then over examples"
        )
    return 1 / max(1, count)


def _other(node: Any, rows: int, number: bool) -> float | None:
    """The number that a product or quotient has as its other operand; None if it has a row for each example."""
    operands = [getattr(node, "_saved_other", None)]
    if _kind(node) == "Mul":
        operands.append(getattr(node, "_saved_self", None))
    other = next((o for o in operands if o is not None), None)
    if not isinstance(other, Tensor):
        return None if other is None else float(other)
    if sum(child is not None for child, _ in node.next_functions) > 1 or other.requires_grad:
        if number:
            raise NotASum(
                "loss: expected a sum over examples; it multiplies or divides one sum over the batch by another"
            )
        return None
    if other.ndim == 0 or (other.numel() == 1 and rows > 1):  # of one row, every tensor by row has one element
        if number and other.dtype != torch.float64 and (other.dtype.is_floating_point or other.dtype == torch.bool):
            raise NotASum(  # a number from Python arrives as a double or a whole number
                f"loss: expected a sum over examples; it is multiplied or divided by the tensor {float(other):g}, "
                "which may be something of the batch. Average within each example first, then over examples; a "
                "constant is written as a Python number"
            )
        return float(other)
    return None


def detours(loss: Tensor, stops: Collection[Any], own: Collection[Any], inputs: Collection[int] = ()) -> str | None:
    """What the loss depends on otherwise than through the outputs; None where all is as it should be.

    `inputs` are the names (id) of tensors that the module was called with, which may want a gradient of their own.
    """
    seen: set[Any] = set()
    waiting = [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in stops or node in seen:
            continue
        seen.add(node)
        name, variable = node.name(), getattr(node, "variable", None)
        if "_Tap" in name:
            return "values inside the module (features kept by a hook or an attribute); return them from forward"
        if name.removeprefix("BackwardHookFunction").count("Backward") > 1:
            return "a gradient (create_graph); gradient penalties cannot be clipped by example"
        if isinstance(variable, nn.Parameter):
            if variable in own:
                return (
                    "parameters directly (a penalty on weights); use the optimizer's weight_decay, which costs nothing"
                )
            return "parameters outside of the module, which would learn without noise; make them part of it"
        if variable is not None and id(variable) not in inputs:
            return "a tensor outside of the module that wants a gradient; make it a parameter of the module"
        waiting += [child for child, _ in node.next_functions]
    return None


def form(loss: Tensor, stops: Collection[Any], rows: int) -> int:
    """A number that changes when the graph between the loss and the outputs does, or a term of it comes to count."""
    names: list[str] = []
    seen: set[Any] = set()
    waiting = [loss.grad_fn]
    while waiting and len(seen) < _MOST_NODES:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node in stops or "_Tap" in node.name():
            continue
        names.append(node.name())
        waiting += [child for child, _ in node.next_functions]
    try:
        silent = any(factor == 0 for factor, _ in factors(loss, stops, rows))
    except NotASum:
        silent = False
    return hash((silent, *sorted(set(names))))


def _kind(node: Any) -> str:
    name: str = node.name()
    return name.rstrip("0123456789").removesuffix("Backward")


def _is_number(node: Any) -> bool:
    return all(tuple(of.shape) == () for of in node._input_metadata)


def crossing(loss: Tensor, outputs: Sequence[Tensor], dimension: int = 0) -> bool:
    """Whether the gradient at the first example's outputs changes with another example's outputs."""
    rows = [o for o in outputs if o.ndim > dimension and o.shape[dimension] > 1 and o.requires_grad]
    if not rows:
        return False
    try:
        found = torch.autograd.grad(loss, rows, create_graph=True, retain_graph=True, allow_unused=True)
        curved: list[Any] = [g for g in list[Any](found) if g is not None]
        first = [g.select(dimension, 0) for g in curved if g.grad_fn is not None]
        if not first:
            return False  # linear in the outputs
        weights = torch.Generator().manual_seed(0)
        score = torch.stack([(f * torch.randn(f.shape, generator=weights).to(f)).sum() for f in first]).sum()
        if score.grad_fn is None:
            return False
        again: list[Any] = list(torch.autograd.grad(score, rows, retain_graph=True, allow_unused=True))
    except (RuntimeError, NotImplementedError) as error:
        raise NotASum(
            f"loss: whether it is a sum over examples could not be tried, as it has no second derivative ({error}). "
            "Write it with torch's own operations"
        ) from None
    # What is not a number belongs to an example that will contribute zero.
    return any(
        h is not None and bool(h.narrow(dimension, 1, h.shape[dimension] - 1).nan_to_num(0.0, 0.0, 0.0).any())
        for h in again
    )


class _ByExample(nn.Module):
    """A loss by example, averaged over the rest of an example's numbers, then over examples."""

    def __init__(self, criterion: Any, reduction: str) -> None:
        super().__init__()
        self.criterion, self.reduction = copy.copy(criterion), reduction
        self.criterion.reduction = "none"

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        losses: Tensor = self.criterion(*args, **kwargs)
        losses = losses.flatten(1).mean(dim=1) if losses.ndim > 1 else losses
        return losses.mean() if self.reduction == "mean" else losses.sum()


def by_example(criterion: Any, reduction: str) -> nn.Module:
    """The criterion as a loss that is a sum over examples."""
    if not hasattr(criterion, "reduction"):
        raise InvalidArgument("criterion", type(criterion).__name__, "a loss with a `reduction`, as torch's have")
    return _ByExample(criterion, reduction)


def _equal(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-5)


def _distinct(values: Iterable[float]) -> tuple[float, ...]:
    found: list[float] = []
    for value in sorted(values):
        if not found or not _equal(value, found[-1]):
            found.append(value)
    return tuple(found)


def _shown(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values[:4])


def depends_on(loss: Tensor, nodes: Collection[Any]) -> bool:
    """Whether the loss is a function of what one of the nodes gave."""
    seen: set[Any] = set()
    waiting = [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node in nodes:
            return True
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [child for child, _ in node.next_functions]
    return False


class Check(Protocol):
    """Sees a loss before its backward pass, and what its gradient begins with; gives what to call after the pass."""

    def __call__(self, loss: Tensor, weight: float) -> Callable[[], None] | None: ...


_checks: list[weakref.WeakMethod[Any]] = []
_torch_backward: Any = None


def before_backward(check: Check) -> Callable[[], None]:
    """Have a bound method see every loss whose backward pass starts, as long as its object lives; returns an undo.

    Torch calls hooks only once a pass is under way, when the graph above has let go of its numbers. So
    `torch.autograd.backward`, through which every `loss.backward()` goes, is replaced while a check is registered.
    """
    global _torch_backward
    if _torch_backward is None:
        _torch_backward = torch.autograd.backward
        torch.autograd.backward = _checked_backward
    reference = weakref.WeakMethod(check, _forget)
    _checks.append(reference)
    return lambda: _forget(reference)


def _forget(reference: weakref.WeakMethod[Any]) -> None:
    global _torch_backward
    if reference in _checks:
        _checks.remove(reference)
    if not _checks and _torch_backward is not None:
        torch.autograd.backward, _torch_backward = _torch_backward, None


def _checked_backward(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> Any:
    losses = (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)
    weights = (
        (grad_tensors,) * len(losses) if grad_tensors is None or isinstance(grad_tensors, Tensor) else grad_tensors
    )
    after: list[Callable[[], None]] = []
    plain = _torch_backward if _torch_backward is not None else torch.autograd.backward
    try:
        for loss, weight in zip(losses, weights, strict=False):
            for reference in tuple(_checks):
                check = reference()
                if check is not None and isinstance(loss, Tensor):
                    done = check(loss, float(weight) if isinstance(weight, Tensor) and weight.numel() == 1 else 1.0)
                    after += [] if done is None else [done]
        return plain(tensors, grad_tensors, *args, **kwargs)
    finally:
        for done in after:
            done()
