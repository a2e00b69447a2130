"""The accountant as published (the paper's Algorithm 2), for comparison. It is **not an upper bound** in general.

    alpha(lambda) = sum_{i=1}^n log sum_eta w_eta G(x_i, eta),     x_i = C (sqrt(i) - sqrt(i-1)).

The sum over coordinates stands outside the logarithm, as if every coordinate had a sampling coin of its own; the
example has one. Where noise is small the true epsilon exceeds this figure, where it is large this figure is about
twice too big (theory, section 7). It is a valid bound for q = 1 with a scale per coordinate.

*Without looping over n.* f(x_i) is convex and decreasing in i, so the sum over i > m is at most the integral from
m + 1/2 to n + 1/2 (midpoint rule): on the upper side, with relative error about 3e-3 / m^2. The order is found with
a small m, the value at it computed with a large one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import special

from plrvo.accounting.convert import epsilon_at, epsilon_from_moments
from plrvo.accounting.moments import log_weights
from plrvo.accounting.workload import Workload
from plrvo.noise.base import Array, Noise
from plrvo.noise.functions import log_expm1

_SEARCH_HEAD, _FINAL_HEAD = 12, 1000
_MAX_ORDER = 1 << 12  # enough for epsilons down to a few thousandths; beyond, seconds would be spent on a comparison


def published_moment(noise: Noise, work: Workload, lambda_: int, head: int = _FINAL_HEAD) -> float:
    """alpha(lambda) of one step; `inf` where the moment generating function of the seed ends before the order."""
    return _Sum(noise, work, head)(lambda_)


def published_epsilon(entries: Sequence[tuple[Noise, Workload]], delta: float) -> tuple[float, int] | None:
    """Epsilon of Algorithm 2 and its order; None where a noise is not covered by the paper's formula."""
    if any(noise.log_moment_scale_revealed(0.0, 2) is None for noise, _ in entries):
        return None
    search = [(work.steps, _Sum(noise, work, _SEARCH_HEAD)) for noise, work in entries]
    epsilon, order = epsilon_from_moments(
        lambda lambda_: sum(steps * moment(lambda_) for steps, moment in search), delta, _MAX_ORDER
    )
    if any(work.dimension > _SEARCH_HEAD for _, work in entries):
        head = max(_SEARCH_HEAD, min(_FINAL_HEAD, 32 * _FINAL_HEAD // len(entries)))  # many kinds: seconds, not minutes
        total = sum(work.steps * published_moment(noise, work, order, head) for noise, work in entries)
        epsilon = max(0.0, epsilon_at(order, total, delta))
    return epsilon, order


def _coordinates(clip: float, dimension: int, head: int) -> tuple[Array, Array]:
    """Shifts x_i and their multiplicities: the first `head` one by one, the rest by quadrature in log i."""
    first = np.arange(1.0, min(dimension, head) + 1)
    if dimension <= head:
        index, weights = first, np.ones_like(first)
    else:
        nodes, node_weights = np.polynomial.legendre.leggauss(12)
        start, end = np.log(head + 0.5), np.log(dimension + 0.5)
        edges = np.linspace(start, end, 2 + int((end - start) / 2))
        half = np.diff(edges)[:, None] / 2
        tail = np.exp((edges[:-1, None] + half * (nodes + 1)).ravel())
        index = np.concatenate([first, tail])
        weights = np.concatenate([np.ones_like(first), (half * node_weights).ravel() * tail])
    return clip / (np.sqrt(index) + np.sqrt(index - 1)), weights


class _Sum:
    """alpha(lambda) with the first `head` coordinates one by one; G - 1 is tabulated as orders are asked for."""

    def __init__(self, noise: Noise, work: Workload, head: int) -> None:
        self._noise, self._q = noise, work.sample_rate
        self._x, self._weights = _coordinates(work.clip, work.dimension, head)
        self._log_excess = np.full((len(self._x), 2), -np.inf)

    def _grow(self, first: int, end: int) -> Array:
        eta = np.arange(first, end, dtype=float)
        log_g = self._noise.log_moment_scale_revealed(self._x[:, None], eta[None, :])
        return log_expm1(np.asarray(log_g))

    def __call__(self, lambda_: int) -> float:
        order = lambda_ + 1
        known = self._log_excess.shape[1]
        if self._q == 1:
            log_sum = self._grow(order, order + 1)[:, 0]
        else:
            if order >= known:
                self._log_excess = np.concatenate([self._log_excess, self._grow(known, order + 1)], axis=1)
            terms = log_weights(order, self._q)[2:] + self._log_excess[:, 2 : order + 1]
            if np.isinf(terms.max()):
                return np.inf
            log_sum = special.logsumexp(terms, axis=1)
        return float(np.sum(self._weights * np.logaddexp(0.0, log_sum)))
