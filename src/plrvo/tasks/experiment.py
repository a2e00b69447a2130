"""A preset task trained with a plan, or without privacy: from data and model to weights, metrics and a receipt."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
from torch import nn

from plrvo.accounting import Plan, Workload
from plrvo.files import locked
from plrvo.records import Receipt
from plrvo.records.derived import expected_batch_size
from plrvo.records.folder import LOCK
from plrvo.tasks.choices import check_delta
from plrvo.tasks.kept import KeptRun, write_results
from plrvo.tasks.preset import Task, whole_batches
from plrvo.tasks.settings import Settings, Streams, build_optimizer
from plrvo.training import PoissonSampler, PrivacyEngine
from plrvo.training.averaging import WeightAverage
from plrvo.training.loop import Metrics, Run, Watcher, record, train
from plrvo.training.pace import Pace
from plrvo.training.plain import PlainOptimizer, summed
from plrvo.validate import InvalidArgument

_LOG = logging.getLogger(__name__)


def run_private(
    task: Task,
    module: nn.Module,
    plan: Plan,
    settings: Settings,
    streams: Streams,
    watch: Watcher | None = None,
    pace: Pace | None = None,
) -> Receipt | None:
    """Train with the plan's noise; returns the receipt, None in a process that does not write one.

    `resume` continues from the checkpoint in `settings.out`. `pace` is told how many examples a step has on average,
    and then when it is done.
    """
    check_delta(plan.delta, task.size)
    if not math.isfinite(plan.bracket.certified):
        raise InvalidArgument("noise", plan.noise.kind, "one for which an epsilon can be certified: use more noise")
    settings.check()
    chief = _join_processes()
    _LOG.debug("trying the model on a few examples")
    engine = PrivacyEngine(plan, postprocess=settings.postprocess, average=settings.average)
    engine.validate(module=module)
    wrapped: Any = (
        DifferentiallyPrivateDistributedDataParallel(module) if torch.distributed.is_initialized() else module
    )
    prepared = engine.make_private(
        module=wrapped,
        optimizer=build_optimizer(settings.optimizer, module, settings),
        data_loader=whole_batches(task.data),
        criterion=task.loss,
        grad_sample_mode=settings.grad_sample_mode,
        expected_batch_size=settings.expected_batch_size or expected_batch_size(plan, task.size),
        noise_generator=streams.noise,
        sample_generator=streams.batches,
        steps_per_epoch=plan.workload.steps,  # the loop has no epochs
        after_budget="stop",
    )
    model, optimizer, *criterion, loader = prepared
    pace = pace or Pace()
    if not torch.distributed.is_initialized():  # else a process sees its own part
        pace.expected = expected_batch_size(plan, task.size)
    with _alone(settings) if chief else nullcontext(), ExitStack() as left:
        work = KeptRun(task, module, plan, settings, engine, model, optimizer, chief)
        left.callback(work.let_go)
        history = work.begin()
        run = Run(
            module=model,
            optimizer=optimizer,
            loader=loader,
            loss=criterion[0] if criterion else task.loss,
            evaluate=lambda: _metrics(
                task, module, settings, optimizer.steps_taken == plan.workload.steps, engine.averaged()
            ),
            epsilon=lambda: engine.get_epsilon(plan.delta),
            steps=plan.workload.steps,
            save=work.save,
            permits=work.permits,
            evaluate_every=settings.evaluate_every,
            checkpoint_every=settings.checkpoint_every,
            physical_batch=settings.physical_batch,
            learning_rate=settings.rate_at(plan.workload.steps),
            watch=watch if chief else None,
            diagnose=work.diagnostics,
            pace=pace,
            step=optimizer.steps_taken,
            history=history,
        )
        train(run)
        if work.receipt is None:  # resumed after the last step: nothing was left to do
            work.permits(run.step, True)
            if not run.history or run.history[-1]["step"] != run.step:  # stopped in the tests after the last step
                record(run)
            work.save(run.history)
        work.settle()
        return work.receipt


def run_plain(
    task: Task,
    module: nn.Module,
    work: Workload,
    settings: Settings,
    streams: Streams,
    watch: Watcher | None = None,
    pace: Pace | None = None,
) -> list[dict[str, Any]]:
    """Train without privacy on the same kind of batches; returns the metrics over steps."""
    settings.check()
    sampler = PoissonSampler(
        size=task.size,
        sample_rate=work.sample_rate,
        steps=work.steps,
        generator=streams.batches,
        lengths=getattr(task.data, "lengths", None),
    )
    batch_size = settings.expected_batch_size or round(work.sample_rate * task.size)
    original = build_optimizer(settings.optimizer, module, settings)
    optimizer = PlainOptimizer(original, batch_size)
    pace = pace or Pace()
    pace.expected = work.sample_rate * task.size
    average = None if settings.average is None else WeightAverage(original, settings.average)

    def averaged() -> AbstractContextManager[None]:
        return nullcontext() if average is None else average.in_place()

    def save(metrics: list[dict[str, Any]]) -> None:
        with averaged():
            write_results(settings, module, metrics, task.base)

    run = Run(
        module=module,
        optimizer=optimizer,
        loader=whole_batches(task.data, sampler),
        loss=summed(task.loss),
        evaluate=lambda: _metrics(task, module, settings, optimizer.steps_taken == work.steps, averaged()),
        epsilon=lambda: None,
        steps=work.steps,
        save=save,
        evaluate_every=settings.evaluate_every,
        checkpoint_every=work.steps,
        physical_batch=settings.physical_batch,
        learning_rate=settings.rate_at(work.steps),
        watch=watch,
        pace=pace,
    )
    with _alone(settings):
        return train(run)


@contextmanager
def _alone(settings: Settings) -> Iterator[None]:
    """Nobody else works on the folder meanwhile."""
    with locked(settings.out / LOCK, "out"):
        settings.check()  # once more: another process may have been quicker
        yield


def _metrics(
    task: Task, module: nn.Module, settings: Settings, last: bool, averaged: AbstractContextManager[None]
) -> Metrics:
    """Of the weights that are released."""
    with averaged:
        metrics = task.evaluate(module)
        return {**metrics, **task.finish(module, settings.out)} if last and task.finish else metrics


def _join_processes() -> bool:
    """Join the other processes that torchrun started; whether this one writes files and shows progress."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo")
    return not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0
