"""Where the examples of a batch lie in a tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """The dimension of the rows; positions may share it, and then vary faster than rows (B * T) or slower (T * B)."""

    dimension: int
    rows_first: bool = True

    def fits(self, t: Tensor, rows: int) -> bool:
        size = t.shape[self.dimension] if t.ndim > self.dimension else 0
        return size > 0 and size % rows == 0

    def of(self, t: Tensor, rows: int, wanted: Sequence[int]) -> Tensor:
        """The entries of some rows, in their order; a row may come more than once."""
        picked, positions = torch.tensor(wanted), torch.arange(t.shape[self.dimension] // rows)
        step = (len(positions), 1) if self.rows_first else (1, rows)
        index = picked[:, None] * step[0] + positions * step[1]
        index = index if self.rows_first else index.t()
        return t.index_select(self.dimension, index.flatten().to(t.device))

    def by_row(self, t: Tensor, rows: int) -> Tensor:
        """As a matrix, a row for each example."""
        t = t.movedim(self.dimension, 0)
        if self.rows_first:
            return t.reshape(rows, -1)
        return t.reshape(-1, rows, *t.shape[1:]).transpose(0, 1).reshape(rows, -1)

    def from_rows(self, matrix: Tensor, like: Tensor) -> Tensor:
        """What `by_row` makes a matrix of, in the form of another tensor."""
        rows = len(matrix)
        moved = like.movedim(self.dimension, 0)
        if self.rows_first:
            return matrix.reshape(moved.shape).movedim(0, self.dimension)
        by_row = matrix.reshape(rows, -1, *moved.shape[1:]).transpose(0, 1)
        return by_row.reshape(moved.shape).movedim(0, self.dimension)


def layout_of(t: Tensor, found: Layout | None, rows: int, dimension: int) -> Layout | None:
    """That which was found for it, else rows in their own dimension; None where there are no such rows."""
    if found is not None and found.fits(t, rows):
        return found
    return Layout(dimension) if t.ndim > dimension and t.shape[dimension] == rows else None
