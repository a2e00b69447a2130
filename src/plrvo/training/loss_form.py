"""Whether a loss is a sum over examples: what clipping example by example takes for granted.

If the loss is sum_b c l_b, with l_b a function of example b alone and c the same in every step (up to 1/rows, which a
mean brings and the clipping undoes), then removing an example removes its own gradient and changes no other. Otherwise
it may change all of them, each by up to twice the clip. Two things go wrong in practice, and both can be seen on the
autograd graph between the loss and the model's outputs, before the backward pass:

- *the factor*: a mean over the tokens that are not padding, or over the weights of the classes in the batch, divides
  by something of the batch. The factors between the loss and its terms are read off the graph (`factors`); they must
  be the same in every step.
- *the terms*: contrastive losses, the root of a mean, a softmax over the batch. The gradient at one example's output
  must not change with another's output: its derivative by the other outputs is zero (`crossing`).

What cannot be seen here is what happens before the model: inputs that are mixed (mixup) are examples of nobody.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from plrvo.validate import InvalidArgument

_MOST_NODES = 500  # between the loss and the outputs: losses are small
_MEAN = 1  # torch's number for reduction="mean"


class NotASum(RuntimeError):
    """The loss is no sum over examples; nothing of the step was released."""


class Factors:
    """Compares the factors of every step with those of the first."""

    def __init__(self, reduction: str) -> None:
        self._reduction = reduction
        self._first: tuple[float, ...] | None = None
        self._first_rows = 0

    def check(self, loss: Tensor, outputs: Sequence[Tensor], rows: int, weight: float = 1.0) -> None:
        """Raise unless the loss of a batch with so many rows has the factors that the first one had."""
        if rows == 0 or loss.grad_fn is None:
            return
        scale = weight * (rows if self._reduction == "mean" else 1)
        found = tuple(sorted({_rounded(factor * scale) for factor in factors(loss, outputs)}))
        if self._first is None:
            self._first, self._first_rows = found, rows
        elif found != self._first:
            raise NotASum(
                f"loss: expected a {self._reduction} over examples; it weighs them by {_shown(found)} in a batch of "
                f"{rows} and by {_shown(self._first)} in one of {self._first_rows}, as a mean over tokens or weights "
                "of the batch does. Average within each example first, then over examples (loss_reduction says which)"
            )


def factors(loss: Tensor, outputs: Sequence[Tensor]) -> set[float]:
    """The products of the numbers that stand between the loss and the outputs, one for each way through the graph."""
    stops = {output.grad_fn for output in outputs}
    found: set[float] = set()
    seen: set[tuple[Any, float]] = set()
    waiting: list[tuple[Any, float]] = [(loss.grad_fn, 1.0)]
    while waiting and len(seen) < _MOST_NODES:
        node, factor = waiting.pop()
        if (node, factor) in seen:
            continue
        seen.add((node, factor))
        below = [] if node in stops or "_Tap" in node.name() else [n for n, _ in node.next_functions if n is not None]
        if not below:
            found.add(factor)
            continue
        waiting += [(child, factor * _factor(node)) for child in below]
    return found


def _factor(node: Any) -> float:
    """What a node multiplies its operands by, if that is one number for all rows; 1 for everything else."""
    kind = _kind(node)
    if kind in ("Mul", "Div"):
        other = _other(node)
        return 1.0 if other is None else other if kind == "Mul" else 1 / other if other else 1.0
    if not _is_number(node):
        return 1.0
    if kind == "Mean":
        return 1 / max(1, int(node._saved_self_sym_numel))
    return _of_loss(node) if hasattr(node, "_saved_reduction") else 1.0


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


def _other(node: Any) -> float | None:
    """The number that a product or quotient has as its other operand; None if it is a tensor, or has a gradient."""
    other = node._saved_other if hasattr(node, "_saved_other") else None
    if _kind(node) == "Mul" and other is None:
        other = getattr(node, "_saved_self", None)
    if isinstance(other, Tensor):
        both = sum(child is not None for child, _ in node.next_functions) > 1
        return float(other) if other.ndim == 0 and not both and not other.requires_grad else None
    return None if other is None else float(other)


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
    except (RuntimeError, NotImplementedError):  # no second derivative: nothing can be said
        return False
    return any(h is not None and bool(h.narrow(dimension, 1, h.shape[dimension] - 1).any()) for h in again)


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


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")


def _shown(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values[:4])


def depends_on(loss: Tensor, outputs: Sequence[Tensor]) -> bool:
    """Whether the loss is a function of one of the outputs."""
    wanted = {output.grad_fn for output in outputs}
    seen: set[Any] = set()
    waiting = [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node in wanted:
            return True
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [child for child, _ in node.next_functions]
    return False


class Check(Protocol):
    """Sees a loss before its backward pass, and what its gradient begins with."""

    def __call__(self, loss: Tensor, weight: float) -> None: ...


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
    for loss, weight in zip(losses, weights, strict=False):
        for reference in tuple(_checks):
            check = reference()
            if check is not None and isinstance(loss, Tensor):
                check(loss, float(weight) if isinstance(weight, Tensor) and weight.numel() == 1 else 1.0)
    plain = _torch_backward if _torch_backward is not None else torch.autograd.backward
    return plain(tensors, grad_tensors, *args, **kwargs)
