"""Linear layers whose products go to the faster library on the way forward and back too (`matrices`).

Torch multiplies singles by MKL, which takes twice as long as oneDNN on processors that are not Intel's. While a layer
of torch's (`nn.Linear`, or the `Conv1D` of GPT-2) computes its output in a training pass, its weight is a tensor that
asks for the faster product: of all functions, in `functional.linear` and `torch.addmm` alone, and only where everything
is an ordinary dense tensor of singles on the processor (`is_ordinary`) and the product is large. All else is torch's
own, with an ordinary weight. The layer itself, its class and its `forward` are what they were, whoever wrote them;
modes that look at functions see the one that was called.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._pytree import tree_map

from plrvo.training.clipping.matrices import is_for_the_other, is_ordinary, linear

_CONV1D = "transformers.pytorch_utils.Conv1D"
_LEAST = 1 << 12  # numbers in a weight: below, no batch makes up for asking


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
    if not _is_plain() or not is_for_the_other(x, weight, bias):
        return functional.linear(x, weight, bias)
    apply: Any = _Product.apply
    found: Tensor = apply(x, weight, bias)
    return found


def _is_plain() -> bool:
    """Whether nothing goes on that a function of ours would be in the way of."""
    return not (
        torch.is_autocast_enabled("cpu")
        or torch._C._are_functorch_transforms_active()
        or torch.autograd.forward_ad._current_level >= 0
        or torch._C._get_tracing_state() is not None
        or torch.compiler.is_compiling()
    )


class Weight(Tensor):
    """The weight of a layer in its pass."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            args, kwargs = tuple(map(_ordinary, args)), {name: _ordinary(v) for name, v in (kwargs or {}).items()}
        if function is functional.linear:
            return _linear(*args, **kwargs)
        if function is torch.addmm and len(args) == 3 and not kwargs and _is_bias(args[0], args[2]):
            return times(args[1], args[2].t(), args[0])
        return function(*args, **kwargs)


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """By the names that `functional.linear` has."""
    return times(input, weight, bias)


def _ordinary(value: Any) -> Any:
    if type(value) in (tuple, list, dict):
        return tree_map(_ordinary, value)
    return value.as_subclass(Tensor) if type(value) is Weight else value


def _is_bias(added: Any, weight: Tensor) -> bool:
    return isinstance(added, Tensor) and added.shape == weight.shape[1:]


def weight_of(layer: nn.Module, name: str, value: Tensor) -> Tensor:
    """What stands in the place of a parameter while the layer computes: it, or what asks for the faster product."""
    kind: Any = type(layer)
    if name != "weight" or not is_linear(kind) or value.numel() < _LEAST or not is_ordinary(value):
        return value
    return value.as_subclass(Weight)


@cache
def is_linear(kind: Any) -> bool:
    """Whether layers of exactly this class are torch's linear ones, or GPT-2's."""
    return kind is nn.Linear or f"{kind.__module__}.{kind.__qualname__}" == _CONV1D


class Lent:
    """Weights that ask for the faster product, in passes of layers that nobody else takes parameters from.

    `is_wanted` says whether a pass is one of them: of frozen layers, or of a module without privacy.
    """

    def __init__(self, module: nn.Module, is_wanted: Any = lambda layer: torch.is_grad_enabled()) -> None:
        self._is_wanted, self._own = is_wanted, dict[nn.Module, Any]()
        self._hooks: list[Any] = []
        for layer in module.modules():
            kind: Any = type(layer)
            if is_linear(kind):
                self._hooks += [
                    layer.register_forward_pre_hook(self._lend),
                    layer.register_forward_hook(self._take_back, always_call=True),
                ]

    def _lend(self, layer: nn.Module, _: Any) -> None:
        own = layer._parameters.get("weight")
        if own is not None and layer not in self._own and self._is_wanted(layer):
            lent: Any = weight_of(layer, "weight", own)
            if lent is not own:
                self._own[layer], layer._parameters["weight"] = own, lent

    def _take_back(self, layer: nn.Module, *_: Any) -> None:
        if (own := self._own.pop(layer, None)) is not None:
            layer._parameters["weight"] = own

    def remove(self) -> None:
        """Also what a pass has left behind that was interrupted, after which no hook is called."""
        for hook in self._hooks:
            hook.remove()
        for layer in tuple(self._own):
            self._take_back(layer)
