"""B, continued. Hooks that the loop puts on outputs and on tensors of the loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tests.misuse.sensitivity import B
from tests.misuse.setting import FEATURES, Private, data
from torch import Tensor, nn

from plrvo.training.loss_form import NotASum

BOOKS = ("bookkeeping", "hooks", "functorch")


def _normed(gradient: Tensor) -> Tensor:
    return gradient * (10 / gradient.norm()).clamp(max=1.0)


def _train(mode: str, hook: Callable[[Tensor], Any], where: str, sizes: tuple[float, ...]) -> None:
    """With a first example that is so large in each step."""
    run, x = Private(mode, nn.Linear(FEATURES, 3)), 1e-4 * data().tensors[0][:20]

    def forward(x: Tensor) -> Tensor:
        out = run.module(x)
        if where == "outputs":
            out.register_hook(hook)
        return out  # type: ignore[no-any-return]

    def loss(out: Tensor, target: Tensor) -> Tensor:
        difference = out - target
        if where == "differences":
            difference.register_hook(hook)
        return difference.square().sum(dim=1).mean()

    target = torch.zeros(len(x), 3)
    for size in sizes:
        batch = x.clone()
        batch[0] *= size
        run.released(batch, target, forward=forward, loss=loss)


for _where in ("outputs", "differences"):

    @B.row(
        f"keep the batch's gradient small by a hook on the {_where}, which does nothing until one example is large",
        "refused in that step: where there are hooks, gradients are taken with and without them",
        modes=BOOKS,
        error=NotASum,
        match="no hook changes|could not be tried",
    )
    def normed(mode: str, where: str = _where) -> None:
        _train(mode, _normed, where, (1.0, 1.0, 1.0, 1.0, 1e8))


@B.row("look at gradients by a hook on the outputs, or retain them", "works", modes=BOOKS)
def looks_on(mode: str) -> None:
    seen: list[float] = []
    for where in ("outputs", "differences"):
        _train(mode, lambda gradient: seen.append(float(gradient.norm())), where, (1.0, 1e8))
    assert seen


@B.row("have a module put a hook on its own outputs that scales each example's gradient", "works", modes=BOOKS)
def of_the_module(mode: str) -> None:
    class Halved(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(FEATURES, 3)

        def forward(self, x: Tensor) -> Tensor:
            out = self.layer(x)
            if out.requires_grad:
                out.register_hook(lambda gradient: 0.5 * gradient)
            return out  # type: ignore[no-any-return]

    run = Private(mode, Halved())
    run.train(steps=3)
