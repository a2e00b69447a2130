"""A job made ready: the choices that it left open are made, data and model are loaded, the plan is certified."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from plrvo.accounting import Clipping, Plan, Workload
from plrvo.accounting.correlated import Correlation
from plrvo.accounting.correlated.named import named_correlation
from plrvo.accounting.exact import on_grid
from plrvo.audit.one_run import CanaryKind, Rule
from plrvo.designer.recommendation import recommend
from plrvo.noise import Noise
from plrvo.noise.specification import AUTO
from plrvo.records import Receipt
from plrvo.records.folder import CHECKPOINT, METRICS
from plrvo.records.history import read_history
from plrvo.tasks import audited, catalog, experiment
from plrvo.tasks.beforehand import check_beforehand
from plrvo.tasks.choices import check_delta
from plrvo.tasks.job import MOMENTUM, Job, check_momentum
from plrvo.tasks.preset import Preset, Task
from plrvo.tasks.settings import Settings, Streams, read_job
from plrvo.training import given
from plrvo.training.checkpoint import read_plan
from plrvo.training.loop import Watcher
from plrvo.training.pace import Pace
from plrvo.training.unwrap import trained_parameters
from plrvo.validate import InvalidArgument

_LOG = logging.getLogger(__name__)
_AS_ASKED = (
    *("weight_decay", "grad_sample_mode", "postprocess", "evaluate_every", "checkpoint_every"),
    *("seed", "unsafe_diagnostics", "budget"),
)


@dataclass(frozen=True)
class Trained:
    """The metrics over steps, and of a private run its plan and its receipt.

    In a process that works for another one, which writes all files, both are empty.
    """

    history: list[dict[str, Any]]
    receipt: Receipt | None = None
    plan: Plan | None = None
    examples_per_second: float | None = None  # of training, without tests; of this machine, and in no file

    @property
    def metrics(self) -> dict[str, Any]:
        """The last ones."""
        return self.history[-1] if self.history else {}

    @property
    def accuracy(self) -> float:
        """In per cent."""
        return 100 * float(self.metrics["accuracy"])


@dataclass(frozen=True)
class Resolved:
    """What a run is: task, model, streams and settings, and its plan, or None for a run without privacy.

    `reason` says why the plan has its noise, where that was left to the workload.
    """

    task: Task
    module: nn.Module
    model: str
    plan: Plan | None
    work: Workload
    settings: Settings
    streams: Streams
    reason: str | None = None

    def train(self, watch: Watcher | None = None, heard: Callable[[str], None] | None = None) -> Trained:
        """All steps, or those that are left; `heard` is told what is done of a step that takes long."""
        pace = Pace(heard=heard)
        if self.plan is None:
            plain = experiment.run_plain(self.task, self.module, self.work, self.settings, self.streams, watch, pace)
            return Trained(plain, examples_per_second=pace.examples_per_second)
        receipt = experiment.run_private(self.task, self.module, self.plan, self.settings, self.streams, watch, pace)
        history = read_history(self.settings.out / METRICS) if receipt is not None else []
        return Trained(history, receipt, self.plan, pace.examples_per_second)


def resolve(job: Job, out: Path, resume: bool, kept: dict[tuple[Any, ...], Any] | None) -> Resolved:
    """See `Job.resolve`. What can be refused without loading anything is refused first."""
    check_beforehand(job, out, resume)
    streams = Streams.from_seed(job.seed)
    _LOG.debug("loading data and model")
    preset = catalog.prepare(catalog.request_of(job, kept), streams.weights)
    chosen = partial(choice_of, job, preset)
    optimizer, schedule, delta = chosen("optimizer"), chosen("schedule"), chosen("delta")
    check_momentum(optimizer, job.asked)
    momentum = MOMENTUM if job.momentum is None else job.momentum
    if job.private:
        check_delta(delta if job.plan is None else job.plan.delta, preset.task.size)  # before a noise is fitted
    correlation: Correlation | None = None
    if job.plan is not None:
        work, delta = job.plan.workload, job.plan.delta
        if job.audit is not None and job.plan.correlation is not None:
            raise InvalidArgument("audit", job.audit, "a plan without correlation: canaries join sampled batches")
    elif job.correlation is not None:
        sums, order = momentum if optimizer == "sgd" else 0.0, (job.epochs, job.batch_size, job.restart_every)
        correlation, steps = named_correlation(
            job.correlation, preset.task.size, *order, job.separation, sums, decays=schedule == "linear"
        )
        work = Workload(1.0, steps, chosen("clip"), dimension=1)
    else:
        work = Workload(chosen("sample_rate"), chosen("steps"), chosen("clip"), dimension=1)
    task, module = preset.task, preset.module
    if job.audit is not None:
        task, module = _with_canaries(job, task, module, work.clip, delta, out if resume else None)
    dimension, reason = trained_parameters(module), None
    if job.plan is not None:
        job = replace(job, plan=given.plan_for(job.plan, dimension))  # what is on the record is what was trained with
    plan = job.plan
    if plan is None and job.private:
        work = replace(work, dimension=dimension)
        _LOG.debug("certifying the plan")
        begun = _begun(job, work, delta, correlation, out) if resume else None
        plan, reason = (begun, None) if begun else _plan(job, work, delta, correlation)
    elif plan is not None and job.audit is not None and not plan.covers(dimension):
        room = f"a plan of dimension {dimension}, which counts the canaries' parameters, or `canary` example"
        raise InvalidArgument("audit", job.audit, room)
    if plan is not None and job.exact:
        plan = on_grid(plan, job.grid)
    # A clipped gradient has at most the norm of the clip, so the rate of sgd is asked for in units of it.
    unit = work.clip if plan is not None and optimizer == "sgd" else 1.0
    settings = Settings(
        out=out,
        learning_rate=chosen("learning_rate") / unit,
        optimizer=optimizer,
        momentum=momentum,
        schedule=schedule,
        average=chosen("average"),
        physical_batch=chosen("physical_batch"),
        resume=resume,
        job=job.to_dict(),
        **{name: getattr(job, name) for name in _AS_ASKED},
    )
    work = work if plan is None else plan.workload
    return Resolved(task, module, preset.model, plan, work, settings, streams, reason)


def choice_of(job: Job, preset: Preset, name: str) -> Any:
    """What the job asks for, or what suits the task."""
    value, budget = getattr(job, name), job.epsilon if job.plan is None else job.plan.epsilon
    return getattr(preset.defaults.at(budget), name) if value is None else value


def _plan(job: Job, work: Workload, delta: float, correlation: Correlation | None) -> tuple[Plan, str | None]:
    """The plan, and the reason for its noise where the job names none."""
    described, clipping = job.specification, job.clipping or Clipping.flat
    if job.epsilon is None:
        noise = described if isinstance(described, Noise) else described.noise(work.clip)
        return Plan.certify(noise, work, delta, None, correlation, clipping), None
    if job.noise == AUTO:
        found = recommend(work, job.epsilon, delta, correlation, clipping)
        return found.plan, found.reason
    return Plan.fitted(described, work, delta, job.epsilon, correlation, clipping), None


def _begun(job: Job, work: Workload, delta: float, correlation: Correlation | None, out: Path) -> Plan | None:
    """The plan that the run in `out` began with, if this job wrote it: another version may fit another noise."""
    if job.epsilon is None or read_job(out) is None:
        return None
    clipping = Clipping.named(job.clipping or Clipping.flat)
    plan = read_plan(out / CHECKPOINT, clipping)
    asked = (work, delta, job.epsilon, correlation, clipping)
    is_it = plan is not None and asked == (plan.workload, plan.delta, plan.epsilon, plan.correlation, plan.clipping)
    return plan if is_it else None


def _with_canaries(
    job: Job, task: Task, module: nn.Module, clip: float, delta: float, resumed: Path | None
) -> tuple[Task, nn.Module]:
    """The task with canaries in it, and the model that goes with them."""
    count, kind = job.audit or 0, job.canary or CanaryKind.gradient
    try:
        rule = Rule(count, job.confidence, delta, job.guesses)
        rule.fits(task.size)
    except InvalidArgument as error:
        if error.argument != "canaries":
            raise
        raise InvalidArgument("audit", count, error.expected) from None
    planting = audited.Planting(rule, kind, audited.canary_seed(job.seed, resumed), job.coordinates)
    return audited.with_canaries(task, module, planting, clip)[:2]
