"""What one trial of a search costs: a curve that holds for every choice of settings.

A trial first draws its settings, so that it is a mixture, and shows them with its result. Its hockey-stick divergences
and its moments are at most the largest of those of its choices, at every level and at every order: each value here is
the largest over the ledgers. Everything holds in both directions of the adjacency.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from plrvo.accounting.by_loss import coarse_deltas
from plrvo.accounting.certified import RDP_MARGIN, largest_order, moments_epsilon, rdp_certificate, total_moment
from plrvo.accounting.convert import delta_from_moments
from plrvo.accounting.ledger import Ledger
from plrvo.validate import InvalidArgument

_TINY = 2.0**-40  # relative, on what moments give: a hundred times their own margin


@dataclass(frozen=True)
class Trial:
    """The ledgers that a trial may have, one for each choice of noise, clip, rate and steps."""

    ledgers: tuple[Ledger, ...]

    def __post_init__(self) -> None:
        if not self.ledgers or not all(ledger.steps for ledger in self.ledgers):
            raise InvalidArgument("ledgers", self.ledgers, "one or more ledgers of steps with fresh noise")

    def certified(self, delta: float) -> float:
        """An epsilon at this delta: the smallest of all methods."""
        return max(ledger.certified(delta).value for ledger in self.ledgers)

    def quick(self, delta: float) -> float:
        """An epsilon that takes milliseconds, and may be larger."""
        return max(ledger.quick(delta).value for ledger in self.ledgers)

    def by_moments(self, delta: float) -> float:
        """An epsilon by moments alone, which takes less still."""
        return max(_by_moments(ledger, delta) for ledger in self.ledgers)

    def deltas(self, epsilons: tuple[float, ...]) -> list[float]:
        """Deltas at these epsilons, which are small and their deltas large: the smaller of moments and of losses."""
        return [max(values) for values in zip(*(_deltas(ledger, epsilons) for ledger in self.ledgers), strict=True)]

    def delta_by_moments(self, epsilon: float) -> float:
        """A delta by moments alone; 1 where a scale is shared."""
        return max(_delta_by_moments(ledger, epsilon) for ledger in self.ledgers)

    def moment(self, lambda_: int) -> float:
        """The log moment of the order lambda, rounded upwards; infinite where it is not finite, or not known."""
        known = [_moment(ledger)(lambda_) if lambda_ <= _largest(ledger) else math.inf for ledger in self.ledgers]
        return max(known) * (1 + RDP_MARGIN)

    @property
    def largest_order(self) -> int:
        return min(_largest(ledger) for ledger in self.ledgers)

    @property
    def has_moments(self) -> bool:
        """Whether moments exist without a share of delta for the tail of a shared scale."""
        return not any(noise.shared for ledger in self.ledgers for noise, _ in ledger.entries)

    def lower(self, delta: float) -> float:
        """What an attacker reaches whichever settings are drawn."""
        return min(ledger.lower(delta) for ledger in self.ledgers)


def _largest(ledger: Ledger) -> int:
    return largest_order(ledger.entries)


@lru_cache(maxsize=512)
def _moment(ledger: Ledger) -> Callable[[int], float]:
    if any(noise.shared for noise, _ in ledger.entries):
        return lambda lambda_: math.inf
    return total_moment(ledger.entries)


def _by_moments(ledger: Ledger, delta: float) -> float:
    if any(noise.shared for noise, _ in ledger.entries):
        return moments_epsilon(ledger.entries, delta).value
    return rdp_certificate(_moment(ledger), delta, _largest(ledger)).value


@lru_cache(maxsize=512)
def _deltas(ledger: Ledger, epsilons: tuple[float, ...]) -> list[float]:
    found = coarse_deltas(ledger.entries, epsilons)
    return [min(delta, _delta_by_moments(ledger, at)) for at, delta in zip(epsilons, found, strict=True)]


def _delta_by_moments(ledger: Ledger, epsilon: float) -> float:
    if any(noise.shared for noise, _ in ledger.entries):
        return 1.0
    moment = _moment(ledger)
    value, order = delta_from_moments(moment, epsilon, _largest(ledger))
    return min(1.0, value * math.exp(min(700.0, _TINY * (moment(order) + order * epsilon + 1))))
