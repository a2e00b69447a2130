"""What a strategy can do: sensitivities, and the recipe for its noise. Numbers only; it never sees a gradient."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from plrvo.accounting.correlated.streams import HistoryStream, Stream
from plrvo.noise.base import Array
from plrvo.validate import InvalidArgument, positive_integer

Steps = NDArray[np.int64]

_SMALLEST = 1e-100
_MOST_PATTERNS = 200_000  # that an explicit matrix may have without a formula for them


class Strategy(ABC):
    """The rows of S, for a run (or a part of it between two restarts) of `length` steps.

    The first `length` steps of a longer run release exactly the rows of `unfinished` for that length, so that a run
    can be accounted for at every step.
    """

    kind: ClassVar[str]
    whole: ClassVar[bool] = False  # S is made of whole numbers, so that S'S has no rounding

    @property
    def causal(self) -> bool:
        """S_rs = 0 unless s is no later than the release of row r (theory, Theorem 3)."""
        return True

    @property
    def unfinished(self) -> Strategy:
        """The strategy before the last step of its run, where it may release more."""
        return self

    def check(self, length: int) -> None:
        """Refuse a length that the strategy is not made for."""
        positive_integer(steps=length)

    @abstractmethod
    def gram(self, first: Steps, second: Steps, length: int) -> Array:
        """(S'S)_st for steps s = first <= t = second, elementwise."""

    @abstractmethod
    def worst(self, length: int, visits: int, separation: int) -> float:
        """An upper bound, exact where the class says so, on sens^2 over all patterns of so many separated visits."""

    @abstractmethod
    def rows(self, length: int) -> int:
        """How many rows are released."""

    @abstractmethod
    def touched(self, length: int) -> int:
        """The largest number of rows that the sum of one step enters."""

    def apart(self, separation: int) -> bool:
        """Whether no row holds two steps that are so far apart."""
        return False

    @abstractmethod
    def matrix(self, length: int) -> Array:
        """S itself, row by row in the order of release. For small lengths."""

    @abstractmethod
    def row_sums(self, steps: Sequence[int], length: int) -> Array:
        """sum of S_rs over the steps of a pattern, for every row that it enters."""

    @abstractmethod
    def stream(self, length: int) -> Stream:
        """The recipe that turns row noises into the noise of each step."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data, equal to what comes back from JSON."""
        parameters = asdict(self)  # type: ignore[call-overload]
        return {"strategy": self.kind, **{name: _lists(value) for name, value in parameters.items()}}


def check_size(values: Any, given: object) -> None:
    """Refuse entries that are no numbers, or whose squares leave the doubles: a sensitivity would be lost with them."""
    largest = float(np.max(np.abs(values)))
    if not _SMALLEST <= largest <= 1 / _SMALLEST:  # nor NaN
        raise InvalidArgument("values", given, "finite numbers, the largest of them between 1e-100 and 1e100")


def _lists(value: Any) -> Any:
    return [_lists(item) for item in value] if isinstance(value, tuple) else value


def spaced_sums(strategy: Strategy, firsts: Steps, visits: int, period: int, length: int) -> Array:
    """`pair_sum` of the visits s, s + period, ... that lie within the length, for each s in `firsts`; lag by lag."""
    total = np.zeros(len(firsts))
    for apart in range(visits):
        first = firsts[None, :] + period * np.arange(visits - apart)[:, None]
        second = first + apart * period
        inside = (first >= 0) & (second < length)
        values = np.zeros(first.shape)
        values[inside] = np.abs(strategy.gram(first[inside], second[inside], length))
        total += values.sum(axis=0) * (2.0 if apart else 1.0)
    return total


def pair_sum(strategy: Strategy, steps: Sequence[int], length: int) -> float:
    """sum of |(S'S)_st| over a pattern: at least sens^2 of it, and equal if S'S >= 0 (theory, section 11)."""
    pattern = np.sort(np.asarray(steps, dtype=np.int64))
    first, second = np.triu_indices(len(pattern))
    values = np.abs(strategy.gram(pattern[first], pattern[second], length))
    return float(np.sum(np.where(first == second, 1.0, 2.0) * values))


def separated_patterns(length: int, visits: int, separation: int) -> list[tuple[int, ...]]:
    """All patterns of exactly so many visits; a smaller number never costs more."""
    room = length - (visits - 1) * (separation - 1)
    chosen = itertools.combinations(range(room), visits) if room >= visits else iter(())
    return [tuple(s + i * (separation - 1) for i, s in enumerate(pattern)) for pattern in chosen]


@dataclass(frozen=True)
class Explicit(Strategy):
    """Any matrix, given by its rows; row r is released at step `times[r]` (its own number by default).

    Training needs a lower triangular one. Sensitivities are the pair sum, maximised over all patterns one by one.
    """

    values: tuple[tuple[float, ...], ...]
    times: tuple[int, ...] = ()
    kind: ClassVar[str] = "explicit"

    def __post_init__(self) -> None:
        rows = tuple(tuple(float(v) for v in row) for row in self.values)
        times = tuple(int(t) for t in self.times) or tuple(range(len(rows)))
        if not rows or len({len(row) for row in rows}) != 1:
            raise InvalidArgument("values", self.values, "rows of numbers, all of one length")
        check_size(rows, self.values)
        if len(times) != len(rows) or list(times) != sorted(times) or not 0 <= times[0] <= times[-1] < len(rows[0]):
            raise InvalidArgument("times", self.times, "one step for each row, in order")
        object.__setattr__(self, "values", rows)
        object.__setattr__(self, "times", times)

    @cached_property
    def _array(self) -> Array:
        return np.array(self.values)

    @property
    def causal(self) -> bool:
        later = np.arange(self._array.shape[1])[None, :] > np.array(self.times)[:, None]
        return not np.any(self._array[later])

    def check(self, length: int) -> None:
        if length != self._array.shape[1]:
            raise InvalidArgument("steps", length, f"{self._array.shape[1]}, the columns of the strategy")

    def matrix(self, length: int) -> Array:
        return self._array[np.array(self.times) < length, :length]

    def gram(self, first: Steps, second: Steps, length: int) -> Array:
        return _gram(self, length)[first, second]

    def worst(self, length: int, visits: int, separation: int) -> float:
        visits = min(visits, -(-length // separation))
        if math.comb(max(0, length - (visits - 1) * (separation - 1)), visits) > _MOST_PATTERNS:
            raise InvalidArgument("separation", separation, "a fixed order: this matrix has too many patterns to try")
        patterns = [p for k in range(1, visits + 1) for p in separated_patterns(length, k, separation)]
        return max(pair_sum(self, pattern, length) for pattern in patterns)

    def rows(self, length: int) -> int:
        return len(self.matrix(length))

    def touched(self, length: int) -> int:
        return int(np.max(np.count_nonzero(self.matrix(length), axis=0)))

    def row_sums(self, steps: Sequence[int], length: int) -> Array:
        return self.matrix(length)[:, list(steps)].sum(axis=1)

    def stream(self, length: int) -> Stream:
        square = self._array.shape[0] == self._array.shape[1] and self.times == tuple(range(len(self.times)))
        if not square or not self.causal or not np.all(np.diag(self._array)):
            raise InvalidArgument("strategy", self.kind, "a lower triangular matrix without zeros on its diagonal")
        return HistoryStream(lambda t: self._array[t, t::-1])


@lru_cache(maxsize=4)
def _gram(strategy: Explicit, length: int) -> Array:
    s = strategy.matrix(length)
    return s.T @ s
