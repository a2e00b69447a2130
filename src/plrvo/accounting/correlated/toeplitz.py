"""Lower triangular Toeplitz strategies: S_ts = c_(t-s), with c_0 = 1 unless a matrix says otherwise.

Sensitivity over separated visits is exact in two cases (proofs: theory, section 11).

- *c non-negative and not increasing.* (S'S)_st = sum of c_j c_(j + t-s) over j < length - t falls in t - s and in t, so
  that the earliest pattern 0, b, 2b, ... is the worst, pair by pair.
- *As many steps between visits as bands.* Columns of one pattern are orthogonal, and the best choice of columns is a
  dynamic programme over steps.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from plrvo.accounting.correlated.strategy import Steps, Strategy, check_size, spaced_sums
from plrvo.accounting.correlated.streams import BufferedStream, ConvolutionStream, HistoryStream, Stream
from plrvo.noise.base import Array
from plrvo.validate import InvalidArgument, positive_integer


class Toeplitz(Strategy):
    """What they share; a subclass gives the coefficients."""

    @abstractmethod
    def coefficients(self, length: int) -> Array:
        """c_0, c_1, ...: `length` of them, or fewer where the rest is zero."""

    def gram(self, first: Steps, second: Steps, length: int) -> Array:
        out = np.zeros(np.shape(first))
        for lag in np.unique(second - first):
            here = second - first == lag
            partial = _lagged_sums(self, length, int(lag))
            terms = np.minimum(length - second[here], len(partial) - 1)
            out[here] = partial[np.maximum(terms, 0)]
        return out

    def worst(self, length: int, visits: int, separation: int) -> float:
        visits = min(visits, -(-length // separation))
        c = self.coefficients(length)
        if np.all(c >= 0) and np.all(np.diff(c) <= 0):
            return float(spaced_sums(self, np.zeros(1, dtype=np.int64), visits, separation, length)[0])
        if len(c) > separation:
            raise InvalidArgument("separation", separation, f"at least the {len(c)} bands of the strategy")
        steps = np.arange(length)
        return best_separated(self.gram(steps, steps, length), visits, separation)

    def rows(self, length: int) -> int:
        return length

    def touched(self, length: int) -> int:
        return len(self.coefficients(length))

    def matrix(self, length: int) -> Array:
        c = np.zeros(length)
        c[: self.touched(length)] = self.coefficients(length)
        lag = np.arange(length)[:, None] - np.arange(length)[None, :]
        return np.where(lag >= 0, c[np.maximum(lag, 0)], 0.0)

    def row_sums(self, steps: Sequence[int], length: int) -> Array:
        c, out = self.coefficients(length), np.zeros(length)
        for step in steps:
            out[step : step + len(c)] += c[: length - step]
        return out


@lru_cache(maxsize=8)
def _lagged_sums(strategy: Toeplitz, length: int, lag: int) -> Array:
    """Entry m is the sum of c_j c_(j+lag) over j < m."""
    c = strategy.coefficients(length)
    return np.concatenate([[0.0], np.cumsum(c[: max(0, len(c) - lag)] * c[lag:])])


def best_separated(weights: Array, visits: int, separation: int) -> float:
    """The largest sum of at most so many weights, any two of them `separation` places apart."""
    best = np.zeros(len(weights) + 1)  # best[i]: from the first i places
    for _ in range(visits):
        taken = weights + best[np.maximum(np.arange(len(weights)) - separation + 1, 0)]
        best = np.maximum.accumulate(np.concatenate([[0.0], taken]))
    return float(best[-1])


@dataclass(frozen=True)
class Banded(Toeplitz):
    """A few coefficients, usually from `fit_banded`. (1.0,) is the identity: fresh noise in every step.

    >>> Banded((1.0, 0.5)).matrix(3)
    array([[1. , 0. , 0. ],
           [0.5, 1. , 0. ],
           [0. , 0.5, 1. ]])
    """

    values: tuple[float, ...] = (1.0,)
    kind: ClassVar[str] = "banded"

    def __post_init__(self) -> None:
        values = tuple(float(v) for v in self.values)
        if not values or not values[0] > 0:
            raise InvalidArgument("values", self.values, "coefficients, the first of them positive")
        check_size(values, self.values)
        object.__setattr__(self, "values", values)

    def check(self, length: int) -> None:
        if len(self.values) > length:
            raise InvalidArgument("bands", len(self.values), f"at most {length}, the steps of the strategy")

    def apart(self, separation: int) -> bool:
        return len(self.values) <= separation

    def coefficients(self, length: int) -> Array:
        return np.array(self.values[:length])

    def stream(self, length: int) -> Stream:
        c = self.coefficients(length)
        return HistoryStream(lambda t: c, len(c))


@dataclass(frozen=True)
class SquareRoot(Toeplitz):
    """The square root of the matrix of prefix sums: c_j = binom(2j, j)/4^j, that is (1 - x)^(-1/2)."""

    kind: ClassVar[str] = "sqrt"

    def coefficients(self, length: int) -> Array:
        j = np.arange(1.0, length)
        return np.concatenate([[1.0], np.cumprod((2 * j - 1) / (2 * j))])

    def stream(self, length: int) -> Stream:
        c = self.coefficients(length)
        # (1 - x)^(1/2) has the coefficients -c_j/(2j - 1).
        return ConvolutionStream(c, c / (1 - 2 * np.arange(float(length))))


@dataclass(frozen=True)
class BufferedToeplitz(Toeplitz):
    """c_j = sum_d scales_d decays_d^(j-1) for j >= 1, which streams through one buffer for each d.

    Scales are non-negative with sum at most 1, and decays lie in [0, 1], so that the coefficients do not increase.
    """

    scales: tuple[float, ...]
    decays: tuple[float, ...]
    kind: ClassVar[str] = "blt"

    def __post_init__(self) -> None:
        scales, decays = tuple(float(v) for v in self.scales), tuple(float(v) for v in self.decays)
        if not scales or min(scales) < 0 or not sum(scales) <= 1:
            raise InvalidArgument("scales", self.scales, "non-negative numbers with a sum of at most 1")
        if len(decays) != len(scales) or not all(0 <= v <= 1 for v in decays):
            raise InvalidArgument("decays", self.decays, f"{len(scales)} numbers from 0 to 1")
        object.__setattr__(self, "scales", scales)
        object.__setattr__(self, "decays", decays)

    def coefficients(self, length: int) -> Array:
        positive_integer(length=length)
        powers = np.power(np.array(self.decays)[:, None], np.arange(float(length - 1))[None, :])
        c = np.concatenate([[1.0], np.array(self.scales) @ powers])
        return np.minimum.accumulate(np.maximum(c, 0.0))  # rounding must not undo what makes the formula exact

    def stream(self, length: int) -> Stream:
        return BufferedStream(self.scales, self.decays)
