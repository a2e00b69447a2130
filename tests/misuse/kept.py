"""B, continued. What a module keeps from its passes, in whatever it keeps it; what looks at no example may change."""

from __future__ import annotations

from collections import Counter, deque
from types import SimpleNamespace
from typing import Any

import torch
from tests.misuse.sensitivity import B
from tests.misuse.setting import CLASSES, FEATURES, Private
from torch import Tensor, nn

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
    """A counter, a schedule, a table for each size, and a table that grows."""

    def start(self) -> Any:
        self.tables, self.table, self.history = {}, torch.zeros(0), deque(maxlen=3)
        self.register_buffer("passes", torch.zeros((), dtype=torch.int64))
        return SimpleNamespace(steps=0, temperature=1.0)

    def note(self, x: Tensor) -> None:
        self.passes += 1
        self.kept.steps += 1
        self.kept.temperature *= 0.9
        self.history.append(self.kept.steps)
        if x.shape not in self.tables:
            self.tables[x.shape] = torch.arange(len(x))
        if len(x) > len(self.table):
            self.table = torch.arange(len(x))


@B.row(
    "count steps, anneal a temperature, keep tables by size",
    "works: what looks at no example may change, and passes that are tried leave no trace",
)
def honest(mode: str) -> None:
    module = Honest()
    run = Private(mode, module, steps=8)
    run.train()
    assert module.kept.steps == int(module.passes) == 8
    assert list(module.history) == [6, 7, 8]
    assert len(module.tables) <= 8
