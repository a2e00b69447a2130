"""A Poisson number of trials. There may be none: then nothing is released, with the same probability on all data.

The derivative of the generating function is f'(x) = mu e^(-mu (1-x)). With V and V' the probabilities of one event for
a trial on the two data sets, the selection costs (docs/selection.md, Theorem S2)

    A(lambda)      <= log( e^-mu + mu exp(A_trial(lambda) + lambda mu d) ),  a trial: (log(1 + 1/lambda), d)-private,
    epsilon(delta) <= epsilon_trial(delta / mu) + mu d,                      a trial: (0, d)-private.

The first is Theorem 6 of Papernot and Steinke 2022, with a term for the release of nothing, which a mean below one or a
trial that costs little cannot do without.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar

import numpy as np

from plrvo import validate
from plrvo.accounting.certified import rdp_certificate, rdp_certificate_at
from plrvo.accounting.selection.count import MARGIN, MOST_TRIALS, Count, check_delta
from plrvo.accounting.selection.trial import Trial
from plrvo.validate import InvalidArgument

_UP = 1 + 2.0**-45
_NEAR = (0.4, 0.6, 0.8, 1.0, 1.3, 1.7, 2.2)  # of the best order by moments: where tight deltas are used


@dataclass(frozen=True)
class PoissonCount(Count):
    """`mu` trials on average, and none with probability e^-mu.

    >>> count = PoissonCount(10.0)
    >>> f"{count.nothing:.1e}", count.at_most(0.99)
    ('4.5e-05', 18)
    """

    mu: float
    kind: ClassVar[str] = "poisson"

    def __post_init__(self) -> None:
        validate.positive(mu=self.mu)
        validate.native(self)
        if self.mu > MOST_TRIALS:
            raise InvalidArgument("mu", self.mu, f"at most {MOST_TRIALS:g}")

    @property
    def mean(self) -> float:
        return self.mu * _UP

    @property
    def nothing(self) -> float:
        return math.exp(-self.mu)

    def probabilities(self) -> Iterator[Decimal]:
        mu = Decimal(self.mu)
        share, k = (-mu).exp(), 0
        while True:
            yield share
            k += 1
            share *= mu / k

    def certified(self, trial: Trial, delta: float) -> float:
        check_delta(delta)
        found = [self.quick(trial, delta)]
        flat = self.mean * trial.deltas((0.0,))[0]
        if flat < found[0]:
            found.append((trial.certified(self._share(delta)) + flat) * _UP)
        if trial.has_moments:
            best = self._by_moments(trial, delta)[1]
            orders = tuple(sorted({min(trial.largest_order, max(1, round(near * best))) for near in _NEAR}))
            values = zip(orders, self.moments(trial, orders), strict=True)
            found += [rdp_certificate_at(order, at, delta * (1 - MARGIN)).value for order, at in values]
        return min(found)

    def quick(self, trial: Trial, delta: float) -> float:
        check_delta(delta)
        flat = (trial.quick(self._share(delta)) + self.mean * trial.delta_by_moments(0.0)) * _UP
        return min(flat, self._by_moments(trial, delta)[0]) if trial.has_moments else flat

    def moments(self, trial: Trial, orders: tuple[int, ...]) -> list[float]:
        # Rounded downwards: a smaller epsilon has a larger delta.
        deltas = trial.deltas(tuple(_level(order) for order in orders))
        return [self._moment(trial, order, delta) for order, delta in zip(orders, deltas, strict=True)]

    def _share(self, delta: float) -> float:
        return min(delta * (1 - MARGIN) / self.mean, 1 - MARGIN)

    def _by_moments(self, trial: Trial, delta: float) -> tuple[float, int]:
        def moment(order: int) -> float:
            return self._moment(trial, order, trial.delta_by_moments(_level(order)))

        found = rdp_certificate(moment, delta * (1 - MARGIN), trial.largest_order)
        return found.value, found.order or 1

    def _moment(self, trial: Trial, order: int, delta: float) -> float:
        moment = trial.moment(order)
        if math.isinf(moment):
            return math.inf
        exponent = moment + order * self.mean * delta
        return float(np.logaddexp(-self.mu, math.log(self.mean) + exponent * _UP)) * _UP


def _level(order: int) -> float:
    return math.log1p(1 / order) * (1 - 2.0**-50)
