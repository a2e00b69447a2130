"""Products of matrices, by whichever of torch's two libraries is faster.

Products of singles on the CPU go to MKL, convolutions and recurrent layers to oneDNN. On processors that are not
Intel's MKL leaves half of the vector unit alone, so that sums of clipped gradients would take twice as long as the
weights' gradients of the same layer without privacy. oneDNN's product takes some ten microseconds to begin with, and a
few hundred for shapes that are new to it, as those of a batch of another size are: it is for large ones. Both round
each product and each addition at most once, in singles, in an order of their own, which is all that bounds on rounding
take for granted. Which of the two is taken depends on shapes, and never on how long something took.
"""

from __future__ import annotations

import math
import os
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

# Products of two numbers, from which on oneDNN is faster: once, often, and often with a copy of the result.
_LARGE, _LARGE_OFTEN, _LARGE_FOR_EACH = 1 << 24, 1 << 21, 1 << 22
_THIN = 4  # rows or columns, up to which it is not
_TENSORS = (Tensor, nn.Parameter)
_FEWER_BITS = ("ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE")


def product(one: Tensor, other: Tensor, *, least: int = _LARGE) -> Tensor:
    """one @ other, of two matrices, whichever way they lie in memory."""
    return linear(one, other.t(), least=least)


def often(one: Tensor, other: Tensor) -> Tensor:
    """The same for products of one shape that are many."""
    return product(one, other, least=_LARGE_OFTEN)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, least: int = _LARGE) -> Tensor:
    """x @ weight' + bias, as `functional.linear`; x may have further dimensions in front."""
    if _is_gone_back_from(x, weight) or not is_for_the_other(x, weight, bias, least=least):
        return functional.linear(x, weight, bias)
    kernel: Any = torch.ops.mkldnn._linear_pointwise
    found: Tensor = kernel(_in_order(x), _in_order(weight), bias, "none", [], "")
    return found


def each_product(one: Tensor, other: Tensor) -> Tensor:
    """one[b] @ other[b] for each b."""
    sides = (one.shape[1], other.shape[2])
    if _is_gone_back_from(one, other) or not _suits(one, other, sides, _LARGE_FOR_EACH):
        return one @ other
    found = one.new_empty(len(one), one.shape[1], other.shape[2])
    for b in range(len(one)):
        found[b] = often(one[b], other[b])
    return found


def _in_order(values: Tensor) -> Tensor:
    """Rows or columns one after the other: with gaps between them, oneDNN takes a hundred times as long."""
    if values.is_contiguous() or (values.ndim == 2 and values.t().is_contiguous()):
        return values
    return values.contiguous()


def _is_gone_back_from(one: Tensor, other: Tensor) -> bool:
    """oneDNN's product has no way back."""
    return torch.is_grad_enabled() and (one.requires_grad or other.requires_grad)


def is_for_the_other(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, least: int = _LARGE) -> bool:
    """Whether oneDNN can multiply x @ weight' (and add a bias), and is faster; it takes memory as it lies."""
    if x.ndim < 2 or weight.ndim != 2 or x.shape[-1] != weight.shape[1]:
        return False
    if bias is not None and not (is_ordinary(bias) and bias.shape == weight.shape[:1] and bias.is_contiguous()):
        return False
    return _suits(x, weight, (x.numel() // max(1, x.shape[-1]), weight.shape[0]), least)


def _suits(x: Tensor, weight: Tensor, sides: tuple[int, int], least: int) -> bool:
    """`sides` are those of the result."""
    return (
        math.prod(sides) * x.shape[-1] >= least
        and min(sides) > _THIN
        and is_ordinary(x)
        and is_ordinary(weight)
        and _has_kernel()
    )


def is_ordinary(values: Tensor) -> bool:
    """Whether it is a dense tensor of singles on the processor and nothing besides.

    Not one of a subclass, which may refuse to be asked, nor what a transform has made of one (`vmap`, old or new), nor
    one whose numbers are negated when they are read, nor of an inference mode: torch tells them by their keys.
    """
    return (
        type(values) in _TENSORS
        and values.dtype == torch.float32
        and torch._C._dispatch_keys(values).raw_repr() == _keys_of_ordinary()
        and values.layout == torch.strided
    )


@cache
def _keys_of_ordinary() -> int:
    with torch.inference_mode(False):
        return int(torch._C._dispatch_keys(torch.empty(0)).raw_repr())


def _has_kernel() -> bool:
    """Of a build with both libraries; not where a setting of the process lets oneDNN compute in fewer bits."""
    return (
        torch._C.has_mkl
        and torch._C._has_mkldnn
        and torch._C._get_mkldnn_enabled()
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and all(os.environ.get(name, "STRICT").upper() == "STRICT" for name in _FEWER_BITS)
    )
