"""Layers whose weights ask for the faster product compute what torch's do, and are torch's for everybody who looks."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.misuse.setting import Private
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint
from torch.utils.data import TensorDataset
from transformers.pytorch_utils import Conv1D

import plrvo
from plrvo.training.clipping import linears, matrices
from plrvo.training.clipping.linears import Lent, Weight, times

UNIT = torch.finfo(torch.float32).eps / 2
WIDTH, WIDER = 384, 512


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The shapes of what goes to the other library."""
    found: list[Any] = []
    own = linears._Product.apply

    def apply(*arguments: Any) -> Any:
        found.append(tuple(arguments[0].shape))
        return own(*arguments)

    monkeypatch.setattr(linears._Product, "apply", apply)
    return found


def close(found: Tensor, one: Tensor, other: Tensor) -> None:
    """To what singles may round in any order: with doubles as the second derivation."""
    exact, sizes = one.double() @ other.double(), one.double().abs() @ other.double().abs()
    assert found.dtype == torch.float32
    assert bool(((found - exact).abs() <= (one.shape[-1] + 2) * UNIT * sizes).all())


@pytest.mark.parametrize("shape", [(300, WIDTH), (7, 50, WIDTH)])
def test_forward_and_back_are_the_products_of_doubles(shape: tuple[int, ...], calls: list[Any]) -> None:
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
    x, weight = normal(*shape).requires_grad_(), normal(WIDER, WIDTH)
    (found,) = torch.autograd.grad(times(x, weight).relu_().square().sum(), x)
    (expected,) = torch.autograd.grad(functional.linear(x, weight).relu().square().sum(), x)
    assert torch.allclose(found, expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()))


def test_it_can_be_gone_back_from_twice() -> None:
    """As a model of forces does, which are gradients of an energy."""

    def second(product: Callable[..., Tensor]) -> list[Tensor]:
        x, weight = normal(300, WIDTH).requires_grad_(), normal(WIDER, WIDTH).requires_grad_()
        (force,) = torch.autograd.grad(product(x, weight).tanh().sum(), x, create_graph=True)
        return list(torch.autograd.grad(force.square().sum(), (x, weight)))

    for ours, torchs in zip(second(times), second(functional.linear), strict=True):
        assert torch.allclose(ours, torchs, rtol=1e-3, atol=1e-3 * float(torchs.abs().max()))


def odd_biases() -> list[Tensor]:
    """A column of a larger matrix, one number for all, none of its own, and shapes that are added to the output."""
    wide = normal(WIDER, 3)
    return [
        wide[:, -1],
        normal(1).expand(WIDER),
        normal(WIDER)[::1].flip(0),
        normal(1),
        normal(1, WIDER),
        normal(300, WIDER),
    ]


@pytest.mark.parametrize("bias", odd_biases(), ids=lambda t: f"{tuple(t.shape)}-{t.stride()}")
def test_biases_that_lie_otherwise_in_memory(bias: Tensor) -> None:
    x, weight = normal(300, WIDTH), normal(WIDER, WIDTH)
    expected = x.double() @ weight.double().t() + bias.double()
    assert torch.allclose(times(x, weight, bias).double(), expected, atol=1e-3)
    assert torch.allclose(matrices.linear(x, weight, bias).double(), expected, atol=1e-3)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # torch's own, for tangents
