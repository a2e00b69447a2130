"""The log moment of one coordinate of a scale mixture of Laplace noises, by quadrature without cancellation.

Let p(z) = phi(|z|) with phi decreasing. At a point where p is phi(t) and the shifted density is e^-y phi(t), and at
its mirror image in x/2, where the two change places, p(z-x)^eta p(z)^(1-eta) summed over both exceeds the densities'
own sum by phi(t) D(y), where

    D(y) = e^((eta-1) y) (1 - e^(-eta y)) (1 - e^(-(eta-1) y))  >= 0.

So F - 1 is an integral of a non-negative function over half the line: t from 0 to inf outside [0, x], with
y = log phi(t)/phi(t+x), and t from 0 to x/2 inside, with y = log phi(t)/phi(x-t).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from plrvo.noise.base import Array
from plrvo.noise.quadrature import half_line

LogRatio = Callable[[Array, Array], Array]
LogDensity = Callable[[Array], Array]


def mixture_log_moment(
    log_phi: LogDensity, log_ratio: LogRatio, scales: tuple[float, float], x: ArrayLike, eta: ArrayLike
) -> Array:
    """log F(x, eta), broadcast over x and eta. `log_ratio(t, s)` is log phi(t)/phi(t+s).

    `scales` are the finest and the coarsest of phi. It is an average of e^(-ut), so that around t it changes over t at
    least, whatever the seed; only what is finer than the first node, or beyond the last, would be missed.
    """
    x, eta = np.broadcast_arrays(np.asarray(x, dtype=float), np.asarray(eta, dtype=float))
    out = np.zeros(x.shape)
    active = (eta != 0) & (eta != 1) & (x > 0)
    if np.any(active):
        order = np.maximum(eta[active], 1 - eta[active])
        shifts, where = np.unique(x[active], return_inverse=True)
        out[active] = _log_moment(log_phi, log_ratio, scales, shifts, where, order)
    return out


def _log_moment(
    log_phi: LogDensity,
    log_ratio: LogRatio,
    scales: tuple[float, float],
    shifts: Array,
    where: NDArray[np.intp],
    order: Array,
) -> Array:
    finest = 0.1 * scales[0] / max(1.0, float(order.max()))
    t, outer_weights = half_line(min(finest, shifts[0]), 1e6 * max(scales[1], shifts[-1]))
    v, inner_weights = half_line(min(finest / shifts[-1], 1.0), 1.0)
    z = shifts[:, None] / 2 * v
    with np.errstate(divide="ignore"):
        log_weight = np.concatenate(
            [
                np.broadcast_to(np.log(outer_weights) + log_phi(t), (len(shifts), len(t))),
                np.log(inner_weights * shifts[:, None] / 2) + log_phi(z),
            ],
            axis=1,
        )
    y = np.concatenate([log_ratio(t[None, :], shifts[:, None]), log_ratio(z, shifts[:, None] - 2 * z)], axis=1)
    result = np.empty(len(order))
    # Blocks keep the table of (shift, order) pairs by nodes within a few megabytes.
    block = max(1, 400_000 // y.shape[1])
    for start in range(0, len(order), block):
        rows, eta = where[start : start + block], order[start : start + block, None]
        result[start : start + block] = log1p_integral(log_weight[rows], y[rows], eta)
    return result


def log1p_integral(log_weight: Array, y: Array, eta: Array) -> Array:
    """log(1 + sum of e^log_weight D(y)) by rows. D < 0 for eta < 1, where F < 1."""
    growth = (eta - 1) * y
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        fall = -np.expm1(-growth)
        if growth.max() < 600:
            total = np.sum(np.exp(log_weight + growth) * fall * -np.expm1(-eta * y), axis=1)
            return np.log1p(total)
        log_terms = log_weight + growth + np.log(fall) + np.log(-np.expm1(-eta * y))
    return np.logaddexp(0.0, special.logsumexp(log_terms, axis=1))
