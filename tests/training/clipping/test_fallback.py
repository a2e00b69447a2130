"""What "auto" comes to by itself where gradients by layers are wrong, or cannot be had."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.misuse.setting import CLIP, Private
from torch import Tensor, nn

from plrvo.training.clipping.fallback import falling_back
from plrvo.training.clipping.mode import wrapper_of
from plrvo.training.clipping.module import BookkeepingModule
from plrvo.training.clipping.samples import WholeModule
from plrvo.validate import InvalidArgument

F, C = 6, 3


class Force(nn.Module):
    """Goes back to its input in its own pass, so that its layers see two gradients."""

    def __init__(self, direct: bool = False) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(F, 8), nn.Tanh(), nn.Linear(8, 1))
        self.head = Shifted() if direct else nn.Linear(F, C)

    def forward(self, x: Tensor) -> Tensor:
        x = x.detach().requires_grad_()
        found: Tensor = self.head(torch.autograd.grad(self.net(x).sum(), x, create_graph=True)[0])
        return found


class Shifted(nn.Linear):
    def __init__(self) -> None:
        super().__init__(F, C)
        self.shift = nn.Parameter(torch.zeros(C))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + self.shift


class OneTime(nn.Module):
    """One time step for a batch of any size."""

    def __init__(self) -> None:
        super().__init__()
        self.times, self.first, self.last = nn.Embedding(10, 8), nn.Linear(F, 8), nn.Linear(8, C)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.last(torch.relu(self.first(x) + self.times(torch.tensor([7]))))
        return found


class Failing(nn.Module):
    """A table that is scored by the examples: layers that give it to each of them do not fit."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.first = nn.Embedding(C, 8), nn.Linear(F, 8)

    def forward(self, x: Tensor) -> Tensor:
        table = torch.cat([self.table(torch.arange(C)), torch.zeros(1, 8)])[:C]
        return self.first(x) @ table.t()


class Bags(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bag, self.last = nn.EmbeddingBag(9, 8, mode="max"), nn.Linear(8, C)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.last(self.bag((x.abs() * 3).long().clamp(max=8)))
        return found


MAKERS: dict[str, Callable[[], nn.Module]] = {
    "gradients of inputs": Force,
    "gradients of inputs, and a parameter of its own": lambda: Force(direct=True),
    "one time for all": OneTime,
    "a failing pass": Failing,
    "bags of largest numbers": Bags,
}


def batch(rows: int = 7) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(rows, F, generator=generator), torch.randint(0, C, (rows,), generator=generator)


def released(run: Private) -> Tensor:
    return run.released(*batch())


@pytest.mark.parametrize("name", MAKERS)
def test_auto_releases_what_functorch_does(name: str) -> None:
    found = []
    for mode in ("auto", "functorch"):
        torch.manual_seed(0)
        run = Private(mode, MAKERS[name]())
        found.append(released(run))
        assert getattr(run.module, "has_fallen_back", True)
        assert float((released(run) - found[-1]).norm()) < 0.1 * CLIP  # and again, without a try
    assert float((found[0] - found[1]).norm()) < 0.05 * CLIP


def test_it_says_so_once() -> None:
    run = Private("auto", OneTime())
    x, y = batch()
    with pytest.warns(UserWarning, match="functorch instead of bookkeeping or hooks.*is off by"):
        nn.functional.cross_entropy(run.module(x), y).backward()
    run.optimizer.zero_grad()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nn.functional.cross_entropy(run.module(x), y).backward()


@pytest.mark.parametrize("mode", ["bookkeeping", "hooks"])
def test_a_mode_that_was_asked_for_is_kept(mode: str) -> None:
    with pytest.raises(InvalidArgument, match='grad_sample_mode="functorch"'):
        released(Private(mode, OneTime()))


def test_exact_mode_falls_back_too() -> None:
    run = Private("exact", Force())
    released(run)
    assert run.module.has_fallen_back


class Overridden(nn.Linear):
    """Goes back otherwise than forth, in any mode."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + Looks.apply(x @ self.weight.t())


class Looks(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return torch.zeros_like(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.rows = len(output)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * ctx.rows


@pytest.mark.parametrize("mode", ["auto", "functorch"])
def test_where_no_way_is_right_it_is_refused_and_stays_as_it_was(mode: str) -> None:
    run = Private(mode, nn.Sequential(OneTime(), Overridden(C, C)))
    with pytest.raises(InvalidArgument, match="is off by") as refused:
        released(run)
    assert not getattr(run.module, "has_fallen_back", False)
    assert mode == "auto" or "functorch" not in str(refused.value)


def test_a_shared_table_in_front_is_told_to_come_later() -> None:
    class Scores(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(F, 4)

        def forward(self, table: Tensor, x: Tensor) -> Tensor:
            return self.linear(x) @ table.t()

    for mode in ("auto", "hooks", "functorch"):
        run = Private(mode, Scores())
        with pytest.raises(InvalidArgument, match="pass the batch first") as refused:
            run.released(*batch(), forward=lambda x, run=run: run.module(torch.ones(C, 4), x))
        assert mode != "functorch" or "functorch" not in str(refused.value)


def test_only_what_was_asked_as_auto_falls_back() -> None:
    assert wrapper_of("bookkeeping", OneTime()) is BookkeepingModule
    assert issubclass(wrapper_of("bookkeeping", OneTime(), "auto"), BookkeepingModule)
    assert wrapper_of("bookkeeping", OneTime(), "auto") is not BookkeepingModule
    assert falling_back(WholeModule) is WholeModule


def test_the_engine_tells_the_mode_that_it_has_come_to() -> None:
    run = Private("auto", Force())
    before = run.engine.grad_sample_mode
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run.train(1, loss=lambda out, y: nn.functional.cross_entropy(out, y))
    assert before != "functorch"
    assert run.engine.grad_sample_mode == "functorch"
