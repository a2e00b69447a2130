"""Attacks on how noise is drawn, and not on how much: a tail that is cut off, and a generator that can be predicted.

*Tails.* torch's single-precision normal variables come from uniforms of 24 bits, the smallest of which is 2^-24: none
is beyond sqrt(48 log 2) = 5.768. An output above 5.768 sigma has the example in it for certain, whatever epsilon says.
What a sampler does that far out is not seen by waiting. `tail_probabilities` begins where its words lead there.

*Generator.* Whatever a Mersenne twister puts out is a linear function over GF(2) of its 19937 bits of state, and so is
the sign of each of torch's normal variables, which is one bit of a uniform or the sum of two. Every sequence of them at
a fixed distance obeys a linear recurrence of length 19937, which Berlekamp's and Massey's algorithm finds from twice as
many signs; from then on all signs are known before they are drawn. Signs of unpredictable bits have no recurrence
shorter than about half their number: its length differs from that by more than d with probability below 2^(2 - 2d).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plrvo.noise import Keystream, Noise
from plrvo.noise.keystream import Stream, Words

LARGEST_OF_24_BITS = math.sqrt(48 * math.log(2))
TWISTER_BITS = 19937
_SINGLE = np.dtype(np.float32)


class DeepWords(Stream):
    """A stream whose first words, of each value, lead into the tail: the law of its noise is that given U < 2^-20 d."""

    def __init__(self, stream: Stream, depth: int) -> None:
        self._stream, self._left = stream, depth

    def fill(self, buffer: Words) -> None:
        """The 20 bits after the first, which is the sign, are cleared; of a pair's second word nothing is changed."""
        self._stream.fill(buffer)
        if self._left:
            self._left -= 1
            deep = buffer[: self._deep_words(len(buffer) - 2)]
            deep &= np.uint64(~(((1 << 20) - 1) << 43) & ((1 << 64) - 1))

    def _deep_words(self, count: int) -> int:
        return count


class DeepPairs(DeepWords):
    """The same for pairs of normal variables, whose lengths take the first half of the first words."""

    _filled = False

    def _deep_words(self, count: int) -> int:
        first, self._filled = not self._filled, True
        return count // 2 if first else count


def tail_draws(noise: Noise, count: int, keystream: Keystream, depth: int = 1) -> NDArray[np.float32]:
    """Singles of the noise given that its exponential (of pairs: their length's) is beyond 20 log 2 times `depth`."""
    (stream,) = keystream.streams(1)
    source = (DeepWords if noise.gaussian_sigma is None else DeepPairs)(stream, depth)
    return noise.kernels(keystream)(count).draw(count, _SINGLE, source)


def tail_probabilities(noise: Noise, count: int, keystream: Keystream, depth: int = 1) -> NDArray[np.float64]:
    """What must be uniform on (0, 1) if the tail of Laplace, Gamma or Gaussian noise goes on as it should.

    Where the exponential is beyond 20 log 2 times `depth`, its survival function falls from 2^(-20 depth) on. For pairs
    of normal variables it is that of their length, e^(-R^2/2).
    """
    z = tail_draws(noise, count, keystream, depth).astype(np.float64)
    if noise.gaussian_sigma is None:
        beyond = 2 * noise.cdf(-np.abs(z))
    else:
        beyond = np.exp(-np.sum((z.reshape(2, -1) / noise.gaussian_sigma) ** 2, axis=0) / 2)
    return beyond * 2.0 ** (20 * depth)


@dataclass(frozen=True)
class Recurrence:
    """s_n = the sum over GF(2) of those s_(n-i), i = 1, 2, ..., `length`, whose bit i of `taps` is set."""

    length: int
    taps: int

    def continued(self, bits: Iterable[int], count: int) -> list[int]:
        """The next bits, if the recurrence holds on."""
        past, known = _packed(bits), []
        for _ in range(count):
            bit = (past & (self.taps >> 1)).bit_count() & 1
            past = past << 1 | bit
            known.append(bit)
        return known


def shortest_recurrence(bits: Iterable[int]) -> Recurrence:
    """Berlekamp's and Massey's algorithm over GF(2), on integers as rows of bits: newest bit lowest."""
    taps, before, length, since, past = 1, 1, 0, 1, 0
    for n, bit in enumerate(bits):
        past = past << 1 | int(bit)
        if (past & taps).bit_count() & 1:
            taps, kept = taps ^ before << since, taps
            if 2 * length <= n:
                length, before, since = n + 1 - length, kept, 0
        since += 1
    return Recurrence(length, taps)


def predicted_signs(noise: NDArray[np.floating], later: int, stride: int = 16) -> tuple[Recurrence, NDArray[np.bool_]]:
    """Whether each of the `later` values that follow will be negative, from the signs of noise that was seen.

    Values at one distance (torch makes 16 of 16 outputs of its generator) are one sequence; all of them obey the
    recurrence of the first. Both counts are multiples of the stride.
    """
    seen = np.signbit(noise).reshape(-1, stride)
    recurrence = shortest_recurrence(seen[:, 0].tolist())
    columns = [recurrence.continued(column.tolist(), later // stride) for column in seen.T]
    return recurrence, np.array(columns, dtype=bool).T.reshape(-1)


def _packed(bits: Iterable[int]) -> int:
    return int("".join("1" if bit else "0" for bit in bits) or "0", 2)
