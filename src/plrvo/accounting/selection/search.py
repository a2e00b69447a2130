"""A whole search: a random number of trials, of which the best by its score is released.

A trial trains on one part of the private data and is scored on another, disjoint one. Which part an example is in
depends on nothing but the example's own coin. Two neighbouring data sets differ in one example:

- it may be trained on. The score looks at other examples, and is then a function of the model: a trial costs what its
  training costs;
- it may be scored on. Then the model has the same law on both, and a trial costs what its noisy score costs.

So the search costs the larger of the two selections, and not the sum (docs/selection.md, Theorem S3).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from plrvo.accounting.bracket import Epsilon
from plrvo.accounting.calibration import narrowest_width
from plrvo.accounting.certified import Certificate, checked
from plrvo.accounting.ledger import Ledger
from plrvo.accounting.selection.count import Count, count_from_dict
from plrvo.accounting.selection.trial import Trial
from plrvo.accounting.workload import Workload
from plrvo.noise import Noise
from plrvo.validate import InvalidArgument, non_negative, probability

METHOD = "selection"
_KEYS = {"count", "training", "score", "held_out", "layered"}


@dataclass(frozen=True)
class Search:
    """How many trials there are, what training in one costs, and what its score costs.

    `training` has a ledger for each choice of noise, clip, rate and steps that a trial may draw. A `score` of None is
    one that looks at public data only. `held_out` is the probability with which an example is scored on.

    >>> from plrvo import Gaussian, Workload
    >>> from plrvo.accounting.selection import NegativeBinomial
    >>> ledger = Ledger().plus(Gaussian(6.0), Workload(sample_rate=0.25, steps=100, clip=1.0, dimension=2730))
    >>> search = Search(NegativeBinomial.of_mean(10.0), (ledger,))
    >>> alone, ten = ledger.certified(1e-5).value, Ledger(ledger.entries * 10).certified(1e-5).value
    >>> print(f"{alone:.2f} once, {search.certified(1e-5).value:.2f} for the best of about ten, {ten:.2f} for all ten")
    1.68 once, 2.67 for the best of about ten, 6.13 for all ten
    """

    count: Count
    training: tuple[Ledger, ...]
    score: Ledger | None = None
    held_out: float = 0.0

    def __post_init__(self) -> None:
        Trial(self.training)  # refused here, if it is none
        if self.score is not None:
            Trial((self.score,))
        non_negative(held_out=self.held_out)
        if self.held_out >= 1:
            raise InvalidArgument("held_out", self.held_out, "below 1: something has to be trained on")

    @property
    def parts(self) -> tuple[Trial, ...]:
        """What a trial is to one example: training, or a score."""
        return (Trial(self.training), *(() if self.score is None else (Trial((self.score,)),)))

    @property
    def layered(self) -> bool:
        """Whether parts of a gradient have clips of their own, in every trial."""
        return all(ledger.layered for ledger in self.training)

    def certified(self, delta: float) -> Certificate:
        """The certified epsilon of the search."""
        probability(delta=delta)
        return checked(Certificate(max(self.count.certified(part, delta) for part in self.parts), None, METHOD))

    def certified_by(self, method: str, delta: float) -> Certificate:
        """Searches have one method."""
        if method != METHOD:
            raise InvalidArgument("method", method, METHOD)
        return self.certified(delta)

    def quick(self, delta: float) -> Certificate:
        """By quick bounds; what leaves a search for a width on it has been `checked`."""
        probability(delta=delta)
        return checked(Certificate(max(self.count.quick(part, delta) for part in self.parts), None, METHOD))

    def checked(self, delta: float) -> Certificate:
        """The certified epsilon, after the lower bound has not refuted it."""
        upper, lower = self.certified(delta), self.lower(delta)
        if lower > upper.value:  # a bug, if it ever happens: better no number than a wrong one
            raise ArithmeticError(f"lower bound {lower} exceeds certified {upper.value}; please report {self}")
        return upper

    def lower(self, delta: float) -> float:
        """What an attacker provably reaches: where scores say nothing, what is released is one trial, if there is one.

        Whichever settings it has drawn. Its coin says with what probability the example was trained on.
        """
        there = (1 - self.count.nothing) * (1 - self.held_out)
        return 0.0 if delta >= there else Trial(self.training).lower(delta / there)

    def epsilon(self, delta: float) -> Epsilon:
        """The bracket; the paper says nothing of searches."""
        found = self.checked(delta)
        return Epsilon(found.value, self.lower(delta), None, delta, METHOD, None)

    def moments(self, orders: tuple[int, ...]) -> list[float]:
        """Log moments of the whole search, for an account."""
        return [max(values) for values in zip(*(self.count.moments(part, orders) for part in self.parts), strict=True)]

    def to_dict(self) -> dict[str, Any]:
        """Plain data that `Search.from_dict` turns back into an equal object."""
        return {
            "count": self.count.to_dict(),
            "training": [ledger.to_list() for ledger in self.training],
            "score": None if self.score is None else self.score.to_list(),
            "held_out": self.held_out,
            "layered": self.layered,
        }

    @staticmethod
    def from_dict(description: Any) -> Search:
        """The search that `to_dict` described."""
        if not isinstance(description, Mapping) or description.keys() != _KEYS:
            raise InvalidArgument("search", description, "the keys " + ", ".join(sorted(_KEYS)))
        if not isinstance(description["layered"], bool):
            raise InvalidArgument("layered", description["layered"], "true or false")
        if not isinstance(description["training"], list):
            raise InvalidArgument("search", description["training"], "a list of ledgers")
        score, layered = description["score"], description["layered"]
        return Search(
            count_from_dict(description["count"]),
            tuple(replace(Ledger.from_list(items), layered=layered) for items in description["training"]),
            None if score is None else Ledger.from_list(score),
            description["held_out"],
        )


def fitted(
    count: Count, shapes: Sequence[tuple[Noise, Workload]], epsilon: float, delta: float
) -> tuple[tuple[Noise, Workload], ...]:
    """The shapes, all scaled by one factor, as narrow as the search that draws from them may have them.

    >>> from plrvo import Gaussian
    >>> from plrvo.accounting.selection import NegativeBinomial
    >>> count = NegativeBinomial.of_mean(10.0)
    >>> ((noise, work),) = fitted(count, [(Gaussian(1.0), Workload(1.0, 1, 1.0, 1))], epsilon=3.0, delta=1e-5)
    >>> 2.999 < Search(count, (Ledger().plus(noise, work),)).certified(1e-5).value <= 3.0
    True
    """

    def scaled(log_width: float) -> tuple[tuple[Noise, Workload], ...]:
        return tuple((noise.scaled(math.exp(log_width)), work) for noise, work in shapes)

    def priced(log_width: float) -> Search:
        return Search(count, tuple(Ledger().plus(noise, work) for noise, work in scaled(log_width)))

    return scaled(narrowest_width(priced, epsilon, delta))
