"""The log moment A(lambda) of one subsampled step, all coordinates together (theory, section 3).

    A(lambda) = log sum_{eta=0}^{lambda+1} binom(lambda+1, eta) (1-q)^(lambda+1-eta) q^eta exp(H(eta)),

H(eta) >= log sup_g prod_i F(|g_i|, eta), asked from the noise. The example's coin is tossed once for all coordinates:
the sum over eta stands outside the product. H(0) = H(1) = 0, so with the weights summing to one

    A(lambda) = log1p( sum_{eta>=2} weight * (e^H - 1) ),

which keeps its precision however small the moment is. Where H is large and A small, a relative error of H becomes
hundreds of times as large in A, so every H is raised by what its noise says it may err by (`Noise.moment_margin`).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy import special

from plrvo.noise.base import Array, Noise
from plrvo.noise.functions import log_expm1


def log_weights(order: int, q: float) -> Array:
    """log of binom(order, eta) (1-q)^(order-eta) q^eta for eta = 0 .. order, q < 1."""
    eta = np.arange(order + 1.0)
    factorials = log_factorials(order)
    return factorials[order] - factorials - factorials[::-1] + (order - eta) * np.log1p(-q) + eta * np.log(q)


def weights_error(order: int, q: float) -> float:
    """A bound on the error of `log_weights`: 2^-51 of the sizes of its terms, of which there are five."""
    return float(2.0**-51 * (3 * log_factorials(order)[order] + order * (abs(np.log1p(-q)) + abs(np.log(q)))))


@lru_cache(maxsize=64)
def log_factorials(order: int) -> Array:
    """log 0!, log 1!, ..., log order!."""
    return np.asarray(special.gammaln(np.arange(order + 1.0) + 1))


_LEAST = 1e-300  # what a moment that underflows is charged


class StepMoments:
    """A(lambda) for one noise, clip, dimension and sampling rate, at integer lambda >= 1."""

    def __init__(self, noise: Noise, clip: float, dimension: int, sample_rate: float, tail: float = 0.0) -> None:
        self._noise, self._clip, self._dimension = noise, clip, dimension
        self._q, self._tail = sample_rate, tail
        self._log_excess = np.full(2, -np.inf)  # log(e^H(eta) - 1), grown as orders are asked for
        self._known: dict[int, float] = {}

    def __call__(self, lambda_: int) -> float:
        if lambda_ not in self._known:
            self._known[lambda_] = self._at(lambda_ + 1)
        return self._known[lambda_]

    def _joint(self, first: int, end: int) -> Array:
        eta = np.arange(first, end, dtype=float)
        with np.errstate(over="ignore"):
            joint = self._noise.log_joint_moment(self._clip, self._dimension, eta, self._tail)
            return joint * (1 + self._noise.moment_margin)

    def _at(self, order: int) -> float:
        if self._q == 1:
            return max(_LEAST, float(self._joint(order, order + 1)[0]))
        if order >= len(self._log_excess):
            first = len(self._log_excess)
            grown = self._joint(first, max(order + 1, min(2 * first, first + 512), 34))
            self._log_excess = np.concatenate([self._log_excess, log_expm1(grown)])
        terms = log_weights(order, self._q)[2:] + self._log_excess[2 : order + 1]
        top = terms.max()
        if np.isinf(top):  # nothing finite, or nothing at all (moments too small for a double)
            return max(_LEAST, float(top))
        return max(
            _LEAST, float(np.logaddexp(0.0, top + weights_error(order, self._q) + np.log(np.sum(np.exp(terms - top)))))
        )
