"""A tensor a stretch at a time, whatever its layout in memory: nothing of its own size is copied.

How a tensor is cut depends on its shape alone, so that two of one shape are cut alike. No torch is imported for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

PIECE = 1 << 18  # numbers that may be copied at a time


def stretch(tensor: Any, start: int, stop: int) -> Iterator[Any]:
    """Views that hold, one after the other, the numbers from `start` to `stop` of the tensor, counted row by row."""
    if start >= stop:
        return
    if tensor.ndim < 2:
        yield tensor.reshape(-1)[start:stop]
        return
    row = tensor[0].numel()
    first, last = -(-start // row), stop // row  # whole rows
    if first > last:
        yield from stretch(tensor[last], start - last * row, stop - last * row)
        return
    if start < first * row:
        yield from stretch(tensor[first - 1], start - (first - 1) * row, row)
    if first < last:
        yield tensor[first:last]
    if last * row < stop:
        yield from stretch(tensor[last], 0, stop - last * row)


def pieces(tensor: Any, most: int = PIECE) -> Iterator[Any]:
    """Views of all numbers of a tensor, of at most `most` each; the tensor itself where it is no longer."""
    if tensor.numel() <= most:
        yield tensor
        return
    for start in range(0, tensor.numel(), most):
        yield from stretch(tensor, start, min(start + most, tensor.numel()))
