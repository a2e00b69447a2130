"""Other examples in the place of a batch's: what a loss is carried out with once more (`replay`)."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

import torch
from torch import Tensor

from plrvo.training.alike import usual
from plrvo.training.layout import Layout


@dataclass(frozen=True)
class Others:
    """Copies of the row `source` in the place of all but `row`, in other sizes; `spikes`: of one number in each.

    Targets are copies of `of_targets`. With a `label`, that in the place of those of all others which are no less than
    zero. With `noise`, so much of it on the copies' outputs, relative to their size (`within` the range of all outputs,
    as probabilities need it); `holes`: targets that are missing.
    """

    row: int
    source: int
    of_targets: int | None = None
    of_others: float = 1.0
    of_row: float = 1.0
    spikes: bool = False
    label: int | None = None
    noise: float = 0.0
    within: bool = False
    holes: bool = False

    @property
    def targets(self) -> Others:
        """The same for targets, which keep their sizes."""
        source = self.source if self.of_targets is None else self.of_targets
        return Others(self.row, source, label=self.label, holes=self.holes)

    @property
    def outputs(self) -> Others:
        """The same for outputs: beside other labels, and beside missing ones, all are those of the row."""
        return Others(self.row, self.row) if self.label is not None or self.holes else self

    def placed_in(self, values: Tensor, layout: Layout, rows: int) -> Tensor:
        placed = layout.of(values, rows, [i if i == self.row else self.source for i in range(rows)])
        if self.label is not None and values.numel():
            others = (torch.arange(rows) != self.row)[:, None].expand(rows, placed.numel() // rows)
            return placed.masked_fill(layout.from_rows(others, placed).to(placed.device) & (placed >= 0), self.label)
        if not values.is_floating_point():
            return placed
        own = torch.arange(rows) == self.row
        if self.holes or self.noise:
            others = layout.from_rows((~own)[:, None].expand(rows, placed.numel() // rows), placed).to(placed.device)
            if self.holes:
                return placed.masked_fill(others, torch.nan)
            drawn = torch.randn(placed.shape, generator=own_generator()).to(placed)
            nearly = drawn.mul_(self.noise * usual(placed)).add_(placed)
            if self.within:
                nearly = nearly.clamp(*values.aminmax())
            return torch.where(others, nearly, placed, out=placed)
        if self.of_others == 1.0:
            return placed
        numbers = placed.numel() // rows
        if self.spikes and numbers:
            factors = torch.ones(rows, numbers)
            where = torch.randint(numbers, (rows,), generator=own_generator())
            factors[torch.arange(rows), where] = self.of_others
            factors[self.row] = self.of_row
        else:  # one number for each row, without memory for the rest
            factors = torch.where(own, self.of_row, self.of_others)[:, None].expand(rows, numbers)
        return placed.mul_(layout.from_rows(factors, placed).to(placed))


@dataclass(frozen=True)
class Turned:
    """All rows one place further."""

    @property
    def targets(self) -> Turned:
        return self

    @property
    def outputs(self) -> Turned:
        return self

    def placed_in(self, values: Tensor, layout: Layout, rows: int) -> Tensor:
        return layout.of(values, rows, [(i + 1) % rows for i in range(rows)])


def own_generator() -> torch.Generator:
    """Not the loop's, whose draws are its own."""
    return torch.Generator().manual_seed(secrets.randbits(60))
