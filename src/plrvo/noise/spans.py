"""Buffers cut into spans that have a stream of random words each, filled by as many threads as there are.

The result does not depend on how many. Each thread passes over its spans in blocks that stay in the cache, so that
nothing of the size of a buffer is allocated; blocks are as long as that allows, since between the passes threads of
Python wait for each other.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from plrvo.noise.keystream import Keystream, Words

BLOCK = 1 << 18  # values in one pass: below, threads wait for each other's turns in Python
SPAN = 1 << 18  # values of one stream at most: enough to make its set-up negligible; short arrays share one


class Source(Protocol):
    """Where words come from: a `Stream`, or something that a test has made up."""

    def words(self, count: int) -> Words: ...

    def fill(self, buffer: Words) -> None: ...


class Kernel(Protocol):
    """Makes noise of random words. It belongs to one thread, which it lets use its arrays again and again."""

    def draw(self, count: int, dtype: np.dtype[Any], source: Source) -> NDArray[Any]:
        """So many fresh values, singles or doubles, all finite; the array is the kernel's own, until the next draw."""


MakeKernel = Callable[[int], Kernel]  # from the largest count that will be asked of it


class Elsewhere(Protocol):
    """Numbers in one row that are no array: noise is given to them a block at a time."""

    size: int
    dtype: np.dtype[Any]  # that noise is drawn in

    def __getitem__(self, part: slice) -> Elsewhere: ...

    def add(self, fresh: NDArray[Any]) -> None: ...


Row = NDArray[Any] | Elsewhere


@dataclass(frozen=True)
class Part:
    """A stretch of a one-dimensional array of `size` numbers, from `start` on: what this process has of it."""

    own: Row
    start: int
    size: int

    def cut(self, start: int, stop: int) -> Part:
        """What it has of a piece of the array."""
        first, last = (min(max(end - self.start, 0), self.own.size) for end in (start, stop))
        return Part(self.own[first:last], max(self.start - start, 0), min(stop, self.size) - start)


def scratch(*sizes: int) -> list[Words]:
    """Rows of so many words, all from one piece of memory.

    An allocator keeps one piece for the next time that so much is asked for, and gives several back to the system:
    the pages of those would have to be cleared in every draw, which takes longer than the draw.
    """
    whole = np.empty(sum(sizes), np.uint64)
    return np.split(whole, np.cumsum(sizes)[:-1])


def write(flats: Sequence[Row | Part], keystream: Keystream, make: MakeKernel, *, add: bool) -> None:
    """Fill one-dimensional arrays of singles or doubles with noise, or add noise to them.

    A part gets the very numbers that the whole array would get there. Spans of which it has nothing are not drawn.
    """
    spans = _spans([flat if isinstance(flat, Part) else Part(flat, 0, flat.size) for flat in flats])
    streams = keystream.streams(len(spans))
    drawn = [number for number, span in enumerate(spans) if any(part.own.size for part in span)]
    sizes = [sum(part.size for part in spans[number]) for number in drawn]
    # What is copied to and fro stays in the caller's thread, with its device's stream and its mode of autograd.
    at_hand = all(isinstance(part.own, np.ndarray) for span in spans for part in span)
    threads = min(available_threads(), len(drawn)) if at_hand and sum(sizes) >= SPAN else 1

    def work(thread: int) -> None:
        kernel = make(min(BLOCK, max(sizes)))
        for number in drawn[thread::threads]:
            _write_span(spans[number], kernel, streams[number], add)

    if threads > 1:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, range(threads)))
    elif drawn:
        work(0)


def _spans(flats: Sequence[Part]) -> list[list[Part]]:
    """What is written from one stream: a part of a long array, or short arrays that are a block together."""
    spans: list[list[Part]] = []
    short: list[Part] = []
    room = 0
    for flat in flats:
        if flat.size > BLOCK:
            spans += [[flat.cut(start, start + SPAN)] for start in range(0, flat.size, SPAN)]
            continue
        if flat.size > room:
            short, room = [], BLOCK
            spans.append(short)
        short.append(flat)
        room -= flat.size
    return spans


def _write_span(span: list[Part], kernel: Kernel, source: Source, add: bool) -> None:
    if len(span) > 1:
        _write_parts(span, kernel, source, add)
        return
    for start in range(0, span[0].size, BLOCK):
        _write_parts([span[0].cut(start, start + BLOCK)], kernel, source, add)


def _write_parts(parts: list[Part], kernel: Kernel, source: Source, add: bool) -> None:
    """One block, drawn as doubles if any of it is."""
    drawn = kernel.draw(sum(part.size for part in parts), np.result_type(*{part.own.dtype for part in parts}), source)
    start = 0
    for part in parts:
        own, first = part.own, start + part.start
        fresh = drawn[first : first + own.size]
        if not isinstance(own, np.ndarray):
            own.add(fresh)
        elif add:
            np.add(own, fresh, out=own, casting="same_kind")
        else:
            np.copyto(own, fresh, casting="same_kind")
        start += part.size


def available_threads() -> int:
    """Torch's own number where torch is loaded, since its users set it; else the cores that this process may use."""
    torch = sys.modules.get("torch")
    if torch is not None:
        return int(torch.get_num_threads())
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
