"""Buffers cut into spans that have a stream of random words each, filled by as many threads as there are.

The result does not depend on how many. Each thread passes over its spans in blocks that stay in the cache, so that
nothing of the size of a buffer is allocated; blocks are as long as that allows, since threads of Python take turns
between the passes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from plrvo.noise.keystream import Keystream, Words

BLOCK = 1 << 15  # values in one pass
SPAN = 1 << 17  # values of one stream at most: enough to make its set-up negligible


class Source(Protocol):
    """Where words come from: a `Stream`, or something that a test has made up."""

    def words(self, count: int) -> Words: ...

    def fill(self, buffer: Words) -> None: ...


class Kernel(Protocol):
    """Makes noise of random words. It belongs to one thread, which it lets use its arrays again and again."""

    def draw(self, count: int, dtype: np.dtype[Any], source: Source) -> NDArray[Any]:
        """So many fresh values, singles or doubles, all finite; the array is the kernel's own, until the next draw."""


MakeKernel = Callable[[int], Kernel]  # from the largest count that will be asked of it


def write(flats: Sequence[NDArray[Any]], keystream: Keystream, make: MakeKernel, *, add: bool) -> None:
    """Fill one-dimensional arrays of singles or doubles with noise, or add noise to them."""
    spans = [flat[start : start + SPAN] for flat in flats for start in range(0, flat.size, SPAN)]
    if not spans:
        return
    streams = keystream.streams(len(spans))
    most = min(BLOCK, max(span.size for span in spans))
    small = sum(span.size for span in spans) < SPAN
    threads = 1 if small else min(available_threads(), len(spans))

    def work(thread: int) -> None:
        kernel = make(most)
        with np.errstate(over="ignore"):  # what overflows is cut to the largest number by the kernel
            for number in range(thread, len(spans), threads):
                _write_span(spans[number], kernel, streams[number], add)

    if threads == 1:
        work(0)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, range(threads)))


def _write_span(span: NDArray[Any], kernel: Kernel, source: Source, add: bool) -> None:
    for start in range(0, span.size, BLOCK):
        part = span[start : start + BLOCK]
        drawn = kernel.draw(part.size, part.dtype, source)
        if add:
            part += drawn
        else:
            part[:] = drawn


def available_threads() -> int:
    """Torch's own number where torch is loaded, since its users set it; else the cores that this process may use."""
    torch = sys.modules.get("torch")
    if torch is not None:
        return int(torch.get_num_threads())
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
