"""Whether an account can take one more plan, whoever chose it and after whatever they had seen: a privacy filter.

The plans of an account are chosen one after the other, by people who know what the earlier ones gave. What the ledger
certifies by loss distributions holds for plans that were fixed beforehand; an account must not rest on it. Moments at
an order that was fixed beforehand may be added whatever the choices were (theory, section 16). With L the likelihood
ratio of all that was released, and a(lambda) the sum of the moments, E[L^lambda e^-a(lambda)] <= 1 at each order. The
account fixes orders with weights w when it is made, and takes a plan where for all L

    1 - e^epsilon / L <= delta * sum_lambda w(lambda) L^lambda e^-a(lambda).

The mean of the right side is at most delta: that is the guarantee. With log L = epsilon + x, the difference of the
logarithms is concave in x, and largest between log(1 + 1/lambda) of the largest and of the smallest order.

The weights are largest at the order that is best for Gaussian noise which costs the whole budget. Compared with the
best order in hindsight, which is no filter, that costs 1 to 10 per cent of epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from plrvo import validate
from plrvo.accounting.certified import RDP_MARGIN
from plrvo.noise.base import Array
from plrvo.validate import InvalidArgument

_RATIO = 1.2  # of one order to the next: all of 1 to 6, then fewer
_LARGEST, _LEAST_LARGEST = 4096, 64
_SHIFT, _WIDTH, _FLOOR = 0.9, 0.3, 0.02  # of the weights; sampled noise has its best order a little earlier
_MOST_EPSILON = 1e6


@dataclass(frozen=True)
class Filter:
    """A budget, and the orders and weights that were fixed with it.

    >>> small = Filter.of(epsilon=1.0, delta=1e-5)
    >>> gaussian = np.array([order * (order + 1) / 2 / 16 for order in small.orders])  # one step, noise multiplier 4
    >>> small.admits(gaussian), Filter.of(epsilon=1.1, delta=1e-5).admits(gaussian)
    (False, True)
    """

    epsilon: float
    delta: float
    orders: tuple[int, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        validate.positive(epsilon=self.epsilon)
        validate.probability(delta=self.delta)
        if self.epsilon > _MOST_EPSILON:
            raise InvalidArgument("epsilon", self.epsilon, f"at most {_MOST_EPSILON:g}")
        validate.positive_integer(**{f"orders[{i}]": order for i, order in enumerate(self.orders)})
        validate.positive(**{f"weights[{i}]": weight for i, weight in enumerate(self.weights)})
        if not self.orders or len(self.orders) != len(self.weights) or math.fsum(self.weights) > 1:
            raise InvalidArgument("weights", self.weights, "one for each order, which together are at most 1")

    @staticmethod
    def of(epsilon: float, delta: float) -> Filter:
        """The filter of a new account: nothing of it depends on what the account is used for."""
        validate.positive(epsilon=epsilon)
        validate.probability(delta=delta)
        centre = _best_gaussian_order(epsilon, delta)
        top = min(_LARGEST, max(_LEAST_LARGEST, 4 * centre))
        steps = math.ceil(math.log(top) / math.log(_RATIO))
        orders = np.unique(np.round(_RATIO ** np.arange(steps + 1)))
        distance = np.log(orders / (_SHIFT * centre))
        weights = (np.exp(-(distance**2) / (2 * _WIDTH**2)) + _FLOOR) * np.gradient(np.log(orders))
        weights *= (1 - 1e-12) / weights.sum()  # at most 1, however they are summed
        return Filter(epsilon, delta, tuple(int(order) for order in orders), tuple(float(w) for w in weights))

    def admits(self, moments: Array) -> bool:
        """Whether all that has these moments together, at `orders`, keeps the budget."""
        return self._excess(self.epsilon, moments) <= 0

    def spent(self, moments: Array) -> float:
        """The smallest budget, with these orders and weights, that would have admitted it; `inf` if none would."""
        if not np.any(moments > 0):
            return 0.0
        low, high = 0.0, 1.0
        while self._excess(high, moments) > 0:
            low, high = high, 2 * high
            if high > 2 * _MOST_EPSILON:
                return math.inf
        while high - low > 1e-9 * high:
            middle = (low + high) / 2
            low, high = (low, middle) if self._excess(middle, moments) <= 0 else (middle, high)
        return high

    def _excess(self, epsilon: float, moments: Array) -> float:
        """By how much log delta is exceeded at most, rounded upwards; infinite where no order is finite."""
        finite = np.isfinite(moments)
        if np.any(np.isnan(moments)) or np.any(moments < 0):
            raise ArithmeticError(f"moments {moments} are impossible; please report the plans")
        if not finite.any():
            return math.inf
        orders = np.array(self.orders, dtype=float)[finite]
        at_zero = np.log(np.array(self.weights)[finite]) - moments[finite] * (1 + RDP_MARGIN) + orders * epsilon

        def tilted(x: float) -> tuple[float, float]:
            """The logarithm of the sum, and its slope: the mean order."""
            terms = at_zero + orders * x
            top = float(terms.max())
            shares = np.exp(terms - top)
            return top + math.log(float(shares.sum())), float(shares @ orders / shares.sum())

        low, high = math.log1p(1 / float(orders.max())), math.log1p(1 / float(orders.min()))
        for _ in range(60):  # the slope falls from above zero to below
            middle = (low + high) / 2
            low, high = (middle, high) if 1 / math.expm1(middle) > tilted(middle)[1] else (low, middle)
        total, mean_order = tilted(low)
        # Concave: nowhere above the tangent, up to `high`.
        rise = abs(1 / math.expm1(low) - mean_order) * (high - low)
        size = float(np.abs(at_zero).max()) + float(orders.max()) + abs(math.log(self.delta)) + 1
        return math.log(-math.expm1(-low)) + rise - total - math.log(self.delta) + 2.0**-45 * size

    def to_dict(self) -> dict[str, Any]:
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "orders": list(self.orders),
            "weights": list(self.weights),
        }

    @staticmethod
    def from_dict(description: Mapping[str, Any]) -> Filter:
        """The filter that `to_dict` described."""
        epsilon, delta = description["epsilon"], description["delta"]
        return Filter(epsilon, delta, tuple(description["orders"]), tuple(description["weights"]))


def _best_gaussian_order(epsilon: float, delta: float) -> float:
    """The best order for Gaussian noise that costs epsilon.

    That is where (lambda + 1) m / 2 + (log 1/delta - log(lambda + 1) - 1) / lambda is smallest, and equals epsilon.
    """
    order = 1.0
    for _ in range(20):
        rest = max(0.5, -math.log(delta) - math.log1p(order) - 1) / epsilon
        order = max(1.0, rest + math.sqrt(rest * rest + rest))
    return order
