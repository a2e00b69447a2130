"""Draws of noise into new arrays and into buffers, from whatever source of random bits the caller has.

All bits come from a `Keystream`. A NumPy or torch generator gives 256 bits as the key of one, so that there is one way
from bits to noise, and noise tells nothing about the generator's state (a Mersenne twister's could be computed from
enough of its output). What a seed gives does not depend on the number of threads. Its last bits depend on the processor
and, on some or for Gaussian doubles, on whether torch is loaded (`transcendental`).

Noise is drawn as singles or doubles. For narrower types, other devices and memory that is not in one row, a buffer is
copied to singles, of a tensor a block at a time; noise is added there, and the sum is rounded once; beyond the largest
number of a type it is that number (float16: 65504), never infinite.

Floating-point noise has the right tails (`exponentials`), and is idealised in its last bits (docs/sharp-edges).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Union

import numpy as np
from numpy.typing import NDArray

from plrvo.noise import spans
from plrvo.noise.ahead import Ahead, Kernels, is_worth_it
from plrvo.noise.keystream import Keystream
from plrvo.noise.stretches import stretch
from plrvo.validate import InvalidArgument

if TYPE_CHECKING:
    import torch

Shape = int | Sequence[int]
Generator = Union[np.random.Generator, Keystream, "torch.Generator"]  # a string has no | operator

_DIRECT = (np.float32, np.float64)  # what noise is drawn in


def loaded_torch() -> Any:
    """The torch that made the caller's generator or tensor; this package never imports it."""
    return sys.modules["torch"]


def namespace(values: Any) -> Any:
    """numpy, or torch where `values` is a tensor; torch is never imported for it."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(values, torch.Tensor) else np


def _is_torch(value: object, kind: str) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, getattr(torch, kind))


def _as_shape(shape: Shape) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


def keystream_of(generator: Any) -> Keystream:
    """The keystream itself, or one whose key a generator gives, which moves the generator on."""
    if isinstance(generator, Keystream):
        return generator
    if isinstance(generator, np.random.Generator):
        return Keystream(generator.bytes(32))
    if _is_torch(generator, "Generator"):
        words = loaded_torch().randint(0, 1 << 32, (8,), generator=generator, device=generator.device)
        return Keystream(words.cpu().numpy().astype("<u4").tobytes())
    expected = "a numpy.random.Generator, a torch.Generator or a plrvo.noise.Keystream"
    raise InvalidArgument("generator", generator, expected)


def sample(kernels: Kernels, shape: Shape, generator: Generator, dtype: Any) -> Any:
    """A fresh draw in a new array, or in a tensor if the generator or the type is torch's."""
    keystream = keystream_of(generator)
    if not _is_torch(generator, "Generator") and not (isinstance(generator, Keystream) and _is_torch(dtype, "dtype")):
        out = np.empty(_as_shape(shape), dtype=_numpy_dtype(dtype))
        spans.write([out.reshape(-1)], keystream, kernels(keystream), add=False)
        return out
    torch = loaded_torch()
    dtype = dtype or torch.get_default_dtype()
    if not _is_torch(dtype, "dtype") or not dtype.is_floating_point:
        raise InvalidArgument("dtype", dtype, "a floating-point type of torch")
    wide = torch.empty(_as_shape(shape), dtype=torch.float64 if dtype == torch.float64 else torch.float32)
    spans.write([wide.view(-1).numpy()], keystream, kernels(keystream), add=False)
    return _narrowed(wide, dtype).to(getattr(generator, "device", "cpu"))


def begin(kernels: Kernels, tensors: Sequence[Any], generator: Generator) -> Ahead | None:
    """A draw for tensors of these types and sizes, which `add` then takes; None if it is not worth it.

    From a keystream only: another generator may be asked for other things in between.
    """
    rows = [(t.numel(), _drawn_in(t)) for t in tensors]
    return Ahead(kernels, rows, generator) if isinstance(generator, Keystream) and is_worth_it(rows) else None


def _drawn_in(tensor: Any) -> np.dtype[Any]:
    """The type in which noise is drawn for a tensor."""
    return np.dtype(np.float64 if tensor.dtype == loaded_torch().float64 else np.float32)


