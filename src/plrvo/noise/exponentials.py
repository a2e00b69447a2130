"""Unit exponentials with their whole tail, from random words; with a size and a sign, Laplace and PLRV noise.

Contract. Of a word of 64 bits the first is the sign, and the other 63, the last of them set, are an odd integer m:
U = m/2^63 is uniform on the middles of 2^62 cells, independent of the sign. E = -log U is exponential, but for

- *the tail*. Of E > 43 nothing would be left, and beyond 13.9 values would stand apart. So where U < 2^-20, which has
  probability 2^-20 exactly, E is 20 log 2 plus a fresh exponential, from a further word of the same stream, and so on
  without end. An exponential has no memory:  P(E > 20 log 2 + t) = 2^-20 P(E' > t) = e^-(20 log 2 + t).  The tail is
  that of the proof beyond any probability that matters: 1e-30 takes four further words.
- *the last bits*. U is rounded to a double (2^-53 where U is near 1), E, the size and the sum are rounded again. The
  certificate is about real numbers; integers on a grid (`grid`) have no last bits.

Sizes: with E and a fair sign, Laplace noise is sign * b * E and Gamma-PLRV noise sign * expm1(E/k)/theta.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from plrvo.noise import transcendental
from plrvo.noise.keystream import Words
from plrvo.noise.spans import Source, scratch
from plrvo.noise.spans import available_threads as available_threads

Array = NDArray[np.float64]

_DEEP = 2.0**-20  # below, a word tells too little about U
_DEEP_SIZE = 20 * math.log(2)
_UNREACHED = 1024.0  # exponentials beyond have probability e^-1024
_ONE, _TOP = np.uint64(1), np.uint64(1 << 63)
_HALF = np.uint64(32)  # bits of a word


def signed_uniforms(words: Words, out: Array, scale: float = 1.0) -> None:
    """Words, whose last bits are set here, to numbers on +-scale that are never 0."""
    np.bitwise_or(words, _ONE, out=words)
    np.copyto(out, words.view(np.int64), casting="same_kind")
    out *= scale * 2.0**-63


def logs(words: Words, out: Array, spare: Words, source: Source) -> None:
    """-E for each word, E exponential, from all bits but the first; `source` gives further words where U < 2^-20."""
    np.bitwise_or(words, _ONE, out=words)
    np.bitwise_and(words, ~_TOP, out=spare)
    np.copyto(out, spare.view(np.int64), casting="same_kind")
    out *= 2.0**-63
    deep = np.flatnonzero(out < _DEEP) if out.size and out.min() < _DEEP else np.empty(0, np.intp)
    transcendental.log(out)
    if deep.size:
        further = np.empty(deep.size)
        logs(source.words(deep.size), further, np.empty(deep.size, np.uint64), source)
        out[deep] = further - _DEEP_SIZE


def give_signs(values: NDArray[Any], words: Words, spare: NDArray[Any]) -> None:
    """Make values negative whose word begins with a one; nothing is left of the words, and of as many bytes to spare.

    For singles the halves that have the signs are first put in one row: steps over every other half take longer.
    """
    bits: NDArray[Any] = values.view(np.uint64 if values.itemsize == 8 else np.uint32)
    signs: NDArray[Any] = words
    if values.itemsize < words.itemsize:
        signs = spare.view(bits.dtype)[: values.size]
        np.right_shift(words, _HALF, out=words)
        np.copyto(signs, words, casting="same_kind")
    np.bitwise_and(signs, bits.dtype.type(1 << 8 * values.itemsize - 1), out=signs)
    np.bitwise_or(bits, signs, out=bits)


def multiplied(values: Array, factor: float, out: NDArray[Any]) -> None:
    """out = values * factor, rounded to singles if they are asked for; `values` may be written to.

    In two passes then, of which either is in vectors: one that does both goes through buffers and takes longer.
    """
    if out.dtype == values.dtype:
        np.multiply(values, factor, out=out)
    else:
        values *= factor
        np.copyto(out, values, casting="same_kind")


def is_beyond(log_size: float, dtype: np.dtype[Any]) -> bool:
    """Whether numbers of this type are too small for such a size."""
    return log_size >= math.log(np.finfo(dtype).max)


class Size(Protocol):
    """How large noise is, as a function of an exponential."""

    log_largest: float  # log of the size of an exponential that nobody will see

    def write(self, logs: Array, out: NDArray[Any]) -> None:
        """From -E to sizes, which may overflow; `logs` may be written to."""


class SignedKernel:
    """Noise with a fair sign and a size that depends on one exponential; one word a value, but for the tail."""

    def __init__(self, size: Size, most: int) -> None:
        self._size = size
        self._words, doubles = scratch(most + 2, 2 * most)
        self._doubles = doubles.view(np.float64).reshape(2, most)

    def draw(self, count: int, dtype: np.dtype[Any], source: Source) -> NDArray[Any]:
        source.fill(self._words[: count + 2])
        words, (e, spare) = self._words[:count], self._doubles[:, :count]
        logs(words, e, spare.view(np.uint64), source)
        out = spare.view(dtype)[:count]
        with np.errstate(over="ignore"):
            self._size.write(e, out)
        if is_beyond(self._size.log_largest, dtype):
            np.minimum(out, np.finfo(dtype).max, out=out)
        give_signs(out, words, e)
        return out


class LaplaceSize:
    """b E."""

    def __init__(self, b: float) -> None:
        self._b = b
        self.log_largest = math.log(b) + math.log(_UNREACHED)

    def write(self, logs: Array, out: NDArray[Any]) -> None:
        multiplied(logs, -self._b, out)


class LomaxSize:
    """expm1(E/k)/theta: Laplace noise whose inverse scale is Gamma(k, theta), drawn at once.

    Rounding E/k to a single moves the size by E/k of its last bits, so this is left to doubles unless k is large. It is
    left to them again where E/k, which may be 2^-63/k, or 1/theta is no normal single. From k = 1e20 on expm1(E/k) is
    E/k to the last bit, and never computed: in doubles too it would underflow.
    """

    def __init__(self, k: float, theta: float) -> None:
        self._k, self._theta = k, theta
        self._short = 8 <= k <= 1e18 and 1e-30 <= theta <= 1e30
        self.log_largest = _UNREACHED / k - math.log(theta)

    def write(self, logs: Array, out: NDArray[Any]) -> None:
        if self._k > 1e20:
            multiplied(logs, -1 / (self._k * self._theta), out)
        elif self._short:
            multiplied(logs, -1 / self._k, out)
            transcendental.expm1(out)
            out *= 1 / self._theta
        else:
            logs *= -1 / self._k
            transcendental.expm1(logs)
            multiplied(logs, 1 / self._theta, out)
