"""The exact privacy curve of a Gaussian release that moves by `signal` standard deviations (Balle, Wang 2018).

With m the signal and a = epsilon/m - m/2,

    delta = Phi(-a) - e^epsilon Phi(-a-m) = phi(a) (R(a) - R(a+m)),   R = Phi(-x)/phi(x), Mills' ratio.

The second form cannot overflow, and for small m, where it would cancel, R(a) - R(a+m) is the integral of
-R' = 1 - x R(x) > 0. Everything is solved for a: epsilon = m (a + m/2) comes last, rounded up.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from plrvo.noise.functions import normal_excess
from plrvo.noise.quadrature import legendre
from plrvo.validate import positive, probability

_UNIT = 2.0**-53
_LOG_ROOT_TWO_PI = 0.5 * math.log(2 * math.pi)
_SMALLEST_NORMAL = 2.0**-1022  # below it doubles have fewer digits
_RELATIVE_ERROR = 1e-12  # of a delta from here: the functions it is made of are good to 1e-15


def gaussian_delta(signal: float, epsilon: float) -> float:
    """The delta of a release that moves by `signal` standard deviations, to 12 digits.

    Where a double has fewer, or epsilon/m - m/2 cancels, it is rounded up, and it is never 0.
    """
    positive(signal=signal)
    far, half = epsilon / signal, signal / 2
    a = far - half - 4 * _UNIT * (far + half)
    value = math.exp(_log_delta(signal, a)) if a < 40 else 0.0  # delta <= P(Z > a) <= e^(-a^2/2)
    return value if value >= _SMALLEST_NORMAL else math.nextafter(value * (1 + _RELATIVE_ERROR), math.inf)


def gaussian_epsilon(signal: float, delta: float) -> float:
    """The smallest epsilon >= 0 of that curve, rounded up (by a relative 1e-12 of delta, and the last bits).

    >>> round(gaussian_epsilon(1.0, 1e-5), 4)
    4.3772
    """
    positive(signal=signal)
    probability(delta=delta)
    target = math.log(delta) - _RELATIVE_ERROR
    low = -signal / 2
    if _log_delta(signal, low) <= target:
        return 0.0
    high = math.sqrt(-2 * math.log(delta)) + 1  # delta <= P(Z > a) <= e^(-a^2/2)
    while True:
        middle = (low + high) / 2
        if not low < middle < high or high - low < 1e-15 * (1 + abs(high)):
            break
        if _log_delta(signal, middle) > target:
            low = middle
        else:
            high = middle
    half = signal / 2
    # a + m/2 may cancel: the error of either is charged.
    return max(0.0, signal * (high + half + 4 * _UNIT * (abs(high) + half)) * (1 + 4 * _UNIT))


def _log_delta(signal: float, a: float) -> float:
    """log delta, from whichever form does not cancel."""
    b = a + signal
    if signal <= 1:
        nodes, weights = legendre(16)
        x = a + signal * nodes
        excess, _ = normal_excess(x)
        gap = signal * float(np.sum(weights * excess / (x + excess)))  # 1 - x R(x): the hazard is x + excess
        return -a * a / 2 - _LOG_ROOT_TWO_PI + math.log(gap)
    kept = float(special.erfcx(b / math.sqrt(2)))
    if a > 0:
        gap = float(special.erfcx(a / math.sqrt(2))) - kept
        return -a * a / 2 - math.log(2) + math.log(gap)
    inside = a * a / 2
    return math.log(float(special.ndtr(-a)) - (math.exp(-inside) * kept / 2 if inside < 700 else 0.0))
