"""The training loop: progress, metrics, checkpoints, and an orderly end on Ctrl-C."""

from __future__ import annotations

import math
import os
import signal
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from opacus.utils.batch_memory_manager import BatchMemoryManager

from plrvo.training.pace import Pace
from plrvo.training.trackers import Tracking
from plrvo.validate import InvalidArgument

Metrics = dict[str, float]
_STOPPING = b"\nplrvo: stopping when this step, or the tests after it, are done; once more stops at once\n"


class Watcher(Protocol):
    """What a progress bar needs to know."""

    def __call__(self, step: int, steps: int, metrics: Metrics) -> None: ...


class Diagnoser(Protocol):
    """What `plrvo.training.diagnostics` hears of private examples."""

    def part(self, examples: int, loss: float) -> None: ...
    def step(self, step: int) -> None: ...


@dataclass
class Run:
    """Everything that a run consists of; `save` and `load` know how to keep its state."""

    module: Any
    optimizer: Any
    loader: Any
    loss: Callable[[Any, Any], Any]
    evaluate: Callable[[], Metrics]
    epsilon: Callable[[], float | None]
    steps: int
    save: Callable[[Any], None] | None = None  # called with the metrics so far
    permits: Callable[[int, bool], bool] | None = None  # may results of a step be seen, if wanted: `training.journal`
    evaluate_every: int = 50
    checkpoint_every: int = 50
    physical_batch: int | None = None
    watch: Watcher | None = None
    tracking: Tracking | None = None  # where epsilons and metrics are drawn as curves
    diagnose: Diagnoser | None = None  # sees private quantities: only where the user insists
    learning_rate: Callable[[int], float] | None = None  # by the number of steps taken; None leaves the optimizer's own
    pace: Pace = field(default_factory=Pace)
    step: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)


class Interrupted(KeyboardInterrupt):
    """The user asked to stop; the run has been saved."""


def train(run: Run) -> list[dict[str, Any]]:
    """Take the remaining steps; returns the metrics over steps.

    A batch is (inputs, targets). Inputs of several tensors go into the module by name if they come as a mapping and in
    order if they come as a tuple; targets go to the loss as they are.

    Metrics come from `evaluate`, which looks at public test data: losses and accuracies on the training data are not
    private and are not computed.
    """
    device = next(iter(run.module.parameters())).device
    with _stop_requested() as stop, _batches(run) as batches, warnings.catch_warnings():
        # PyTorch's remark about the first layer, whose input needs no gradient.
        warnings.filterwarnings("ignore", message="Full backward hook is firing", category=UserWarning)
        run.module.train()
        run.pace.begin(run.step, run.steps)
        for inputs, targets in batches:
            before = run.step
            if run.learning_rate:
                set_learning_rate(run.optimizer, run.learning_rate(run.step))
            run.optimizer.zero_grad()
            loss = run.loss(forward(run.module, moved(inputs, device)), moved(targets, device))
            loss.backward()
            if run.diagnose:
                run.diagnose.part(len(targets), loss.item())
            run.optimizer.step()
            # A virtual batch takes several passes for one step; the optimizer counts the steps.
            run.step = run.optimizer.steps_taken
            if run.step == before:
                run.pace.part(len(targets))
                continue
            run.pace.stepped(run.step)
            if run.diagnose:
                run.diagnose.step(run.step)
            last, stopped = run.step == run.steps, stop()
            evaluated = last or run.step % run.evaluate_every == 0
            kept = last or stopped or run.step % run.checkpoint_every == 0
            if run.permits and not run.permits(run.step, evaluated or kept):
                evaluated = kept = False
            if evaluated:
                record(run)
            if run.tracking:
                run.tracking.step(**(_numbers(run.history[-1]) if evaluated else {}))
            if run.save and kept:
                run.save(run.history)
            if run.watch:
                run.watch(run.step, run.steps, run.history[-1] if run.history else {})
            if stopped and not last:
                raise Interrupted
            run.pace.go_on()
    return run.history


def _numbers(row: Mapping[str, Any]) -> Metrics:
    """The metrics of a row, without the step and the epsilon, which trackers have from the engine."""
    return {name: value for name, value in row.items() if name not in ("step", "epsilon_certified")}


def forward(module: Any, inputs: Any) -> Any:
    """The module's output for a batch of one tensor, a mapping of them or a tuple of them."""
    if isinstance(inputs, Mapping):
        return module(**inputs)
    return module(*inputs) if isinstance(inputs, (list, tuple)) else module(inputs)


def moved(batch: Any, device: torch.device) -> Any:
    """The batch on a device, whatever containers it is made of."""
    if isinstance(batch, Mapping):
        return {key: moved(value, device) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        return type(batch)(moved(value, device) for value in batch)
    return batch.to(device)


def set_learning_rate(optimizer: Any, rate: float) -> None:
    """For every parameter group."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def record(run: Run) -> None:
    """Test the module as it is, and note what comes out."""
    run.module.eval()
    with torch.no_grad():
        metrics = run.evaluate()
    run.module.train()
    for name, value in metrics.items():
        if not math.isfinite(value):
            rate = run.optimizer.param_groups[0]["lr"]
            raise InvalidArgument("lr", rate, f"a rate at which training does not diverge: {name} is {value}")
    epsilon = run.epsilon()
    run.history.append({"step": run.step, **metrics, **({} if epsilon is None else {"epsilon_certified": epsilon})})


@contextmanager
def _batches(run: Run) -> Iterator[Any]:
    if run.physical_batch is None:
        yield run.loader
        return
    manager = BatchMemoryManager(
        data_loader=run.loader, max_physical_batch_size=run.physical_batch, optimizer=run.optimizer
    )
    with manager as split:
        yield split


@contextmanager
def _stop_requested() -> Iterator[Callable[[], bool]]:
    """Whether SIGINT or SIGTERM came: the step under way is finished, so that the state on disk is a whole one."""
    came: list[int] = []

    def note(number: int, frame: Any) -> None:
        if came:  # asked twice: at once
            raise KeyboardInterrupt
        came.append(number)
        os.write(2, _STOPPING)  # and not by a stream, which may be in the middle of a line

    try:
        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: the caller handles signals
        before = {}
    try:
        yield lambda: bool(came)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
