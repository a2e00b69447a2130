"""Many equal steps as one, from above, so that long runs are composed in two or three stages.

The grid of a composition has to be finer than the losses of a step, and its window wider than those of the run: for T
steps that is about sqrt(T) points by some hundred. So the loss of `times` steps is composed first, and spread onto a
grid that is as fine as *its* losses need. Spreading keeps the mass of both hypotheses and makes them easier to tell
apart, as for a single step (`loss_distribution`), and so does a step too many, where T is not a multiple.

**Rounding.** Masses are tilted by theta, so that the tail that matters is composed without loss, and tilted back. The
transform's error is added to every point. A mass errs by `times` times as much as that of a step, and by the tilts: u
(64 + 4 theta |l|) for each step, u = 2^-53, and 8 u (|log M| + theta |l|) for the way back. What leaves the window at
the top has Chernoff's bound, and is charged. What leaves at the bottom is lost: at most e^-80 of the tilted mass
(e^-500 where the window ends above it), so that a unit takes at most e^-80 of Chernoff's bound away from the delta of a
run. The 64 u for each of its steps, which every mass is charged, are e^47 times that, and more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from plrvo.accounting.losses import Loss, Step, spread
from plrvo.accounting.transform import law_of_sum
from plrvo.accounting.window import Cumulants

_U = 2.0**-53
_AT_ONCE = 20_000  # steps that are composed in one stage
_LOG_TAIL = 14.0  # by how much more than the tails of steps may lie outside the window, in logarithms
_LOG_BOTTOM = -80.0  # logarithm of what may lie below it, of the tilted mass
_MOST_POINTS = 1 << 17
_FURTHEST = 500.0  # by which logarithm a mass below the tilt may be tilted back


@dataclass(frozen=True)
class Repeated:
    """`count` units of `times` steps each."""

    step: Step
    times: int
    count: int
    theta: float

    @property
    def moderate(self) -> bool:
        return self.step.moderate

    def loss(self, interval: float, log_cut: float, added: bool) -> Loss:
        return _composed(self.step, self.times, min(self.count, 64), self.theta, interval, log_cut, added)


def in_units(step: Step, theta: float) -> Step:
    """The step, or units of it where it is taken very often; `theta` is about the saddle point of the whole run."""
    if step.count <= _AT_ONCE:
        return step
    stages = math.ceil(math.log(step.count) / math.log(_AT_ONCE))
    about = round(step.count ** (1 / stages))
    # The number that leaves the fewest steps too many.
    times = min(range(max(2, about // 2), about + 1), key=lambda m: (-step.count % m, -m))
    return in_units(Repeated(step, times, -(-step.count // times), theta), theta)


@lru_cache(maxsize=32)
def _composed(step: Step, times: int, count: int, theta: float, interval: float, log_cut: float, added: bool) -> Loss:
    fine = interval * 2.0 ** math.floor(-math.log2(times) / 2)
    while True:
        one = step.loss(fine, log_cut - math.log(times), added)
        laws = Cumulants([(one.law, times)])
        value, mean, variance = laws.at(theta)
        log_tail = log_cut + _LOG_TAIL
        tilts = [2.0**size / math.sqrt(max(variance, 1e-300)) for size in range(-1, 6)]
        # The bound is on the law itself, whose tail is the one that is charged.
        top, above = min(((laws.at(theta + s)[0] - log_tail) / (theta + s), theta + s) for s in tilts)
        top = min(max(top, mean), laws.highest)
        bottom = max(max((value - laws.at(theta - s)[0] + min(log_tail, _LOG_BOTTOM)) / s for s in tilts), laws.lowest)
        bottom = max(bottom, (value - _FURTHEST) / theta)
        points = (top - bottom) / fine + 8
        if points <= _MOST_POINTS:
            break
        fine *= 2.0 ** math.ceil(math.log2(points / _MOST_POINTS))
    missing = 0.0 if top >= laws.highest else math.exp(min(0.0, laws.at(above)[0] - above * top))
    size = 1 << math.ceil(math.log2(points))
    log_moment = value / times
    tilted = np.exp(one.law.log_mass + theta * one.losses - log_moment)
    total_mass = float(tilted.sum())
    centre = round(float(tilted @ one.places) / total_mass)
    folded = np.bincount((one.places - centre) % size, tilted / total_mass, size).astype(float)
    total = law_of_sum([(folded, times)], size)
    first = math.floor(bottom / fine) - 2
    mass = np.roll(np.maximum(total.law, 0.0) + total.error, times * centre - first)
    losses = fine * (first + np.arange(size, dtype=float))
    mass = mass * np.exp(value + times * math.log(total_mass) - theta * losses)
    places, masses = spread(losses, mass, interval, count)
    widest = float(np.abs(one.losses).max())
    mass_error = times * (one.mass_error + _U * (64 + 4 * theta * widest))
    mass_error += 8 * _U * (abs(value) + theta * float(np.abs(losses).max()) + 64)
    error = times * one.error + 16 * _U * (1 + float(np.abs(losses).max()))
    return Loss(interval, places, masses, error, mass_error, times * one.lost + missing)
