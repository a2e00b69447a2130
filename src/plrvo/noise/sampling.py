"""Draws through the caller's generator, NumPy's or torch's; the kernel is in `exponentials`.

Both kinds of generator give the key of the same kernel, so that what a seed gives does not depend on the number of
threads or on whether torch is there. Floating-point noise is idealised: it is not safe against an attack on the last
bits (docs/sharp-edges).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Union

import numpy as np
from numpy.typing import NDArray

from plrvo.noise.exponentials import Map, write_signed
from plrvo.validate import InvalidArgument

if TYPE_CHECKING:
    import torch

Array = NDArray[np.float64]
Shape = int | Sequence[int]
Generator = Union[np.random.Generator, "torch.Generator"]  # a string has no | operator


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


def laplace_size(scale: float) -> Map:
    """E to scale * E."""

    def to_size(e: NDArray[Any]) -> None:
        e *= scale

    return to_size


def lomax_size(k: float, theta: float) -> Map:
    """E to expm1(E/k)/theta: Laplace noise whose inverse scale is Gamma(k, theta), drawn at once."""

    def to_size(e: NDArray[Any]) -> None:
        e *= 1 / k
        np.expm1(e, out=e)
        e *= 1 / theta

    return to_size


def uniforms(shape: Shape, generator: Generator) -> Array:
    """Doubles on [0, 1) as an ndarray, from either kind of generator."""
    if isinstance(generator, np.random.Generator):
        return generator.random(_as_shape(shape))
    source, torch = torch_generator(generator), loaded_torch()
    values = torch.rand(_as_shape(shape), generator=source, dtype=torch.float64, device=source.device)
    return np.asarray(values.cpu().numpy())


def _numpy_dtype(dtype: Any) -> Any:
    resolved = np.dtype(np.float64 if dtype is None else dtype)
    if resolved not in (np.float32, np.float64):
        raise InvalidArgument("dtype", dtype, "float32 or float64")
    return resolved


def signed(to_size: Map, shape: Shape, generator: Generator, dtype: Any) -> Any:
    """sign * to_size(E) in a new array, or in a tensor on the device of a torch generator."""
    if isinstance(generator, np.random.Generator):
        out = np.empty(_as_shape(shape), dtype=_numpy_dtype(dtype))
        write_signed([out.reshape(-1)], _key(generator), to_size, add=False)
        return out
    source, torch = torch_generator(generator), loaded_torch()
    dtype = dtype or torch.get_default_dtype()
    if not dtype.is_floating_point:
        raise InvalidArgument("dtype", dtype, "a floating-point type")
    known_to_numpy = dtype in (torch.float32, torch.float64)
    tensor = torch.empty(_as_shape(shape), dtype=dtype if known_to_numpy else torch.float32)
    write_signed([tensor.view(-1).numpy()], _key(generator), to_size, add=False)
    return tensor.to(dtype=dtype, device=source.device)


def add_signed(to_size: Map, buffers: Sequence[Any], generator: Generator) -> None:
    """Each buffer += sign * to_size(E), without second arrays of their size where they can be written to directly."""
    flats = [_flat_view(buffer) for buffer in buffers]
    direct = [flat for flat in flats if flat is not None]
    if direct:
        write_signed(direct, _key(generator), to_size, add=True)
    for buffer, flat in zip(buffers, flats, strict=True):
        if flat is None:
            buffer += signed(to_size, buffer.shape, generator, buffer.dtype).to(buffer.device)


def _flat_view(buffer: Any) -> NDArray[Any] | None:
    """The numbers of an array or tensor as one row that NumPy can write to; None where there is no such view."""
    if isinstance(buffer, np.ndarray):
        if not buffer.flags.c_contiguous:
            raise InvalidArgument("buffer", buffer.strides, "a contiguous array")
        return buffer.reshape(-1)
    torch = loaded_torch()
    on_cpu = buffer.device.type == "cpu" and buffer.is_contiguous()
    return buffer.detach().view(-1).numpy() if on_cpu and buffer.dtype in (torch.float32, torch.float64) else None


def flat_integers(buffer: Any) -> tuple[NDArray[np.int64], bool]:
    """The 64-bit integers of an array or tensor as one row, and whether writing to the row writes to the buffer."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(buffer, torch.Tensor):
        if buffer.dtype != torch.int64:
            raise InvalidArgument("dtype", buffer.dtype, "int64: noise on a grid is added to integers")
        in_place = buffer.device.type == "cpu" and buffer.is_contiguous()
        flat = buffer.detach() if in_place else buffer.detach().cpu().contiguous()
        return flat.view(-1).numpy(), in_place
    if not isinstance(buffer, np.ndarray) or buffer.dtype != np.int64 or not buffer.flags.c_contiguous:
        raise InvalidArgument("buffer", type(buffer).__name__, "a contiguous array or tensor of 64-bit integers")
    return buffer.reshape(-1), True


def _key(generator: Generator) -> tuple[int, ...]:
    """128 bits from the caller's generator: they decide the draw, and drawing them moves the generator on."""
    if isinstance(generator, np.random.Generator):
        return tuple(generator.integers(0, 1 << 32, size=4, dtype=np.uint64).tolist())
    source, torch = torch_generator(generator), loaded_torch()
    return tuple(torch.randint(0, 1 << 32, (4,), generator=source, device=source.device).tolist())
