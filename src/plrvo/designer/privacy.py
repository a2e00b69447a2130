"""Constraint c2 as a function of the noise: what a point costs, and the largest theta that a budget allows.

Dividing the released sum by C shows that privacy depends on (k, C theta) only, for every accountant here; J does too.
So all clips of the range are equally good for J, and the search needs only one of them: the smallest, which
has the least noise and makes c1 and c4 easiest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np

from plrvo.accounting import Ledger
from plrvo.accounting.convert import epsilon_at
from plrvo.accounting.published import published_epsilon, published_moment
from plrvo.designer.problem import Accountant, Point, Problem
from plrvo.noise import GammaPLRV
from plrvo.noise.base import Array

Cost = Callable[[float, float], float]  # epsilon as a function of k and theta, at the smallest clip

_CAP = 50.0  # |log(epsilon/budget)| beyond which only the side matters
_CLOSED_FROM = 10_000  # the dimension from which moments have a closed form, and are fast
_HEAD = 12  # coordinates that an estimate of the published sum takes one by one; relative error 2e-5
_LARGEST_ORDER = 1 << 14
_STEPS = 200


class SpreadGamma(GammaPLRV):
    """Gamma-PLRV noise with the moments of the equally spread gradient: an estimate that no guarantee may use.

    No worse gradient is known, but that there is none is not proved (theory, section 4). It is within two percent of
    the bound by moments and several times faster in low dimension, so the search runs on it. It ends on the
    certificate, which in high dimension allows a larger theta.
    """

    def log_joint_moment(self, clip: float, dimension: int, eta: Array, tail: float = 0.0) -> Array:
        eta = np.asarray(eta, dtype=float)
        spread = dimension * self.log_moment(np.full(eta.shape, clip / math.sqrt(dimension)), eta)
        return np.minimum(spread, eta * (eta - 1) / 2 * self.fisher_information() * clip**2)


def epsilon_of(problem: Problem, point: Point) -> float:
    """The epsilon of a point, by the accountant that the problem names."""
    return epsilon_and_order(problem, point)[0]


def epsilon_and_order(problem: Problem, point: Point) -> tuple[float, int | None]:
    """The same, with the order of the moment that gave it (None where none did)."""
    noise, work = GammaPLRV(point.k, point.theta), problem.work_at(point.clip)
    if problem.accountant is Accountant.certified:
        certificate = Ledger().plus(noise, work).certified(problem.delta)
        return certificate.value, certificate.order
    with np.errstate(over="ignore"):  # to infinity, which is the right answer
        return published_epsilon([(noise, work)], problem.delta) or (math.inf, None)


class Privacy:
    """What (k, theta) costs at the smallest clip; counts how often it was asked."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.evaluations = 0
        self._order = 16
        self._known: dict[tuple[float, float], float] = {}
        self._method: dict[float, str] = {}  # of the first certificate of a shape

    def exact(self, k: float, theta: float) -> float:
        """The epsilon that the accountant gives."""
        self.evaluations += 1
        return epsilon_of(self.problem, Point(k, theta, self.problem.clip_min))

    def nearly(self, k: float, theta: float) -> float:
        """The same, or a bound that is hardly above it: by the method that was the best one where this shape began."""
        if self.problem.accountant is Accountant.published:
            return self.exact(k, theta)
        self.evaluations += 1
        ledger, delta = Ledger().plus(GammaPLRV(k, theta), self.problem.work), self.problem.delta
        if k not in self._method:
            self._method[k] = ledger.certified(delta).method
        return ledger.certified_by(self._method[k], delta).value

    def estimate(self, k: float, theta: float) -> float:
        """An epsilon for the search to run on: close to the exact one, and fast."""
        if (k, theta) not in self._known:
            self._known[k, theta] = self._estimate(k, theta)
        return self._known[k, theta]

    def _estimate(self, k: float, theta: float) -> float:
        self.evaluations += 1
        if self.problem.accountant is Accountant.published:
            return self._published_estimate(k, theta)
        shape = GammaPLRV if self.problem.work.dimension >= _CLOSED_FROM else SpreadGamma
        return Ledger().plus(shape(k, theta), self.problem.work).quick(self.problem.delta).value

    def _published_estimate(self, k: float, theta: float) -> float:
        """The published sum with few coordinates one by one, its order sought near the one of the last question."""
        work, delta, noise = self.problem.work, self.problem.delta, GammaPLRV(k, theta)
        if work.clip * theta >= 1:
            return math.inf  # beyond the moment generating function's domain at every order

        @cache
        def objective(lambda_: int) -> float:
            with np.errstate(over="ignore"):
                return epsilon_at(lambda_, work.steps * published_moment(noise, work, lambda_, _HEAD), delta)

        start = min(self._order, max(1, int((1 - 1e-9) / (work.clip * theta))))
        value, self._order = descend(objective, start, _LARGEST_ORDER)
        return max(0.0, value)

    def miss(self, cost: Cost, k: float, theta: float) -> float:
        """log of epsilon over budget: positive where c2 is violated. Clipped, since epsilon may be 0 or infinite."""
        value = cost(k, theta)
        return min(_CAP, max(-_CAP, math.log(value / self.problem.epsilon))) if value > 0 else -_CAP

    def largest_theta(self, cost: Cost, k: float, hint: float, tolerance: float) -> float:
        """The largest theta whose epsilon meets the budget, short of it by a factor of at most 1 - tolerance.

        0 where no theta does: orders are bounded, so that a tiny budget may be out of reach of any noise.

        Epsilon increases with theta. A secant on log theta, kept inside a bracket; what is returned was evaluated and
        met the budget, so the answer is feasible whatever the rounding. (Where an order leaves the domain of the
        moment generating function the published epsilon jumps: then theta is exact to the tolerance instead.)
        """
        low, high = -math.inf, math.inf  # log theta: feasible, infeasible
        here, slope, before = math.log(hint), 1.5, (math.nan, math.nan)
        for _ in range(_STEPS):
            value = self.miss(cost, k, math.exp(here))
            low, high = (here, high) if value <= 0 else (low, here)
            if -tolerance <= value <= 0 or high - low < tolerance / 10:
                break
            rise = (value - before[1]) / (here - before[0]) if here != before[0] else math.nan
            if value > 0 and abs(rise) < 1e-3:
                break  # wider noise changes nothing any more: the largest order's share of delta is above the budget
            slope = rise if 0.05 < rise < 20 and abs(value) < _CAP else slope
            before = (here, value)
            # Aim inside the tolerance, so that the last step does not end on the wrong side.
            here -= (value + tolerance / 2) / slope if abs(value) < _CAP else math.copysign(3.0, value)
            if not low < here < high:
                here = (low + high) / 2
        return math.exp(low) if low > -math.inf else 0.0


def descend(objective: Callable[[int], float], start: int, largest: int) -> tuple[float, int]:
    """The minimum of a unimodal function on 1, ..., largest, from a start that should be close to it."""
    here, value, step = start, objective(start), max(1, start // 8)
    while True:
        for there in (min(largest, here + step), max(1, here - step)):
            found = objective(there)
            if found < value:
                here, value, step = there, found, 2 * step
                break
        else:
            if step == 1:
                return value, here
            step = max(1, step // 4)
