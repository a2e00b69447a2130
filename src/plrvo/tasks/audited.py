"""A task with canaries in its training data, and the audit of the one run that trains it (`plrvo.audit.one_run`).

| kind | what is planted | what the attacker sees |
|---|---|---|
| `gradient` | examples of known gradient, in parameters of their own beside the model | every released sum |
| `example` | made-up inputs with random labels | the outputs of the model before and after |

The task keeps its size: the number of canaries that joined is not in the divisor, nor in the receipt.
"""

from __future__ import annotations

import os
import secrets
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from plrvo.accounting import Plan
from plrvo.audit.example_canaries import ExampleCanaries, quiet_examples
from plrvo.audit.gradient_canaries import CanaryLoss, CanaryModel, GradientScores, logits_of
from plrvo.audit.one_run import CanaryKind, OneRun, Rule, judge_one_run
from plrvo.audit.planted import Planted, overwritten
from plrvo.records.folder import CHECKPOINT
from plrvo.tasks.preset import Task
from plrvo.training.checkpoint import read_extra
from plrvo.training.loop import forward
from plrvo.validate import InvalidArgument


@dataclass(frozen=True)
class Planting:
    """How a run is audited. `claim` is the epsilon to be tried, by default the run's own certified one."""

    rule: Rule
    kind: CanaryKind
    seed: int
    coordinates: int = 1
    claim: float | None = None

    def describe(self) -> dict[str, Any]:
        """What a receipt says; the coins stay out of it."""
        shape = {"coordinates": self.coordinates} if self.kind is CanaryKind.gradient else {}
        return {"count": self.rule.canaries, "kind": self.kind.value, **shape, "included": "by a fair coin each"}


def canary_seed(seed: int | None, resume_from: Path | None = None) -> int:
    """The seed of coins and canaries: that of the run which is resumed, or a function of the run's own, or fresh."""
    if resume_from is not None:
        extra = read_extra(resume_from / CHECKPOINT)
        observed = extra.get("observed") if isinstance(extra, dict) else None
        if not isinstance(observed, dict) or type(observed.get("seed")) is not int:
            raise InvalidArgument("audit", str(resume_from), "a run that was started with `audit`")
        return int(observed["seed"])
    if seed is None:
        return secrets.randbits(63)
    return int(np.random.SeedSequence([seed, 0xCA9A]).generate_state(1, np.uint64)[0] >> np.uint64(1))


def with_canaries(
    task: Task, module: nn.Module, planting: Planting, clip: float
) -> tuple[Task, nn.Module, CanaryObserver]:
    """The task and the model with the canaries in them, and the observer that will say what was found."""
    count = planting.rule.canaries
    planting.rule.fits(task.size)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise InvalidArgument("audit", count, "one process: with several, none of them sees what a step releases")
    included = np.random.default_rng([planting.seed, 0]).integers(0, 2, count) == 1
    chosen = torch.from_numpy(np.flatnonzero(included))
    inputs, _ = task.data.__getitems__([0])  # type: ignore[attr-defined]
    classes = _classes(module, inputs)
    task = replace(task, description={**task.description, "canaries": planting.describe()})
    if planting.kind is CanaryKind.example:
        made = quiet_examples(task.public, classes, count, np.random.default_rng([planting.seed, 1]))
        reader = ExampleObserver(planting, included, made, made.log_odds(module))
        task = replace(task, data=Planted(task.data, made.y[chosen], made.x[chosen]), observer=reader)
        return task, module, reader
    model = CanaryModel(module, count, planting.coordinates)
    observer = GradientObserver(planting, included, model)
    evaluate, finish = task.evaluate, task.finish
    task = replace(
        task,
        data=Planted(task.data, classes + chosen),
        evaluate=lambda trained: evaluate(_inner(trained)),
        finish=None if finish is None else lambda trained, out: finish(_inner(trained), out),
        loss=CanaryLoss(task.loss, classes, clip),
        observer=observer,
        released=_inner,
    )
    return task, model, observer


def _inner(module: Any) -> nn.Module:
    """The model without the canaries' layer."""
    model: nn.Module = module.model
    return model


@dataclass
class CanaryObserver(ABC):
    """Knows the coins, and judges the scores after the last step."""

    planting: Planting
    included: NDArray[np.bool_]
    result: OneRun | None = field(default=None, init=False)

    @abstractmethod
    def scores(self, module: nn.Module) -> NDArray[np.float64]:
        """One for each canary, from what the run released."""

    def conclude(self, module: nn.Module, certified: float) -> dict[str, Any]:
        claim = certified if self.planting.claim is None else self.planting.claim
        self.result = judge_one_run(self.scores(module), self.included, claim, self.planting.rule)
        return {"audit": "one-run", "kind": self.planting.kind.value, **self.result.to_dict()}


@dataclass
class GradientObserver(CanaryObserver):
    """Reads every step's release."""

    model: CanaryModel
    read: GradientScores | None = field(default=None, init=False)

    def begin(self, optimizer: Any, plan: Plan, state: dict[str, Any] | None) -> None:
        read = self.read = GradientScores(self.model, plan)
        if state is not None:
            read.values = np.array(state["scores"])
        optimizer.attach_step_hook(read.step)

    def state(self) -> dict[str, Any]:
        return {"seed": self.planting.seed, "scores": self.scores(self.model).tolist()}

    def scores(self, module: nn.Module) -> NDArray[np.float64]:
        return np.zeros(len(self.included)) if self.read is None else self.read.values


@dataclass
class ExampleObserver(CanaryObserver):
    """Compares what the trained model says of the canaries with what it said before training."""

    canaries: ExampleCanaries
    before: NDArray[np.float64]

    def begin(self, optimizer: Any, plan: Plan, state: dict[str, Any] | None) -> None:
        if state is not None:
            self.before = np.array(state["before"])

    def state(self) -> dict[str, Any]:
        return {"seed": self.planting.seed, "before": self.before.tolist()}

    def scores(self, module: nn.Module) -> NDArray[np.float64]:
        return self.canaries.scores(self.before, self.canaries.log_odds(module))


def _classes(module: nn.Module, inputs: Any) -> int:
    """How many classes the model tells apart: the number of outputs for an input of ones."""
    training = module.training
    module.eval()
    with torch.no_grad():
        shape = logits_of(forward(module, overwritten(inputs, torch.tensor([True]), 1))).shape
    module.train(training)
    if len(shape) != 2:
        raise InvalidArgument("audit", "this task", "one whose model gives a logit for each class")
    return int(shape[1])
