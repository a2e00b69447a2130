"""B, continued. What is computed inside of a module's pass and reaches a loss without being an output of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tests.misuse.sensitivity import B
from tests.misuse.setting import CLASSES, FEATURES, Private, data
from torch import Tensor, nn
from torch.nn import functional

from plrvo.training.loss_form import NotASum

MODES = ("bookkeeping", "hooks", "functorch")
Keeps = Callable[[dict[str, Tensor], Tensor], None]


def _a_mean(kept: dict[str, Tensor], out: Tensor) -> None:
    kept["mean"] = out.detach().mean(dim=0)


def _a_mean_in_place(kept: dict[str, Tensor], out: Tensor) -> None:
    kept["mean"].copy_(out.detach().mean(dim=0))


def _activations(kept: dict[str, Tensor], out: Tensor) -> None:
    kept["mean"] = out.detach()


def _hooked(mode: str, keeps: Keeps) -> tuple[Private, dict[str, Tensor]]:
    kept = {"mean": torch.zeros(8)}
    run = Private(mode, nn.Sequential(nn.Linear(FEATURES, 8), nn.ReLU(), nn.Linear(8, CLASSES)))
    run.plain[1].register_forward_hook(lambda module, args, out: keeps(kept, out))  # type: ignore[index]
    return run, kept


def _centred(out: Tensor, y: Tensor, kept: dict[str, Tensor]) -> Tensor:
    return functional.cross_entropy(out - kept["mean"].reshape(-1, 8).mean(dim=0)[:CLASSES], y)


for _what, _keeps in (
    ("a new tensor", _a_mean),
    ("a tensor that was there before", _a_mean_in_place),
    ("activations as they are", _activations),
):

    @B.row(
        f"keep the batch's mean activation by a hook ({_what}), and use it in the loss",
        "refused before the first step: it is made inside of the module, and no output of it",
        modes=MODES,
        error=NotASum,
        match="inside of the module|of an earlier step",
    )
    def statistic_of_a_hook(mode: str, keeps: Keeps = _keeps) -> None:
        run, kept = _hooked(mode, keeps)
        x, y = (t[:40] for t in data().tensors)
        run.released(x, y, loss=lambda out, y: _centred(out, y, kept))


@B.row(
    "keep the batch's mean activation by a hook, and use it in the next step's loss",
    "refused in that step, as outputs of an earlier one are",
    modes=MODES,
    error=NotASum,
    match="of an earlier step",
)
def statistic_of_the_last_step(mode: str) -> None:
    run, kept = _hooked(mode, _a_mean)
    before = kept["mean"]

    def loss(out: Tensor, y: Tensor) -> Tensor:
        nonlocal before
        now, before = before, kept["mean"]
        return _centred(out, y, {"mean": now})

    x, y = (t[:40] for t in data().tensors)
    run.released(x, y, loss=loss)
    run.released(x, y, loss=loss)


@B.row("log activations by a hook", "works: no loss is made of them", modes=("bookkeeping", "hooks"))
def logged_activations(mode: str) -> None:
    run, kept = _hooked(mode, _a_mean)
    run.train()
    assert kept["mean"].isfinite().all()


class Anchored(nn.Module):
    """Makes a constant in its first pass, which the loss uses too."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.anchors = nn.Linear(FEATURES, CLASSES), None

    def forward(self, x: Tensor) -> Tensor:
        if self.anchors is None:
            self.anchors = torch.linspace(0, 1, CLASSES) + 0.5
        return self.linear(x) * self.anchors  # type: ignore[no-any-return]


@B.row("make a constant in a pass, and use it in the loss as well", "works: it is made of no example", modes=MODES)
def constant_of_a_pass(mode: str) -> None:
    run = Private(mode, Anchored())
    module: Any = run.plain
    run.train(3, loss=lambda out, y: functional.cross_entropy(out / module.anchors, y))


class OwnLoss(nn.Module):
    """A sum over examples, and a term over the batch that is tiny on ordinary rows."""

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.into, self.out, self.weight = nn.Linear(FEATURES, 8), nn.Linear(8, CLASSES), weight

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        h = self.into(x)
        loss = functional.cross_entropy(self.out(h.tanh()), y, reduction="sum")
        return loss + self.weight * h.mean(dim=0).pow(4).sum()


def _own(mode: str, weight: float) -> None:
    run = Private(mode, OwnLoss(weight), loss_reduction="sum")
    x, y = (t[:40] for t in data().tensors)
    forward: Any = lambda x: run.module(x, y)  # noqa: E731
    run.released(x, y, forward=forward, loss=lambda out, y: out)


for _weight in (1e-4, 1e-6):

    @B.row(
        f"add a term over the batch, {_weight:g} times a fourth power, to the module's own loss",
        "refused before the first step: the module is tried on rows of other sizes as well",
        modes=("bookkeeping", "hooks"),
        error=NotASum,
        match="a sum over examples",
    )
    def tiny_term(mode: str, weight: float = _weight) -> None:
        _own(mode, weight)


@B.row("compute the loss in the module, as a sum over examples", "works", modes=("bookkeeping", "hooks"))
def sound_own_loss(mode: str) -> None:
    _own(mode, 0.0)
