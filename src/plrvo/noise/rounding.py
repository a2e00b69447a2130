"""Noise rounded to integers exactly, from random words: fast in doubles, and aware of what doubles cannot decide.

A draw of continuous noise is a known function of uniform numbers U, V in (0, 1) with infinitely many bits (`reals`).
To know which integer it is nearest to, a few bits nearly always suffice. Each function is computed in doubles from the
first 64-bit word of each uniform, together with a bound on how far the result can be from the true one:

- the bits not yet drawn: U >= 2^-20 is known to a relative 2^-43 at least;
- NumPy's log, expm1 and tan are trusted to a relative 2^-46 only, 128 units in the last place (they err by 4 at most);
- all other operations round by 2^-53.

A draw that lies closer than this bound to the middle between two integers is left to `refine`, which draws more bits
and computes with intervals until it is decided. So the integer is that of the infinitely long draw, always: its
probabilities are those of the rounded continuous noise to the last digit, and nothing is charged to delta.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

_LARGEST_E = 13.86  # just below -log(2^-20): beyond, the first word tells too little about U
_SMALLEST_E = 2.0**-20  # Gaussian noise: below, a square root would magnify the error


class Reals(ABC):
    """Continuous noise in units of the grid, as a function of uniform numbers.

    Draws come in groups that share their words: `words` words give `draws` draws.
    """

    words: ClassVar[int]
    draws: ClassVar[int]

    @abstractmethod
    def approximate(self, words: Words, x: Array, spares: Array) -> Mask:
        """Fill x[draws, groups] with integers, from words[words, groups]; True where they are not certain.

        `spares` is an array of the shape of x to work in.
        """

    @abstractmethod
    def enclose(self, iv: Any, words: list[int], bits: int) -> list[Any]:
        """Intervals that hold the true draws of one group, each of whose numbers is known to `bits` bits.

        `iv` is an interval context of mpmath; the first 64 bits are those that `approximate` saw.
        """


class SignedReals(Reals):
    """Sign times a size that grows with E = -log U; the sign is the lowest bit of the word, U the 63 above it."""

    words = draws = 1
    base: float  # a size of x cells is known up to base + slope * x
    slope: float

    @abstractmethod
    def to_size(self, e: Array) -> None:
        """E to the size of the noise in cells, in place."""

    @abstractmethod
    def size_interval(self, iv: Any, e: Any) -> Any:
        """The same on an interval."""

    def approximate(self, words: Words, x: Array, spares: Array) -> Mask:
        (word,), (e,), (spare,) = words, x, spares
        raw = spare.view(np.uint64)
        np.right_shift(word, np.uint64(1), out=raw)
        np.copyto(e, raw.view(np.int64), casting="same_kind")
        e *= 2.0**-63
        with np.errstate(divide="ignore"):
            np.log(e, out=e)
        np.negative(e, out=e)
        undecided = e > _LARGEST_E
        if undecided.any():
            e[undecided] = 0.0
        self.to_size(e)
        undecided |= self._is_close(e, spare)
        np.rint(e, out=e)
        np.left_shift(word, np.uint64(63), out=raw)
        e.view(np.uint64)[...] |= raw
        return undecided[None, :]

    def _is_close(self, size: Array, spare: Array) -> Mask:
        """Whether the error bound reaches the middle between two integers."""
        np.rint(size, out=spare)
        spare -= size
        np.abs(spare, out=spare)
        if self.slope:
            spare += self.slope * size
        return spare > 0.5 - self.base

    def enclose(self, iv: Any, words: list[int], bits: int) -> list[Any]:
        known, hidden = words[0], bits - 64
        # The sign is the lowest bit of the first word; what was drawn later continues the 63 bits above it.
        first, rest = known >> hidden, known & ((1 << hidden) - 1)
        sign, u = first & 1, ((first >> 1) << hidden) | rest
        if u == 0:
            return [iv.mpf([-iv.inf, iv.inf])]
        size = self.size_interval(iv, -iv.log(iv.mpf([u, u + 1]) / iv.mpf(2) ** (bits - 1)))
        return [-size if sign else size]


class LaplaceReals(SignedReals):
    """Size b E, in cells. E is known up to 2^-43 + 13.86 * 2^-46, and less than 2^-48 for roundings: below 2^-41."""

    slope = 0.0

    def __init__(self, b: float, cell: float) -> None:
        self._b, self._cell = b, cell
        self._cells = b / cell
        self.base = self._cells * 2.0**-41

    def to_size(self, e: Array) -> None:
        e *= self._cells

    def size_interval(self, iv: Any, e: Any) -> Any:
        return e * iv.mpf(self._b) / iv.mpf(self._cell)


class LomaxReals(SignedReals):
    """Size expm1(E/k)/theta, in cells; k >= 1. An error d of E moves x cells by (1/(theta cell) + x) d/k.

    To this, at most 2^-41 (1/(k theta cell) + x), expm1 and roundings add less than 2^-45 x.
    """

    slope = 2.0**-40

    def __init__(self, k: float, theta: float, cell: float) -> None:
        self._k, self._theta, self._cell = k, theta, cell
        self.base = 2.0**-41 / (k * theta * cell)

    def to_size(self, e: Array) -> None:
        e *= 1 / self._k
        np.expm1(e, out=e)
        e *= 1 / (self._theta * self._cell)

    def size_interval(self, iv: Any, e: Any) -> Any:
        return (iv.exp(e / iv.mpf(self._k)) - 1) / (iv.mpf(self._theta) * iv.mpf(self._cell))


class GaussianReals(Reals):
    """Two draws from two words: sign R cos(phi) and sign R sin(phi), R = sigma sqrt(2E), phi uniform on +-pi/2.

    The sign, the lowest bit of the second word, makes the half circle a whole one. With t = tan(phi/2) in [-1, 1],
    cos = (1 - t^2)/(1 + t^2) and sin = 2t/(1 + t^2). The error in units of sigma: 2^-42.5 from R (E >= 2^-20), and at
    most 5.3 times 2^-44.8 from the angle, R being below 5.3; 2^-41 is above their sum.
    """

    words = draws = 2

    def __init__(self, sigma: float, cell: float) -> None:
        self._sigma, self._cell = sigma, cell
        self._cells = sigma / cell
        self.base = self._cells * 2.0**-41

    def approximate(self, words: Words, x: Array, spares: Array) -> Mask:
        (first, second), (a, b), (spare, _) = words, x, spares
        raw = spare.view(np.uint64)
        np.copyto(a, first, casting="same_kind")
        a *= 2.0**-64
        with np.errstate(divide="ignore"):
            np.log(a, out=a)
        a *= -2.0
        outside = a > 2 * _LARGEST_E
        outside |= a < 2 * _SMALLEST_E
        if outside.any():
            a[outside] = 1.0
        np.sqrt(a, out=a)
        a *= self._cells
        np.left_shift(second, np.uint64(63), out=raw)
        a.view(np.uint64)[...] |= raw
        # The upper 63 bits, less their middle, are a signed number; half an angle of +-pi/2 is +-pi/4.
        np.right_shift(second, np.uint64(1), out=raw)
        raw -= np.uint64(1 << 62)
        np.copyto(b, raw.view(np.int64), casting="same_kind")
        b *= np.pi / 2**64
        np.tan(b, out=b)
        np.multiply(b, b, out=spare)
        spare += 1.0
        a /= spare  # R/(1 + t^2), which sin takes 2t times and cos 2 - (1 + t^2) times
        b *= a
        b *= 2.0
        np.subtract(2.0, spare, out=spare)
        a *= spare
        np.rint(x, out=spares)
        x -= spares
        np.abs(x, out=x)
        undecided = x > 0.5 - self.base
        undecided |= outside
        x[...] = spares
        return undecided

    def enclose(self, iv: Any, words: list[int], bits: int) -> list[Any]:
        hidden = bits - 64
        first, rest = words[1] >> hidden, words[1] & ((1 << hidden) - 1)
        sign, v, u = first & 1, ((first >> 1) << hidden) | rest, words[0]
        if u == 0 or u + 1 == 1 << bits:  # so far E could be anything, or nothing
            return [iv.mpf([-iv.inf, iv.inf])] * 2
        radius = iv.sqrt(-2 * iv.log(iv.mpf([u, u + 1]) / iv.mpf(2) ** bits)) * iv.mpf(self._sigma) / iv.mpf(self._cell)
        phi = iv.pi * (iv.mpf([v, v + 1]) / iv.mpf(2) ** (bits - 1) - iv.mpf(1) / 2)
        if sign:
            radius = -radius
        return [radius * iv.cos(phi), radius * iv.sin(phi)]
