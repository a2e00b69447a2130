"""B, continued. Terms that couple examples, and come to count after some steps; passes that nobody goes back from."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from tests.misuse.sensitivity import B
from tests.misuse.setting import CLASSES, FEATURES, Private, data
from torch import Tensor, nn
from torch.nn import functional

from plrvo.training import recording
from plrvo.training.loss_form import NotASum
from plrvo.validate import InvalidArgument

OFF = 4  # steps in which the term does not count


def _pull(outputs: Tensor, weight: Tensor) -> Tensor:
    """Every example towards the next."""
    return (weight * (outputs - outputs.roll(1, dims=0)).square()).sum()


def _switched(step: int) -> Tensor:
    return torch.full((CLASSES,), 1.0) if step >= OFF else torch.tensor([0.0] * CLASSES)


_ALWAYS = torch.zeros(CLASSES)  # the tensor stays, and its numbers are changed before each pass


def _ramp(step: int) -> Tensor:
    """No number that goes into it is ever zero."""
    return functional.relu(torch.full((CLASSES,), step - OFF + 0.5))


_WEIGHTS: dict[str, tuple[Callable[[int], Tensor], int]] = {
    "is zero at first": (_switched, OFF),
    "is zero at first, and is written to in place": (lambda step: _ALWAYS, OFF),
    "is computed, and zero at first": (_ramp, OFF),
    "is tiny at first": (lambda step: torch.full((CLASSES,), 1e-7 * 30.0**step), OFF + 1),
}

for _name, (_weight, _steps) in _WEIGHTS.items():

    @B.row(
        f"multiply a term that couples examples by a tensor that {_name}",
        "refused in the step in which it comes to count: the loss has another form where its weights have another size",
        modes=("bookkeeping", "hooks"),
        error=NotASum,
        match="changes with other examples",
    )
    def annealed(mode: str, weight: Any = _weight, most: int = _steps) -> None:
        run = Private(mode, loss_reduction="sum")

        def loss(outputs: Tensor, y: Tensor) -> Tensor:
            own = functional.cross_entropy(outputs, y, reduction="sum")
            return own + _pull(outputs, weight(run.optimizer.steps_taken))

        def forward(x: Tensor) -> Tensor:
            _ALWAYS.fill_(float(run.optimizer.steps_taken >= OFF))
            return run.module(x)  # type: ignore[no-any-return]

        try:
            run.train(loss=loss, forward=forward)
        finally:
            assert run.optimizer.steps_taken <= most


@B.row(
    "have several such terms, and switch on one of them",
    "refused in that step: they are counted",
    modes=("bookkeeping", "hooks"),
    error=NotASum,
    match="changes with other examples",
)
def one_of_several(mode: str) -> None:
    run = Private(mode, loss_reduction="sum")

    def loss(outputs: Tensor, y: Tensor) -> Tensor:
        own = (torch.ones(CLASSES) * (outputs - functional.one_hot(y, CLASSES)).square()).sum()
        off = torch.tensor([0.0] * CLASSES)
        on = off + float(run.optimizer.steps_taken >= OFF)
        return own + _pull(outputs, on) + _pull(outputs, off)

    try:
        run.train(loss=loss)
    finally:
        assert run.optimizer.steps_taken == OFF


@B.row(
    "look at many batches in train mode and with gradients, without going back",
    "works, and nothing of these passes is kept: those that nobody can go back from are let go",
    modes=("bookkeeping", "hooks"),
)
def looked_at(mode: str) -> None:
    run = Private(mode)
    graphs: list[Any] = []
    x, y = data().tensors
    total = torch.zeros(())
    for _ in range(20):
        out = run.module(x)
        total += functional.cross_entropy(out, y).detach()
        graphs.append(weakref.ref(out))
    del out
    gc.collect()
    assert sum(graph() is not None for graph in graphs) <= 4
    run.train(steps=2)


@B.row(
    "run the model sixteen times on augmented batches, and go back once from the mean of the losses",
    "works: what a loss that somebody holds was computed from is kept",
    modes=("bookkeeping", "hooks"),
)
def many_views(mode: str) -> None:
    run = Private(mode)

    def forward(x: Tensor) -> Any:
        return lambda y: sum(functional.cross_entropy(run.module(x + 0.01 * i), y) for i in range(16)) / 16

    run.train(steps=2, forward=forward, loss=lambda of, y: of(y))


@B.row(
    "weigh the loss by a number from a pass that was let go",
    "refused: it may be something of the batch, and cannot be computed once more",
    modes=("bookkeeping", "hooks"),
    error=NotASum,
    match="could not be tried: it uses numbers of an earlier pass",
)
def weighed_by_an_old_pass(mode: str) -> None:
    run = Private(mode, public_loss_weights=False, loss_reduction="sum")

    def forward(x: Tensor) -> Tensor:
        weights = run.module(x).detach().mean(dim=0)
        for _ in range(6):
            run.module(x)
        return run.module(x) * weights  # type: ignore[no-any-return]

    run.train(forward=forward, loss=lambda o, y: functional.cross_entropy(o, y, reduction="sum"))


@B.row(
    "call a large teacher after the private module",
    "refused in a line that says to call it before; before the module it works",
    modes=("bookkeeping",),
    error=NotASum,
    match="such as a teacher, before the module",
)
def teacher(mode: str) -> None:
    wide = nn.Sequential(nn.Linear(FEATURES, 4096), nn.ReLU(), nn.Linear(4096, CLASSES)).requires_grad_(False)
    with mock.patch.object(recording, "_MOST_BYTES", 1 << 16):  # which are many in earnest
        for first in (True, False):
            run = Private(mode)
            x, _ = next(iter(run.loader))
            wanted = wide(x) if first else None
            outputs = run.module(x)
            functional.mse_loss(outputs, wide(x) if wanted is None else wanted).backward()
            run.optimizer.step()


class _NormalisedBehindZero(nn.Module):
    """A hook divides gradients by their norm over the batch; at first they are zero, since the head is."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.head = nn.Linear(FEATURES, 8), nn.Linear(8, CLASSES)
        nn.init.zeros_(self.head.weight)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.into(x).tanh()
        if hidden.requires_grad:
            hidden.register_hook(lambda g: g / (g.norm() + 1e-12))
        return self.head(hidden)  # type: ignore[no-any-return]


@B.row(
    "begin with a head of zeros, behind which a hook averages gradients over the batch",
    "refused at the next batch: a module in which a parameter had no gradient is tried again",
    modes=("bookkeeping", "hooks"),
    error=InvalidArgument,
    match="gradients",
)
def behind_zero(mode: str) -> None:
    Private(mode, _NormalisedBehindZero()).train(steps=3)
