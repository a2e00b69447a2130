"""Buffers cut into spans that have a stream of random words each, filled by as many threads as there are.

The result does not depend on how many. Spans stay in the cache of the thread that passes over them, so that nothing of
the size of a buffer is allocated; they are as long as that allows, since between the passes threads of Python wait for
each other.
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

SPAN = 1 << 18  # values of one stream at most: below, threads wait for each other's turns; short arrays share one


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


class Begun(Protocol):
    """A draw for just these rows that has begun already (`ahead`): its streams, and spans that are drawn."""

    streams: Sequence[Source]

    def take(self, number: int) -> NDArray[Any] | None: ...


def write(flats: Sequence[Row | Part], source: Keystream | Begun, make: MakeKernel, *, add: bool) -> None:
    """Fill one-dimensional arrays of singles or doubles with noise, or add noise to them.

    A part gets the very numbers that the whole array would get there. Spans of which it has nothing are not drawn.
    """
    spans = cut(as_parts(flats))
    begun = None if isinstance(source, Keystream) else source
    streams: Sequence[Source] = source.streams(len(spans)) if isinstance(source, Keystream) else source.streams
    drawn = [number for number, span in enumerate(spans) if any(part.own.size for part in span)]
    sizes = [drawn_as(spans[number])[0] for number in drawn]
    # What is copied to and fro stays in the caller's thread, with its device's stream and its mode of autograd.
    at_hand = all(isinstance(part.own, np.ndarray) for span in spans for part in span)
    threads = min(available_threads(), len(drawn)) if at_hand and sum(sizes) >= SPAN else 1

    def work(thread: int) -> None:
        kernel: Kernel | None = None
        for number in drawn[thread::threads]:
            fresh = None if begun is None else begun.take(number)
            if fresh is None:
                kernel = kernel or make(max(sizes))
                fresh = kernel.draw(*drawn_as(spans[number]), streams[number])
            _write_span(spans[number], fresh, add)

    if threads > 1:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, range(threads)))
    elif drawn:
        work(0)


def as_parts(flats: Sequence[Row | Part]) -> list[Part]:
    """Whole rows as parts of themselves."""
    return [flat if isinstance(flat, Part) else Part(flat, 0, flat.size) for flat in flats]


def drawn_as(span: list[Part]) -> tuple[int, np.dtype[Any]]:
    """How many numbers, and of which type: doubles if any of them is."""
    return sum(part.size for part in span), np.result_type(*{part.own.dtype for part in span})


def cut(flats: Sequence[Part]) -> list[list[Part]]:
    """What is written from one stream: a part of a long array, or short arrays that are a block together."""
    spans: list[list[Part]] = []
    short: list[Part] = []
    room = 0
    for flat in flats:
        if flat.size > SPAN:
            spans += [[flat.cut(start, start + SPAN)] for start in range(0, flat.size, SPAN)]
            continue
        if flat.size > room:
            short, room = [], SPAN
            spans.append(short)
        short.append(flat)
        room -= flat.size
    return spans


def _write_span(span: list[Part], drawn: NDArray[Any], add: bool) -> None:
    start = 0
    for part in span:
        own, first = part.own, start + part.start
        fresh = drawn[first : first + own.size]
        if fresh.dtype != own.dtype:  # no single is beyond its range, as where none shares a block with doubles
            largest = np.finfo(own.dtype).max
            fresh = np.clip(fresh, -largest, largest)
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
