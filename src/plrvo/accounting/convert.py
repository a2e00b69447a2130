"""From moments to (epsilon, delta) and back.

With A(lambda) the total log moment (Canonne et al. 2020; Balle et al. 2020),

    epsilon(delta) = min over lambda of A(lambda)/lambda + log(lambda/(lambda+1)) - (log delta + log(lambda+1))/lambda,
    log delta(epsilon) = min over lambda of A(lambda) - lambda epsilon + lambda log(lambda/(lambda+1)) - log(lambda+1).

A is convex, and so is lambda log(lambda/(lambda+1)) - log(lambda+1); hence the first objective is quasi-convex and the
second convex, and a unimodal search over the integers finds the order. Every order gives a valid bound, so that an
order which is not quite the best one costs tightness, never validity.
"""

from __future__ import annotations

import math
from collections.abc import Callable

Moment = Callable[[int], float]


def _penalty(lambda_: int) -> float:
    return -lambda_ * math.log1p(1 / lambda_) - math.log1p(lambda_)


def epsilon_at(lambda_: int, moment: float, delta: float) -> float:
    """The epsilon that one order gives (it may be negative: then zero is valid)."""
    return (moment + _penalty(lambda_) - math.log(delta)) / lambda_


def epsilon_from_moments(moment: Moment, delta: float, max_order: int = 1 << 17) -> tuple[float, int]:
    """The smallest epsilon >= 0 and the order that gives it; (inf, order) where no order has a finite moment."""
    value, order = minimise(lambda lambda_: epsilon_at(lambda_, moment(lambda_), delta), max_order)
    return max(0.0, _number(value)), order


def delta_from_moments(moment: Moment, epsilon: float, max_order: int = 1 << 17) -> tuple[float, int]:
    """The smallest delta <= 1 and the order that gives it."""

    def objective(lambda_: int) -> float:
        return moment(lambda_) - lambda_ * epsilon + _penalty(lambda_)

    value, order = minimise(objective, max_order)
    return math.exp(min(0.0, _number(value))), order


def _number(value: float) -> float:
    """The value; never NaN, which comparisons would turn into a perfect guarantee."""
    if math.isnan(value):
        raise ArithmeticError("a moment is not a number; please report the noise and the workload")
    return value


def minimise(objective: Callable[[int], float], largest: int) -> tuple[float, int]:
    """The minimum of a unimodal function on 1, 2, ..., largest: doubling to bracket it, then golden section."""
    low, middle = 1, 1
    f_middle = _number(objective(1))
    while middle < largest:
        high = min(2 * middle, largest)
        f_high = _number(objective(high))
        if not f_high < f_middle:
            break
        low, middle, f_middle = middle, high, f_high
    else:  # still falling at the end: the minimum may lie before it
        high = largest + 1
    while high - low > 2:
        # Step into the longer side of (low, middle, high).
        if high - middle > middle - low:
            probe = middle + max(1, round(0.382 * (high - middle)))
        else:
            probe = middle - max(1, round(0.382 * (middle - low)))
        f_probe = _number(objective(probe))
        if f_probe < f_middle:
            low, high = (middle, high) if probe > middle else (low, middle)
            middle, f_middle = probe, f_probe
        elif probe > middle:
            high = probe
        else:
            low = probe
    return min((f_middle, middle), *((objective(edge), edge) for edge in (low, high) if edge <= largest))
