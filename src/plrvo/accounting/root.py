"""The root of a function between two ends. SciPy has the same, but to import it takes as long as a certificate."""

from __future__ import annotations

import math
from collections.abc import Callable

_MOST = 200


def root_between(function: Callable[[float], float], low: float, high: float, width: float) -> float:
    """A point within `width` of a change of sign, by Chandrupatla's method (1997); the ends have different signs.

    >>> round(root_between(lambda x: x * x - 2, 0.0, 2.0, 1e-12), 12)
    1.414213562373
    """
    a, b = high, low
    f_a, f_b = function(a), function(b)
    if f_a == 0 or f_b == 0:
        return a if f_a == 0 else b
    if (f_a > 0) == (f_b > 0):
        raise ArithmeticError(f"no change of sign between {low} ({f_b}) and {high} ({f_a})")
    share = 0.5
    for _ in range(_MOST):
        at = a + share * (b - a)
        f_at = function(at)
        if (f_at > 0) == (f_a > 0):
            c, f_c = a, f_a
        else:
            c, b, f_c, f_b = b, a, f_b, f_a
        a, f_a = at, f_at
        best, f_best = (a, f_a) if abs(f_a) < abs(f_b) else (b, f_b)
        gap = abs(b - a)
        least = max(width, 4 * math.ulp(abs(best))) / 2 / gap if gap else 1.0
        if f_best == 0 or least > 0.5:
            return best
        # The inverse quadratic through three points, where they lie so that it falls between the ends; else the middle.
        x, phi = (a - b) / (c - b), (f_a - f_b) / (f_c - f_b)
        share = 0.5
        if phi**2 < x and (1 - phi) ** 2 < 1 - x:
            share = f_a / (f_b - f_a) * f_c / (f_b - f_c) + (c - a) / (b - a) * f_a / (f_c - f_a) * f_b / (f_c - f_b)
        share = min(1 - least, max(least, share))
    return best
