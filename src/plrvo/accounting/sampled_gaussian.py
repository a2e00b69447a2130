"""The loss distribution of a Poisson-sampled Gaussian step, from above, for `loss_distribution` to compose.

A step without (x ~ N(0, 1)) and with the example (x ~ N(m, 1) with probability q) has the loss
L(x) = log(1 - q + q e^(m x - m^2/2)), or its negative where the example is added.

**Rounding**, with u = 2^-53: a mass within r of both means errs by a relative u (16 + 4 r^2), for the squares in its
densities, and a loss by 8 u (|L| + |m x|). The tails of x that are cut are charged, with a hundredth more.

The result is an upper bound at every delta. It lies between the optimistic and the pessimistic estimate of
dp-accounting on as fine a grid, but for that library's rounding, which is signed (it reports negative deltas).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import special

from plrvo.accounting.losses import Loss, places_between
from plrvo.noise.base import Array
from plrvo.noise.quadrature import legendre

_U = 2.0**-53
_MANY = 64  # steps, from which on all have the same places
_LARGEST_SIGNAL = 1000.0  # beyond it a step does not fit into memory


@dataclass(frozen=True)
class Steps:
    """`count` steps that move a Gaussian by `signal` standard deviations with probability `rate`."""

    signal: float
    rate: float
    count: int

    @property
    def moderate(self) -> bool:
        return self.signal <= _LARGEST_SIGNAL

    def loss(self, interval: float, log_cut: float, added: bool) -> Loss:
        """x is cut where each tail has the mass e^log_cut."""
        reach = -float(special.ndtri_exp(log_cut))
        return _one_step(
            self.signal, self.rate, interval, reach, 2 * math.exp(log_cut) * 1.01, added, min(self.count, _MANY)
        )


@lru_cache(maxsize=32)
def _one_step(m: float, q: float, interval: float, reach: float, lost: float, added: bool, count: int) -> Loss:
    """x from -reach to m + reach, cut at the grid's losses and at least every fiftieth of a standard deviation."""
    start, end = -reach, m + reach
    extra = np.arange(start, end, min(0.02, 0.1 / m))
    low, high = (float(v) for v in _loss(np.array([start, end]), m, q))
    places = places_between(*((-high, -low) if added else (low, high)), interval, count)
    grid = interval * (-places if added else places)
    if q < 1:
        # e^L - (1-q) = e^L (1 - e^(log(1-q) - L)): as q goes to 1 the difference alone would lose its digits.
        least = math.log1p(-q)
        grid = grid[grid > least]
        grid = grid + np.log(-np.expm1(least - grid)) - math.log(q)
    with np.errstate(over="ignore"):  # beyond the ends, for a tiny m
        x = np.concatenate([[start, end], extra, grid / m + m / 2])
    x = np.unique(np.clip(x, start, end))
    widths = np.diff(x)
    middle = _loss(x[:-1] + widths / 2, m, q)
    cell = np.clip(np.searchsorted(interval * places, -middle if added else middle, "right") - 1, 0, len(places) - 2)
    below, gap = interval * places[cell], interval * (places[cell + 1] - places[cell])
    nodes, weights = legendre(6)
    total, upper = np.zeros(len(cell)), np.zeros(len(cell))
    for node, weight in zip(nodes, weights, strict=True):
        at = x[:-1] + node * widths
        loss = _loss(at, m, q)
        without, with_it = np.exp(-(at**2) / 2), np.exp(-((at - m) ** 2) / 2)
        mass = weight * widths / math.sqrt(2 * math.pi) * (without if added else (1 - q) * without + q * with_it)
        share = np.expm1(below - (-loss if added else loss)) / np.expm1(-gap)
        total += mass
        upper += mass * np.clip(share, 0.0, 1.0)
    masses: Array = np.zeros(len(places))
    masses += np.bincount(cell, total - upper, len(places)) + np.bincount(cell + 1, upper, len(places))
    loss_error = 8 * _U * (max(abs(low), abs(high)) + m * (m + reach))
    return Loss(interval, places.astype(np.int64), masses, loss_error, _U * (16 + 4 * (m + reach) ** 2), lost)


def _loss(x: Array, m: float, q: float) -> Array:
    y = m * (x - m / 2)
    if q == 1:
        return y
    with np.errstate(over="ignore"):
        near = np.log1p(q * np.expm1(np.clip(y, -1.0, 30.0)))
        return np.where(np.abs(y - 14.5) <= 15.5, near, np.logaddexp(math.log1p(-q), math.log(q) + y))
