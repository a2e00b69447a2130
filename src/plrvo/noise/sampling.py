"""Draws through the caller's generator, NumPy's or torch's, one uniform per coordinate.

V uniform on [0, 1) and a fair sign give Laplace noise as -log1p(-V) and Gamma-PLRV noise as expm1(-log1p(-V)/k)/theta.
Both come from one uniform W on [-1, 1): its sign, and V = |W|. Uniforms are drawn in double precision whatever type is
asked for, since the 24 bits of a single would cut the tail at 16 scales. Floating-point noise is idealised: it is not
safe against an attack on the last bits (docs/sharp-edges).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Union

import numpy as np
from numpy.typing import NDArray

from plrvo.validate import InvalidArgument

if TYPE_CHECKING:
    import torch

Array = NDArray[np.float64]
Shape = int | Sequence[int]
Generator = Union[np.random.Generator, "torch.Generator"]  # a string has no | operator

_BLOCK = 1 << 16  # doubles that stay in cache while the in-place steps pass over them
_ALMOST_ONE = 1 - 2.0**-53


def loaded_torch() -> Any:
    """The torch that made the caller's generator or tensor; this package never imports it."""
    return sys.modules["torch"]


def namespace(values: Any) -> Any:
    """numpy, or torch where `values` is a tensor; torch is never imported for it."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(values, torch.Tensor) else np


def torch_generator(generator: object) -> Any:
    """The generator, known to be torch's; a NumPy one is the only other that is accepted."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(generator, torch.Generator):
        return generator
    raise InvalidArgument("generator", generator, "a numpy.random.Generator or a torch.Generator")


def _as_shape(shape: Shape) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def normal(shape: Shape, generator: Generator, dtype: Any) -> Any:
    """Standard normal values."""
    if isinstance(generator, np.random.Generator):
        return generator.standard_normal(_as_shape(shape), dtype=_numpy_dtype(dtype))
    source, torch = torch_generator(generator), loaded_torch()
    dtype = dtype or torch.get_default_dtype()
    return torch.randn(_as_shape(shape), generator=source, dtype=dtype, device=source.device)


def laplace(scale: float, shape: Shape, generator: Generator, dtype: Any) -> Any:
    """scale * sign * -log1p(-V)."""
    return _by_inversion(lambda magnitude: _times(magnitude, scale), shape, generator, dtype)


def lomax(k: float, theta: float, shape: Shape, generator: Generator, dtype: Any) -> Any:
    """sign * expm1(-log1p(-V)/k)/theta: Laplace noise whose inverse scale is Gamma(k, theta), drawn at once."""

    def magnitude(exponential: Any) -> Any:
        _times(exponential, 1 / k)
        np.expm1(exponential, out=exponential) if isinstance(exponential, np.ndarray) else exponential.expm1_()
        return _times(exponential, 1 / theta)

    return _by_inversion(magnitude, shape, generator, dtype)


def uniforms(shape: Shape, generator: Generator) -> Array:
    """Doubles on [0, 1) as an ndarray, from either kind of generator."""
    if isinstance(generator, np.random.Generator):
        return generator.random(_as_shape(shape))
    source, torch = torch_generator(generator), loaded_torch()
    values = torch.rand(_as_shape(shape), generator=source, dtype=torch.float64, device=source.device)
    return np.asarray(values.cpu().numpy())


def _times(values: Any, factor: float) -> Any:
    values *= factor
    return values


def _numpy_dtype(dtype: Any) -> Any:
    resolved = np.dtype(np.float64 if dtype is None else dtype)
    if resolved not in (np.float32, np.float64):
        raise InvalidArgument("dtype", dtype, "float32 or float64")
    return resolved


def _by_inversion(to_magnitude: Any, shape: Shape, generator: Generator, dtype: Any) -> Any:
    """Fill an array block by block; `to_magnitude` maps a unit exponential in place to |z|."""
    shape = _as_shape(shape)
    if isinstance(generator, np.random.Generator):
        out = np.empty(shape, dtype=_numpy_dtype(dtype))
        flat = out.reshape(-1)
        for start in range(0, flat.size, _BLOCK):
            w = generator.random(min(_BLOCK, flat.size - start))
            w *= 2
            w -= 1
            e = np.abs(w)
            np.minimum(e, _ALMOST_ONE, out=e)
            np.negative(e, out=e)
            np.log1p(e, out=e)
            np.negative(e, out=e)
            flat[start : start + _BLOCK] = np.copysign(to_magnitude(e), w)
        return out
    source, torch = torch_generator(generator), loaded_torch()
    out_t = torch.empty(shape, dtype=dtype or torch.get_default_dtype(), device=source.device)
    if not out_t.is_floating_point():
        raise InvalidArgument("dtype", dtype, "a floating-point type")
    flat_t = out_t.view(-1)
    buffer = torch.empty(min(_BLOCK, flat_t.numel()), dtype=torch.float64, device=out_t.device)
    for start in range(0, flat_t.numel(), _BLOCK):
        w_t = buffer[: min(_BLOCK, flat_t.numel() - start)]
        w_t.uniform_(-1, 1, generator=source)
        e_t = w_t.abs().clamp_(max=_ALMOST_ONE).neg_().log1p_().neg_()
        flat_t[start : start + _BLOCK] = torch.copysign(to_magnitude(e_t), w_t)
    return out_t
