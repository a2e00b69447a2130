"""Linear layers whose products go to the faster library on the way forward and back too (`clipping.matrices`).

Torch multiplies singles by MKL, which takes twice as long as oneDNN on processors that are not Intel's. A layer that
is torch's own (`nn.Linear`, or the `Conv1D` of GPT-2) computes the same here, to the rounding of singles, and can be
gone back from as often as before; where another library would not do (other types, autocast, transforms of
`torch.func`, small products) it is torch's own function that is called.

It is the class of a layer that is changed, to one of the same name: hooks, attributes and parameters stay, and copies
and pickles of it are torch's again. A layer whose `forward` is anybody else's is left alone.
"""

from __future__ import annotations

import copyreg
from functools import lru_cache
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from plrvo.training.clipping.matrices import is_for_the_other, linear

_FORWARD = "forward"


class _Product(torch.autograd.Function):
    """x @ weight' + bias; what goes back is made of such products again, so that it can be gone back from as well."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        of_x, of_weight, _ = ctx.needs_input_grad
        ctx.save_for_backward(x if of_weight else None, weight if of_x else None)
        return linear(x, weight, bias).data  # no view, so that it may be changed in place

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight), (of_x, of_weight, of_bias) = ctx.saved_tensors, ctx.needs_input_grad
        rows = g.reshape(-1, g.shape[-1])
        return (
            times(g, weight.t()) if of_x else None,
            times(rows.t(), x.reshape(-1, x.shape[-1]).t()) if of_weight else None,
            rows.sum(dim=0) if of_bias else None,
        )


def times(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x @ weight' + bias, by whichever library is faster."""
    if not (_is_plain() and is_for_the_other(x, weight) and (bias is None or type(bias) is type(weight))):
        return functional.linear(x, weight, bias)
    apply: Any = _Product.apply
    found: Tensor = apply(x, weight, bias)
    return found


def _is_plain() -> bool:
    """Whether nothing goes on that a function of ours would be in the way of."""
    return not (
        torch.is_autocast_enabled("cpu")
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch.autograd.forward_ad._current_level >= 0
        or torch._C._get_tracing_state() is not None
        or torch.compiler.is_compiling()
    )


def use_faster_products(module: nn.Module) -> None:
    """From now on, in all layers of the module that are torch's own."""
    for layer in module.modules():
        kind: Any = type(layer)
        if (faster := _faster(kind)) is not None and _FORWARD not in vars(layer):
            layer.__class__ = faster


def use_products_of_torch(module: nn.Module) -> None:
    """As before `use_faster_products`."""
    for layer in module.modules():
        layer.__class__ = kind_of(layer)


def kind_of(layer: nn.Module) -> type[nn.Module]:
    """Its class, which is torch's for layers of ours."""
    return cast("type[nn.Module]", getattr(type(layer), "of_torch", type(layer)))


class _Faster(nn.Module):
    """Copies and pickles are of the class that it was."""

    of_torch: type[nn.Module]

    def __reduce_ex__(self, _: Any) -> Any:
        return copyreg._reconstructor, (self.of_torch, object, None), vars(self)  # type: ignore[attr-defined]


def _by_rows(layer: Any, input: Tensor) -> Tensor:
    return times(input, layer.weight, layer.bias)


def _by_columns(layer: Any, x: Tensor) -> Tensor:
    """GPT-2's y = x W + b."""
    return times(x, layer.weight.t(), layer.bias)


@lru_cache(maxsize=4096)
def _faster(kind: type) -> type[nn.Module] | None:
    """The class that does the same; None where there is none."""
    forward = {"torch.nn.modules.linear.Linear": _by_rows, "transformers.pytorch_utils.Conv1D": _by_columns}.get(
        _name(kind)
    )
    if forward is None or issubclass(kind, _Faster):
        return None
    named = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    return type(kind.__name__, (_Faster, kind), {**named, "of_torch": kind, _FORWARD: forward})


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
