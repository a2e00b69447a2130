"""A task with canaries in its training data, and the audit of the one run that trains it (`plrvo.audit.one_run`).

| kind | what is planted | what the attacker sees |
|---|---|---|
| `gradient` | examples of known gradient, in parameters of their own beside the model | every released sum |
| `example` | inputs of random signs with random labels | the losses of the model before and after |

The task keeps its size: the number of canaries that joined is not in the divisor, nor in the receipt.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from plrvo.audit.example_canaries import losses, random_examples
from plrvo.audit.gradient_canaries import CanaryLoss, CanaryModel, GradientScores
from plrvo.audit.one_run import Rule, judge_one_run
from plrvo.design import Plan
from plrvo.tasks.experiment import CHECKPOINT, InMemory, Task
from plrvo.training.checkpoint import read_extra
from plrvo.validate import InvalidArgument


class CanaryKind(StrEnum):
    """What is planted."""

    gradient = "gradient"
    example = "example"


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
        observed = read_extra(resume_from / CHECKPOINT).get("observed")
        if not observed:
            raise InvalidArgument("audit", str(resume_from), "a run that was started with --audit")
        return int(observed["seed"])
    if seed is None:
        return secrets.randbits(63)
    return int(np.random.SeedSequence([seed, 0xCA9A]).generate_state(1, np.uint64)[0] >> np.uint64(1))


def with_canaries(task: Task, module: nn.Module, planting: Planting, clip: float) -> tuple[Task, nn.Module]:
    """The task and the model with the canaries in them; `task.observer` will say what was found."""
    planting.rule.fits(task.size)
    if not isinstance(task.data, InMemory) or len(task.data.tensors) != 2:
        raise InvalidArgument("audit", planting.rule.canaries, "a task of inputs and labels")
    inputs, targets = task.data.tensors
    coins = np.random.default_rng([planting.seed, 0])
    included = coins.integers(0, 2, planting.rule.canaries) == 1
    classes = _outputs(module, inputs)
    task = replace(task, description={**task.description, "canaries": planting.describe()})
    if planting.kind is CanaryKind.example:
        made = np.random.default_rng([planting.seed, 1])
        x, y = random_examples(inputs, classes, planting.rule.canaries, made)
        watch = ExampleObserver(planting, included, x, y, losses(module, x, y))
        chosen = torch.from_numpy(included)
        return replace(task, data=_extended(inputs, targets, x[chosen], y[chosen]), observer=watch), module
    model = CanaryModel(module, planting.rule.canaries, planting.coordinates)
    labels = classes + torch.from_numpy(np.flatnonzero(included))
    task = replace(
        task,
        data=_extended(inputs, targets, torch.ones(len(labels), *inputs.shape[1:], dtype=inputs.dtype), labels),
        evaluate=lambda trained, inner=task.evaluate: inner(trained.model),
        loss=CanaryLoss(task.loss, classes, clip),
        observer=GradientObserver(planting, included, model),
        released=lambda trained: trained.model,
    )
    return task, model


@dataclass
class GradientObserver:
    """Reads every step's release."""

    planting: Planting
    included: NDArray[np.bool_]
    model: CanaryModel
    _scores: GradientScores | None = field(default=None, init=False)

    def begin(self, optimizer: Any, plan: Plan, state: dict[str, Any] | None) -> None:
        scores = self._scores = GradientScores(self.model, plan)
        if state is not None:
            scores.values = np.array(state["scores"])
        account = optimizer.step_hook

        def after_noise(private: Any) -> None:
            account(private)
            scores.read(private)

        optimizer.attach_step_hook(after_noise)

    def state(self) -> dict[str, Any]:
        return {"seed": self.planting.seed, "scores": [] if self._scores is None else self._scores.values.tolist()}

    def conclude(self, module: nn.Module, certified: float) -> dict[str, Any]:
        return _verdict(self.planting, self.state()["scores"], self.included, certified)


@dataclass
class ExampleObserver:
    """Compares the losses of the trained model with those before training."""

    planting: Planting
    included: NDArray[np.bool_]
    x: Tensor
    y: Tensor
    before: NDArray[np.float64]

    def begin(self, optimizer: Any, plan: Plan, state: dict[str, Any] | None) -> None:
        if state is not None:
            self.before = np.array(state["before"])

    def state(self) -> dict[str, Any]:
        return {"seed": self.planting.seed, "before": self.before.tolist()}

    def conclude(self, module: nn.Module, certified: float) -> dict[str, Any]:
        return _verdict(self.planting, self.before - losses(module, self.x, self.y), self.included, certified)


def _verdict(planting: Planting, scores: Any, included: NDArray[np.bool_], certified: float) -> dict[str, Any]:
    claim = certified if planting.claim is None else planting.claim
    result = judge_one_run(scores, included, claim, planting.rule)
    return {"audit": "one-run", "kind": planting.kind.value, **result.to_dict()}


def _outputs(module: nn.Module, inputs: Tensor) -> int:
    """How many classes the model tells apart."""
    training = module.training
    module.eval()
    with torch.no_grad():
        shape = module(torch.ones_like(inputs[:1])).shape
    module.train(training)
    if len(shape) != 2:
        raise InvalidArgument("audit", "this model", "one that gives a logit for each class")
    return int(shape[1])


def _extended(inputs: Tensor, targets: Tensor, more_inputs: Tensor, more_targets: Tensor) -> InMemory:
    return InMemory(torch.cat([inputs, more_inputs]), torch.cat([targets, more_targets]))
