"""Parameters that modules use themselves: by copies where those broadcast as the parameter does, else once more."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from tests.training.clipping.helpers import Clipping, by_loop, squares
from tests.training.clipping.test_layers import normal
from torch import Tensor, nn

from plrvo.accounting import Clipping as Kind
from plrvo.training.clipping.direct import DirectModule
from plrvo.training.clipping.mode import chosen_mode, wrapper_of

ROWS, LENGTH, WIDTH = 5, 4, 3


class Owner(nn.Module):
    """One parameter of a shape, used in a way, between two layers."""

    def __init__(self, shape: tuple[int, ...], use: Any) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(3)
            self.into, self.own, self.out = (
                nn.Linear(WIDTH, WIDTH),
                nn.Parameter(torch.randn(shape)),
                nn.Linear(WIDTH, 2),
            )
        self.use = use

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.use(self.into(x), self.own).tanh())


def first_token(x: Tensor, p: Tensor) -> Tensor:
    return torch.cat([p.expand(len(x), -1, -1), x], dim=1)


BY_COPIES: dict[str, tuple[tuple[int, ...], Any]] = {
    "first token": ((1, 1, WIDTH), first_token),
    "positions, cut": ((1, LENGTH + 2, WIDTH), lambda x, p: x + p[:, : x.shape[1]]),
    "positions without a first dimension": ((LENGTH, WIDTH), lambda x, p: x + p),
    "scale of a layer": ((WIDTH,), lambda x, p: x * p),
    "a number": ((), lambda x, p: x * p.exp()),
    "a number for every step": ((LENGTH, 1), lambda x, p: x * p.sigmoid()),
    "repeated": ((1, 1, WIDTH), lambda x, p: torch.cat([p.repeat(len(x), 1, 1), x], dim=1)),
    "in another shape": ((WIDTH,), lambda x, p: x + p.view(1, 1, -1)),
    "shares of two": ((1, 2, WIDTH), lambda x, p: x * p.softmax(dim=1)[:, :1]),
    "where something is missing": ((WIDTH,), lambda x, p: torch.where(x > 0, p, x)),
}
ONCE_MORE: dict[str, tuple[tuple[int, ...], Any]] = {
    "a weight": ((WIDTH, WIDTH), lambda x, p: nn.functional.linear(x, p)),
    "a mean over copies": ((1, 1, WIDTH), lambda x, p: x + p.mean(0, keepdim=True)),
    "a mean of all": ((WIDTH,), lambda x, p: x * p.mean()),
    "the first of copies": ((1, 1, WIDTH), lambda x, p: x + p[0].expand(len(x), 1, WIDTH)),
    "cut in its first dimension": ((LENGTH + 3, WIDTH), lambda x, p: x + p[: x.shape[1]]),
    "a number of steps": ((WIDTH,), lambda x, p: x.mean(dim=1) * p),
}


def clipped(module: nn.Module, x: Tensor) -> tuple[list[Tensor], Any]:
    assert chosen_mode("auto", module, Kind.flat, batch_first=True) == "bookkeeping"
    wrapped = wrapper_of("bookkeeping", module)(module)
    optimizer = Clipping(
        torch.optim.SGD(module.parameters(), lr=0.1), noise_multiplier=0.0, max_grad_norm=0.3, expected_batch_size=1
    )
    optimizer.keep(wrapped.book)
    squares(wrapped(x)).mean().backward()
    optimizer.clip_and_accumulate()
    wrapped.cleanup()
    return optimizer.sums, wrapped


def assert_close(found: list[Tensor], expected: list[Tensor]) -> None:
    size = sum(float(e.square().sum()) for e in expected) ** 0.5
    for f, e in zip(found, expected, strict=True):
        assert f.shape == e.shape
        assert float((f - e).norm()) <= 2.0**-7 * size  # ghost norms may clip by so much more


@pytest.mark.parametrize("name", BY_COPIES)
def test_copies_give_the_sums_of_a_loop(name: str) -> None:
    module, x = Owner(*BY_COPIES[name]), normal(ROWS, LENGTH, WIDTH)
    expected = by_loop(module, x, 0.3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found, wrapped = clipped(module, x)
    assert isinstance(wrapped, DirectModule)
    assert not wrapped._replaying
    assert_close(found, expected)
    assert all(isinstance(p, nn.Parameter) for p in module._parameters.values())


@pytest.mark.parametrize("name", ONCE_MORE)
def test_what_is_not_right_with_copies_is_computed_once_more(name: str) -> None:
    module, x = Owner(*ONCE_MORE[name]), normal(ROWS, LENGTH, WIDTH)
    expected = by_loop(module, x, 0.3)
    with pytest.warns(UserWarning, match="hooks instead of bookkeeping"):
        found, wrapped = clipped(module, x)
    assert wrapped._replaying
    assert_close(found, expected)


@pytest.mark.parametrize("name", [*BY_COPIES, *ONCE_MORE])
@pytest.mark.filterwarnings("ignore:grad_sample_mode")
def test_a_batch_without_examples_has_no_gradient(name: str) -> None:
    module = Owner(*(BY_COPIES | ONCE_MORE)[name])
    wrapped = wrapper_of("bookkeeping", module)(module)
    for rows in (ROWS, 0):
        wrapped.zero_grad()
        wrapped.watch.new_step()
        wrapped(normal(rows, LENGTH, WIDTH)).square().sum().backward()
    assert not wrapped.book.kept
    assert all(p.grad is None for p in module.parameters())
    wrapped.cleanup()


@pytest.mark.parametrize("name", ONCE_MORE)
def test_a_head_that_starts_at_zero_hides_nothing(name: str) -> None:
    """Gradients of all copies are zero in the first try, and so are autograd's."""
    module, x = Owner(*ONCE_MORE[name]), normal(ROWS, LENGTH, WIDTH)
    nn.init.zeros_(module.out.weight)
    with pytest.warns(UserWarning, match="hooks instead of bookkeeping"):
        _, wrapped = clipped(module, x)
    assert wrapped._replaying


