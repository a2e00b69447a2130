"""Phase II of Algorithm 1: maximise J = C (k-1) theta under c0 to c4, by SLSQP from several starts.

The variables are log(k-1), log theta and log C, in which J is linear and the constraints are smooth and of one scale.
What the local solver returns is a candidate: theta is then searched again at the candidate's k, with the accountant
itself and from the safe side, so the point that leaves here meets the budget whatever SLSQP did.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from plrvo.designer.constraints import smallest_theta, theta_for_distortion, theta_for_tail
from plrvo.designer.privacy import Privacy
from plrvo.designer.problem import K_MIN, Accountant, Point, Problem
from plrvo.noise.base import Array
from plrvo.validate import InvalidArgument

Progress = Callable[[float], None]  # told the share of the work that is done

_START_SHAPES = (3.0, 50.0)  # and k_max
_SEARCH_TOLERANCE = 1e-5  # relative, on epsilon, while searching
_FINAL_TOLERANCE = 1e-6
_SLOW_TOLERANCE = 1e-4  # where a certified epsilon may take half a second
_ESTIMATE_ERROR = 0.05  # what the search's epsilon may be off by, with room to spare
_FAR = 1.0  # in log J: how much worse than its start SLSQP may look at
_DIFFERENCE = 1e-4  # step of the differences, in logs: not too small, since the order of a moment is an integer


@dataclass(frozen=True)
class Solution:
    """The best point, how many times an epsilon was computed to find it, and from how many starts."""

    point: Point
    evaluations: int
    starts: int


@dataclass(frozen=True)
class _Candidate:
    """A shape and the largest theta that c2 allows it, both at the smallest clip."""

    k: float
    theta: float
    room: float  # log of that theta over the smallest that c1 and c4 allow: negative where they conflict

    @property
    def rank(self) -> tuple[float, float]:
        return min(0.0, self.room), (self.k - 1) * self.theta


def solve(problem: Problem, start: Point | None = None, progress: Progress | None = None) -> Solution:
    """The feasible point with the largest J; `start` is one more place to begin from.

    Raises InvalidArgument, with the constraints that conflict and what would do, where no point is feasible.
    """
    return _Search(problem, progress or (lambda share: None)).run(start)


class _Search:
    def __init__(self, problem: Problem, progress: Progress) -> None:
        self.problem, self.limits, self.progress = problem, problem.limits, progress
        self.privacy = Privacy(problem)
        self._log_snr_floor = -math.inf

    def run(self, start: Point | None) -> Solution:
        found = []
        starts = self._starts(start)
        for i, (k, hint) in enumerate(starts.items()):
            if self._has_room(k):
                found.append(self._climb(self._boundary(k, hint)))
            else:  # only the certificate itself allows it
                found.append(_Candidate(k, smallest_theta(k, self.limits), 0.0))
            self.progress((i + 1) / (len(starts) + 1))
        point = self._restored(max(found, key=lambda candidate: candidate.rank))
        self.progress(1.0)
        return Solution(point, self.privacy.evaluations, len(starts))

    def _starts(self, start: Point | None) -> dict[float, float | None]:
        """Feasible shapes to climb from, each with a guess of its theta or None."""
        k_max = self.limits.k_max
        starts: dict[float, float | None] = {k: None for k in (*_START_SHAPES, k_max) if k <= k_max}
        if start is not None and K_MIN < start.k < k_max:
            starts[start.k] = start.theta * start.clip / self.problem.clip_min
        starts = {k: hint for k, hint in starts.items() if self._has_room(k)}
        if not starts:
            k = self._cheapest()
            if not self._has_room(k) and self.privacy.exact(k, smallest_theta(k, self.limits)) > self.problem.epsilon:
                raise self._infeasible(k)
            starts = {k: None}
        return starts

    def _has_room(self, k: float) -> bool:
        """Whether some theta that c1 and c4 allow meets c2.

        Epsilon grows with theta, so the least theta decides; but the tiny epsilon of very wide noise takes long to
        compute, so larger ones are tried first.
        """
        least, theta = smallest_theta(k, self.limits), 1 / (k * self.problem.clip_min)
        while theta > least:
            if self.privacy.estimate(k, theta) <= self.problem.epsilon:
                return True
            theta /= 8
        return self._least_cost(k) <= self.problem.epsilon

    def _least_cost(self, k: float) -> float:
        return self.privacy.estimate(k, smallest_theta(k, self.limits))

    def _cheapest(self) -> float:
        """The shape whose least cost is smallest, to about ten percent in k - 1: the cost is flat there."""
        from scipy import optimize

        low, high = math.log(K_MIN - 1), math.log(self.limits.k_max - 1)
        result = optimize.minimize_scalar(
            lambda x: self.privacy.miss(
                self.privacy.estimate, 1 + math.exp(x), smallest_theta(1 + math.exp(x), self.limits)
            ),
            bounds=(low, high),
            method="bounded",
            options={"xatol": 0.1},
        )
        return min(1 + math.exp(float(result.x)), self.limits.k_max, key=self._least_cost)

    def _boundary(self, k: float, hint: float | None = None, exact: bool = False) -> _Candidate:
        """The candidate of this shape, for the epsilon that the search runs on or for the exact one."""
        hint = hint or 1 / (k * self.problem.clip_min)
        cost, tolerance = self.privacy.estimate, _SEARCH_TOLERANCE
        if exact:
            slow = self.problem.accountant is Accountant.certified
            cost, tolerance = self.privacy.exact, _SLOW_TOLERANCE if slow else _FINAL_TOLERANCE
            hint = self.privacy.largest_theta(self.privacy.nearly, k, hint, tolerance) or hint if slow else hint
        theta = self.privacy.largest_theta(cost, k, hint, tolerance)
        room = math.log(theta / smallest_theta(k, self.limits)) if theta > 0 else -math.inf
        return _Candidate(k, theta, room)

    def _climb(self, start: _Candidate) -> _Candidate:
        """SLSQP over (log(k-1), log theta, log C) from a feasible point on the boundary of c2."""
        from scipy import optimize  # here, so that importing plrvo does not wait for it

        clip_min, clip_max, k_max = self.problem.clip_min, self.problem.clip_max, self.limits.k_max
        x0 = np.log([start.k - 1, start.theta, clip_min])
        self._log_snr_floor = float(x0[0] + x0[1]) - _FAR
        low = [math.log(K_MIN - 1), x0[1] - 40, math.log(clip_min)]
        high = [math.log(k_max - 1), x0[1] + 40, math.log(clip_max)]
        result = optimize.minimize(
            _minus_log_snr,
            x0,
            jac=_its_slope,
            bounds=optimize.Bounds(np.array(low), np.array(high)),
            constraints=self._solver_constraints(),
            method="SLSQP",
            tol=1e-5,
            options={"maxiter": 30},
        )
        x = result.x
        if not np.all(np.isfinite(x)):
            return start
        k = min(k_max, max(K_MIN, 1 + math.exp(x[0])))
        k = k_max if k > k_max * (1 - 1e-9) else k
        found = self._boundary(k, math.exp(x[1] + x[2]) / clip_min)
        if found.room < 0:  # SLSQP may end a rounding error outside c1 or c4
            found = self._towards(found, start, exact=False)
        return max(start, found, key=lambda candidate: candidate.rank)

    def _solver_constraints(self) -> list[Any]:
        """c1, c2 and c4 as functions of the logs, at least zero where they hold; c0, c3 and k_max are bounds."""
        limits, base = self.limits, math.log(self.problem.clip_min)

        def budget(x: Array) -> float:
            return self._spare(x[0], x[1] + x[2] - base)

        def budget_slope(x: Array) -> Array:
            """C enters through C theta only, so two differences are enough; on the side of more noise."""
            reach = x[1] + x[2] - base
            here = self._spare(x[0], reach)
            by_k = (here - self._spare(x[0] - _DIFFERENCE, reach)) / _DIFFERENCE
            by_theta = (here - self._spare(x[0], reach - _DIFFERENCE)) / _DIFFERENCE
            return np.array([by_k, by_theta, by_theta])

        def tail(x: Array) -> float:
            return float(x[1]) - math.log(theta_for_tail(1 + math.exp(x[0]), limits))

        def distortion(x: Array) -> float:
            return float(x[0] + x[1]) + math.log(limits.widest)

        return [
            {"type": "ineq", "fun": budget, "jac": budget_slope},
            {"type": "ineq", "fun": tail},
            {"type": "ineq", "fun": distortion, "jac": lambda x: np.array([1.0, 1.0, 0.0])},
        ]

    def _spare(self, log_k_minus_1: float, log_theta: float) -> float:
        """log of budget over epsilon, continued by a line where the noise is far wider than at the start.

        The tiny epsilons out there take long to compute, and only tell SLSQP to come back.
        """
        beyond = max(0.0, self._log_snr_floor - log_k_minus_1 - log_theta)
        k = 1 + math.exp(min(log_k_minus_1, 40.0))
        return beyond - self.privacy.miss(self.privacy.estimate, k, math.exp(min(log_theta + beyond, 200.0)))

    def _restored(self, best: _Candidate) -> Point:
        """The candidate with theta from the exact epsilon; c1 and c4, where they got lost, by a roomier shape."""
        exact = self._boundary(best.k, best.theta, exact=True)
        if exact.room < 0:
            roomy = self._cheapest()
            if self.privacy.exact(roomy, smallest_theta(roomy, self.limits)) > self.problem.epsilon:
                raise self._infeasible(roomy)
            exact = self._towards(exact, self._boundary(roomy, best.theta, exact=True), exact=True)
        return Point(exact.k, exact.theta, self.problem.clip_min)

    def _towards(self, cramped: _Candidate, roomy: _Candidate, exact: bool) -> _Candidate:
        """The feasible shape nearest to the cramped one, by bisection on log(k-1)."""
        for _ in range(12):
            k = 1 + math.sqrt((cramped.k - 1) * (roomy.k - 1))
            middle = self._boundary(k, math.sqrt(cramped.theta * roomy.theta), exact)
            cramped, roomy = (cramped, middle) if middle.room >= 0 else (middle, roomy)
        return roomy

    def _infeasible(self, cheapest: float) -> InvalidArgument:
        """Which constraints conflict, and a budget and a clip that would do."""
        limits, clip = self.limits, self.problem.clip_min
        reachable = self.privacy.exact(cheapest, smallest_theta(cheapest, limits))
        best = self._boundary(cheapest, smallest_theta(cheapest, limits))
        needs = {"c1": theta_for_tail(cheapest, limits), "c4": theta_for_distortion(cheapest, limits)}
        conflict = " and ".join(name for name, theta in needs.items() if theta > best.theta)
        enough = _to_digits(clip * math.exp(best.room) * (1 - _ESTIMATE_ERROR), math.floor) if best.theta else None
        or_clip = f", or `clip_min` at most {enough}" if enough else ""
        return InvalidArgument(
            "epsilon",
            self.problem.epsilon,
            f"at least {_to_digits(reachable, math.ceil)}{or_clip}: at `clip_min` {clip:g} the budget (c2) conflicts "
            f"with {conflict}, by which E|z| and all but {limits.tail:g} of the Laplace scales stay below "
            f"{limits.widest:g}",
        )


def _minus_log_snr(x: Array) -> float:
    return -float(np.sum(x))


def _its_slope(x: Array) -> Array:
    return -np.ones(len(x))


def _to_digits(value: float, direction: Callable[[float], int]) -> str:
    """Three significant digits, rounded so that following the advice is enough."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return f"{direction(value / unit) * unit:.3g}"
