"""Sums of clipped gradients in cells: integers, added up tile by tile in the cache.

Per-example gradients are read twice and never copied as a whole: once for their norms, once to be rounded and summed.
A tile is a few examples times a few thousand coordinates; threads share the coordinates out among them. Within a tile
integers are held in doubles. This is exact, for these reasons:

- A coordinate is cut off at the first integer whose square alone is too long, at most 2^31 cells. So an example's
  integer depends on nothing but its gradient, its norm and the grid, and sums over the examples of a tile, at most
  2^15, stay below 2^53.
- Squares and their sums are rounded only from 2^53 on, in whatever order they are added, and what was rounded once is
  2^53 or more for good, since nothing negative is added. So a sum below 2^53 was not rounded, and any other one is
  computed once more, in 64-bit integers.

Whether an example is too long is known only at the end, when its integers are already in the sums. They are taken out
again: products and roundings of single numbers are determined by IEEE 754, so the same integers come a second time.

Norms are sums of squares in a fixed order, which depends on the shapes of the parameters and not on the other examples
or on the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from plrvo.noise.exponentials import available_threads

_SPAN = 1 << 17  # coordinates that a thread takes at a time
_MOST_EXAMPLES = 1 << 15  # in a tile
_EXACT = 2.0**53  # doubles below are not rounded, as long as they are integers
_HAIR = 1 - 2.0**-40  # gradients are clipped a hair below the clip, so that the norm's rounding errors do not decide

Part = TypeVar("Part")
Made = TypeVar("Made")


def add_rounded(
    samples: list[Tensor], sums: list[Tensor | None], clip: float, cell: float, longest: int
) -> list[Tensor]:
    """sums[i] + each example's clipped gradient in cells, in place; None stands for a sum of nothing so far.

    An example whose squared length in cells is more than `longest` (below 2^62), or that is not finite, adds nothing.
    `samples` have the example as their first dimension; sums are 64-bit integers.
    """
    totals = [_integers_like(g) if total is None else total for g, total in zip(samples, sums, strict=True)]
    spans = [
        span
        for g, total, before in zip(samples, totals, sums, strict=True)
        for span in _spans(g.detach(), total, before is None)
    ]
    squares = torch.zeros(len(samples[0]), dtype=torch.float64, device=samples[0].device)
    for part in in_threads(squared_norms, spans):
        squares += part
    factors = (clip / squares.sqrt()).clamp(max=1.0) * (_HAIR / cell)
    rounding = Rounding(factors, squares.isfinite(), longest)
    lengths = torch.zeros(squares.shape, dtype=torch.int64, device=squares.device)
    for part in in_threads(rounding.add, spans):
        lengths += part
        lengths.clamp_(max=longest + 1)  # neither this nor a part of it is more, and twice that fits 64 bits
    for example in (lengths > longest).nonzero().flatten().tolist():
        one = rounding.of(example)
        in_threads(one.take_out, [span.of(example) for span in spans])
    return totals


def to_floats(sums: Tensor, cell: float, like: Tensor) -> Tensor:
    """sums * cell in the shape and type of `like`; doubles are made a tile at a time."""
    out = torch.empty(like.shape, dtype=like.dtype, device=like.device)

    def convert(pair: tuple[Tensor, Tensor]) -> None:
        _, numbers = _tile(out.device)
        for cells, floats in zip(_pieces(pair[0], numbers), _pieces(pair[1], numbers), strict=True):
            floats.copy_(cells.double().mul_(cell))

    in_threads(convert, list(zip(_pieces(sums.view(-1), _SPAN), _pieces(out.view(-1), _SPAN), strict=True)))
    return out


def in_threads(work: Callable[[Part], Made], parts: Sequence[Part]) -> list[Made]:
    """The result for every part, in order, by as many threads as torch may use.

    A tile is too small for torch to share it among threads of its own.
    """
    threads = min(available_threads(), len(parts))
    if threads < 2:
        return [work(part) for part in parts]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, parts))


@dataclass(frozen=True)
class Span:
    """Neighbouring coordinates of one parameter: gradients[example, coordinate], and where their integers go."""

    gradients: Tensor
    sums: Tensor
    fresh: bool  # nothing was written to `sums` yet

    def of(self, example: int) -> Span:
        return Span(self.gradients[example : example + 1], self.sums, fresh=False)

    def bands(self) -> list[slice]:
        """The examples that are taken together."""
        examples, columns = self.gradients.shape
        width, numbers = _tile(self.gradients.device)
        return list(_slices(examples, min(numbers // min(columns, width), _MOST_EXAMPLES)))

    def tiles(self, band: slice) -> Iterator[tuple[Tensor, Tensor]]:
        """Gradients and sums of the tiles of a band; none is larger than the first."""
        width, _ = _tile(self.gradients.device)
        return zip(_pieces(self.gradients[band], width), _pieces(self.sums, width), strict=True)

    def buffers(self, band: slice) -> tuple[Tensor, Tensor]:
        """Doubles for one tile, and zeros for one: the sum of squares of tiles upon each other."""
        shape = band.stop - band.start, min(self.gradients.shape[1], _tile(self.gradients.device)[0])
        return self.gradients.new_empty(shape, dtype=torch.float64), self.gradients.new_zeros(
            shape, dtype=torch.float64
        )


def squared_norms(span: Span) -> Tensor:
    """The sum of squares of each example's coordinates, in doubles.

    Only single numbers are multiplied and added, in an order that is fixed here: no example's sum knows the others.
    """
    out = span.gradients.new_empty(len(span.gradients), dtype=torch.float64)
    for band in span.bands():
        buffer, gathered = span.buffers(band)
        for gradients, _ in span.tiles(band):
            x = _cut(buffer, gradients).copy_(gradients)
            _cut(gathered, gradients).add_(x.mul_(x))
        width = gathered.shape[1]
        while width > 1:  # the upper half onto the lower one
            half = (width + 1) // 2
            gathered[:, : width - half] += gathered[:, half:width]
            width = half
        out[band] = gathered[:, 0]
    return out


@dataclass(frozen=True)
class Rounding:
    """From gradients to cells: example i is multiplied by factors[i], and left out if not finite[i]."""

    factors: Tensor
    finite: Tensor
    longest: int

    def of(self, example: int) -> Rounding:
        one = slice(example, example + 1)
        return Rounding(self.factors[one], self.finite[one], self.longest)

    def add(self, span: Span) -> Tensor:
        """Add the integers of a span; returns the squared lengths, as integers, or longest + 1 where they are more."""
        if span.fresh:
            span.sums.zero_()
        roughly = torch.empty_like(self.factors)
        for band in span.bands():
            buffer, squares = span.buffers(band)
            for x, sums in self._cells(span, band, buffer):
                sums += x.sum(dim=0).to(torch.int64)
                _cut(squares, x).addcmul_(x, x)
            roughly[band] = squares.sum(dim=1)
        lengths = roughly.clamp(max=self.longest + 1).to(torch.int64)
        for example in (roughly >= _EXACT).nonzero().flatten().tolist():
            surely_more = float(roughly[example]) > 1.5 * self.longest  # rounding errors are below 2^-30 of it
            lengths[example] = self.longest + 1 if surely_more else self.of(example).length(span.of(example))
        return lengths

    def length(self, span: Span) -> int:
        """The squared length of one example in integers, of which it is known that they do not overflow."""
        buffer, _ = span.buffers(slice(0, 1))
        squares = (x.to(torch.int64).square() for x, _ in self._cells(span, slice(0, 1), buffer))
        return min(sum(int(square.sum()) for square in squares), self.longest + 1)

    def take_out(self, span: Span) -> None:
        """Subtract the integers of one example."""
        buffer, _ = span.buffers(slice(0, 1))
        for x, sums in self._cells(span, slice(0, 1), buffer):
            sums -= x[0].to(torch.int64)

    def _cells(self, span: Span, band: slice, buffer: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Integers, in doubles that are written over by those of the next tile, and where they are summed."""
        factors, left_out = self.factors[band, None], ~self.finite[band]
        all_in, most = not bool(left_out.any()), math.isqrt(self.longest) + 1
        for gradients, sums in span.tiles(band):
            x = _cut(buffer, gradients).copy_(gradients)
            x.mul_(factors).round_().clamp_(-most, most)
            if not all_in:
                x[left_out] = 0.0
            yield x, sums