def test_a_layer_that_overrides_one_of_torchs_is_computed_once_more_by_itself() -> None:
    class Turned(nn.LayerNorm):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.flip(-1))

    module, x = nn.Sequential(Turned(WIDTH), Owner(*BY_COPIES["scale of a layer"])), normal(ROWS, LENGTH, WIDTH)
    expected = by_loop(module, x, 0.3)
    found, wrapped = clipped(module, x)
    assert wrapped._replaying == {"0"}
    assert_close(found, expected)


def test_owners_within_owners() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.own = Owner(*BY_COPIES["scale of a layer"]), nn.Parameter(torch.ones(LENGTH, 2))

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x) * self.own

    module, x = Outer(), normal(ROWS, LENGTH, WIDTH)
    expected = by_loop(module, x, 0.3)
    found, wrapped = clipped(module, x)
    assert not wrapped._replaying
    assert_close(found, expected)
    again = Outer()
    again.inner.use = ONCE_MORE["a weight"][1]
    again.inner.own = nn.Parameter(torch.eye(WIDTH))
    expected = by_loop(again, x, 0.3)
    with pytest.warns(UserWarning, match="hooks instead of bookkeeping"):
        found, _ = clipped(again, x)
    assert_close(found, expected)


class Begun(nn.Module):
    """A recurrent layer whose first state is learned, so that the module is computed once more."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self.layer = nn.Parameter(torch.full((1, 1, WIDTH), 0.5)), nn.LSTM(WIDTH, WIDTH, batch_first=True)
        self.out = nn.Linear(WIDTH, 2)

    def forward(self, x: Tensor) -> Tensor:
        first = self.own.expand(1, len(x), WIDTH).contiguous()
        return self.out(self.layer(x, (first, first))[0])


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_a_recurrent_layer_within_is_computed_once_more_and_keeps_its_weights() -> None:
    module, x = Begun(), normal(ROWS, LENGTH, WIDTH)
    expected = by_loop(module, x, 0.3)
    with pytest.warns(UserWarning, match="hooks instead of bookkeeping"):
        found, _ = clipped(module, x)
    assert_close(found, expected)
    own = list(module.layer.parameters())
    assert all(w is p for w, p in zip(module.layer._flat_weights, own, strict=True))


@pytest.mark.parametrize("kind", [nn.ParameterList, lambda p: nn.ParameterDict({"a": p[0], "b": p[1]})])
def test_lists_of_parameters_belong_to_the_module_that_has_them(kind: Any) -> None:
    class WithList(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.own = kind([nn.Parameter(torch.full((WIDTH,), 0.5)), nn.Parameter(torch.full((WIDTH,), 2.0))])
            self.out = nn.Linear(WIDTH, 2)

        def forward(self, x: Tensor) -> Tensor:
            first, second = self.own.values() if isinstance(self.own, nn.ParameterDict) else self.own
            return self.out((x * first + second).tanh())

    module, x = WithList(), normal(ROWS, LENGTH, WIDTH)
    before, expected = list(module.parameters()), by_loop(module, x, 0.3)
    found, wrapped = clipped(module, x)
    assert not wrapped._replaying
    assert_close(found, expected)
    assert [id(p) for p in module.parameters()] == [id(p) for p in before]
