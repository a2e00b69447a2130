"""A truncated negative binomial number of trials: geometric for eta = 1, logarithmic for eta = 0.

    P[K = k]  is proportional to  (1-gamma)^k prod_{l<k} (l+eta)/(l+1),   k = 1, 2, ...

The derivative of its generating function is f'(x) = E[K] (gamma / (1 - (1-gamma) x))^(1+eta). Let V and V' be the
probabilities of one event for a trial on the two data sets, U = gamma + (1-gamma) V, and e^r the largest U'/U. Then the
selection costs (docs/selection.md, Theorem S1)

    epsilon(delta) <= epsilon_trial(delta / E[K]) + (1+eta) r,
    A(lambda)      <= A_trial(lambda) + lambda (1+eta) r + log E[K].

For r every one of these is a bound, and the smallest is taken:

- where a trial is (e, d)-private, r <= max(e, log(1 + d (1-gamma)/gamma)), for every d;
- r <= (A_trial(lambda) + log(1/gamma)) / (lambda+1), at every order (with which the second line is Theorem 2 of
  Papernot and Steinke 2022).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, getcontext
from functools import lru_cache
from typing import ClassVar

from scipy import optimize

from plrvo import validate
from plrvo.accounting.convert import minimise
from plrvo.accounting.selection.count import MARGIN, MOST_TRIALS, Count, check_delta
from plrvo.accounting.selection.trial import Trial
from plrvo.validate import InvalidArgument

_UP = 1 + 2.0**-45  # more than a few roundings
_LARGEST_ETA = 100.0
_SMALLEST_ETA = 1e-9
_SMALLEST_GAMMA = 1e-7
_BISECTIONS = 24  # of moments
_LEAST_SHARE = 0.02  # of the quick bound on r, where the tight one may lie
_POINTS = (24, 24)  # epsilons that are looked at, twice: the second time between neighbours


@dataclass(frozen=True)
class NegativeBinomial(Count):
    """At least one trial; `eta` above -1 says how the number spreads, `gamma` in (0, 1) how large it is.

    >>> geometric = NegativeBinomial.of_mean(10.0, eta=1.0)
    >>> round(geometric.gamma, 6), round(geometric.mean, 6), geometric.at_most(0.99)
    (0.1, 10.0, 44)
    """

    eta: float
    gamma: float
    kind: ClassVar[str] = "negative-binomial"

    def __post_init__(self) -> None:
        validate.probability(gamma=self.gamma)
        validate.native(self)
        _check_eta(self.eta)
        if not _SMALLEST_GAMMA <= self.gamma <= 1 - _SMALLEST_GAMMA:
            raise InvalidArgument("gamma", self.gamma, f"from {_SMALLEST_GAMMA:g} to 1 - {_SMALLEST_GAMMA:g}")

    @staticmethod
    def of_mean(mean: float, eta: float = 1.0) -> NegativeBinomial:
        """So many trials on average."""
        _check_eta(eta)
        validate.positive(mean=mean)
        if not 1 < mean <= MOST_TRIALS:
            raise InvalidArgument("mean", mean, f"more than 1 trial on average, and at most {MOST_TRIALS:g}")

        def excess(log_odds: float) -> float:
            return math.log(_mean(eta, 1 / (1 + math.exp(log_odds)))) - math.log(mean)

        high = math.log(1 / _SMALLEST_GAMMA - 1) * 0.999
        if excess(high) < 0 or excess(-high) > 0:
            raise InvalidArgument("mean", mean, f"nearer to 1, or more spread: eta={eta:g} cannot have it")
        return NegativeBinomial(float(eta), 1 / (1 + math.exp(optimize.brentq(excess, -high, high, xtol=1e-13))))

    @property
    def mean(self) -> float:
        return _mean(self.eta, self.gamma) * _UP

    @property
    def nothing(self) -> float:
        return 0.0

    def probabilities(self) -> Iterator[Decimal]:
        yield Decimal(0)
        gamma, eta = Decimal(self.gamma), Decimal(self.eta)
        getcontext().prec += 12  # eta may be small: the difference loses so many digits
        log = gamma.ln()
        unit = eta / ((-eta * log).exp() - 1) if self.eta else -1 / log
        getcontext().prec -= 12
        share, k = unit * (1 - gamma), 1
        while True:
            yield share
            share *= (1 - gamma) * (k + eta) / (k + 1)
            k += 1

    def certified(self, trial: Trial, delta: float) -> float:
        check_delta(delta)
        return (trial.certified(self._share(delta)) + (1 + self.eta) * self.log_ratio(trial)) * _UP

    def quick(self, trial: Trial, delta: float) -> float:
        check_delta(delta)
        return (trial.quick(self._share(delta)) + (1 + self.eta) * self.quick_log_ratio(trial)) * _UP

    def moments(self, trial: Trial, orders: tuple[int, ...]) -> list[float]:
        rate, start = (1 + self.eta) * self.log_ratio(trial), math.log(self.mean)
        return [(trial.moment(order) + order * rate + start) * _UP for order in orders]

    def _share(self, delta: float) -> float:
        return delta * (1 - MARGIN) / self.mean

    @property
    def odds(self) -> float:
        return (1 - self.gamma) / self.gamma

    def log_ratio(self, trial: Trial) -> float:
        """r, from above."""
        return _log_ratio(self, trial)

    def quick_log_ratio(self, trial: Trial) -> float:
        """r by moments alone."""
        return _quick(self, trial)

    def ratio_at(self, epsilon: float, delta: float) -> float:
        """The bound on r of a trial that is (epsilon, delta)-private."""
        return max(epsilon, math.log1p(self.odds * delta)) * _UP


def _check_eta(eta: float) -> None:
    validate.number(eta=eta)
    if not -1 < eta <= _LARGEST_ETA or 0 < abs(eta) < _SMALLEST_ETA:
        raise InvalidArgument("eta", eta, f"above -1 and at most {_LARGEST_ETA:g}; 0, or {_SMALLEST_ETA:g} from it")


def _mean(eta: float, gamma: float) -> float:
    """eta (1-gamma) / (gamma (1 - gamma^eta))."""
    log = math.log(gamma)
    spread = -math.expm1(eta * log) / eta if eta else -log
    return (1 - gamma) / gamma / spread


@lru_cache(maxsize=512)
def _quick(count: NegativeBinomial, trial: Trial) -> float:
    """The smaller of both bounds on r, by moments."""
    low, high = math.log(1e-15 / (1 + count.odds)), math.log(0.999)
    best = math.inf
    for _ in range(_BISECTIONS):  # to where the falling epsilon meets the rising logarithm
        delta = math.exp((low + high) / 2)
        epsilon = trial.by_moments(delta)
        best = min(best, count.ratio_at(epsilon, delta))
        meets = epsilon > math.log1p(count.odds * delta)
        low, high = (math.log(delta), high) if meets else (low, math.log(delta))
    if trial.has_moments:
        surplus = -math.log(count.gamma)
        found, _ = minimise(lambda order: (trial.moment(order) + surplus) / (order + 1), trial.largest_order)
        best = min(best, found * _UP)
    return best


@lru_cache(maxsize=512)
def _log_ratio(count: NegativeBinomial, trial: Trial) -> float:
    """By deltas at epsilons below the quick bound: on all of them first, and then around the best."""
    best = _quick(count, trial)
    low, high = _LEAST_SHARE * best, best
    for points in _POINTS:
        epsilons = tuple(low * (high / low) ** (i / (points - 1)) for i in range(points))
        values = [count.ratio_at(e, d) for e, d in zip(epsilons, trial.deltas(epsilons), strict=True)]
        at = min(range(points), key=values.__getitem__)
        best = min(best, values[at])
        low, high = epsilons[max(0, at - 1)], epsilons[min(points - 1, at + 1)]
    return best