def add(
    kernels: Kernels,
    buffers: Sequence[Any],
    generator: Generator,
    parts: Sequence[tuple[int, int]] | None = None,
    begun: Ahead | None = None,
) -> None:
    """Add one fresh draw to arrays or tensors in place, of any mixture of types and layouts.

    With `parts`, each buffer is a stretch of an array: where it starts there, and how long that array is. Processes
    with generators in one state, each of which has some stretches, then add one draw together. A draw that was begun
    for such buffers is the one that is added.
    """
    rows = [_row(buffer) for buffer in buffers]
    flats: list[spans.Row | spans.Part] = list(rows)
    if parts is not None:
        flats = [spans.Part(row, *where) for row, where in zip(rows, parts, strict=True)]
    keystream = keystream_of(generator)
    sizes = [(row.size, row.dtype) for row in rows]
    if begun is not None and parts is None and begun.claim(kernels, sizes, keystream):
        spans.write(flats, begun, begun.make, add=True)
    else:
        spans.write(flats, keystream, kernels(keystream), add=True)
    for buffer, row in zip(buffers, rows, strict=True):
        if isinstance(buffer, np.ndarray) and isinstance(row, np.ndarray) and not np.may_share_memory(buffer, row):
            largest = np.finfo(buffer.dtype).max
            buffer[...] = np.clip(row, -largest, largest).reshape(buffer.shape)


def _numpy_dtype(dtype: Any) -> Any:
    if _is_torch(dtype, "dtype"):
        raise InvalidArgument("dtype", dtype, "float32 or float64 of NumPy, for a NumPy generator")
    resolved = np.dtype(np.float64 if dtype is None else dtype)
    if resolved not in _DIRECT:
        raise InvalidArgument("dtype", dtype, "float32 or float64")
    return resolved


def _row(buffer: Any) -> spans.Row:
    """The numbers of a buffer as one row of singles or doubles; of an array perhaps a copy."""
    if _is_torch(buffer, "Tensor"):
        torch = loaded_torch()
        if not buffer.dtype.is_floating_point:
            raise InvalidArgument("buffer", buffer.dtype, "a tensor of floating-point numbers")
        tensor, direct = buffer.detach(), buffer.dtype in (torch.float32, torch.float64)
        if direct and tensor.device.type == "cpu" and tensor.is_contiguous():
            return tensor.view(-1).numpy()
        return _Elsewhere(tensor, 0, tensor.numel())
    if not isinstance(buffer, np.ndarray) or not np.issubdtype(buffer.dtype, np.floating):
        raise InvalidArgument("buffer", type(buffer).__name__, "an array or tensor of floating-point numbers")
    if buffer.dtype in _DIRECT and buffer.flags.c_contiguous:
        return buffer.reshape(-1)
    dtype = np.float32 if buffer.dtype.itemsize <= 4 else np.float64
    return np.array(buffer, dtype=dtype, order="C").reshape(-1)


class _Elsewhere:
    """Numbers of a tensor from `start` to `stop`, that NumPy cannot write to in one row: noise goes there by copies."""

    def __init__(self, tensor: Any, start: int, stop: int) -> None:
        self._tensor, self._start, self.size = tensor, start, stop - start
        self.dtype = _drawn_in(tensor)

    def __getitem__(self, part: slice) -> _Elsewhere:
        start, stop, _ = part.indices(self.size)
        return _Elsewhere(self._tensor, self._start + start, self._start + stop)

    def add(self, fresh: NDArray[Any]) -> None:
        """One copy of the block to singles and back, rounded once."""
        torch, done = loaded_torch(), 0
        for own in stretch(self._tensor, self._start, self._start + self.size):
            wide = own.to(device="cpu", dtype=getattr(torch, self.dtype.name), copy=True).contiguous()
            row = wide.view(-1).numpy()
            np.add(row, fresh[done : done + row.size], out=row, casting="same_kind")
            own.copy_(_narrowed(wide, own.dtype))
            done += row.size


def _narrowed(wide: Any, dtype: Any) -> Any:
    """Rounded to a type of torch, without overflow."""
    if wide.dtype == dtype:
        return wide
    largest = loaded_torch().finfo(dtype).max
    return wide.clamp_(-largest, largest).to(dtype)


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
