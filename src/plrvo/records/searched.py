"""What a receipt says of a search that its run is the best trial of.

    "search": {"cost": ..., "epsilon": 3.0, "vary": ..., "score": 0.93, "kept": null}

`cost` is the whole search (`plrvo.accounting.selection.Search`), from which the receipt's epsilons are recomputed: they
are those of the search, and not of the run. `kept` has numbers of trials where all of them were kept: then the epsilons
are those of the sum.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from plrvo.accounting import Ledger, Plan
from plrvo.accounting.bracket import AnyLedger
from plrvo.accounting.plan import LAST_DIGITS
from plrvo.accounting.selection import Search
from plrvo.accounting.selection.everything import Everything
from plrvo.records.compared import differing, is_count, is_finite
from plrvo.validate import InvalidArgument, counted, shortened

_PARTS = {"cost", "epsilon", "vary", "score", "kept"}


@dataclass(frozen=True)
class Searched:
    """A search, its budget, and what was kept of it."""

    search: Search
    epsilon: float
    kept: tuple[int, ...] | None = None

    @staticmethod
    def read(description: Any) -> Searched:
        """What a receipt says of it."""
        if not isinstance(description, dict) or description.keys() != _PARTS:
            raise InvalidArgument("search", description, "the parts " + ", ".join(sorted(_PARTS)))
        kept = description["kept"]
        if kept is not None and not (isinstance(kept, list) and all(map(is_count, kept))):
            raise InvalidArgument("kept", kept, "null, or numbers of trials")
        if not is_finite(description["epsilon"]) or description["epsilon"] <= 0:
            raise InvalidArgument("epsilon", description["epsilon"], "the budget of the search")
        search = Search.from_dict(description["cost"])
        return Searched(search, description["epsilon"], None if kept is None else tuple(kept))

    @property
    def priced(self) -> Search | Everything:
        """What was released."""
        return self.search if self.kept is None else Everything(self.search, self.kept)

    def __str__(self) -> str:
        """What the epsilons are of."""
        if self.kept is not None:
            return f"all {counted(sum(self.kept), 'trial')} of a search, which were kept"
        count = self.search.count
        words = ", ".join(f"{name} {value:.4g}" for name, value in count.to_dict().items() if name != "kind")
        return f"a whole search: the best of {count.mean:.3g} trials on average ({count.kind} with {words})"


def differences(receipt: dict[str, Any], plan: Plan, ledger: AnyLedger) -> Iterator[str]:
    """Where the search contradicts the run, or itself; its epsilons are compared with those of other receipts."""
    written = receipt["search"]
    found = Searched.read(written)
    yield from differing("search.cost", written["cost"], found.search.to_dict())
    if not isinstance(ledger, Ledger) or ledger not in found.search.training:
        yield "its ledger is none of those that the search draws from"
    if found.search.layered != plan.clipping.layered:
        yield f"search.cost.layered is {found.search.layered}, and its clipping {plan.clipping}"
    if plan.epsilon is not None:
        yield "its plan has a budget of its own, beside that of the search"
    if receipt["complete"] is not True:
        yield "it is the best trial of a search, and not complete"
    certified = receipt["epsilon"]["certified"]
    if found.kept is None and is_finite(certified) and certified > found.epsilon * (1 + LAST_DIGITS):
        yield f"certified epsilon {certified} exceeds the budget {found.epsilon} of the search"
    if found.search.score is not None and not is_count(receipt["task"].get("held_out")):
        yield "its search scores on held-out examples, and its task tells of none"
    if "held_out" in receipt["task"] and not _is_of_counts(found.search.score):
        yield "its task holds examples out, and its search does not charge for counts of them"
    if not is_finite(written["score"]):
        yield f"search.score is {shortened(written['score'])}"
    if not isinstance(written["vary"], dict):
        yield f"search.vary is {shortened(written['vary'])}"


def _is_of_counts(score: Ledger | None) -> bool:
    """Whether an example that is scored on counts for one, in every trial (docs/selection.md, Theorem S3)."""
    return score is not None and all(work.clip >= 1 and work.sample_rate == 1 for _, work in score.entries)
