"""How a module is looked at: one pass is kept, and all others are seen as they go by."""

from __future__ import annotations

import weakref

import pytest
import torch
from torch import Tensor, nn

from plrvo.training import apart
from plrvo.training.apart import ITSELF, Beside, Pass, check_apart
from plrvo.training.call import Call
from plrvo.training.state import State


class InPlace(nn.Module):
    """Layers whose outputs are written to after they were given."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(5, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x).relu_()
        y.mul_(2)
        return self.second(y).add_(1)


def call_of(rows: int, seed: int = 0) -> Call:
    return Call((torch.randn(rows, 5, generator=torch.Generator().manual_seed(seed)),), {}, rows, 0)


def test_no_more_than_one_pass_is_kept_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass is as large as all that the layers give: a try holds one, and one graph, and not three."""
    alive, most = weakref.WeakSet[Pass](), []
    make = Pass.__init__

    def counted(self: Pass, *args: object, **kwargs: object) -> None:
        make(self, *args, **kwargs)  # type: ignore[arg-type]
        alive.add(self)
        most.append(sum(bool(one.outputs) for one in alive))

    monkeypatch.setattr(Pass, "__init__", counted)
    module = nn.Sequential(nn.Linear(5, 6), nn.ReLU(), nn.Linear(6, 2))
    check_apart(module, call_of(4), State(module), again=False)
    assert len(most) > 8
    assert max(most) == 1


def test_what_is_looked_at_is_what_would_be_kept() -> None:
    module, call = InPlace(), call_of(4)
    kept = Pass(module, call, State(module)).outputs
    seen: dict[apart.Use, Tensor] = {}
    again = Pass(module, call, State(module), lambda use, t: seen.__setitem__(use, t.clone()))
    assert not again.outputs
    assert kept.keys() == seen.keys()
    assert all(torch.equal(t, seen[use]) for use, t in kept.items())


def test_an_error_while_looking_is_none_of_the_modules() -> None:
    """The pass goes on, and the error is told when it is asked what was found: a caller that expects a module to fail
    on made-up numbers must not take it for that."""
    module, call = InPlace(), call_of(4)
    first = Pass(module, call, State(module))

    def look(use: apart.Use, one: Tensor, two: Tensor) -> None:
        raise IndexError(use[0])

    beside = Beside(first, look)
    Pass(module, call, State(module), beside)
    assert beside.uses == first.outputs.keys()
    with pytest.raises(IndexError):
        beside.told()


def test_what_was_found_comes_in_the_order_of_the_first_pass() -> None:
    module = InPlace()
    first = Pass(module, call_of(4), State(module))
    beside = Beside(first, lambda use, one, two: torch.equal(one, two))
    Pass(module, call_of(4, seed=1), State(module), beside)
    told = beside.told()
    assert list(told) == list(first.outputs)
    assert next(reversed(told))[0] == ITSELF
    assert not any(told.values())
