"""What can be refused of a job by its words alone: mistakes are told before torch is imported, which takes seconds.

What is used is checked once more where it is used.
"""

from __future__ import annotations

from pathlib import Path

from plrvo.accounting import Clipping, Workload
from plrvo.accounting.correlated.named import check_named
from plrvo.audit.one_run import Rule, check_guesses
from plrvo.budget import Account
from plrvo.records.choices import check_clip, check_exact, check_mode, check_postprocess, refuse_alone
from plrvo.tasks import catalog
from plrvo.tasks.choices import check_choices, check_delta, check_folder
from plrvo.tasks.job import Job, check_momentum
from plrvo.validate import InvalidArgument


def check_beforehand(job: Job, out: Path | None = None, resume: bool = False) -> None:
    """Refuse a job that no data and no model could save; `out` is the folder of its run, if it is known."""
    if out is not None:
        check_folder(out, resume)
    if resume and not job.private:
        raise InvalidArgument("resume", str(out), "a noise beside it: `noise` none trains without any privacy")
    check_choices(job.optimizer, job.schedule)
    check_postprocess(job.postprocess)
    check_mode(job.grad_sample_mode)
    refuse_alone(job.grad_sample_mode)
    if job.exact:
        check_exact(False, job.grad_sample_mode)
    _check_amounts(job)
    if job.correlation is not None:
        check_named(job.correlation, job.epochs, job.batch_size, job.restart_every, job.separation)
    if job.audit is not None:
        _check_audit(job, job.audit)
    catalog.check(catalog.request_of(job))
    _check_usual(job)
    if job.budget is not None and not resume:
        Account(job.budget).check_takes(None if job.exact else job.plan)  # exact noise is yet to be put on its grid


def _check_usual(job: Job) -> None:
    """What is wrong beside what the task does by default."""
    usual = catalog.usual(catalog.request_of(job))
    check_momentum(job.optimizer or usual.defaults.optimizer, job.asked)
    delta = job.delta if job.plan is None else job.plan.delta
    if job.private and usual.known and delta is not None:
        check_delta(delta, usual.examples)


def _check_amounts(job: Job) -> None:
    """Clip, rate and steps that are given, beside harmless ones in the place of those that are not."""
    if job.plan is None:
        work = Workload(job.sample_rate or 1.0, job.steps or 1, job.clip or 1.0, dimension=1)
    else:
        work = job.plan.workload
    if job.private:
        check_clip(work.clip, (job.clipping or Clipping.flat) if job.plan is None else job.plan.clipping)


def _check_audit(job: Job, canaries: int) -> None:
    if job.plan is not None and job.plan.correlation is not None:
        raise InvalidArgument("audit", canaries, "a plan without correlation: canaries join sampled batches")
    delta = job.delta if job.plan is None else job.plan.delta
    try:
        if delta is None:  # that of the task, which may follow from the size of its data
            check_guesses(canaries, job.confidence, job.guesses)
        else:
            Rule(canaries, job.confidence, delta, job.guesses)
    except InvalidArgument as error:
        if error.argument != "canaries":
            raise
        raise InvalidArgument("audit", canaries, error.expected) from None