def test_what_is_no_ordinary_tensor_is_left_to_torch(calls: list[Any]) -> None:
    x, weight = normal(300, WIDTH), normal(WIDER, WIDTH)
    y = functional.linear(x, weight)
    assert times(x.double(), weight.double()).dtype == torch.float64
    assert torch.allclose(times(x.to_sparse(), weight), y, atol=1e-3)
    assert torch.allclose(times(torch._neg_view(x), weight), -y, atol=1e-3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert times(x, weight).dtype == torch.bfloat16
    with torch.inference_mode():
        assert torch.allclose(times(x + 0, weight), y, atol=1e-3)
    assert torch.allclose(torch.func.vmap(lambda row: times(row, weight))(x[None])[0], y, atol=1e-3)
    assert torch.allclose(torch.func.jacrev(lambda row: times(row, weight))(x[:1])[0, :, 0], weight, atol=1e-3)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.unpack_dual(times(torch.autograd.forward_ad.make_dual(x, x), weight))
    assert torch.allclose(dual.tangent, y, atol=1e-3)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        times(x, weight[:, 1:])
    assert not calls


def test_going_back_with_a_batch_of_gradients() -> None:
    """`is_grads_batched`, of which tensors look like any other."""
    x, weight = normal(300, WIDTH).requires_grad_(), normal(WIDER, WIDTH)
    y = times(x, weight)
    several = torch.stack([normal(*y.shape), normal(*y.shape).neg()])
    (found,) = torch.autograd.grad(y, x, several, is_grads_batched=True)
    assert torch.allclose(found, several @ weight, atol=1e-2)


@pytest.mark.parametrize(
    "make", [lambda: nn.Linear(WIDTH, WIDER), lambda: Conv1D(WIDER, WIDTH)], ids=["Linear", "Conv1D"]
)
def test_a_layer_stays_what_it_is(make: Callable[[], Any], calls: list[Any]) -> None:
    layer = make()
    kind, x, own = type(layer), normal(4, 100, WIDTH).requires_grad_(), layer.weight
    before = layer(x)
    (gradient,) = torch.autograd.grad(before.sum(), own)
    lent = Lent(layer)
    seen: list[Any] = []
    layer.register_forward_hook(lambda m, *_: seen.append(type(m.weight)))
    after = layer(x)
    assert len(calls) == matrices._has_kernel()
    assert type(layer) is kind
    assert layer.weight is own
    assert seen == [nn.Parameter]
    assert torch.allclose(after, before, atol=1e-3)
    assert torch.allclose(torch.autograd.grad(after.sum(), own)[0], gradient, rtol=1e-3, atol=1e-2)
    for other in (copy.deepcopy(layer.weight), pickle.loads(pickle.dumps(layer.weight))):
        assert type(other) is nn.Parameter
    lent.remove()
    calls.clear()
    layer(x)
    assert not calls


def test_what_others_do_with_a_weight_is_done_with_an_ordinary_one(calls: list[Any]) -> None:
    weight = normal(WIDER, WIDTH).as_subclass(Weight)
    for result in (
        weight + 1,
        weight.t(),
        weight.sum(),
        weight.detach(),
        torch.stack([weight, weight]),
        weight.data,
        weight[0],
    ):
        assert type(result) is Tensor
    assert weight.shape == (WIDER, WIDTH)
    assert not calls


def test_whoever_changes_the_function_is_asked(calls: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer's class with another `forward`, and modes that look at functions."""
    layer, x = nn.Linear(WIDTH, WIDER), normal(300, WIDTH)
    Lent(layer)

    class Doubles(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            found = function(*args, **(kwargs or {}))
            return 2 * found if function is functional.linear else found

    expected = layer(x)
    with Doubles():
        assert torch.allclose(layer(x), 2 * expected, atol=1e-3)
    monkeypatch.setattr(nn.Linear, "forward", lambda m, x: functional.linear(x.clamp(-1, 1), m.weight, m.bias))
    assert torch.allclose(layer(x), functional.linear(x.clamp(-1, 1), layer.weight, layer.bias), atol=1e-3)
    assert len(calls) == 3 * matrices._has_kernel()


def test_a_pass_that_fails_gives_weights_back() -> None:
    layer = nn.Linear(WIDTH, WIDER)
    own = layer.weight
    Lent(layer)
    with pytest.raises(RuntimeError, match="shapes"):
        layer(normal(300, WIDTH + 1))
    assert layer.weight is own


def test_an_interrupted_pass_gives_weights_back_when_it_is_over() -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    layer = nn.Linear(WIDTH, WIDER)
    own, lent = layer.weight, Lent(layer)
    layer.register_forward_hook(interrupted)
    with pytest.raises(KeyboardInterrupt):
        layer(normal(300, WIDTH))
    lent.remove()
    assert layer.weight is own


def test_by_name_and_with_tensors_of_other_kinds(calls: list[Any]) -> None:
    class Own(Tensor):
        pass

    x, weight = normal(300, WIDTH), normal(WIDER, WIDTH).as_subclass(Weight)
    assert type(functional.linear(input=x, weight=weight)) is Tensor
    assert len(calls) == matrices._has_kernel()
    assert type(functional.linear(x.as_subclass(Own), weight)) is Own


def test_nothing_is_kept_that_nobody_needs() -> None:
    """With weights that want no gradient, as in a step that keeps books, an input is not kept."""
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):  # type: ignore[func-returns-value]
        times(normal(300, WIDTH).requires_grad_(), normal(WIDER, WIDTH), normal(WIDER))
    assert {tuple(t.shape) for t in kept} <= {(WIDER, WIDTH), (WIDTH, WIDER)}


class Checkpointed(nn.Module):
    def __init__(self, use_reentrant: bool) -> None:
        super().__init__()
        self.first, self.second, self.frozen = nn.Linear(WIDTH, WIDER), nn.Linear(WIDER, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.frozen.requires_grad_(False)
        self.use_reentrant = use_reentrant

    def _inner(self, x: Tensor) -> Tensor:
        return self.second(functional.relu(self.first(self.frozen(x)), inplace=True))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = checkpoint(self._inner, x, use_reentrant=self.use_reentrant)  # type: ignore[no-untyped-call]
        return found


@pytest.mark.parametrize("mode", ["bookkeeping", "hooks", "functorch"])
def test_private_sums_are_those_of_single_examples(mode: str, calls: list[Any]) -> None:
    """With large layers, a frozen one, GPT-2's, and a checkpoint."""
    torch.manual_seed(0)
    x, y = normal(160, WIDTH), normal(160, WIDTH)
    module: nn.Module = nn.Sequential(Checkpointed(False), nn.ReLU(inplace=True), Conv1D(WIDTH, WIDTH))
    plain, clip = copy.deepcopy(module), 0.3
    learned = [p for p in plain.parameters() if p.requires_grad]
    expected = [torch.zeros_like(p) for p in learned]
    for i in range(len(x)):
        loss = (plain(x[i : i + 1]) - y[i : i + 1]).square().sum(dim=1).sum()
        gradients = torch.autograd.grad(loss, learned)
        norm = torch.stack([g.double().norm() for g in gradients]).norm()
        for total, g in zip(expected, gradients, strict=True):
            total += g * min(1.0, clip / float(norm))
    run = Private(mode, module, examples=TensorDataset(x, y), clip=clip, noise=plrvo.Laplace(1e-6 * clip))
    calls.clear()
    found = run.released(x, y, loss=lambda out, target: (out - target).square().sum(dim=1).mean())
    assert bool(calls) == matrices._has_kernel()
    wanted = torch.cat([e.flatten().double() for e in expected])
    assert float((found - wanted).norm() / wanted.norm()) < 2e-4  # noise is a third of that
