"""The search space: which (k, theta) are worth considering, as sets, closed bounds and samples.

*The indicator region* (the paper's Theorem "The PLRV-O Search Space"). Against Gaussian noise of multiplier sigma,

    moments:     G(C, eta) <= exp(eta (eta-1) / (2 sigma^2))  for eta = 2, ..., lambda_max + 1,
    distortion:  1/((k-1) theta) <= sqrt(2/pi) C sigma.

It compares a single coordinate shifted by C: a gradient that is spread over many coordinates is another matter (theory,
section 10), so the region says where a shape can win in dimension one, not more.

*Closed bounds.* Distortion bounds 1/sigma; put into the moments, with r = C theta, L = -log(1 - (eta-1) r) and
a = eta (eta-1) r^2 / pi, the region of all sigma asks for log G <= a (k-1)^2. Since M/2 <= G <= M for M = e^(kL),

    k L         <= a (k-1)^2  for every eta is sufficient,   k >= 1 + (L + sqrt(L^2 + 4 a L)) / (2a),
    k L - log 2 <= a (k-1)^2  for every eta is necessary,    k outside 1 + (L -+ sqrt(L^2 + 4 a (L - log 2))) / (2a).

The paper's corollary prints k1 <= k <= k2 (`printed_bounds`). Its two roots are those of the second inequality, with k
for k - 1, 4 for pi and 11.09375 for 16 log 2, but the inequality is turned round: between the roots the moments are
*worse* than the Gaussian's, its minus sign belongs to the larger root, and at eta = 2 and small r there is no root.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from plrvo.accounting import calibrate
from plrvo.designer.constraints import smallest_theta
from plrvo.designer.privacy import Privacy, epsilon_of
from plrvo.designer.problem import K_MIN, Point, Problem
from plrvo.noise import GammaPLRV, Gaussian
from plrvo.noise.base import Array
from plrvo.validate import InvalidArgument, positive, positive_integer


def in_domain(clip: float, theta: float, max_order: int) -> bool:
    """theta < 1/(C (lambda_max + 1)), the corollary's condition on the moment generating function."""
    return clip * theta * (max_order + 1) < 1


def indicator_moments(point: Point, sigma: float, max_order: int) -> bool:
    """The moments of one coordinate shifted by the clip are no worse than the Gaussian's at any order."""
    eta = np.arange(2.0, max_order + 2)
    log_g = GammaPLRV(point.k, point.theta).log_moment_scale_revealed(point.clip, eta)
    return in_domain(point.clip, point.theta, max_order) and bool(np.all(log_g <= eta * (eta - 1) / (2 * sigma**2)))


def indicator_distortion(point: Point, sigma: float) -> bool:
    """E|z| is no larger than that of Gaussian noise of multiplier sigma."""
    return point.k > 1 and 1 / ((point.k - 1) * point.theta) <= math.sqrt(2 / math.pi) * point.clip * sigma


def printed_bounds(clip: float, theta: float, eta: float) -> tuple[float, float]:
    """(k1, k2) of the paper's corollary as printed; NaN where its discriminant is negative. See the module's text."""
    log_term, square = math.log1p(-clip * theta * (eta - 1)), clip**2 * theta**2 * (eta - eta**2)
    discriminant = 16 * log_term**2 + 11.09375 * square
    if discriminant < 0:
        return math.nan, math.nan
    root = math.sqrt(discriminant)
    return (4 * log_term - root) / (2 * square), (4 * log_term + root) / (2 * square)


def _terms(clip: float, theta: float, max_order: int) -> tuple[Array, Array]:
    """L and a of the module's text for eta = 2, ..., max_order + 1."""
    if not in_domain(clip, theta, max_order):
        raise InvalidArgument("theta", theta, f"below 1/(clip (max_order + 1)) = {1 / (clip * (max_order + 1)):g}")
    eta = np.arange(2.0, max_order + 2)
    return -np.log1p(-clip * theta * (eta - 1)), eta * (eta - 1) * (clip * theta) ** 2 / math.pi


def sufficient_k(clip: float, theta: float, max_order: int) -> float:
    """From this k on, the moments are no worse than those of the Gaussian of the same E|z|, at every order."""
    log_term, a = _terms(clip, theta, max_order)
    return 1 + float(np.max((log_term + np.sqrt(log_term**2 + 4 * a * log_term)) / (2 * a)))


def excluded_k(clip: float, theta: float, max_order: int) -> tuple[tuple[float, float], ...]:
    """Open intervals of k that the moments rule out, one for each order that rules out any."""
    log_term, a = _terms(clip, theta, max_order)
    discriminant = log_term**2 + 4 * a * (log_term - math.log(2))
    some = discriminant > 0
    root = np.sqrt(discriminant[some])
    low, high = 1 + (log_term[some] - root) / (2 * a[some]), 1 + (log_term[some] + root) / (2 * a[some])
    return tuple(zip(low.tolist(), high.tolist(), strict=True))


