"""The gradient that an audit plants: what the sum of a step moves by when the example is in the batch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from plrvo import validate
from plrvo.accounting import Workload
from plrvo.audit.arrays import read_arrays
from plrvo.validate import InvalidArgument

MAX_SPREAD = 1 << 20  # spreading to shifts below a thousandth of the clip gains nothing that could be measured
_MAX_MAGNITUDES = 512


@dataclass(frozen=True)
class Canary:
    """A gradient up to the order and the signs of its coordinates, which symmetric independent noise does not see.

    `counts[j]` coordinates have absolute value `magnitudes[j]`; all others are zero.
    """

    magnitudes: tuple[float, ...]
    counts: tuple[int, ...]

    @property
    def coordinates(self) -> int:
        return sum(self.counts)

    @property
    def norm(self) -> float:
        return math.sqrt(sum(count * x**2 for x, count in zip(self.magnitudes, self.counts, strict=True)))

    @staticmethod
    def spread(work: Workload, coordinates: int | None = None) -> Canary:
        """Norm C in equal parts over so many coordinates; over all of them (at most 2^20) unless told otherwise.

        >>> Canary.spread(Workload(sample_rate=0.01, steps=300, clip=1.0, dimension=26_010)).coordinates
        26010
        """
        if coordinates is None:
            coordinates = min(work.dimension, MAX_SPREAD)
        validate.positive_integer(coordinates=coordinates)
        if coordinates > work.dimension:
            raise InvalidArgument("coordinates", coordinates, f"at most the dimension, {work.dimension}")
        if coordinates > MAX_SPREAD:
            raise InvalidArgument("coordinates", coordinates, f"at most {MAX_SPREAD}: more gains nothing")
        return Canary((work.clip / math.sqrt(coordinates),), (coordinates,))

    @staticmethod
    def one_hot(work: Workload) -> Canary:
        """Norm C in one coordinate."""
        return Canary.spread(work, 1)

    @staticmethod
    def from_array(gradient: ArrayLike, work: Workload) -> Canary:
        """A given gradient, refused beyond the clip.

        Magnitudes are rounded down to at most 512 different ones, two percent apart, and those below a ten-thousandth
        of the largest left out: a slightly smaller canary, which is a canary too.
        """
        values = np.abs(np.asarray(gradient, dtype=float)).ravel()
        if not len(values) or len(values) > work.dimension or not np.all(np.isfinite(values)) or not np.any(values):
            raise InvalidArgument(
                "canary", f"{len(values)} values", f"1 to {work.dimension} finite numbers, not all of them zero"
            )
        norm = float(np.linalg.norm(values))
        if norm > work.clip * (1 + 1e-9):
            raise InvalidArgument("canary", f"a gradient of norm {norm:.6g}", f"norm at most the clip, {work.clip:g}")
        magnitudes, counts = np.unique(values[values > 0], return_counts=True)
        if len(magnitudes) > _MAX_MAGNITUDES:
            grid = magnitudes[-1] * np.geomspace(1e-4, 1, _MAX_MAGNITUDES)
            cell = np.searchsorted(grid, magnitudes, side="right") - 1
            counts = np.bincount(cell[cell >= 0], counts[cell >= 0], minlength=_MAX_MAGNITUDES).astype(int)
            magnitudes, counts = grid[counts > 0], counts[counts > 0]
        return Canary(tuple(map(float, magnitudes)), tuple(map(int, counts)))

    @staticmethod
    def from_file(path: Path, work: Workload) -> Canary:
        """A gradient saved by `numpy.save`."""
        expected = "a file of numpy.save with plain numbers"
        arrays = read_arrays(path, "canary_file", expected)
        try:
            if arrays["array"].dtype.kind not in "fiu":
                raise TypeError
            gradient = np.asarray(arrays["array"], dtype=float)
        except (ValueError, KeyError, TypeError):
            raise InvalidArgument("canary_file", str(path), expected) from None
        return Canary.from_array(gradient, work)
