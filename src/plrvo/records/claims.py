"""What a receipt says about adjacency, sampling and the order of visits, and its verification."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from plrvo.accounting import Plan
from plrvo.accounting.adjacency import Sampling
from plrvo.accounting.correlated import CyclicPoisson, Participation
from plrvo.records.compared import differing, is_count
from plrvo.records.visits import OwnOrder, ScheduleViolated, VisitedOrder
from plrvo.validate import InvalidArgument, counted, shortened

_PARTS = {"order", "size", "seed", "steps", "largest_count", "smallest_separation", "digest"}
_MOST_EXAMPLES = 1 << 26  # whose order is made again to compare it, in three words for each


def claims(plan: Plan, sampler: Any) -> dict[str, Any]:
    """What a receipt says."""
    if not isinstance(sampler, VisitedOrder):
        return _words(plan, "")
    visits = sampler.to_dict()
    return {**_words(plan, visits["order"]), "visits": visits}


def _words(plan: Plan, order: str) -> dict[str, Any]:
    sampler = {Sampling.poisson: "poisson", Sampling.order: f"{order} order"}.get(plan.sampling)
    if plan.correlation is not None and isinstance(plan.correlation.participation, CyclicPoisson):
        # Its coins are secret: nothing of them is written.
        sampler = f"poisson within each of {plan.correlation.participation.groups} groups in turn"
    return {"adjacency": plan.adjacency.value, "sampler": sampler}


def differences(receipt: dict[str, Any], plan: Plan, ledger: Any) -> Iterator[str]:
    """Where a receipt says anything else than its plan, or than its visits made again."""
    if getattr(ledger, "correlation", None) != plan.correlation:
        yield "the ledger has another correlation than the plan: only one is correlated, or another strategy is"
    visits = receipt["visits"] if plan.sampling is Sampling.order else None
    words = {name: receipt[name] for name in ("adjacency", "sampler")}
    yield from differing("", words, _words(plan, visits["order"] if visits else ""))
    if visits is not None and plan.correlation is not None:
        yield from _visits(visits, receipt["steps"], plan.correlation.order, plan.workload.steps)


def _visits(visits: dict[str, Any], steps: int, allowed: Participation, planned: int) -> Iterator[str]:
    if visits.keys() != _PARTS:
        yield f"its visits have the parts {', '.join(sorted(visits))}"
        return
    kind, seed = "fixed" if allowed.fixed else "separated", visits["seed"]
    yield from differing("visits.order", visits["order"], kind if seed is not None else f"{kind}, the caller's")
    size, times, apart = visits["size"], visits["largest_count"], visits["smallest_separation"]
    if not all(is_count(value) for value in (size, times, visits["steps"], 0 if apart is None else apart)):
        yield "the order of visits has counts that are none"
        return
    if visits["steps"] != steps:
        yield f"it visited {counted(visits['steps'], 'batch')} in {counted(steps, 'step')}"
    if times > allowed.epochs or (times == 0) != (steps == 0):
        yield f"an example was visited {counted(times, 'time')}; the plan has {allowed.epochs}"
    if apart is not None and apart < allowed.separation:
        yield f"visits were {counted(apart, 'step')} apart; the plan has {allowed.separation}"
    if (apart is None) != (times < 2):
        yield f"an example was visited {counted(times, 'time')}, {counted(apart, 'step')} apart"
    if seed is None:
        if len(visits["digest"]) != 64:
            yield f"the digest of its visits is {shortened(visits['digest'])}"
        return
    if size > _MOST_EXAMPLES:
        yield f"the order of visits of {size} examples is too long to be made again"
        return
    again = VisitedOrder(OwnOrder(size, allowed, planned, int(seed)), size, allowed, planned)
    try:
        again.return_to(visits["steps"])
    except (ScheduleViolated, InvalidArgument) as error:
        yield f"the order of visits cannot be made again: {error}"
        return
    if again.to_dict() != visits:
        yield "the order of visits, made again from its seed, is another one"