def _integers_like(sample: Tensor) -> Tensor:
    return torch.empty(sample.shape[1:], dtype=torch.int64, device=sample.device)


def _spans(sample: Tensor, total: Tensor, fresh: bool) -> list[Span]:
    gradients, sums = sample.reshape(len(sample), total.numel()), total.view(-1)
    return [Span(gradients[:, part], sums[part], fresh) for part in _slices(sums.numel(), _SPAN)]


def _tile(device: torch.device) -> tuple[int, int]:
    """Most coordinates, and most numbers: doubles that fit the cache of a core, or are enough for another device."""
    return (1 << 12, 1 << 15) if device.type == "cpu" else (_SPAN, 1 << 22)


def _pieces(tensor: Any, width: int) -> tuple[Tensor, ...]:
    """Views of so many neighbouring coordinates each."""
    pieces: tuple[Tensor, ...] = tensor.split(width, dim=-1)  # has no types
    return pieces


def _slices(length: int, step: int) -> Iterator[slice]:
    return (slice(start, min(start + step, length)) for start in range(0, length, step))


def _cut(buffer: Tensor, tile: Tensor) -> Tensor:
    """The part of a buffer that is as wide as a tile."""
    return buffer if buffer.shape == tile.shape else buffer[:, : tile.shape[1]]
