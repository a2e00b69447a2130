"""Which losses of a composition matter at an epsilon: a tilt, and the window that holds all but all of the tilted law.

Any tilt and any window are valid, since what they cost is charged. So they are chosen on laws in few points (`binned`),
and what is charged is computed on the laws themselves. Where the two differ, at tiny deltas, the latter choose.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

from plrvo.accounting.law import Law
from plrvo.accounting.transform import UNIT

_LOG_TAIL = math.log(1e-8)  # share of delta that lies outside the window
_LOG_ROUNDING = math.log(1e-6)  # share of delta that a tilt below the saddle point may cost
_TILTS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the saddle point
_ALIKE = 0.05  # in the logarithm of a moment generating function


class HasLaw(Protocol):
    """The loss of a step."""

    @property
    def law(self) -> Law: ...


class Estimate(NamedTuple):
    """About an epsilon, and no bound, with its saddle point."""

    epsilon: float
    theta: float


class Cumulants:
    """log of the moment generating function of the total loss, and two derivatives."""

    def __init__(self, parts: Sequence[tuple[Law, int]]) -> None:
        self._parts = parts
        self.count = sum(times for _, times in parts)
        self.highest = sum(times * float(part.losses[-1]) for part, times in parts)
        self.lowest = sum(times * float(part.losses[0]) for part, times in parts)

    @staticmethod
    def of(losses: Sequence[tuple[HasLaw, int]]) -> Cumulants:
        return Cumulants([(loss.law, times) for loss, times in losses])

    @cached_property
    def binned(self) -> Cumulants:
        about = Cumulants([(part.binned, times) for part, times in self._parts])
        about.highest, about.lowest = self.highest, self.lowest  # where the law ends, and not its last bin's mean
        return about

    def at(self, theta: float) -> tuple[float, float, float]:
        found = [(times, part.moments(theta)) for part, times in self._parts]
        value, mean, variance = (sum(times * one[i] for times, one in found) for i in range(3))
        return value, mean, variance

    def is_like_binned(self, theta: float) -> bool:
        return abs(self.at(theta)[0] - self.binned.at(theta)[0]) <= _ALIKE

    def log_delta(self, theta: float, epsilon: float) -> float:
        """About log delta at an epsilon, by the saddle point approximation with any theta near its saddle point."""
        value, mean, variance = self.at(theta)
        spread = math.sqrt(2 * math.pi * max(variance, 1e-300))
        value -= theta * epsilon + (epsilon - mean) ** 2 / (2 * max(variance, 1e-300))
        return min(0.0, value - math.log(1 + theta * (1 + theta) * spread))

    def estimate(self, delta: float) -> Estimate:
        """About the epsilon at this delta, by the same approximation."""
        found = self.binned._estimate(delta)
        return found if self.is_like_binned(found.theta) else self._estimate(delta)

    def _estimate(self, delta: float) -> Estimate:
        low, high, target = -4.0, 5.0, math.log(delta)  # log10 theta
        for _ in range(16):
            middle = (low + high) / 2
            theta = 10.0**middle
            low, high = (middle, high) if self.log_delta(theta, self.at(theta)[1]) > target else (low, middle)
        return Estimate(max(0.0, self.at(10.0**high)[1]), 10.0**high)

    def saddle(self, epsilon: float) -> float:
        """theta > 0 at which the tilted mean is about epsilon. Any value is valid; a good one makes errors small."""
        low, high = 0.0, 1.0
        while self.at(high)[1] < epsilon and high < 1e6:
            low, high = high, 4 * high
        for _ in range(14):
            middle = (low + high) / 2
            if self.at(middle)[1] < epsilon:
                low = middle
            else:
                high = middle
        return high


@dataclass(frozen=True)
class Window:
    """A tilt for an epsilon, and the losses between which all but all of the tilted law lies."""

    theta: float
    value: float  # log of the moment generating function at theta
    bottom: float
    top: float
    missing: float  # delta of what lies above

    @property
    def width(self) -> float:
        return self.top - self.bottom

    @staticmethod
    def of(cumulants: Cumulants, interval: float, epsilon: float) -> Window:
        """The narrowest of a few tilts up to the saddle point, with what it costs from above."""
        about = cumulants.binned
        chosen = _Choice.of(about, interval, epsilon)
        if not all(map(cumulants.is_like_binned, (chosen.theta, chosen.above))):
            chosen = _Choice.of(cumulants, interval, epsilon)
        value = cumulants.at(chosen.theta)[0]
        bottom, top = max(chosen.bottom, cumulants.lowest - interval), min(chosen.top, cumulants.highest + interval)
        missing = 0.0
        if top < cumulants.highest:  # Chernoff's bound
            missing = math.exp(min(0.0, cumulants.at(chosen.above)[0] - chosen.above * top))
        return Window(chosen.theta, value, bottom, top, missing)


class _Choice(NamedTuple):
    """A tilt, its window, and the tilt above it whose bound on what lies above the window is the best one."""

    theta: float
    bottom: float
    top: float
    above: float

    @staticmethod
    def of(cumulants: Cumulants, interval: float, epsilon: float) -> _Choice:
        saddle = cumulants.saddle(epsilon)
        log_delta = cumulants.log_delta(saddle, epsilon)
        log_rounding = math.log(500 * UNIT * cumulants.count) - _LOG_ROUNDING - log_delta
        choices = []
        for share in _TILTS:
            theta = share * saddle
            value, _, variance = cumulants.at(theta)
            if share == 1 or log_rounding + value - theta * epsilon <= 0:
                log_tail = min(0.0, _LOG_TAIL + log_delta - value + theta * epsilon)
                choices.append(_Choice._between_tails(cumulants, interval, theta, value, variance, log_tail))
        return min(choices, key=lambda choice: choice.top - choice.bottom)

    @staticmethod
    def _between_tails(
        cumulants: Cumulants, interval: float, theta: float, value: float, variance: float, log_tail: float
    ) -> _Choice:
        """By Chernoff's bounds on the tails of the tilted law."""
        steps = [2.0**size / math.sqrt(max(variance, 1e-300)) for size in range(-1, 6)]
        top, step = min(((cumulants.at(theta + s)[0] - value - log_tail) / s, s) for s in steps)
        bottom = max((value - cumulants.at(theta - s)[0] + log_tail) / s for s in steps)
        top, bottom = min(top, cumulants.highest + interval), max(bottom, cumulants.lowest - interval)
        return _Choice(theta, bottom, top, theta + step)
