"""One entry of an account: a plan, how much of it is charged, and what that costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from plrvo.accounting import Clipping, Ledger, Plan, Workload
from plrvo.accounting.adjacency import Adjacency
from plrvo.accounting.bracket import AnyLedger
from plrvo.accounting.by_loss import Entry as Steps
from plrvo.accounting.correlated import CorrelatedLedger, Correlation, ledger_of
from plrvo.accounting.moments import StepMoments
from plrvo.accounting.selection import Search
from plrvo.noise import Noise, noise_from_dict
from plrvo.noise.base import Array
from plrvo.validate import InvalidArgument


@dataclass(frozen=True)
class Reserved:
    """What a plan releases, step by step. Its certificate is not computed again: an account has its own.

    Correlated noise is charged whole from its first step on: where a run stops may depend on what it has shown, and
    what a part of it costs is not proved for that. So is a search, of which the plan is that of one trial: its moments
    are those of the best of a random number of them.
    """

    noise: Noise
    work: Workload
    correlation: Correlation | None
    layered: bool
    search: Search | None = None

    def __post_init__(self) -> None:
        if self.noise.shared:
            raise InvalidArgument(
                "noise", self.noise.kind, "a scale for each coordinate: the tail of a shared one is not filtered"
            )

    @staticmethod
    def of(plan: Plan, search: Search | None = None) -> Reserved:
        if plan.stages:
            raise InvalidArgument("plan", f"{len(plan.stages)} stages", "one noise and clip for all steps")
        return Reserved(plan.noise, plan.charged, plan.correlation, plan.clipping.layered, search)

    @staticmethod
    def read(plan: Mapping[str, Any], search: Mapping[str, Any] | None = None) -> Reserved:
        """What `Plan.to_dict` wrote, without its epsilons, and `Search.to_dict`."""
        clipping, work = Clipping.named(plan["clipping"]), Workload.from_dict(plan["workload"])
        work = replace(work, dimension=clipping.coordinates(work.dimension))
        correlated = plan.get("correlation")
        correlation = None if correlated is None else Correlation.from_dict(correlated)
        searched = None if search is None else Search.from_dict(search)
        return Reserved(noise_from_dict(plan["noise"]), work, correlation, clipping.layered, searched)

    @property
    def adjacency(self) -> Adjacency:
        return Adjacency.add_or_remove if self.correlation is None else Adjacency.zero_out

    def ledger(self, steps: int) -> AnyLedger:
        """So many of its steps, or all of them if they are correlated; of a search, those of one trial."""
        whole = self.correlation is not None or self.search is not None
        taken = self.work.steps if steps and whole else steps
        return ledger_of(self.noise, self.work, self.correlation, taken, layered=self.layered)

    def moments(self, steps: int, orders: tuple[int, ...]) -> Array:
        """The log moments of so many of its steps, at these orders."""
        if self.search is not None and steps:
            return np.array(_whole_search(self.search, orders))
        ledger = self.ledger(steps)
        kinds = [(self.noise, ledger.release())] if isinstance(ledger, CorrelatedLedger) and steps else ledger.entries
        total = np.zeros(len(orders))
        for noise, work in kinds:
            total = total + work.steps * np.array(_one_step(noise, replace(work, steps=1), orders))
        return total


@dataclass(frozen=True)
class Entry:
    """A reservation and what became of it; `digest` is that of the event which made it.

    `released` is the last step of which something may have been seen, `settled` the steps that are charged for good;
    until then the whole plan is. Where nobody counts what was seen (`counted`), all of it may have been. `mark` is the
    digest of what was released last, if its run says one.
    """

    number: int
    name: str
    plan: dict[str, Any]
    counted: bool
    machine: str
    at: str
    digest: str
    reserved: Reserved
    released: int = 0
    settled: int | None = None
    mark: str | None = None

    @property
    def planned(self) -> int:
        return self.reserved.work.steps

    @property
    def seen(self) -> int:
        """The most steps that anybody can have seen something of."""
        return self.released if self.counted else self.planned

    @property
    def charged(self) -> int:
        return self.planned if self.settled is None else self.settled


def moments(entries: tuple[Entry, ...], orders: tuple[int, ...]) -> Array:
    """Of all that is charged together."""
    return sum((entry.reserved.moments(entry.charged, orders) for entry in entries), np.zeros(len(orders)))


def attacked(entries: tuple[Entry, ...], delta: float) -> float:
    """What an attacker provably reaches: by all entries with fresh noise together, or by one of correlated noise."""
    known = [entry for entry in entries if entry.charged and _shows_one_trial(entry.reserved.search)]
    ledgers = [entry.reserved.ledger(entry.charged) for entry in known]
    fresh: tuple[Steps, ...] = ()
    found = [0.0]
    for ledger in ledgers:
        unknown = ledger.layered and ledger.entries[0][0].gaussian_sigma is None
        if ledger.correlation is not None:
            found.append(ledger.lower(delta))
        elif not unknown:  # an attack may leave out what it does not know
            fresh += ledger.entries
    if fresh:
        found.append(Ledger(fresh).lower(delta))
    return max(found)


def as_fixed(entries: tuple[Entry, ...], delta: float) -> float | None:
    """What the ledger certifies of the same plans, had they been fixed beforehand.

    None with correlated noise, or with a search.
    """
    if any(entry.reserved.search is not None for entry in entries if entry.charged):
        return None
    ledgers = [entry.reserved.ledger(entry.charged) for entry in entries if entry.charged]
    if any(ledger.correlation is not None for ledger in ledgers):
        return None
    return Ledger(tuple(steps for ledger in ledgers for steps in ledger.entries)).certified(delta).value


def _shows_one_trial(search: Search | None) -> bool:
    """Whether an attacker sees one run of the plan for sure, where scores say nothing: no other, nor none."""
    return search is None or (len(search.training) == 1 and search.count.nothing == search.held_out == 0)


@lru_cache(maxsize=64)
def _whole_search(search: Search, orders: tuple[int, ...]) -> tuple[float, ...]:
    return tuple(search.moments(orders))


@lru_cache(maxsize=256)
def _one_step(noise: Noise, work: Workload, orders: tuple[int, ...]) -> tuple[float, ...]:
    step = StepMoments(noise, work.clip, work.dimension, work.sample_rate)
    return tuple(step(order) if order <= noise.largest_order else np.inf for order in orders)
