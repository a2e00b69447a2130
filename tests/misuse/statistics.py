"""B, continued. What a module gives beside its predictions: statistics of the batch, masks, constants."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tests.misuse.sensitivity import WITHIN, B
from tests.misuse.setting import CLASSES, FEATURES, Private, data, effect_of_first
from torch import Tensor, nn
from torch.nn import functional

from plrvo.training.loss_form import NotASum

Beside = Callable[[Tensor, Tensor], Tensor]  # of inputs and outputs


class Gives(nn.Module):
    """Its predictions, and something without a gradient beside them."""

    def __init__(self, beside: Beside) -> None:
        super().__init__()
        self.linear, self.beside = nn.Linear(FEATURES, CLASSES), beside

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        out = self.linear(x)
        return out, self.beside(x, out.detach())


def _moved(given: tuple[Tensor, Tensor], y: Tensor) -> Tensor:
    return functional.mse_loss(given[0] + given[1], functional.one_hot(y, CLASSES).float())


def _masked(given: tuple[Tensor, Tensor], y: Tensor) -> Tensor:
    return (functional.cross_entropy(given[0], y, reduction="none") * given[1]).mean()


def _large(x: Tensor, out: Tensor) -> Tensor:
    """Beside much larger examples none is, beside much smaller ones each is: whichever rows are tried show it."""
    size = x.abs().sum(dim=1)
    return size > size.mean()


_STATISTICS: dict[str, tuple[Beside, Any]] = {
    "the mean of the batch": (lambda x, out: x.mean(dim=0)[:CLASSES], _moved),
    "one number of the batch": (lambda x, out: x.amax(), _moved),
    "a mask (bool) of what is above the batch's mean": (_large, _masked),
    "that mask in whole numbers": (lambda x, out: _large(x, out).long(), _masked),
}

for _name, (_beside, _loss) in _STATISTICS.items():

    @B.row(
        f"return {_name} beside the outputs, without a gradient, and use it in the loss",
        "refused before the first step: what changes with other examples is told from rows and constants",
        modes=("bookkeeping", "hooks", "functorch"),
        error=NotASum,
        match="changes with other examples|with a row for each example",
    )
    def statistic(mode: str, beside: Any = _beside, loss: Any = _loss) -> None:
        x, y = (t[:40] for t in data().tensors)
        Private(mode, Gives(beside)).released(x, y, loss=loss)


_CONSTANTS: dict[str, tuple[Beside, Any]] = {
    "a constant": (lambda x, out: torch.ones(CLASSES), _moved),
    "a mask that is each example's own": (lambda x, out: x[:, 0] > 0, _masked),
    "a statistic that only the log gets": (
        lambda x, out: x.mean(dim=0),
        lambda o, y: functional.cross_entropy(o[0], y),
    ),
}

for _name, (_beside, _loss) in _CONSTANTS.items():

    @B.row(
        f"return {_name} beside the outputs",
        "works: one example moves the sum by one clip at most",
        modes=("bookkeeping", "hooks"),
    )
    def constant(mode: str, beside: Any = _beside, loss: Any = _loss) -> None:
        x, y = (t[:40].clone() for t in data().tensors)
        x[0] = 100.0
        assert effect_of_first(mode, x, y, Gives(beside), loss=loss) <= WITHIN
