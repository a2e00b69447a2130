"""Signed exponentials, written or added straight into a buffer: the kernel under Laplace and Gamma-PLRV noise.

With E a unit exponential and a fair sign, Laplace noise is sign * scale * E, Gamma-PLRV noise sign * expm1(E/k)/theta.
The kernel draws E (NumPy's ziggurat, in double precision: a single's 24 bits would cut the tail at 24 scales), maps
it, and writes the result, one block at a time, so that every intermediate stays in the cache and nothing of the size
of the buffer is allocated.

Spans of the buffers have independent streams, keyed by what the caller's generator gives and by the span's number.
They are filled by as many threads as there are; the result does not depend on how many.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

Map = Callable[[NDArray[Any]], None]  # unit exponentials to sizes of noise, in place

_BLOCK = 1 << 15  # values that stay in the cache of a core while the steps pass over them
_SPAN = 1 << 17  # values of one stream at most: enough to make its seeding negligible


def write_signed(flats: Sequence[NDArray[Any]], key: tuple[int, ...], to_size: Map, *, add: bool) -> None:
    """Fill one-dimensional arrays with sign * to_size(E), or add that to them."""
    spans = [flat[start : start + _SPAN] for flat in flats for start in range(0, flat.size, _SPAN)]

    def write(number: int) -> None:
        _write_span(spans[number], key, number, to_size, add)

    threads = min(available_threads(), len(spans))
    if threads < 2 or sum(span.size for span in spans) < _SPAN:
        for number in range(len(spans)):
            write(number)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(write, range(len(spans))))


def _write_span(span: NDArray[Any], key: tuple[int, ...], number: int, to_size: Map, add: bool) -> None:
    rng = np.random.Generator(np.random.SFC64(np.random.SeedSequence(key, spawn_key=(number,))))
    count = min(_BLOCK, span.size)
    exponentials, sizes = np.empty(count), np.empty(count, span.dtype)
    for start in range(0, span.size, _BLOCK):
        part = span[start : start + _BLOCK]
        e, z = exponentials[: part.size], sizes[: part.size]
        rng.standard_exponential(out=e)
        np.copyto(z, e, casting="same_kind")
        to_size(z)
        _give_signs(z, rng)
        if add:
            part += z
        else:
            part[:] = z


def _give_signs(values: NDArray[Any], rng: np.random.Generator) -> None:
    """Flip the sign bit of each value with probability one half: a random word serves 32 values.

    The same words for singles and doubles, so that a single is the rounding of the double of the same seed.
    """
    words = rng.integers(0, 1 << 32, size=-(-values.size // 32), dtype=np.uint32)
    flips = words << np.arange(32, dtype=np.uint32)[:, None]  # each bit of a word reaches the top in one of the rows
    flips &= np.uint32(1 << 31)
    top: NDArray[Any] = flips.reshape(-1)[: values.size]
    if values.itemsize == 8:
        top = top.astype(np.uint64) << np.uint64(32)
    unsigned = values.view(top.dtype)
    unsigned ^= top


def available_threads() -> int:
    """Torch's own number where torch is loaded, since its users set it; else the cores that this process may use."""
    torch = sys.modules.get("torch")
    if torch is not None:
        return int(torch.get_num_threads())
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
