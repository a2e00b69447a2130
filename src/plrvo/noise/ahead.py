"""The beginning of a draw, made by a thread of its own before the sums that it is for are there.

A private step adds its noise when all else is done, and while gradients are clipped and summed a core may have nothing
to do: where torch was given fewer threads than this process has cores. Where it uses all of them, a thread more is in
its way (measured: an eighth slower, on two cores), and nothing is begun.

The numbers are those that the draw would have made without it: of the streams that come next, of which each span is
drawn as `spans` would draw it. They become the draw's when the noise is added, if the keystream still stands where it
stood: by the noise and in the process that began it, for buffers of the sizes and types that it was begun for. Else
(another draw came first, a checkpoint was read, a schedule has changed the noise) what was begun is dropped, nobody has
seen it, and its streams are drawn from again. So nothing is used twice, and what a seed gives does not depend on cores.

All memory is asked for by the caller's thread: what a thread of its own frees, the C library keeps for that thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plrvo.noise.keystream import Keystream, this_process
from plrvo.noise.spans import Kernel, MakeKernel, Source, as_parts, available_threads, cut, drawn_as

MOST = 1 << 21  # numbers that wait in memory, 8 megabytes of singles
FEWEST = 1 << 15  # below, handing over takes as long as drawing

Rows = Sequence[tuple[int, np.dtype[Any]]]  # sizes and types of buffers
Kernels = Callable[[Keystream], MakeKernel]  # a shared scale is drawn from the keystream here, for all buffers

_WORKERS: dict[tuple[int, int], ThreadPoolExecutor] = {}  # of this process


class Ahead:
    """One draw for buffers of these sizes and types, of which another thread draws the first spans."""

    def __init__(self, kernels: Kernels, rows: Rows, keystream: Keystream) -> None:
        self._of, self._process = (kernels, list(rows)), this_process()
        self._keystream = keystream.beforehand()
        self._first = self._keystream.position
        self.make = kernels(self._keystream)
        # A row of one number, repeated without memory, stands for a buffer.
        spans = cut(as_parts([np.broadcast_to(dtype.type(0), size) for size, dtype in rows]))
        self.streams: Sequence[Source] = self._keystream.streams(len(spans))
        self._drawn: dict[int, Future[NDArray[Any]]] = {}
        asked = [drawn_as(span) for span in spans]
        until = accumulate(size for size, _ in asked)
        self._begin([one for one, total in zip(asked, until, strict=True) if total <= MOST])

    def _begin(self, asked: list[tuple[int, np.dtype[Any]]]) -> None:
        if not asked:
            return
        kernel = self.make(max(size for size, _ in asked))
        for number, (size, dtype) in enumerate(asked):
            try:
                self._drawn[number] = _worker().submit(self._draw, number, kernel, np.empty(size, dtype))
            except RuntimeError:  # no thread to be had, as when Python ends: the caller draws
                return

    def _draw(self, number: int, kernel: Kernel, out: NDArray[Any]) -> NDArray[Any]:
        """In the worker, which has one kernel for all: what that gives is its own until the next draw."""
        np.copyto(out, kernel.draw(out.size, out.dtype, self.streams[number]))
        return out

    def claim(self, kernels: Kernels, rows: Rows, keystream: Keystream) -> bool:
        """Whether it is this very draw, which nobody else gets from here on."""
        is_its_own = self._of == (kernels, list(rows)) and self._process == this_process()
        return is_its_own and keystream.claim(self._first, self._keystream)

    def take(self, number: int) -> NDArray[Any] | None:
        """The numbers of a span, as soon as they are there; None if the caller has to draw them."""
        found = self._drawn.pop(number, None)
        return None if found is None or found.cancel() else found.result()


def is_worth_it(rows: Rows) -> bool:
    """Whether there is a core that torch does not use, and something for it to draw."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores > available_threads() and sum(size for size, _ in rows) >= FEWEST


def _worker() -> ThreadPoolExecutor:
    process = this_process()
    if process not in _WORKERS:
        _WORKERS.clear()  # a parent's, whose threads are not here
        _WORKERS[process] = ThreadPoolExecutor(1, thread_name_prefix="plrvo-noise")
    return _WORKERS[process]
