"""The exact privacy curve of a Gaussian release that moves by `signal` standard deviations (Balle, Wang 2018)."""

from __future__ import annotations

import math

from scipy import special

from plrvo.validate import positive, probability

LARGEST_SIGNAL = 100.0  # beyond it, where epsilon is above 5000, a tail bound takes the place of the curve


def gaussian_delta(signal: float, epsilon: float) -> float:
    """Phi(m/2 - epsilon/m) - e^epsilon Phi(-m/2 - epsilon/m), m the signal."""
    kept = float(special.ndtr(signal / 2 - epsilon / signal))
    return kept - math.exp(epsilon + float(special.log_ndtr(-signal / 2 - epsilon / signal)))


def gaussian_epsilon(signal: float, delta: float) -> float:
    """The smallest epsilon >= 0 of that curve, from above.

    >>> round(gaussian_epsilon(1.0, 1e-5), 4)
    4.3772
    """
    positive(signal=signal)
    probability(delta=delta)
    if signal > LARGEST_SIGNAL:  # delta <= P(loss > epsilon), and the loss is normal with mean m^2/2 and variance m^2
        return signal**2 / 2 + signal * math.sqrt(-2 * math.log(delta))
    if gaussian_delta(signal, 0.0) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while gaussian_delta(signal, high) > delta:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if gaussian_delta(signal, middle) > delta:
            low = middle
        else:
            high = middle
    return high
