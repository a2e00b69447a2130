"""Normal variables with their whole tail, from random words, two of each two (Box and Muller).

With E exponential, a fair sign and an angle phi uniform on +-pi/2, independent, sign * sqrt(2E) * (sin, cos) of phi is
a pair of independent standard normal variables: sqrt(2E) is the law of the length, the sign makes the half circle a
whole one. The length has its whole tail because E has (`exponentials`):  P(R > t) = e^(-t^2/2)  without end.

Both coordinates keep their relative precision near 0. The cosine is the sine of pi/2 - |phi|, a difference that is
taken in doubles before anything is rounded to singles, and a sine is as precise as its argument.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plrvo.noise import transcendental
from plrvo.noise.exponentials import Array, give_signs, is_beyond, logs, multiplied, signed_uniforms
from plrvo.noise.keystream import Words
from plrvo.noise.spans import Source, scratch


class NormalKernel:
    """Normal noise of standard deviation sigma; one word a value, but for the tail."""

    def __init__(self, sigma: float, most: int) -> None:
        self._sigma, pairs = sigma, (most + 1) // 2
        self._words, doubles, values = scratch(2 * pairs + 2, 2 * pairs, 2 * pairs)
        self._doubles, self._values = doubles.view(np.float64).reshape(2, pairs), values.view(np.float64)

    def draw(self, count: int, dtype: np.dtype[Any], source: Source) -> NDArray[Any]:
        pairs = (count + 1) // 2
        source.fill(self._words[: 2 * pairs + 2])
        spare, other = self._doubles[:, :pairs]
        radius = other.view(dtype)[:pairs]
        logs(self._words[:pairs], spare, other.view(np.uint64), source)
        self._write_radius(self._words[:pairs], spare, radius)
        values = self._values.view(dtype)[: 2 * pairs].reshape(2, pairs)
        signed_uniforms(self._words[pairs : 2 * pairs], spare, math.pi / 2)
        np.copyto(values[0], spare, casting="same_kind")
        np.abs(spare, out=spare)
        np.subtract(math.pi / 2, spare, out=spare)
        np.copyto(values[1], spare, casting="same_kind")
        transcendental.sin(values)
        values *= radius
        return values.reshape(-1)[:count]

    def _write_radius(self, words: Words, logs: Array, radius: NDArray[Any]) -> None:
        """Sign * sigma * sqrt(2E)."""
        multiplied(logs, -2.0, radius)
        np.sqrt(radius, out=radius)
        with np.errstate(over="ignore"):
            np.multiply(radius, self._sigma, out=radius, casting="same_kind")
        if is_beyond(math.log(self._sigma) + math.log(_LARGEST), radius.dtype):
            np.minimum(radius, np.finfo(radius.dtype).max, out=radius)
        give_signs(radius, words, logs)


_LARGEST = 64.0  # e^-2048 of the lengths are beyond
