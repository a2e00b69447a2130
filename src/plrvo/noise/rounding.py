"""Noise rounded to integers exactly, from random words: fast in doubles, and aware of what doubles cannot decide.

A draw of continuous noise is a known function of uniform numbers U, V in (0, 1) with infinitely many bits (`reals`).
To know which integer it is nearest to, a few bits nearly always suffice. Each function is computed in doubles from the
first 64-bit word of each uniform, together with a bound on how far the result can be from the true one:

- the bits not yet drawn: U >= 2^-20 is known to a relative 2^-43 at least;
- log, expm1 and tan, torch's where torch is there and else NumPy's, are trusted to a relative 2^-46 only, 128 units in
  the last place (they err by 4 at most);
- all other operations round by 2^-53.

A draw that lies closer than this bound to the middle between two integers is computed once more (`sharper`), in long
doubles, whose functions are trusted to 128 units in their last place as well, and with a bound of its own instead of
one for the worst case. What that leaves open goes to `refine`, which draws more bits and computes with intervals until
it is decided. So the integer is that of the infinitely long draw, always: its probabilities are those of the rounded
continuous noise to the last digit, and nothing is charged to delta.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]
Long = NDArray[np.longdouble]

_LARGEST_E = 13.86  # just below -log(2^-20): beyond, the first word tells too little about U
_SMALLEST_E = 2.0**-20  # Gaussian noise: below, a square root would magnify the error

_LAST = max(float(np.finfo(np.longdouble).eps), 2.0**-63)  # a long double's last place: 2^-63, or a double's 2^-52
_TRUST = 128 * _LAST
_FEWEST = (
    1 << 20
)  # a smaller word says too little about U for the error bounds of `sharper`, which are linear in 1/word
_LARGEST_CELLS = 2.0**51  # integers of `sharper` that fit 64 bits with room to spare


class Reals(ABC):
    """Continuous noise in units of the grid, as a function of uniform numbers.

    Draws come in groups that share their words: `words` words give `draws` draws.
    """

    words: ClassVar[int]
    draws: ClassVar[int]

    @abstractmethod
    def approximate(self, words: Words, x: Array, spares: Array) -> Mask | None:
        """Fill x[draws, groups] with integers, from words[words, groups]; True where they are not certain.

        None if all are. Those that are certain are below 2^51. `spares` is an array of the shape of x to work in.
        """

    @abstractmethod
    def sharper(self, words: Words) -> tuple[Integers, Mask]:
        """The same in long doubles, for a few groups: integers, and True where they are not certain."""

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
    def to_size(self, log: Array) -> None:
        """-E = log U to the size of the noise in cells, in place."""

    @abstractmethod
    def long_size(self, e: Long, error: Long) -> tuple[Long, Long]:
        """Sizes in cells in long doubles, and bounds on their errors, given those of E."""

    @abstractmethod
    def size_interval(self, iv: Any, e: Any) -> Any:
        """The size of the noise in cells on an interval."""

    def approximate(self, words: Words, x: Array, spares: Array) -> Mask | None:
        (word,), (size,), (spare,) = words, x, spares
        raw = spare.view(np.uint64)
        np.right_shift(word, np.uint64(1), out=raw)
        np.copyto(size, raw.view(np.int64), casting="same_kind")
        size *= 2.0**-63
        apply("log", size)
        outside = None
        if size.min() < -_LARGEST_E:
            outside = size < -_LARGEST_E
            size[outside] = 0.0
        self.to_size(size)
        np.rint(size, out=spare)
        size -= spare
        np.abs(size, out=size)
        undecided = self._close_to_the_middle(size, spare, outside)
        np.left_shift(word, np.uint64(63), out=size.view(np.uint64))
        np.bitwise_or(spare.view(np.uint64), size.view(np.uint64), out=size.view(np.uint64))
        return None if undecided is None else undecided[None, :]

    def _close_to_the_middle(self, distance: Array, rounded: Array, others: Mask | None) -> Mask | None:
        """Whether the error bound, added to the distance from an integer, reaches the middle between two.

        A rounded size bounds the error as well as the size does, if the error of half a cell is added. Mostly the
        largest size of all is good enough.
        """
        limit = 0.5 - self.base - self.slope
        if distance.max() > limit - self.slope * rounded.max():
            distance += self.slope * rounded
        return _above(distance, limit, others)

    def sharper(self, words: Words) -> tuple[Integers, Mask]:
        known = words[0] >> np.uint64(1)
        e, error = _long_exponential(known, 63)
        size, error = self.long_size(e, error)
        integers, undecided = _rounded(size, error)
        undecided |= known < _FEWEST
        return np.where(words[0] & np.uint64(1), -integers, integers)[None, :], undecided[None, :]

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

    def to_size(self, log: Array) -> None:
        log *= -self._cells

    def long_size(self, e: Long, error: Long) -> tuple[Long, Long]:
        cells = np.longdouble(self._b) / np.longdouble(self._cell)
        return e * cells, (error + e * _TRUST) * cells

    def size_interval(self, iv: Any, e: Any) -> Any:
        return e * iv.mpf(self._b) / iv.mpf(self._cell)


class LomaxReals(SignedReals):
    """Size expm1(E/k)/theta, in cells; k >= 1. An error d of E moves x cells by (1/(theta cell) + x) d/k.

    To this, at most 2^-41 (1/(theta cell) + x)/k, expm1 and roundings add less than 2^-45 x. In the long doubles of
    `sharper` d may be as large as 2^-19, which moves x by at most 1.01 times as much.
    """

    def __init__(self, k: float, theta: float, cell: float) -> None:
        self._k, self._theta, self._cell = k, theta, cell
        self.base = 2.0**-41 / (k * theta * cell)
        self.slope = 2.0**-41 / k + 2.0**-45

    def to_size(self, log: Array) -> None:
        log *= -1 / self._k
        apply("expm1", log)
        log *= 1 / (self._theta * self._cell)

    def long_size(self, e: Long, error: Long) -> tuple[Long, Long]:
        k, scale = np.longdouble(self._k), 1 / (np.longdouble(self._theta) * np.longdouble(self._cell))
        size = np.expm1(e / k) * scale
        return size, (scale + size) * (1.01 * error / k) + size * (4 * _TRUST)

    def size_interval(self, iv: Any, e: Any) -> Any:
        return (iv.exp(e / iv.mpf(self._k)) - 1) / (iv.mpf(self._theta) * iv.mpf(self._cell))


class GaussianReals(Reals):
    """Two draws from two words: sign R cos(phi) and sign R sin(phi), R = sigma sqrt(2E), phi uniform on +-pi/2.

    The sign, the lowest bit of the second word, makes the half circle a whole one. With t = tan(phi/2) in [-1, 1],
    cos = (1 - t^2)/(1 + t^2) and sin = 2t/(1 + t^2). The error in units of sigma: 2^-42.5 from R (E >= 2^-20), and at
    most 5.3 times 2^-44.8 from the angle, R being below 5.3; 2^-41 is above their sum.

    In long doubles (`sharper`), an error d < E/16 of E moves R by at most 1.04 R d/2E. The angle is known up to
    pi 2^-63, the error of pi itself, 1.6 times what functions are trusted to, and five roundings; sine and cosine, and
    the roundings of R, stay below three times that trust.
    """

    words = draws = 2

    def __init__(self, sigma: float, cell: float) -> None:
        self._sigma, self._cell = sigma, cell
        self._cells = sigma / cell
        self.base = self._cells * 2.0**-41

    def approximate(self, words: Words, x: Array, spares: Array) -> Mask | None:
        (first, second), (a, b), (spare, _) = words, x, spares
        raw = spare.view(np.uint64)
        np.copyto(a, first, casting="same_kind")
        a *= 2.0**-64
        apply("log", a)
        outside = None
        if a.min() < -_LARGEST_E or a.max() > -_SMALLEST_E:
            outside = (a < -_LARGEST_E) | (a > -_SMALLEST_E)
            a[outside] = -1.0
        a *= -2 * self._cells**2
        np.sqrt(a, out=a)
        np.left_shift(second, np.uint64(63), out=raw)
        a.view(np.uint64)[...] |= raw
        # The upper 63 bits, less their middle, are a signed number; half an angle of +-pi/2 is +-pi/4.
        np.right_shift(second, np.uint64(1), out=raw)
        raw -= np.uint64(1 << 62)
        np.copyto(b, raw.view(np.int64), casting="same_kind")
        b *= np.pi / 2**64
        apply("tan", b)
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
        undecided = _above(x, 0.5 - self.base, outside)
        x[...] = spares
        return undecided

    def sharper(self, words: Words) -> tuple[Integers, Mask]:
        first, second = words
        e, error = _long_exponential(first, 64)
        sign = np.where(second & np.uint64(1), np.longdouble(-1), np.longdouble(1))
        radius = np.sqrt(2 * e) * (np.longdouble(self._sigma) / np.longdouble(self._cell))
        half = ((second >> np.uint64(1)) - np.uint64(1 << 62)).view(np.int64).astype(np.longdouble)
        phi = half * (4 * np.arctan(np.longdouble(1)) / np.longdouble(2) ** 63)
        outside = (first < _FEWEST) | (error * 16 >= e)
        bound = radius * (np.where(outside, 1, 0.52 * error / np.where(outside, 1, e)) + 3 * _TRUST)
        integers, undecided = _rounded(radius * sign * np.stack([np.cos(phi), np.sin(phi)]), bound)
        return integers, undecided | outside

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


def apply(function: str, values: Array) -> None:
    """NumPy's log, expm1 or tan in place; torch's where torch is there, which has them for four numbers at a time."""
    torch = sys.modules.get("torch")
    if torch is None:
        with np.errstate(divide="ignore"):
            getattr(np, function)(values, out=values)
    else:
        tensor = torch.from_numpy(values)
        getattr(torch, function)(tensor, out=tensor)


def _above(values: Array, limit: float, others: Mask | None) -> Mask | None:
    """Where values exceed the limit, and `others`; None for nowhere. Mostly one look at the largest is enough."""
    if values.max() <= limit:
        return None if others is None else np.broadcast_to(others, values.shape)
    found = values > limit
    return found if others is None else found | others


def _long_exponential(known: Words, bits: int) -> tuple[Long, Long]:
    """E = -log U of a U of which so many bits are known, and a bound on its error.

    U lies within [known, known + 1] 2^-bits. Bits not drawn move E by at most 1/known, the rounding of `known` by a
    last place, and the logarithm adds its own error.
    """
    least = np.maximum(known, np.uint64(1)).astype(np.longdouble)
    e = -np.log(least / np.longdouble(2) ** bits)
    return e, 1 / least + (e + 1) * _TRUST


def _rounded(x: Long, error: Long) -> tuple[Integers, Mask]:
    """The nearest integers, and where an error so large leaves them open."""
    nearest = np.rint(x)
    undecided = (np.abs(x - nearest) + error > 0.5 - 2.0**-50) | (np.abs(x) > _LARGEST_CELLS)
    return np.where(undecided, 0, nearest).astype(np.int64), undecided