@dataclass(frozen=True)
class SearchSpace:
    """The points that satisfy c0 to c4, and the indicator region inside them.

    `max_order` is lambda_max of the indicator: moments of higher order are not compared.
    """

    problem: Problem
    max_order: int = 32

    def __post_init__(self) -> None:
        positive_integer(max_order=self.max_order)

    @cached_property
    def sigma(self) -> float:
        """The multiplier of the Gaussian noise that meets the budget: the one that the indicators compare with."""
        gaussian = calibrate(
            Gaussian(self.problem.clip_min), self.problem.work, self.problem.epsilon, self.problem.delta
        )
        return gaussian.distortion * math.sqrt(math.pi / 2) / self.problem.clip_min

    def contains(self, point: Point) -> bool:
        """Whether c0 to c4 hold at the point."""
        problem = self.problem
        return (
            problem.clip_min <= point.clip <= problem.clip_max
            and K_MIN <= point.k <= problem.limits.k_max
            and point.theta >= smallest_theta(point.k, problem.limits)
            and epsilon_of(problem, point) <= problem.epsilon
        )

    def beats_gaussian(self, point: Point) -> bool:
        """Whether the point is in the indicator region."""
        return indicator_distortion(point, self.sigma) and indicator_moments(point, self.sigma, self.max_order)

    def theta_bounds(self, k: float) -> tuple[float, float]:
        """The smallest theta (by c1 and c4) and the largest (by c2) at this k and the smallest clip; may be empty."""
        positive(k=k)
        privacy = self._privacy
        largest = privacy.largest_theta(privacy.exact, k, 1 / (k * self.problem.clip_min), 1e-4)
        return smallest_theta(k, self.problem.limits), largest

    def indicator_bounds(self, k: float) -> tuple[float, float]:
        """The smallest theta (by distortion) and the largest (by moments, which grow with it); may be empty."""
        clip, sigma = self.problem.clip_min, self.sigma
        smallest = (1 + 1e-12) / ((k - 1) * math.sqrt(2 / math.pi) * clip * sigma)
        low, high = math.log(smallest) - 20, -math.log(clip * (self.max_order + 1))
        while high - low > 1e-6:
            middle = (low + high) / 2
            inside = indicator_moments(Point(k, math.exp(middle), clip), sigma, self.max_order)
            low, high = (middle, high) if inside else (low, middle)
        return smallest, math.exp(low)

    @cached_property
    def _privacy(self) -> Privacy:
        return Privacy(self.problem)

    @cached_property
    def outline(self) -> tuple[Array, Array, Array]:
        """log(k-1), and the logs of both bounds on theta, at shapes close enough to interpolate between.

        The upper bound is the one that the search runs on, within two percent of that by moments: for proposals and
        pictures. Where certificates are tighter than moments a larger theta is feasible too.
        """
        log_k, privacy, hint = (
            np.linspace(math.log(0.1), math.log(self.problem.limits.k_max - 1), 24),
            self._privacy,
            0.0,
        )
        bounds = []
        for k in 1 + np.exp(log_k):
            hint = hint or 1 / self.problem.clip_min
            largest = privacy.largest_theta(privacy.estimate, float(k), hint / k, 1e-3)
            hint = largest * float(k)
            bounds.append((smallest_theta(float(k), self.problem.limits), max(largest, 1e-300)))
        low, high = np.log(bounds).T
        return log_k, low, high

    @cached_property
    def indicator_outline(self) -> tuple[Array, Array]:
        """The logs of `indicator_bounds` at the shapes of `outline`."""
        low, high = np.log([self.indicator_bounds(1 + math.exp(x)) for x in self.outline[0]]).T
        return low, high

    def sample(self, count: int, generator: np.random.Generator, beats_gaussian: bool = False) -> list[Point]:
        """Points of the space: uniform in log(k-1), log C and, between its bounds, log theta.

        Interpolated bounds propose, the constraints themselves decide: every point returned satisfies them all (and the
        indicators, if `beats_gaussian`). Raises InvalidArgument where the space is empty or too thin to be hit.
        """
        positive_integer(count=count)
        problem, points = self.problem, list[Point]()
        log_k, low, high = self.outline
        for _ in range(20 * count + 200):
            x = generator.uniform(log_k[0], log_k[-1])
            shift = generator.uniform() * math.log(problem.clip_max / problem.clip_min)
            share = generator.uniform()
            floor, ceiling = float(np.interp(x, log_k, low)), float(np.interp(x, log_k, high)) - shift
            if beats_gaussian:  # everything but c1 and c4 depends on C theta
                floor = max(floor, float(np.interp(x, log_k, self.indicator_outline[0])) - shift)
                ceiling = min(ceiling, float(np.interp(x, log_k, self.indicator_outline[1])) - shift)
            if ceiling <= floor:
                continue
            theta = math.exp(floor + share * (ceiling - floor))
            point = Point(1 + math.exp(x), theta, min(problem.clip_max, problem.clip_min * math.exp(shift)))
            if (not beats_gaussian or self.beats_gaussian(point)) and self.contains(point):
                points.append(point)
                if len(points) == count:
                    return points
        what = "indicator region" if beats_gaussian else "space"
        raise InvalidArgument(
            "count", count, f"at most {len(points)}: the {what} is {'too thin' if points else 'empty or too thin'}"
        )
