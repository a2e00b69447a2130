"""Elementary functions in the forms that do not cancel."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


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
