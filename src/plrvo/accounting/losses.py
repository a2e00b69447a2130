"""The loss of one step on a grid, and how outcomes are spread onto the grid.

Each outcome is spread onto the two neighbouring points so that its mass under both hypotheses is kept, which makes the
pair easier to tell apart ("connect the dots", Doroshenko et al. 2022). Losses far from 0 are rare in a step, and lie on
a coarser part of the grid, in cells of up to a 512th of themselves: that adds a millionth of their squares to the
variance. Where there are few steps cells are narrower.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from plrvo.accounting.law import Law
from plrvo.noise.base import Array

_DIGITS = (1 << 9, 1 << 12)  # far from 0 losses of many steps, or of one, are so many times as large as their cells


@dataclass(frozen=True)
class Loss:
    """Masses at losses places * interval of one step, under the first hypothesis, and what is charged besides."""

    interval: float
    places: NDArray[np.int64]
    mass: Array
    error: float  # the largest, of a loss
    mass_error: float  # relative, of a mass
    lost: float  # mass of what is left out

    @cached_property
    def losses(self) -> Array:
        return np.asarray(self.interval * self.places, dtype=float)

    @cached_property
    def law(self) -> Law:
        return Law(self.losses, self.mass)


class Step(Protocol):
    """A kind of step, taken so many times."""

    def __hash__(self) -> int: ...

    @property
    def count(self) -> int: ...

    @property
    def moderate(self) -> bool:
        """Whether its losses fit into memory."""

    def loss(self, interval: float, log_cut: float, added: bool) -> Loss:
        """The law of its loss where an example is removed, or added; tails of a mass e^log_cut may be left out."""


def places_between(low: float, high: float, interval: float, count: int) -> Array:
    """Multiples of the interval from below `low` to above `high`, for so many steps: all near 0, fewer further out."""
    digits = max(_DIGITS[0], _DIGITS[1] >> (count.bit_length() // 2))
    far = max(abs(low), abs(high)) / interval + 2
    sizes = np.arange(float(2 * digits))
    for level in range(1, 1 + max(0, math.ceil(math.log2(far / digits)))):
        sizes = np.append(sizes, np.arange(digits, 2.0 * digits) * 2.0**level)
    places = np.concatenate([-sizes[:0:-1], sizes])
    first = np.searchsorted(places, math.floor(low / interval), "right") - 1
    last = np.searchsorted(places, math.ceil(high / interval))
    return places[first : max(first + 1, last) + 1]  # two at least, where every loss rounds to 0


def spread(losses: Array, mass: Array, interval: float, count: int) -> tuple[NDArray[np.int64], Array]:
    """Places on the grid for so many steps, and their masses."""
    places = places_between(float(losses.min()), float(losses.max()), interval, count)
    cell = np.clip(np.searchsorted(interval * places, losses, "right") - 1, 0, len(places) - 2)
    below, gap = interval * places[cell], interval * (places[cell + 1] - places[cell])
    upper = mass * np.clip(np.expm1(below - losses) / np.expm1(-gap), 0.0, 1.0)
    masses = np.bincount(cell, mass - upper, len(places)) + np.bincount(cell + 1, upper, len(places))
    filled = masses > 0
    return places[filled].astype(np.int64), masses[filled].astype(float)
