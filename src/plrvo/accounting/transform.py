"""Sums of independent lattice variables by Fourier transforms, and a bound on the rounding of every point.

With u the unit roundoff of a long double (2^-64 on x86, 2^-53 elsewhere) and N points, a coefficient of Cooley and
Tukey's algorithm is a sum in which every term has passed log2(N) levels of one complex product (3 u), one twiddle
factor (good to 2 u) and one addition (u). So a coefficient errs by at most eta = 8 u log2(N) times the sum of the
moduli, which is 1 for probabilities (Higham 2002, section 24.1; his theorem 24.2 says the same of the 2-norm).

The coefficients z of a variable are bounded by b = |z| + eta. T equal ones have z^T, which errs by T b^(T-1) eta, and
by 3 u for each of T-1 products. So a coefficient of the sum errs by at most

    r = B (eta + sum over variables of T (eta + 3u)/b),   B = product of b^T,

the eta for the way back. A point is the mean of all coefficients, turned: it errs by at most the mean of r, and the
2-norm of the errors of all points is, by Parseval's equation, at most the root of the mean of r^2.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from plrvo.noise.base import Array

UNIT = float(np.finfo(np.longdouble).eps) / 2


class Sum(NamedTuple):
    """P(sum = j modulo the size), the largest error of a point, and the 2-norm of the errors of all points."""

    law: Array
    error: float
    norm: float


def law_of_sum(parts: Iterable[tuple[Array, int]], size: int) -> Sum:
    """`parts` are laws on 0 .. size-1, with masses of at most 1 in all, and how often each is added."""
    from scipy import fft  # here, so that importing plrvo does not wait for it

    eta = 8 * UNIT * math.log2(size)
    half = size // 2 + 1
    spectrum, log_bound, relative = np.ones(half, np.clongdouble), np.zeros(half), np.full(half, eta)
    for law, times in parts:
        one = fft.rfft(law.astype(np.longdouble))
        spectrum *= _power(one, times)
        bound = np.abs(one).astype(float) + eta
        log_bound += times * np.log(bound)
        relative += times * (eta + 3 * UNIT) / bound
    # A hundredth more covers products of errors. Each coefficient stands for its mirror image too.
    error = 1.01 * np.exp(log_bound) * relative
    norm = math.sqrt(2 / size) * float(np.linalg.norm(error))
    return Sum(fft.irfft(spectrum, size).astype(float), 2 / size * float(np.sum(error)), norm)


def _power(values: np.ndarray, exponent: int) -> np.ndarray:
    """values ** exponent by squaring, whose rounding is that of `exponent` products."""
    result = np.ones_like(values)
    while exponent:
        if exponent & 1:
            result = result * values
        exponent >>= 1
        values = values * values if exponent else values
    return result
