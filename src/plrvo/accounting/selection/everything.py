"""What it costs to show all trials of a search, and not the best alone: their sum."""

from __future__ import annotations

from dataclasses import dataclass, replace

from plrvo.accounting.bracket import Epsilon
from plrvo.accounting.certified import Certificate
from plrvo.accounting.ledger import Ledger
from plrvo.accounting.selection.search import Search
from plrvo.validate import InvalidArgument


@dataclass(frozen=True)
class Everything:
    """So many trials of each kind of training, every one with its score.

    How many there are says nothing of the data, and is known when all are shown. An example is trained on in all of
    them, or scored on in all of them.
    """

    search: Search
    trials: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.trials) != len(self.search.training) or not all(type(n) is int and n >= 0 for n in self.trials):
            raise InvalidArgument("trials", self.trials, "a number of trials for each ledger of the search")

    @property
    def parts(self) -> tuple[Ledger, ...]:
        first, score = self.search.training[0], self.search.score
        counted = zip(self.search.training, self.trials, strict=True)
        training = replace(first, entries=tuple(entry for ledger, n in counted for entry in ledger.entries * n))
        return (training, *(() if score is None else (Ledger(score.entries * sum(self.trials)),)))

    def certified(self, delta: float) -> Certificate:
        """The certified epsilon alone."""
        return max((part.certified(delta) for part in self.parts), key=lambda found: found.value)

    def quick(self, delta: float) -> Certificate:
        """A larger one in milliseconds."""
        return max((part.quick(delta) for part in self.parts), key=lambda found: found.value)

    def epsilon(self, delta: float) -> Epsilon:
        """The bracket."""
        found, training = self.certified(delta), self.parts[0]
        reached = delta / (1 - self.search.held_out)
        lower = training.lower(reached) if training.steps and reached < 1 else 0.0
        return Epsilon(found.value, lower, None, delta, found.method, found.order)
