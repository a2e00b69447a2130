"""Copies of a parameter, one for each example, that let through only what keeps examples apart.

Dimension 0 of the copies is the example. An operation is let through if row i of its result comes from row i of what
it is given, whatever the numbers are: elementwise ones with tensors of as many dimensions, indices and reductions of
other dimensions, shapes that leave the first alone. Anything else (a mean over all, `p[0]`, `p[:T]` of a parameter
that had no first dimension for examples) is refused when it happens: wrong copies may have the right gradient on a
batch that was tried, such as none at all behind a layer that starts at zero.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

import torch
from torch import Tensor

from plrvo.training.structure import tensors_in
from plrvo.validate import InvalidArgument

_Tensor: Any = Tensor  # whose subclasses have no types
_ELEMENTWISE = {
    "abs", "add", "bfloat16", "clamp", "clone", "contiguous", "cos", "detach", "div", "double", "elu", "erf", "exp",
    "expm1", "float", "gelu", "half", "leaky_relu", "lerp", "log", "log1p", "maximum", "minimum", "mul", "multiply",
    "neg", "pow", "reciprocal", "relu", "rsqrt", "rsub", "sigmoid", "silu", "sin", "softplus", "sqrt", "square", "sub",
    "subtract", "tanh", "to", "true_divide", "truediv", "type_as", "where",
}  # fmt: skip
_ALONG = {"log_softmax", "softmax", "mean", "sum", "norm", "cumsum", "flip", "squeeze", "unsqueeze", "normalize"}
_JOINED = {"cat", "concat", "concatenate"}
_SIZES = {"expand", "repeat", "reshape", "view"}
_SIZES_ONLY = re.compile(r"(new_(empty|zeros|ones|full))|((empty|zeros|ones|full|rand|randn)_like)")


class Copies(_Tensor):
    """Made by `copies_of`; what comes of it is a plain tensor as soon as a batch has come in."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", str(func))
        name = f".{func.__self__.__name__}" if name == "__get__" else name  # of a property
        plain = re.sub(r"^__r?(?=add|sub|mul|truediv|pow|matmul)|__$|^__", "", name)
        with torch._C.DisableTorchFunctionSubclass():
            if plain in _SIZES:
                return _of_sizes(plain, *args, **kwargs)
            try:
                result = func(*args, **kwargs)
            except (RuntimeError, IndexError):  # shapes that do not fit: the parameter's own would have
                _refuse(name)
            if not isinstance(result, Tensor) and not tensors_in(result) and plain != "setitem":
                return result  # a shape, a device
            if _SIZES_ONLY.fullmatch(plain):
                return result.as_subclass(Tensor)
            if not isinstance(result, Tensor) or not _is_by_row(plain, args, kwargs, result):
                _refuse(name)
            inputs = tensors_in((args, kwargs))
            met = any(not isinstance(t, Copies) and t.ndim == result.ndim and len(t) == len(result) for t in inputs)
            return result.as_subclass(Tensor) if met else result.as_subclass(Copies)


def copies_of(values: Tensor) -> Any:
    """A row for each example."""
    return values.as_subclass(Copies)


def _is_by_row(name: str, args: Any, kwargs: Any, result: Tensor) -> bool:
    """Whether row i of the result is known to come from row i of everything that it is made of."""
    inputs = tensors_in((args, kwargs))
    rows = next(len(t) for t in inputs if isinstance(t, Copies))
    dimensions = next(t.ndim for t in inputs if isinstance(t, Copies))
    if result.ndim == 0 or len(result) != rows:
        return False
    if name in _ELEMENTWISE:
        aligned = all(t.ndim == result.ndim for t in inputs if isinstance(t, Copies))
        return aligned and all(t.ndim < result.ndim or len(t) in (1, rows) for t in inputs)
    if name == "getitem":
        return _leaves_the_first(args[1], dimensions)
    if name == "matmul":
        return all(t.ndim == result.ndim > 2 and len(t) == rows for t in inputs)
    if name in _JOINED:
        dimension = kwargs.get("dim", args[1] if len(args) > 1 else 0)
        return _is_inner(dimension, dimensions) and all(t.ndim == result.ndim and len(t) == rows for t in inputs)
    if name in _ALONG:
        dimension = kwargs.get("dim", args[1] if len(args) > 1 else None)
        within = dimensions + (name == "unsqueeze")
        chosen = dimension if isinstance(dimension, (tuple, list)) else (dimension,)
        return all(type(d) is int and _is_inner(d, within) for d in chosen)
    if name in ("transpose", "permute"):
        order = args[1] if len(args) == 2 else args[1:]
        order = [d % dimensions for d in order]
        return order[0] == 0 if name == "permute" else 0 not in order
    return False


def _is_inner(dimension: int, dimensions: int) -> bool:
    return dimension % dimensions != 0


def _leaves_the_first(index: Any, dimensions: int) -> bool:
    parts = index if isinstance(index, tuple) else (index,)
    if not all(part is None or part is Ellipsis or isinstance(part, (int, slice)) for part in parts):
        return False
    if parts and parts[0] is Ellipsis:
        return sum(part is not None for part in parts[1:]) < dimensions
    return bool(parts) and isinstance(parts[0], slice) and parts[0] == slice(None)


def _of_sizes(name: str, copies: Any, *sizes: Any, **kwargs: Any) -> Any:
    """Each copy in that shape: 1 in front, or as many as there are examples, means the examples."""
    given = tuple(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else sizes
    rows = len(copies)
    if kwargs or not given or not all(type(n) is int for n in given) or given[0] not in (1, -1, rows):
        _refuse(name)
    if name in ("expand", "repeat") and len(given) != copies.ndim:
        _refuse(name)
    if name in ("reshape", "view") and given[0] == -1 and rows != copies.numel():
        _refuse(name)
    first = 1 if name == "repeat" else rows
    return getattr(copies.as_subclass(Tensor), name)(first, *given[1:]).as_subclass(Copies)


def _refuse(name: str) -> NoReturn:
    raise InvalidArgument(
        "module",
        f"{name} of a parameter that is used directly",
        'operations that keep a dimension in front for the examples; grad_sample_mode="hooks" takes any',
    )
