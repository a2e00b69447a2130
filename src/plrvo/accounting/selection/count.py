"""How many trials a search has: a random number, of which nothing but its law is ever told."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from decimal import Decimal, localcontext
from typing import Any, ClassVar

from plrvo.accounting.selection.trial import Trial
from plrvo.noise import Keystream
from plrvo.validate import InvalidArgument

DIGITS = 60  # of probabilities when a number is drawn: what they miss is 1e-50 of the law, and is charged by MARGIN
MARGIN = 2.0**-40  # relative, of delta
SMALLEST_DELTA = 1e-30
MOST_TRIALS = 10_000.0  # on average
_WORDS = 3  # of 64 bits in a draw


class Count(ABC):
    """The law of the number of trials, and what the selection of the best of them costs."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def mean(self) -> float:
        """The mean number of trials, rounded upwards."""

    @property
    @abstractmethod
    def nothing(self) -> float:
        """The probability that there is no trial, and nothing to release."""

    @abstractmethod
    def probabilities(self) -> Iterator[Decimal]:
        """Of 0, 1, 2, ... trials, without end, in the digits of the current decimal context."""

    @abstractmethod
    def certified(self, trial: Trial, delta: float) -> float:
        """An epsilon of the whole selection: the smallest of the bounds that are proved."""

    @abstractmethod
    def quick(self, trial: Trial, delta: float) -> float:
        """The same in milliseconds, and larger: for searches, which end on `certified`."""

    @abstractmethod
    def moments(self, trial: Trial, orders: tuple[int, ...]) -> list[float]:
        """Log moments of the whole selection; infinite where a trial has none."""

    def draw(self, keystream: Keystream) -> int:
        """A number of trials, by inversion."""
        bits = 0
        for word in keystream.words(_WORDS):
            bits = bits << 64 | int(word)
        with localcontext() as context:
            context.prec = DIGITS
            left = Decimal(bits) / Decimal(1 << 64 * _WORDS)
            for number, share in enumerate(self.probabilities()):
                left -= share
                if left < 0 or (share < Decimal(10) ** -DIGITS and number > self.mean):
                    return number
        raise AssertionError("probabilities have no end")  # pragma: no cover

    def at_most(self, share: float) -> int:
        """The number of trials that is not exceeded with this probability."""
        with localcontext() as context:
            context.prec = DIGITS
            total = Decimal(0)
            for number, probability in enumerate(self.probabilities()):
                total += probability
                if total >= Decimal(share):
                    return number
        raise AssertionError("probabilities have no end")  # pragma: no cover

    def to_dict(self) -> dict[str, Any]:
        """Plain data, which `count_from_dict` turns back into an equal object."""
        return {"kind": self.kind, **asdict(self)}  # type: ignore[call-overload]


def count_from_dict(description: Any) -> Count:
    """The count that `to_dict` described."""
    from plrvo.accounting.selection.negative_binomial import NegativeBinomial
    from plrvo.accounting.selection.poisson import PoissonCount

    kinds: dict[Any, Any] = {kind.kind: kind for kind in (NegativeBinomial, PoissonCount)}
    given = dict(description) if isinstance(description, Mapping) else {}
    kind = kinds.get(given.pop("kind", None))
    if kind is None or given.keys() != {field.name for field in fields(kind)}:
        raise InvalidArgument("count", description, "a number of trials, as `to_dict` describes it")
    made: Count = kind(**given)
    return made


def check_delta(delta: float) -> None:
    """Refuse a delta below what the digits of a draw can answer for."""
    if not SMALLEST_DELTA <= delta < 1:
        raise InvalidArgument("delta", delta, f"from {SMALLEST_DELTA:g} to 1")
