"""Axes of charts: from values to places on the paper, with round numbers along the way."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_WIDE = 1.5  # decades, from which on an axis of epsilons is logarithmic

Format = Callable[[float], str]


@dataclass(frozen=True)
class Tick:
    """A place on an axis and what stands there."""

    at: float
    label: str


@dataclass(frozen=True)
class Axis:
    """A linear map from values to places, with round numbers on it."""

    low: float
    high: float
    start: float
    end: float
    step: float

    @staticmethod
    def over(values: Sequence[float], from_zero: bool, start: float, end: float, count: int, room: float = 0.0) -> Axis:
        low, high = min(values, default=0.0), max(values, default=1.0)
        if from_zero:
            low, high = min(low, 0.0), max(high, 0.0)
        if high - low <= 1e-9 * max(abs(low), abs(high)):  # one value: some paper around it
            low, high = (0.0, high) if high > 0 else (low - 1.0, high + 1.0)
        margin = room * (high - low)
        low, high = low if from_zero and low == 0 else low - margin, high + margin
        return Axis(low, high, start, end, _round_step((high - low) / count))

    def at(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return round(self.start + share * (self.end - self.start), 2)

    def ticks(self, tell: Format) -> list[Tick]:
        first, last = math.ceil(self.low / self.step - 1e-9), math.floor(self.high / self.step + 1e-9)
        return [Tick(self.at(i * self.step), tell(round(i * self.step, 12) + 0.0)) for i in range(first, last + 1)]


@dataclass(frozen=True)
class LogAxis:
    """As `Axis`, for positive values of very different sizes; what is not positive stands at its left end."""

    low: float
    high: float
    start: float
    end: float

    @staticmethod
    def over(values: Sequence[float], start: float, end: float) -> LogAxis | None:
        """None where a linear axis would do."""
        logs = [math.log10(value) for value in values if value > 0]
        if not logs or max(logs) - min(logs) < _WIDE:
            return None
        room = 0.05 * (max(logs) - min(logs))
        return LogAxis(min(logs) - room, max(logs) + room, start, end)

    def at(self, value: float) -> float:
        share = (math.log10(value) - self.low) / (self.high - self.low) if value > 0 else 0.0
        return round(self.start + share * (self.end - self.start), 2)

    def ticks(self, tell: Format) -> list[Tick]:
        first, last = math.floor(self.low), math.ceil(self.high)
        step = 1 + (last - first) // 8
        factors = (1, 2, 5) if last - first <= 3 else (1,)
        values = [factor * 10.0**power for power in range(first, last + 1, step) for factor in factors]
        return [Tick(self.at(value), tell(value)) for value in values if self.low <= math.log10(value) <= self.high]


def _round_step(rough: float) -> float:
    """The smallest of 1, 2, 5 times a power of ten that is at least so much."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-12))
