"""Whether a loss is a sum over examples: what clipping example by example takes for granted.

If the loss is sum_b c l_b, with l_b a function of example b alone and c the same in every step (up to 1/rows, which a
mean brings and the clipping undoes), then removing an example removes its own gradient and changes no other. Otherwise
it may change all of them, each by up to twice the clip. What goes wrong in practice can mostly be seen on the autograd
graph between the loss and the model's outputs, before the backward pass:

- *the factor*: a mean over the tokens that are not padding divides by something of the batch (`factors`).
- *the terms*: contrastive losses, a softmax over the batch, weights of the classes in the batch. The gradient at one
  example's outputs must stay when the others change: the loss is computed once more with others (`replay`). Where that
  is not possible it is refused; if the caller answers for it, its derivative by the other outputs must still be zero
  (`crossing`).
- *the way*: every parameter is reached through the outputs of the module that the engine watches (`detours`).

What cannot be seen here: what was mixed or computed before the module was called, and what Python decided by a look at
the batch (an `if`, `.item()`), unless it changes a factor.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from plrvo.training.layout import Layout
from plrvo.validate import InvalidArgument

# What to do about tokens: a mean over all positions is none, where batches are padded to their longest example.
WITHIN = (
    "Divide the sum of each example's tokens by a constant, or by how many of its own count, then average over examples"
)

# What is left where a fix is not obvious: examples that never meet cannot change each other's gradients.
ALONE = (
    'Or train with grad_sample_mode="alone" (an argument of make_private and of PrivateTrainer), in which no example '
    "sees another"
)


class NotASum(RuntimeError):
    """The loss is no sum over examples; nothing of the step was released."""


def trained_before(inputs: Sequence[Tensor], rows: int, dimension: int) -> bool:
    """Whether a module's inputs were computed from something that learns.

    Inputs may want a gradient of their own, as may changes of them with a row for each example (adversarial ones).
    """
    seen: set[Any] = set()
    waiting = [t.grad_fn for t in inputs]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None and not any(variable is t for t in inputs):
            by_row = variable.ndim > dimension and variable.shape[dimension] == rows
            if isinstance(variable, nn.Parameter) or not by_row:
                return True
        waiting += [child for child, _ in node.next_functions]
    return False


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


def crossing(loss: Tensor, outputs: Sequence[tuple[Tensor, Layout | None]], rows: int) -> bool:
    """Whether the gradient at the first example's outputs changes with another example's outputs."""
    laid_out = [(o, layout) for o, layout in outputs if layout is not None]
    if not laid_out:
        return False
    tensors = [o for o, _ in laid_out]
    try:
        found = torch.autograd.grad(loss, tensors, create_graph=True, retain_graph=True, allow_unused=True)
        curved = [(g, layout) for g, (_, layout) in zip(list[Any](found), laid_out, strict=True) if g is not None]
        first = [layout.of(g, rows, [0]) for g, layout in curved if g.grad_fn is not None]
        if not first:
            return False  # linear in the outputs
        weights = torch.Generator().manual_seed(0)
        score = torch.stack([(f * torch.randn(f.shape, generator=weights).to(f)).sum() for f in first]).sum()
        if score.grad_fn is None:
            return False
        again: list[Any] = list(torch.autograd.grad(score, tensors, retain_graph=True, allow_unused=True))
    except (RuntimeError, NotImplementedError) as error:
        raise NotASum(
            f"loss: whether it is a sum over examples could not be tried, as it has no second derivative ({error}). "
            "Write it with torch's own operations"
        ) from None
    # What is not a number belongs to an example that will contribute zero.
    return any(
        h is not None and bool(layout.of(h, rows, range(1, rows)).nan_to_num(0.0, 0.0, 0.0).any())
        for h, (_, layout) in zip(again, laid_out, strict=True)
    )


class _ByExample(nn.Module):
    """A loss by example, averaged over an example's own numbers that are not to be ignored, then over examples."""

    def __init__(self, criterion: Any, reduction: str) -> None:
        super().__init__()
        self.criterion, self.reduction = copy.copy(criterion), reduction
        self.criterion.reduction = "none"

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        losses: Tensor = self.criterion(*args, **kwargs)
        if losses.ndim > 1:
            kept = self._kept(losses, args[1] if len(args) > 1 else kwargs.get("target"))
            losses = losses.flatten(1)
            losses = losses.mean(dim=1) if kept is None else losses.sum(dim=1) / kept.flatten(1).sum(dim=1).clamp(min=1)
        return losses.mean() if self.reduction == "mean" else losses.sum()

    def _kept(self, losses: Tensor, target: Any) -> Tensor | None:
        """Where targets count, if the criterion may ignore some."""
        ignored = getattr(self.criterion, "ignore_index", None)
        if ignored is None or not isinstance(target, Tensor) or target.shape != losses.shape:
            return None
        return target != ignored


def by_example(criterion: Any, reduction: str) -> nn.Module:
    """The criterion as a loss that is a sum over examples."""
    if not hasattr(criterion, "reduction"):
        raise InvalidArgument("criterion", type(criterion).__name__, "a loss with a `reduction`, as torch's have")
    return _ByExample(criterion, reduction)


def reached(loss: Tensor, nodes: Collection[Any]) -> set[Any]:
    """Those of the nodes that the loss is a function of, and of what lies behind them at most through them."""
    seen: set[Any] = set()
    waiting = [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [] if node in nodes else [child for child, _ in node.next_functions]
    return seen & set(nodes)


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
    reference = weakref.WeakMethod(check, _forget)
    _checks.append(reference)  # first: an older one that is collected meanwhile does not put torch's own back
    if _torch_backward is None:
        _torch_backward = torch.autograd.backward
        torch.autograd.backward = _checked_backward
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
    plain = _torch_backward if _torch_backward is not None else torch.autograd.backward
    with ExitStack() as after:  # all are called, whatever fails
        for loss, weight in zip(losses, weights, strict=False):
            for reference in tuple(_checks):
                check = reference()
                if check is not None and isinstance(loss, Tensor):
                    done = check(loss, float(weight) if isinstance(weight, Tensor) and weight.numel() == 1 else 1.0)
                    if done is not None:
                        after.callback(done)
        return plain(tensors, grad_tensors, *args, **kwargs)
