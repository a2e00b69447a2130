"""Elementary functions in the forms that do not cancel."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

Array = NDArray[np.float64]

_FAR_CUT = 3.0


def times_log1p(k: float, a: float, b: ArrayLike) -> Array:
    """k log1p(a b); where a b is (about to be) too small for a double, k a b need not be."""
    product = a * np.asarray(b, dtype=float)
    return np.where(np.abs(product) < 1e-200, k * a * np.asarray(b, dtype=float), k * np.log1p(product))


def expm1_minus(y: ArrayLike) -> Array:
    """e^y - 1 - y, to full relative precision, by its series where the three terms would cancel."""
    y = np.asarray(y, dtype=float)
    small = np.abs(y) < 0.3
    s = np.where(small, y, 0.0)
    series = np.zeros_like(s)
    for n in range(14, 2, -1):
        series = (series + 1.0) * s / n
    series = (series + 1.0) * s * s / 2
    with np.errstate(over="ignore"):
        return np.where(small, series, np.expm1(y) - y)


def log_expm1(y: ArrayLike) -> Array:
    """log(e^y - 1) for y >= 0; -inf at 0 and y itself once e^-y no longer counts."""
    y = np.asarray(y, dtype=float)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(y > 0.7, y + np.log1p(-np.exp(-y)), np.log(np.expm1(np.minimum(y, 0.7))))


def normal_hazard(x: ArrayLike) -> Array:
    """phi(x)/P(Z > x), the slope of -log P(Z > x), to full relative precision."""
    x = np.asarray(x, dtype=float)
    near = np.minimum(x, _FAR_CUT)
    with np.errstate(over="ignore"):  # of a square, whose exponential is 0
        below = np.exp(-(near**2) / 2 - 0.5 * math.log(2 * math.pi) - special.log_ndtr(-near))
    return np.where(x > _FAR_CUT, x + normal_excess(np.maximum(x, _FAR_CUT))[0], below)


def normal_excess(c: ArrayLike) -> tuple[Array, Array]:
    """Mean of Z - c and variance of Z, given Z > c.

    With h the hazard they are h - c and 1 - h (h - c), which cancel for large c. There Laplace's continued fraction
    h = c + 1/(c + 2/(c + 3/(c + ...))) has positive terms only: with g = 2/(c + 3/(c + ...)) they are e = 1/(c + g) and
    (g - e)/(c + g), and g is close to 2 e.
    """
    c = np.asarray(c, dtype=float)
    far = c > _FAR_CUT
    excess, spread = np.empty(c.shape), np.empty(c.shape)
    large, small = c[far], c[~far]
    g = np.zeros_like(large)
    for n in range(80, 1, -1):
        g = n / (large + g)
    e = 1 / (large + g)
    with np.errstate(over="ignore"):
        hazard = np.exp(-(small**2) / 2 - 0.5 * math.log(2 * math.pi) - special.log_ndtr(-small))
    excess[far], excess[~far] = e, hazard - small
    spread[far], spread[~far] = (g - e) / (large + g), 1 - hazard * (hazard - small)
    return excess, spread
