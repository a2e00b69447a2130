"""B, continued. What a module keeps from its passes, in whatever it keeps it; what looks at no example may change."""

from __future__ import annotations

import time
import weakref
from collections import Counter, deque
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.misuse.sensitivity import B
from tests.misuse.setting import CLASSES, FEATURES, Private
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from plrvo.training.loss_form import NotASum
from plrvo.validate import InvalidArgument


class Keeps(nn.Module):
    """A linear layer that keeps something of what it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(FEATURES, CLASSES)
        self.kept: Any = self.start()

    def start(self) -> Any:
        return None

    def note(self, x: Tensor) -> None:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        self.note(x)
        return self.linear(x)  # type: ignore[no-any-return]


class Total(Keeps):
    def start(self) -> Any:
        return 0

    def note(self, x: Tensor) -> None:
        self.kept += int((1000 * x).abs().sum())


class ExtraState(Total):
    def get_extra_state(self) -> Any:
        return {"seen": self.kept}

    def set_extra_state(self, state: Any) -> None:
        self.kept = state["seen"]


class Text(Keeps):
    def note(self, x: Tensor) -> None:
        self.kept = str(x[0])


class Numbers(Keeps):
    def start(self) -> Any:
        return []

    def note(self, x: Tensor) -> None:
        self.kept.extend((1000 * x[:, 0]).int().tolist())


class Counts(Keeps):
    def start(self) -> Any:
        return Counter()

    def note(self, x: Tensor) -> None:
        self.kept.update((10 * x[:, 0]).int().tolist())


class Last(Keeps):
    def start(self) -> Any:
        return deque(maxlen=2)

    def note(self, x: Tensor) -> None:
        self.kept.append(x.detach())


class Order(Keeps):
    """A permutation has the same sum whatever it is."""

    def note(self, x: Tensor) -> None:
        self.kept = (x[:, 0], x[:, 0].argsort())[1]


class Meter(Keeps):
    def start(self) -> Any:
        return SimpleNamespace(mean=0.0)

    def note(self, x: Tensor) -> None:
        self.kept.mean = 0.9 * self.kept.mean + 0.1 * float(x.mean())


class Slots(Keeps):
    class Cell:
        __slots__ = ("value",)

    def start(self) -> Any:
        return [self.Cell()]

    def note(self, x: Tensor) -> None:
        self.kept[0].value = float(x.mean())


for _name, _kind in (
    ("a whole number", Total),
    ("`get_extra_state`", ExtraState),
    ("a text", Text),
    ("a list of whole numbers", Numbers),
    ("a Counter", Counts),
    ("a deque", Last),
    ("an order of rows", Order),
    ("an object in an attribute", Meter),
    ("an object with slots, in a list", Slots),
):

    @B.row(
        f"keep something of the examples in {_name}",
        "refused on the first batch",
        error=InvalidArgument,
        match="changes with them in forward",
    )
    def keeps(mode: str, kind: Any = _kind) -> None:
        module = kind()
        try:
            Private(mode, module).train()
        finally:
            assert module.kept == kind.start(module) or isinstance(module, Slots)
            assert not isinstance(module, Slots) or not hasattr(module.kept[0], "value")


class Rows(Keeps):
    """How many examples there were, which is as private as they are; in the state_dict."""

    def start(self) -> Any:
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def note(self, x: Tensor) -> None:
        self.seen += len(x)


class HalvesOfRows(Rows):
    """A count that is the same for the few rows that are tried."""

    def note(self, x: Tensor) -> None:
        self.seen += 1 + len(x) // 8


class LargeBatches(Rows):
    def note(self, x: Tensor) -> None:
        self.seen += len(x) > 10


class TablesByRows(Rows):
    def start(self) -> Any:
        self.seen = {}

    def note(self, x: Tensor) -> None:
        self.seen.setdefault(len(x), torch.arange(len(x)))


class RowsAfterDropout(Rows):
    """What is drawn after dropout is drawn elsewhere in the sequence if there is one row more."""

    def note(self, x: Tensor) -> None:
        nn.functional.dropout(x)
        self.seen += len(x) + int(torch.randint(2, ()))


for _name, _kind in (
    ("count the rows of all batches in a buffer", Rows),
    ("count rows in parts of eight", HalvesOfRows),
    ("count the batches of more than ten rows", LargeBatches),
    ("keep tables by the number of rows", TablesByRows),
    ("count rows, and add something at random", RowsAfterDropout),
):

    @B.row(
        _name,
        "refused on the first batch: how many rows it has is private, and the line says what to do instead",
        error=InvalidArgument,
        match="how many there are; seen changes",
    )
    def counts_rows(mode: str, kind: Any = _kind) -> None:
        Private(mode, kind()).train()


class OnTheWayBack(Keeps):
    """Keeps something of the gradients, by a hook on a tensor."""

    def start(self) -> Any:
        self.register_buffer("mean", torch.zeros(()))

    def see(self, gradient: Tensor) -> None:
        self.mean += gradient.mean()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.linear(x)
        if out.requires_grad:
            out.register_hook(self.see)
        return out


class LargeGradients(OnTheWayBack):
    """A count of gradients that are too large, which those at first are not."""

    def see(self, gradient: Tensor) -> None:
        self.mean += gradient.abs().max() > 100


class ByModuleHook(OnTheWayBack):
    def start(self) -> Any:
        super().start()
        self.linear.register_full_backward_hook(self.of_layer)

    def of_layer(self, layer: nn.Module, inputs: Any, outputs: Any) -> None:
        self.see(outputs[0])

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)  # type: ignore[no-any-return]


class ThroughData(OnTheWayBack):
    """A write that leaves no trace but in the numbers, of which there are many."""

    def start(self) -> Any:
        self.register_buffer("mean", torch.zeros(1 << 17))

    def see(self, gradient: Tensor) -> None:
        self.mean.data[-len(gradient) :] = gradient[:, 0]


class LearnsLater(OnTheWayBack):
    def start(self) -> Any:
        super().start()
        self.passes = 0

    def see(self, gradient: Tensor) -> None:
        self.passes += 1
        self.mean += gradient.mean() if self.passes > 3 else 0


for _name, _kind in (
    ("a hook on a tensor", OnTheWayBack),
    ("a hook on a tensor, which counts large ones", LargeGradients),
    ("a full backward hook", ByModuleHook),
    ("a hook on a tensor, many and through `.data`", ThroughData),
    ("a hook on a tensor, after some steps", LearnsLater),
):

    @B.row(
        f"keep something of the gradients by {_name}",
        "refused before it is written: passes back are tried as well",
        error=InvalidArgument,
        match="mean changes with them in backward",
    )
    def keeps_on_the_way_back(mode: str, kind: Any = _kind) -> None:
        module = kind()
        try:
            Private(mode, module).train()
        finally:
            assert not module.mean.any()


class Silent(Keeps):
    def note(self, x: Tensor) -> None:
        """Nothing."""


@B.row(
    "keep something of the gradients by a hook on the outputs, in the loop",
    "refused after the backward pass, and no step follows",
    error=InvalidArgument,
    match="kept changes with them in backward",
)
def keeps_in_the_loop(mode: str) -> None:
    module = Silent()
    run = Private(mode, module)

    def forward(x: Tensor) -> Tensor:
        out = run.module(x)
        if out.requires_grad:
            out.register_hook(lambda g: setattr(module, "kept", float(g.norm())))
        return out  # type: ignore[no-any-return]

    try:
        run.train(forward=forward)
    finally:
        with pytest.raises(NotASum, match="loss was not seen"):
            run.optimizer.step()


class Bank(Keeps):
    """Many numbers, written where only their values show it, and only in training."""

    def start(self) -> Any:
        self.register_buffer("bank", torch.zeros(1 << 17))

    def note(self, x: Tensor) -> None:
        if torch.is_grad_enabled():
            self.bank.data[-len(x) :] = x[:, 0].detach()


@B.row(
    "write examples into a bank of more than 65,536 numbers, through `.data`, in passes with gradients only",
    "refused on the first batch: passes are tried with gradients, and all numbers are compared",
    error=InvalidArgument,
    match="bank changes with them",
)
def bank(mode: str) -> None:
    module = Bank()
    try:
        Private(mode, module).train()
    finally:
        assert not module.bank.any()


class CountsThenLearns(Keeps):
    def start(self) -> Any:
        self.register_buffer("n", torch.zeros(()))

    def note(self, x: Tensor) -> None:
        self.n += 1 if self.n < 3 else x.mean().detach()


@B.row(
    "have a buffer count its first passes, and learn from examples after them",
    "refused at the first pass in which it would",
    error=InvalidArgument,
    match="n changes with them",
)
def counts_then_learns(mode: str) -> None:
    module = CountsThenLearns()
    try:
        Private(mode, module).train()
    finally:
        assert module.n == 3


class Honest(Keeps):
    """A counter, a schedule, a table for each length, and a table that grows."""

    def start(self) -> Any:
        self.tables, self.table, self.history = {}, torch.zeros(0), deque(maxlen=3)
        self.register_buffer("passes", torch.zeros((), dtype=torch.int64))
        return SimpleNamespace(steps=0, temperature=1.0)

    def note(self, x: Tensor) -> None:
        self.passes += 1
        self.kept.steps += 1
        self.kept.temperature *= 0.9
        self.history.append(self.kept.steps)
        length = x.shape[1]
        if length not in self.tables:
            self.tables[length] = torch.arange(length)
        if length > len(self.table):
            self.table = torch.arange(length)


@B.row(
    "count steps, anneal a temperature, keep tables by length",
    "works: what looks at no example may change, and passes that are tried leave no trace",
)
def honest(mode: str) -> None:
    module = Honest()
    run = Private(mode, module, steps=8)
    run.train()
    assert module.kept.steps == int(module.passes) == 8
    assert list(module.history) == [6, 7, 8]
    assert list(module.tables) == [FEATURES]


class Checkpointed(Honest):
    """Recomputes its pass on the way back, where it counts once more."""

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(super().forward, x, use_reentrant=False)  # type: ignore[no-any-return]


@B.row("count passes in a layer that gradient checkpoints compute again in backward", "works: it looks at no example")
def checkpointed(mode: str) -> None:
    module = Checkpointed()
    Private(mode, module, steps=4).train()
    assert module.kept.steps == int(module.passes) == 8


class MixesLater(nn.Module):
    """Adds a share of the batch's mean, which is none for some passes, by its own counting or the caller's."""

    def __init__(self, counts: bool) -> None:
        super().__init__()
        self.linear, self.counts, self.passes = nn.Linear(FEATURES, CLASSES), counts, 0
        self.register_buffer("share", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.passes += 1
        if self.counts and self.passes == 4:
            self.share.fill_(0.5)
        return self.linear(x) + (self.share * x.mean() if self.share else 0)  # type: ignore[no-any-return]


@B.row(
    "have a module mix examples once a number of it is no longer zero",
    "refused at the first batch that begins with it",
    error=InvalidArgument,
    match="mixes them",
)
def mixes_later(mode: str) -> None:
    for counts in (True, False):
        module = MixesLater(counts)
        run = Private(mode, module)
        try:
            run.train(steps=4)
            module.share.fill_(0.5)
            run.train(steps=1)
        except InvalidArgument:
            # The first values of a counter are told apart: the pass that would set the number is tried before.
            assert run.optimizer.steps_taken == (3 if counts else 4)
            if not counts:
                raise


class Clock(Silent):
    def note(self, x: Tensor) -> None:
        self.kept = time.perf_counter_ns()


@B.row(
    "keep the time of the last pass in the module",
    "refused in a line that says so: nobody can try what it depends on",
    error=InvalidArgument,
    match="kept changes with every pass, even with the same examples .a clock",
)
def clock(mode: str) -> None:
    Private(mode, Clock()).train()


class Gone:
    """Nothing, which can be referred to weakly."""


@B.row("refer to something that is gone by `weakref.proxy`", "works: it is not kept with the module")
def proxy(mode: str) -> None:
    module, other = Silent(), Gone()
    module.kept = weakref.proxy(other)
    del other
    Private(mode, module, steps=2).train()
