"""B, continued. Outputs that a loop keeps from one step to the next, and uses; and those that it only looks at."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from tests.misuse.sensitivity import B
from tests.misuse.setting import CLASSES, Private, data, mlp
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

from plrvo.training.loss_form import NotASum
from plrvo.validate import InvalidArgument


class _Loop:
    """A loop with something that it keeps: `use` makes a term of it, `keep` is called before or after the step."""

    def __init__(self) -> None:
        self.bank, self.mean = torch.zeros(CLASSES), torch.zeros(CLASSES)
        self.queue, self.rows = torch.zeros(0, CLASSES), deque[Tensor](maxlen=64)

    def by_index(self, o: Tensor, y: Tensor) -> None:
        self.bank[:] = o.detach()[0]

    def moving(self, o: Tensor, y: Tensor) -> None:
        self.mean.mul_(0.9).add_(o.detach().mean(dim=0), alpha=0.1)

    def joined(self, o: Tensor, y: Tensor) -> None:
        self.queue = torch.cat([o.detach(), self.queue])[:64]

    def listed(self, o: Tensor, y: Tensor) -> None:
        self.rows.extend(o.detach().clone())

    def prototypes(self, o: Tensor, y: Tensor) -> None:
        self.queue = torch.zeros(CLASSES, CLASSES).index_add(0, y, o.detach())

    def through_a_view(self, o: Tensor, y: Tensor) -> None:
        self.bank.data.view(1, -1).select(0, 0).copy_(o.detach().sum(dim=0))

    def kept(self) -> Tensor:
        tensors = [self.bank[None], self.mean[None], self.queue, *(row[None] for row in self.rows)]
        return torch.cat(tensors).mean(dim=0)


_KEEP: dict[str, Any] = {
    "a bank that is written by index": _Loop.by_index,
    "a moving mean, in place": _Loop.moving,
    "a queue by `torch.cat`": _Loop.joined,
    "a list of features": _Loop.listed,
    "prototypes of the classes": _Loop.prototypes,
    "a bank that is written through views and `.data`": _Loop.through_a_view,
}


def _train(mode: str, keep: Any, use: str, after: bool) -> int:
    """Steps that were taken before it was refused."""
    run, loop = Private(mode, loss_reduction="sum", public_loss_weights=True), _Loop()
    for x, y in run.loader:
        run.optimizer.zero_grad()
        given = x + torch.cat([loop.kept(), loop.kept()]) if use == "input" else x
        o = run.module(given)
        against = loop.kept() if use == "loss" else torch.zeros(CLASSES)
        ((o - against).square().sum() + functional.cross_entropy(o, y, reduction="sum")).backward()
        if not after:
            keep(loop, o, y)
        run.optimizer.step()
        if after:
            keep(loop, o, y)
        assert run.optimizer.steps_taken < 2, "the second step is made of the first one's outputs"
    raise AssertionError("nothing was refused")


for _name, _keep in _KEEP.items():

    @B.row(
        f"keep outputs of a step in {_name}, and use them in the loss of the next",
        "refused in that step: what torch computes from outputs is known by its memory, for as long as it is there",
        modes=("bookkeeping", "hooks"),
        error=NotASum,
        match="made of outputs of an earlier step",
    )
    def in_the_loss(mode: str, keep: Any = _keep) -> None:
        _train(mode, keep, "loss", after=mode == "hooks")


@B.row(
    "give the module outputs of an earlier step as inputs (a hidden state)",
    "refused in a line that says so",
    modes=("bookkeeping", "hooks"),
    error=InvalidArgument,
    match="an input from outputs of an earlier step",
)
def as_an_input(mode: str) -> None:
    _train(mode, _Loop.moving, "input", after=mode == "hooks")


class _Remembering(Dataset[Any]):
    """Adds to every example what the loop has kept."""

    def __init__(self) -> None:
        self.plain, self.kept = data(), torch.zeros(CLASSES)

    def __len__(self) -> int:
        return len(self.plain)

    def __getitem__(self, index: int) -> Any:
        x, y = self.plain[index]
        return x + torch.cat([self.kept, self.kept]), y


@B.row(
    "have the data set add outputs of an earlier step to its examples",
    "refused in that step: what it takes to fetch the first batches is followed, too, and now and then a later one",
    modes=("bookkeeping", "hooks"),
    error=InvalidArgument,
    match="an input from outputs of an earlier step",
)
def out_of_the_data(mode: str) -> None:
    examples = _Remembering()
    run = Private(mode, examples=examples)
    for x, y in run.loader:
        run.optimizer.zero_grad()
        o = run.module(x)
        functional.cross_entropy(o, y).backward()
        run.optimizer.step()
        assert run.optimizer.steps_taken < 2, "the second step is made of the first one's outputs"
        examples.kept = o.detach().mean(dim=0)


def _features(run: Private, x: Tensor, *, evaluate: bool) -> Tensor:
    run.module.train(not evaluate)
    with torch.no_grad():
        found: Tensor = run.module(x)
    run.module.train()
    return found


for _name, _evaluate in {"under `no_grad`": False, "in eval mode": True}.items():

    @B.row(
        f"keep features of a batch that the module computes {_name}, and use them in the loss of the next",
        "refused in that step: what comes between two steps is of no batch that follows",
        modes=("bookkeeping", "hooks"),
        error=NotASum,
        match="made of outputs of an earlier step",
    )
    def without_gradients(mode: str, evaluate: bool = _evaluate) -> None:
        run, centre = Private(mode, loss_reduction="sum"), torch.zeros(CLASSES)
        for x, y in run.loader:
            run.optimizer.zero_grad()
            functional.cross_entropy(run.module(x) - centre, y, reduction="sum").backward()
            if mode == "hooks":
                centre = _features(run, x, evaluate=evaluate).mean(dim=0)
            run.optimizer.step()
            assert run.optimizer.steps_taken < 2, "the second step is made of the first one's outputs"
            if mode != "hooks":
                centre = _features(run, x, evaluate=evaluate).mean(dim=0)


@B.row(
    "learn from what the module itself says of the batch without gradients (its own labels), and evaluate in between",
    "works: a row of the batch is the example's own",
    modes=("bookkeeping", "hooks"),
)
def own_labels(mode: str) -> None:
    run, log = Private(mode, steps=4), list[Tensor]()
    for x, _ in run.loader:
        wanted = _features(run, x, evaluate=True).softmax(dim=1)
        run.optimizer.zero_grad()
        outputs = run.module(x)
        labels = _features(run, x, evaluate=False).argmax(dim=1)
        each = functional.cross_entropy(outputs, wanted, reduction="none")
        (each + functional.cross_entropy(outputs, labels, reduction="none")).mean().backward()
        run.optimizer.step()
        log.append(_features(run, x, evaluate=True).mean())
    assert run.optimizer.steps_taken == 4


def _constant(run: Any, o: Tensor, of: dict[str, Any]) -> Tensor:
    """Only a size comes from the outputs of the first step."""
    return of.setdefault("ones", torch.ones_like(o[0])) * o


def _logged(run: Any, o: Tensor, of: dict[str, Any]) -> Tensor:
    of.setdefault("log", []).append(o.detach().norm())
    of["best"] = torch.minimum(of.get("best", torch.tensor(9.0)), o.detach().max())
    return o


_FINE: dict[str, Callable[..., Tensor]] = {
    "log numbers of every step, and their minimum": _logged,
    "keep a tensor that has only its size from the outputs": _constant,
}

for _name, _use in _FINE.items():

    @B.row(f"{_name}", "works: nothing of it comes back into a step", modes=("bookkeeping", "hooks"))
    def fine(mode: str, use: Any = _use) -> None:
        run, of = Private(mode, loss_reduction="sum", steps=4), dict[str, Any]()
        run.train(forward=lambda x: use(run, run.module(x), of), loss=nn.CrossEntropyLoss(reduction="sum"))
        assert run.optimizer.steps_taken == 4


@B.row(
    "keep nothing of the outputs after the loop",
    "nothing of the engine stays behind: it hears of operations only while something of the outputs is held",
    modes=("bookkeeping",),
)
def nothing_stays(mode: str) -> None:
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack as modes

    before = len(modes())
    run = Private(mode, mlp(), steps=3)
    run.train()
    gc.collect()
    assert len(modes()) == before
    assert run.optimizer.steps_taken == 3
