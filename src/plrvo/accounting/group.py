"""What a guarantee for one example is worth to somebody who has several.

A release that is (e, d)-private for one example is (g e, d (exp(g e) - 1)/(exp(e) - 1))-private for g of them (Vadhan
2017, lemma 2.2). Every d for which the second term is at most delta is allowed, and the largest of them is best.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

from plrvo.accounting.certified import Certificate
from plrvo.validate import positive_integer, probability

_SMALLEST_LOG_DELTA = -690.0  # beyond it a delta is no longer a double


class _Priced(Protocol):
    def quick(self, delta: float) -> Certificate: ...
    def certified(self, delta: float) -> Certificate: ...


def group_epsilon(ledger: _Priced, size: int, delta: float) -> float:
    """A certified epsilon for `size` examples that change together; infinite where none is proved.

    >>> from plrvo import Gaussian, Ledger, Workload
    >>> ledger = Ledger().plus(Gaussian(2.0), Workload(sample_rate=0.01, steps=100, clip=1.0, dimension=10))
    >>> [round(group_epsilon(ledger, size, 1e-5), 2) for size in (1, 2, 3)]
    [0.19, 0.41, 0.64]
    """
    positive_integer(size=size)
    probability(delta=delta)

    if size == 1:
        return ledger.certified(delta).value
    # The quick bound first: the certified one allows at least the same.
    start, best = _largest_allowed(ledger.quick, size, delta, _SMALLEST_LOG_DELTA, 0.01)
    if best == math.inf:
        return math.inf
    _, best = _largest_allowed(ledger.certified, size, delta, start, 0.1)
    return math.nextafter(size * best, math.inf)


def _largest_allowed(
    bound: Callable[[float], Certificate], size: int, delta: float, low: float, width: float
) -> tuple[float, float]:
    """About the largest log d that is allowed and the epsilon there, by bisection; infinite where `low` is not."""

    def epsilon_if_allowed(log_delta: float) -> float | None:
        one = bound(math.exp(log_delta)).value
        # exp and log move delta by their last bits; each of these terms is good to a few of its own.
        slack = 2.0**-48 * (abs(log_delta) + size * one + 1)
        return one if log_delta + _log_factor(one, size) + slack <= math.log(delta) else None

    best, high = epsilon_if_allowed(low), math.log(delta)
    if best is None:
        return low, math.inf
    while high - low > width:
        middle = (low + high) / 2
        found = epsilon_if_allowed(middle)
        if found is None:
            high = middle
        else:
            low, best = middle, min(best, found)
    return low, best


def _log_factor(one: float, size: int) -> float:
    """log of (exp(g e) - 1)/(exp(e) - 1), which is the sum of exp(i e) over i < g."""
    if one < 1e-9:
        return (size - 1) * one + math.log(size)  # a bound from above
    return (size - 1) * one + math.log(math.expm1(-size * one) / math.expm1(-one))
