"""Choosing a strategy: the mean squared error of what is learnt, and the coefficients that make it small.

Iterates are linear in the released gradients: theta_t - theta_0 = -sum_s A_ts g_s. The noise of all iterates together,
at one certified epsilon, is proportional to sens(S)^2 ||A S^-1||_F^2: that product is minimised. For a Toeplitz S the
columns of M S^-1, M the momentum, are one impulse response m = momentum/c, and A adds them up over steps, weighted with
the learning rates. Neither S nor its inverse is ever formed.

Nothing here looks at data. The result is rounded to nothing: a plan keeps the coefficients themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from plrvo.accounting.correlated.correlation import Correlation
from plrvo.accounting.correlated.participation import Participation
from plrvo.accounting.correlated.toeplitz import Banded, BufferedToeplitz
from plrvo.noise.base import Array
from plrvo.validate import InvalidArgument, positive, positive_integer, rate


@dataclass(frozen=True)
class Updates:
    """How an optimizer adds gradients up: SGD with momentum and a learning rate for each step (1 by default).

    Without momentum and rates these are prefix sums. Rates beyond the length are not looked at.
    """

    momentum: float = 0.0
    learning_rates: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.momentum != 0:
            rate(momentum=self.momentum)
        if self.momentum == 1:
            raise InvalidArgument("momentum", self.momentum, "less than 1")
        positive(**{f"learning_rates[{i}]": value for i, value in enumerate(self.learning_rates)})

    def impulse(self, length: int) -> Array:
        """What a unit gradient adds to the velocity in the steps after it."""
        return self.momentum ** np.arange(float(length))

    def matrix(self, length: int) -> Array:
        """A itself, for small lengths."""
        lag = np.arange(length)[:, None] - np.arange(length)[None, :]
        velocity = np.where(lag >= 0, self.momentum ** np.maximum(lag, 0.0), 0.0)
        return np.cumsum(self._rates(length)[:, None] * velocity, axis=0)

    def _rates(self, length: int) -> Array:
        if not self.learning_rates:
            return np.ones(length)
        if len(self.learning_rates) < length:
            raise InvalidArgument("learning_rates", len(self.learning_rates), f"one for each of the {length} steps")
        return np.array(self.learning_rates[:length])

    def cost(self, response: Array) -> tuple[float, Array]:
        """||A S^-1||_F^2 where a unit of row noise turns into the velocities m = `response`, and its slope in m."""
        length = len(response)
        if not self.learning_rates:
            error = np.cumsum(response)
            weighted = error * np.arange(length, 0, -1)
            return float(np.sum(weighted * error)), 2 * np.cumsum(weighted[::-1])[::-1]
        rates = self._rates(length)
        total, slope = 0.0, np.zeros(length)
        for row in range(length):
            error = np.cumsum(rates[row:] * response[: length - row])
            total += float(error @ error)
            slope[: length - row] += 2 * rates[row:] * np.cumsum(error[::-1])[::-1]
        return total, slope


def squared_error(correlation: Correlation, steps: int, updates: Updates | None = None) -> float:
    """sens(S)^2 times the mean over iterates of the error's variance per unit of row noise; small cases only.

    The recipe itself is run on unit vectors, so that this is also what trees with Honaker's weights do.
    """
    updates = updates or Updates()
    rows, columns = 0, []
    count = sum(strategy.rows(length) for _, length, strategy in correlation.parts(steps, steps))
    unit = np.eye(count)
    for _, length, strategy in correlation.parts(steps, steps):
        stream = strategy.stream(length)
        for _ in range(length):
            due = stream.due()
            columns.append(1.0 * stream.decode([unit[rows + i].copy() for i in range(due)]))
            rows += due
    error = updates.matrix(steps) @ np.array(columns)
    return correlation.sensitivity(steps).value ** 2 * float(np.sum(error**2)) / steps


def fit_banded(bands: int, length: int, updates: Updates | None = None) -> Banded:
    """The best positive decreasing Toeplitz coefficients for visits that are at least `bands` steps apart.

    A polynomial with such coefficients has no root inside the unit circle (Enestrom, Kakeya): 1/c is stable.

    >>> [round(c, 3) for c in fit_banded(3, 100).values]
    [1.0, 0.739, 0.622]
    """
    positive_integer(bands=bands, length=length)
    if bands > length:
        raise InvalidArgument("bands", bands, f"at most {length}, the steps of the strategy")
    from scipy import signal  # here and below, so that importing plrvo does not wait for it

    updates = updates or Updates()
    impulse = updates.impulse(length)

    def coefficients(logits: Array) -> Array:
        return np.concatenate([[1.0], np.cumprod(special.expit(logits))])

    def objective(logits: Array) -> tuple[float, Array]:
        c = coefficients(logits)
        response = signal.lfilter([1.0], c, impulse)
        cost, slope = updates.cost(response)
        # m = impulse/c, so dm/dc_k is -(m/c) moved by k steps.
        moved = signal.lfilter([1.0], c, response)
        by_c = [-float(slope[k:] @ moved[: length - k]) / cost for k in range(1, bands)]
        by_c += 2 * c[1:] / float(c @ c)
        # c_k is a product of ratios, and the logarithm of a ratio has the slope 1 - ratio in its logit.
        by_logit = special.expit(-logits) * np.cumsum((by_c * c[1:])[::-1])[::-1]
        return math.log(cost) + math.log(float(c @ c)), by_logit

    if bands == 1:
        return Banded()
    j = np.arange(1.0, bands)
    return Banded(tuple(coefficients(_minimum(objective, special.logit((2 * j - 1) / (2 * j)), True))))


def fit_blt(
    buffers: int, length: int, participation: Participation | None = None, updates: Updates | None = None
) -> BufferedToeplitz:
    """The best scales and decays for so many buffers; the earliest pattern of visits is the worst, and is charged."""
    from scipy import signal

    positive_integer(buffers=buffers, length=length)
    updates, participation = updates or Updates(), participation or Participation(length)
    impulse = updates.impulse(length)
    visits, separation = participation.visits(length), participation.separation

    def strategy(parameters: Array) -> BufferedToeplitz:
        # A share of 1 for the scales, with something left over, and decays inside (0, 1).
        scales = special.softmax(np.append(parameters[:buffers], 0.0))[:-1]
        return BufferedToeplitz(tuple(scales * (1 - 1e-12)), tuple(special.expit(parameters[buffers:])))

    def objective(parameters: Array) -> float:
        found = strategy(parameters)
        c = found.coefficients(length)
        response = signal.lfilter(*_inverse(found), impulse)
        earliest = sum(np.concatenate([np.zeros(i * separation), c])[:length] for i in range(visits))
        return math.log(updates.cost(response)[0]) + math.log(float(np.sum(np.square(earliest))))

    # Buffers that forget after 1, ..., length steps, alike on a logarithmic scale.
    reach = np.geomspace(1.0, length, buffers + 1)[1:]
    start = np.concatenate([-0.5 * np.log(reach), np.log(reach)])
    return strategy(_minimum(objective, start, "3-point"))


def _inverse(strategy: BufferedToeplitz) -> tuple[Array, Array]:
    """Numerator and denominator of 1/c(x), c(x) = 1 + sum_d w_d x/(1 - l_d x)."""
    factors = [np.array([1.0, -decay]) for decay in strategy.decays]
    below = np.ones(1)
    for factor in factors:
        below = np.convolve(below, factor)
    above = below.copy()
    for i, scale in enumerate(strategy.scales):
        others = np.ones(1)
        for j, factor in enumerate(factors):
            if j != i:
                others = np.convolve(others, factor)
        above += scale * np.append(0.0, others)
    return below, above


def _minimum(objective: Callable[[Array], Any], start: Array, jac: Any) -> Array:
    from scipy import optimize

    options: Any = {"maxiter": 2000, "maxfun": 50_000, "ftol": 1e-13, "gtol": 1e-9}
    return np.asarray(optimize.minimize(objective, start, jac=jac, method="L-BFGS-B", options=options).x)
