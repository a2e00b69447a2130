"""Poisson-sampled steps of a dominating pair, in both directions, for `loss_distribution` to compose.

If (P, Q) dominates a step, then ((1-q) Q + q P, Q) dominates it where the example is removed, and the reverse where
it is added (Zhu, Dong, Wang 2022; theory, section 14). An outcome of likelihood ratio e^y has the loss
log(1 - q + q e^y), or its negative. Outcomes are spread onto the points of the grid. A mass is a sum of two products
of numbers that the pair defines, and errs by a few units of the last place; a loss, made in four operations, by 16 of
them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from plrvo.accounting.losses import Loss, spread
from plrvo.accounting.profile import Profile
from plrvo.noise.base import Array

_U = 2.0**-53


@dataclass(frozen=True)
class ProfileSteps:
    """`count` steps that the pair of a profile dominates, sampled with probability `rate`."""

    pair: Profile
    rate: float
    count: int

    @property
    def moderate(self) -> bool:
        return True

    def loss(self, interval: float, log_cut: float, added: bool) -> Loss:
        """Nothing is cut besides what has an infinite loss."""
        pair, q = self.pair, self.rate
        y = np.concatenate([-pair.y[:0:-1], pair.y])
        in_q = np.concatenate([pair.high[:0:-1], pair.low])
        in_p = np.concatenate([pair.low[:0:-1], pair.high])
        losses = y if q == 1 else sampled_loss(y, q)
        mass = in_q if added else (1 - q) * in_q + q * in_p
        losses = -losses if added else losses
        lost = 0.0 if added else q * pair.infinite
        if q < 1:  # where Q alone has mass, y = -inf
            end = math.log1p(-q)
            losses = np.append(losses, -end if added else end)
            mass = np.append(mass, pair.infinite if added else (1 - q) * pair.infinite)
        elif added:
            lost = pair.infinite
        places, masses = spread(losses, mass, interval, self.count)
        error = 16 * _U * (1 + float(np.abs(losses).max()) + float(pair.y[-1]))
        return Loss(interval, places, masses, error, 16 * _U, lost * (1 + 16 * _U))


def sampled_loss(y: Array, q: float) -> Array:
    """log(1 - q + q e^y), for q < 1."""
    with np.errstate(over="ignore"):
        near = np.log1p(q * np.expm1(np.clip(y, -1.0, 30.0)))
        return np.where(np.abs(y - 14.5) <= 15.5, near, np.logaddexp(math.log1p(-q), math.log(q) + y))
