"""B, continued. What a module keeps in places that are easily overlooked, and what it may keep there."""

from __future__ import annotations

import array
from typing import Any

import torch
from tests.misuse.kept import Keeps, Silent
from tests.misuse.sensitivity import B
from tests.misuse.setting import FEATURES, Private
from torch import Tensor, nn

from plrvo.validate import InvalidArgument

SEEN: list[float] = []
TOTAL = 0.0
PASSES = 0


class Sparse(Keeps):
    def start(self) -> Any:
        self.register_buffer("seen", torch.zeros(FEATURES).to_sparse())

    def note(self, x: Tensor) -> None:
        self.seen = self.seen + x.detach().mean(dim=0).to_sparse()


class InBytes(Keeps):
    def start(self) -> Any:
        return bytearray(4)

    def note(self, x: Tensor) -> None:
        self.kept[0] = int(x.abs().sum() * 100) % 256


class InAnArray(InBytes):
    def start(self) -> Any:
        return array.array("d", [0.0])

    def note(self, x: Tensor) -> None:
        self.kept[0] += float(x.mean())


class InAView(InBytes):
    def start(self) -> Any:
        return memoryview(bytearray(4))


class OnAParameter(Keeps):
    def note(self, x: Tensor) -> None:
        self.linear.weight.seen = x.detach().mean()


class OnItsClass(Keeps):
    seen = 0.0

    def note(self, x: Tensor) -> None:
        type(self).seen += float(x.mean())


class InADefault(Keeps):
    def note(self, x: Tensor, seen: list[float] = [0.0]) -> None:  # noqa: B006 - that is the misuse
        seen[0] += float(x.mean())


class InAGlobalList(Keeps):
    def note(self, x: Tensor) -> None:
        _append(float(x.mean()))


def _append(value: float) -> None:
    SEEN.append(value)


class InAGlobalNumber(Keeps):
    def note(self, x: Tensor) -> None:
        global TOTAL
        TOTAL += float(x.mean())


def _in_a_closure() -> nn.Module:
    total = 0.0

    class InAClosure(Keeps):
        def note(self, x: Tensor) -> None:
            nonlocal total
            total += float(x.mean())

    return InAClosure()


class _Meter:
    """An object that is called as a hook."""

    def __init__(self) -> None:
        self.mean = 0.0

    def __call__(self, m: nn.Module, args: Any, output: Tensor) -> None:
        self.mean = float(output.detach().mean())


def _hooked() -> nn.Module:
    module = Silent()
    module.linear.register_forward_hook(_Meter())
    return module


for _name, _kind in {
    "a sparse tensor": Sparse,
    "a bytearray": InBytes,
    "an `array.array`": InAnArray,
    "a memoryview": InAView,
    "an attribute of a parameter": OnAParameter,
    "an attribute of its class": OnItsClass,
    "a default argument": InADefault,
    "a global list, by a function that `forward` calls": InAGlobalList,
    "a global number": InAGlobalNumber,
    "a closure": _in_a_closure,
    "an object that is called as a hook": _hooked,
}.items():

    @B.row(
        f"keep something of the examples in {_name}",
        "refused on the first batch",
        modes=("bookkeeping", "hooks"),
        error=InvalidArgument,
        match="changes with them in forward",
    )
    def odd_places(mode: str, kind: Any = _kind) -> None:
        Private(mode, kind()).train()


class _Bag:
    def __init__(self) -> None:
        self.mean = torch.zeros(())


@B.row(
    "have a hook keep a mean of outputs in an object of the loop, and add it to later ones",
    "refused on the first batch: passes with other examples come before those that are compared",
    modes=("bookkeeping", "hooks"),
    error=InvalidArgument,
    match="mixes them|the same in two equal passes",
)
def comes_back(mode: str) -> None:
    module, bag = Silent(), _Bag()

    def hook(m: nn.Module, args: Any, output: Tensor) -> Tensor:
        before, bag.mean = bag.mean, output.detach().mean()
        return output + before

    module.linear.register_forward_hook(hook)
    Private(mode, module).train()


class CountsOnItsClass(Silent):
    passes = 0

    def note(self, x: Tensor) -> None:
        global PASSES
        PASSES += 1
        type(self).passes += 1


@B.row(
    "count passes on a class and in a global, look at activations by a hook that writes them down outside",
    "works: counts look at no example, and what is written down does not come back",
    modes=("bookkeeping", "hooks"),
)
def may_be_kept(mode: str) -> None:
    global PASSES
    CountsOnItsClass.passes = PASSES = 0
    module, seen = CountsOnItsClass(), dict[str, Tensor]()
    module.linear.register_forward_hook(lambda m, args, output: seen.update(last=output.detach()))
    Private(mode, module, steps=4).train()
    assert CountsOnItsClass.passes == PASSES == 4
    assert "last" in seen
