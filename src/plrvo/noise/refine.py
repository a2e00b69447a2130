"""The draws that doubles cannot decide: more bits, and interval arithmetic, until both ends round to one integer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plrvo.noise.rounding import Reals


class Refiner:
    """Interval arithmetic with a precision of its own, that nobody else's computations see."""

    def __init__(self, reals: Reals) -> None:
        from mpmath.ctx_iv import MPIntervalContext

        self._reals, self._iv = reals, MPIntervalContext()

    def nearest_integers(self, words: list[int], more: Callable[[], int]) -> list[int]:
        """The integers nearest to the draws of one group, given its first words; `more` gives further random words.

        All draws of a group share their numbers, so they are refined together. It ends with probability one: the true
        draw lies in the middle between two integers with probability zero, and each round leaves one in about 2^64
        undecided.
        """
        known, bits = list(words), 64
        while True:
            self._iv.prec = bits + 64
            found = [_nearest(x) for x in self._reals.enclose(self._iv, known, bits)]
            decided = [integer for integer in found if integer is not None]
            if len(decided) == len(found):
                return decided
            known, bits = [word << 64 | more() for word in known], bits + 64


def _nearest(x: Any) -> int | None:
    """floor(x + 1/2), if it is the same for the whole interval."""
    from mpmath import libmp

    low, high = (x + x.ctx.mpf(1) / 2)._mpi_
    if low in (libmp.finf, libmp.fninf, libmp.fnan) or high in (libmp.finf, libmp.fninf, libmp.fnan):
        return None
    low, high = libmp.to_int(low, "f"), libmp.to_int(high, "f")
    return low if low == high else None
