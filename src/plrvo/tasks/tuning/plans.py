"""The plans that a trial may draw, with noise as narrow as the whole search may have it, and what the search costs."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from plrvo.accounting import Clipping, Ledger, Plan, Workload
from plrvo.accounting.selection import Search
from plrvo.accounting.selection.search import fitted
from plrvo.designer.recommendation import recommend
from plrvo.noise import GridNoise
from plrvo.noise.specification import AUTO
from plrvo.records.choices import check_clip
from plrvo.tasks import catalog
from plrvo.tasks.choices import check_choices
from plrvo.tasks.job import Job
from plrvo.tasks.preset import Preset
from plrvo.tasks.resolved import choice_of
from plrvo.tasks.settings import Streams
from plrvo.tasks.tuning.beforehand import listed
from plrvo.tasks.tuning.held_out import score_ledger, score_noise
from plrvo.tasks.tuning.space import CHARGED
from plrvo.tasks.tuning.tuning import Tuning
from plrvo.training.unwrap import trained_parameters
from plrvo.validate import InvalidArgument

Charged = tuple[Any, ...]  # values of CHARGED, in order


@dataclass(frozen=True)
class Priced:
    """A plan for each choice of clip, rate and steps, the noise of a score, and the search with its epsilon."""

    plans: dict[Charged, Plan]
    score: GridNoise
    search: Search
    delta: float

    def plan_of(self, settings: dict[str, Any]) -> Plan:
        """The plan of a trial that has drawn these settings."""
        varied = next(iter(self.plans))
        key = tuple(settings.get(name, usual) for name, usual in zip(CHARGED, varied, strict=True))
        return self.plans[key]


def price(tuning: Tuning, preset: Preset) -> Priced:
    """Fit the noise of all plans together."""
    job = tuning.job
    for optimizer in (job.optimizer, *listed(tuning, "optimizer")):
        for schedule in (job.schedule, *listed(tuning, "schedule")):
            check_choices(optimizer, schedule)
    dimension, delta = trained_parameters(preset.module), choice_of(job, preset, "delta")
    clipping = Clipping.named(job.clipping or Clipping.flat)
    works = [Workload(rate, steps, clip, dimension) for clip, rate, steps in _combinations(tuning, preset)]
    for work in works:  # what training would refuse, when the search has been charged
        check_clip(work.clip, clipping.value)
    singles = [_single(job, work, delta, tuning.epsilon, clipping) for work in works]
    shapes = [(plan.noise, plan.charged) for plan in singles]
    noises = [noise for noise, _ in fitted(tuning.count, shapes, tuning.epsilon, delta)]
    plans = [Plan.certify(noise, work, delta, None, None, clipping) for noise, work in zip(noises, works, strict=True)]
    score = score_noise(tuning.count, tuning.epsilon, delta)
    search = Search(tuning.count, tuple(_ledger(plan) for plan in plans), score_ledger(score), tuning.held_out)
    certified = search.checked(delta).value
    if certified > tuning.epsilon:  # a bug, if it ever happens
        raise InvalidArgument("epsilon", tuning.epsilon, f"at least {certified!r}, which the search certifies")
    keyed = {(work.clip, work.sample_rate, work.steps): plan for work, plan in zip(works, plans, strict=True)}
    return Priced(keyed, score, search, delta)


def prepared(job: Job, kept: dict[tuple[Any, ...], Any] | None = None) -> Preset:
    """Data and model of a job."""
    return catalog.prepare(catalog.request_of(job, kept), Streams.from_seed(job.seed).weights)


def _combinations(tuning: Tuning, preset: Preset) -> list[Charged]:
    def values(name: str) -> tuple[Any, ...]:
        return listed(tuning, name) or (choice_of(tuning.job, preset, name),)

    return list(itertools.product(*(values(name) for name in CHARGED)))


def _single(job: Job, work: Workload, delta: float, epsilon: float, clipping: Clipping) -> Plan:
    """As for one run: the shape that the search begins from."""
    if job.noise == AUTO:
        return recommend(work, epsilon, delta, None, clipping).plan
    return Plan.fitted(job.specification, work, delta, epsilon, None, clipping)


def _ledger(plan: Plan) -> Ledger:
    ledger = plan.ledger(plan.workload.steps)
    if not isinstance(ledger, Ledger):
        raise InvalidArgument("correlation", plan.correlation, "none in a search")
    return ledger
