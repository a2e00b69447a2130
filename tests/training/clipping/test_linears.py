"""Layers whose products go to the faster library compute what torch's do, and are torch's for everybody else."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from transformers.pytorch_utils import Conv1D

from plrvo.training.clipping import linears, matrices
from plrvo.training.clipping.layers import rule_of
from plrvo.training.clipping.linears import kind_of, times, use_faster_products, use_products_of_torch

UNIT = torch.finfo(torch.float32).eps / 2
WIDTH, WIDER = 384, 512


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def faster(layer: Any) -> Any:
    use_faster_products(layer)
    assert type(layer) is not kind_of(layer)
    return layer


def taken(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The shapes of products that go to the other library."""
    found: list[Any] = []
    own = linears._Product.apply

    def apply(*arguments: Any) -> Any:
        found.append(arguments[0].shape)
        return own(*arguments)

    monkeypatch.setattr(linears._Product, "apply", apply)
    return found


def close(found: Tensor, one: Tensor, other: Tensor) -> None:
    """To what singles may round in any order: with doubles as the second derivation."""
    exact, sizes = one.double() @ other.double(), one.double().abs() @ other.double().abs()
    assert found.dtype == torch.float32
    assert bool(((found - exact).abs() <= (one.shape[-1] + 2) * UNIT * sizes).all())


@pytest.mark.parametrize("shape", [(300, WIDTH), (7, 50, WIDTH)])
def test_forward_and_back_are_the_products_of_doubles(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    calls = taken(monkeypatch)
    x, weight, bias = normal(*shape).requires_grad_(), normal(WIDER, WIDTH).requires_grad_(), normal(WIDER)
    bias.requires_grad_()
    y = times(x, weight, bias)
    g = normal(*y.shape)
    of_x, of_weight, of_bias = torch.autograd.grad(y, (x, weight, bias), g)
    rows, backs = x.detach().flatten(0, -2), g.flatten(0, -2)
    close(times(x.detach(), weight.detach()), x.detach(), weight.detach().t())
    close(of_x.flatten(0, -2), backs, weight.detach())
    close(of_weight, backs.t(), rows)
    assert torch.allclose(of_bias, backs.double().sum(dim=0).float(), atol=1e-3)
    assert torch.allclose(y, functional.linear(x, weight, bias), atol=1e-3)
    assert len(calls) == 4 * matrices._has_kernel()


@pytest.mark.parametrize("shape", [(300, WIDTH), (7, 50, WIDTH)])
def test_outputs_may_be_changed_in_place(shape: tuple[int, ...]) -> None:
    """As `nn.ReLU(inplace=True)` does."""

    def of_input(layer: nn.Module) -> Tensor:
        x = normal(*shape).requires_grad_()
        (found,) = torch.autograd.grad(layer(x).relu_().square().sum(), x)
        return found

    layer = nn.Linear(WIDTH, WIDER)
    expected = of_input(layer)
    assert torch.allclose(of_input(faster(layer)), expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()))


def test_it_can_be_gone_back_from_twice() -> None:
    """As a model of forces does, which are gradients of an energy."""

    def second(product: Callable[..., Tensor]) -> list[Tensor]:
        x, weight = normal(300, WIDTH).requires_grad_(), normal(WIDER, WIDTH).requires_grad_()
        (force,) = torch.autograd.grad(product(x, weight).tanh().sum(), x, create_graph=True)
        return list(torch.autograd.grad(force.square().sum(), (x, weight)))

    for ours, torchs in zip(second(times), second(functional.linear), strict=True):
        assert torch.allclose(ours, torchs, rtol=1e-3, atol=1e-3 * float(torchs.abs().max()))


@pytest.mark.parametrize(
    "make", [lambda: nn.Linear(WIDTH, WIDER), lambda: Conv1D(WIDER, WIDTH)], ids=["Linear", "Conv1D"]
)
def test_a_layer_stays_what_it_is(make: Callable[[], Any]) -> None:
    layer = make()
    kind, x = type(layer), normal(4, 100, WIDTH)
    before = layer(x)
    faster(layer)
    assert isinstance(layer, kind)
    assert (type(layer).__name__, type(layer).__module__, repr(layer)) == (kind.__name__, kind.__module__, repr(make()))
    assert torch.allclose(layer(x), before, atol=1e-4)
    assert rule_of(layer) is not None
    for other in (copy.deepcopy(layer), copy.copy(layer), pickle.loads(pickle.dumps(layer))):
        assert type(other) is kind
        assert torch.equal(other(x), before)
    named = {"input": x} if kind is nn.Linear else {"x": x}
    assert torch.equal(layer(**named), layer(x))
    use_faster_products(layer)  # once more: nothing is put on top
    use_products_of_torch(layer)
    assert type(layer) is kind


def test_layers_of_others_are_left_alone() -> None:
    class Own(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + 1

    patched: Any = nn.Linear(3, 3)
    patched.forward = lambda x: x
    module = nn.Sequential(
        Own(3, 3), patched, nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)), nn.Conv2d(1, 1, 1)
    )
    kinds = [type(m) for m in module]
    use_faster_products(module)
    assert [type(m) for m in module] == kinds


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # torch's own, for tangents
def test_where_another_function_would_be_in_the_way_it_is_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = taken(monkeypatch)
    layer, x = faster(nn.Linear(WIDTH, WIDER)), normal(300, WIDTH)
    expected = layer(x)
    assert len(calls) == matrices._has_kernel()
    calls.clear()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16
    assert torch.allclose(torch.func.vmap(layer)(x), expected, atol=1e-4)
    _, tangent = torch.func.jvp(layer, (x,), (x,))
    assert torch.allclose(tangent, expected - layer.bias, atol=1e-4)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.unpack_dual(layer(torch.autograd.forward_ad.make_dual(x, x)))
    assert torch.allclose(dual.tangent, expected - layer.bias, atol=1e-4)
    assert layer.double()(x.double()).dtype == torch.float64
    assert not calls


def test_nothing_is_kept_that_nobody_needs() -> None:
    """With weights that want no gradient, as in a step that keeps books, an input is not kept."""
    layer = faster(nn.Linear(WIDTH, WIDER)).requires_grad_(False)
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):  # type: ignore[func-returns-value]
        layer(normal(300, WIDTH).requires_grad_())
    assert {t.shape for t in kept} <= {torch.Size([WIDER, WIDTH]), torch.Size([WIDTH, WIDER])}


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoints_compute_it_once_more(use_reentrant: bool) -> None:
    layer, x = faster(nn.Linear(WIDTH, WIDTH)), normal(300, WIDTH).requires_grad_()
    expected = torch.autograd.grad(layer(layer(x).relu()).sum(), [x, *layer.parameters()])
    again = checkpoint(lambda t: layer(layer(t).relu()), x, use_reentrant=use_reentrant).sum()  # type: ignore[no-untyped-call]
    again.backward()
    for found, wanted in zip((x.grad, layer.weight.grad, layer.bias.grad), expected, strict=True):
        assert found is not None
        assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-3)
