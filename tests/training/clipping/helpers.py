"""Clipped sums two ways: by keeping books, and by one backward pass for each example."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from opacus.optimizers import DPOptimizer
from torch import Tensor, nn

from plrvo.training.clipping import BookkeepingMixin, BookkeepingModule
from plrvo.training.clipping.contributions import PerExample

Loss = Callable[[Any], Tensor]  # from the module's output to one number an example


class Clipping(BookkeepingMixin, DPOptimizer):
    """Clips, adds no noise."""

    clipping = "flat"
    clips: dict[Any, float] = {}  # noqa: RUF012

    @property
    def clip(self) -> float:
        return self.max_grad_norm


def squares(output: Tensor) -> Tensor:
    """A loss whose gradients differ between outputs and examples."""
    weights = torch.linspace(-1, 2, math.prod(output.shape[1:])).view(output.shape[1:]).to(output)
    return (output * weights + 0.3 * output.square()).flatten(1).sum(dim=1)


def by_books(
    module: nn.Module, inputs: Any, clip: float, loss: Loss = squares, reduction: str = "mean"
) -> list[Tensor]:
    """The clipped sum of every trainable parameter; the module is left without hooks."""
    wrapped = BookkeepingModule(module, loss_reduction=reduction)
    parameters = [p for p in module.parameters() if p.requires_grad]
    optimizer = Clipping(
        torch.optim.SGD(parameters, lr=0.1),
        noise_multiplier=0.0,
        max_grad_norm=clip,
        expected_batch_size=1,
        loss_reduction=reduction,
    )
    optimizer.keep(wrapped.book)
    values = loss(call(wrapped, inputs))
    (values.mean() if reduction == "mean" else values.sum()).backward()
    optimizer.clip_and_accumulate()
    wrapped.cleanup()
    return optimizer.sums


def by_loop(module: nn.Module, inputs: Any, clip: float, loss: Loss = squares) -> list[Tensor]:
    parameters = [p for p in module.parameters() if p.requires_grad]
    total = [torch.zeros_like(p) for p in parameters]
    for i in range(batch_size(inputs)):
        one = loss(call(module, select(inputs, i))).sum()
        found = torch.autograd.grad(one, parameters, allow_unused=True)
        gradient = [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, found, strict=True)]
        norm = torch.sqrt(sum((g.double().square().sum() for g in gradient), torch.tensor(0.0, dtype=torch.float64)))
        for t, g in zip(total, gradient, strict=True):
            t += (g * min(1.0, clip / (float(norm) + 1e-6))).to(t)
    return total


GHOST = 2.0**-7


def uses_ghost_norms(module: nn.Module, inputs: Any, loss: Loss = squares) -> bool:
    wrapped = BookkeepingModule(module)
    if batch_size(inputs) == 0:
        wrapped.cleanup()
        return False
    loss(call(wrapped, inputs)).mean().backward()
    held = [c for p in wrapped.book.kept for c in wrapped.book.contributions(p)]
    wrapped.cleanup()
    return any(not isinstance(c, PerExample) for c in held)


def call(module: nn.Module, inputs: Any) -> Any:
    return module(**inputs) if isinstance(inputs, dict) else module(inputs)


def batch_size(inputs: Any) -> int:
    return len(next(iter(inputs.values()))) if isinstance(inputs, dict) else len(inputs)


def select(inputs: Any, i: int) -> Any:
    return {k: v[i : i + 1] for k, v in inputs.items()} if isinstance(inputs, dict) else inputs[i : i + 1]


def assert_equal_to_loop(module: nn.Module, inputs: Any, clip: float, loss: Loss = squares, rel: float = 1e-5) -> None:
    """Equal to `rel`; where norms come in ghost form each example may be shorter, by 2^-7 of the clip at most."""
    expected = by_loop(module, inputs, clip, loss)
    found = by_books(module, inputs, clip, loss)
    rel = max(rel, GHOST) if uses_ghost_norms(module, inputs, loss) and clip < 1e3 else rel
    size = torch.sqrt(sum((e.double().square().sum() for e in expected), torch.tensor(0.0)))
    for f, e in zip(found, expected, strict=True):
        assert f.shape == e.shape
        assert f.dtype == e.dtype
        assert float((f - e).double().norm()) <= rel * float(size) + 1e-12
