"""Training runs of a row: each in its own folder with its receipt, taken up again where an earlier attempt stopped."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plrvo.accounting import Clipping, Plan, Workload
from plrvo.accounting.correlated import Correlation
from plrvo.noise import Specification
from plrvo.paper.entry import Context
from plrvo.records.folder import CHECKPOINT, METRICS, WEIGHTS
from plrvo.tasks.job import NO_NOISE, Job

if TYPE_CHECKING:
    from plrvo.tasks.resolved import Trained

Planner = Callable[[int], Plan]  # a plan for the number of parameters that are trained
SCORE = "_score"  # ends the name of a noise whose score is taken of the released sums


@dataclass(frozen=True)
class Recipe:
    """How a model is trained, apart from its noise.

    The rate of SGD is for gradients in units of the clip, as in `plrvo train`.
    """

    task: str
    model: str | None
    sample_rate: float
    steps: int
    learning_rate: float
    optimizer: str = "adam"
    momentum: float = 0.9
    weight_decay: float = 0.0
    schedule: str = "constant"
    average: float | None = None
    label_smoothing: float = 0.0
    evaluate_every: int | None = None  # None: at the end
    physical_batch: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)  # of the task's family

    def job(self, plan: Plan | None, **others: Any) -> Job:
        """What is asked for with a plan, or without privacy."""
        names = ("task", "model", "learning_rate", "optimizer", "momentum", "weight_decay", "schedule", "average")
        asked = {name: getattr(self, name) for name in names} | dict(self.options) | others
        asked |= {"physical_batch": self.physical_batch}
        asked |= {"evaluate_every": self.evaluate_every or self.steps, "checkpoint_every": max(50, self.steps // 10)}
        if plan is None:
            asked |= {"noise": NO_NOISE, "sample_rate": self.sample_rate, "steps": self.steps}
        elif plan.clipping is Clipping.l1:  # its norms need the gradients themselves
            asked |= {"grad_sample_mode": "hooks"}
        return Job(plan=plan, **asked)


def fitted(
    kind: str,
    work: Workload,
    epsilon: float,
    delta: float,
    correlation: Correlation | None = None,
    clipping: Clipping = Clipping.flat,
) -> Plan:
    """The plan of the narrowest noise; the score of a noise is taken of the same one."""
    return Plan.fitted(Specification(kind.removesuffix(SCORE)), work, delta, epsilon, correlation, clipping)


def shortened(plan: Plan, steps: int) -> Plan:
    """The plan of another number of steps with the same noise."""
    if steps == plan.workload.steps:
        return plan
    work = replace(plan.workload, steps=steps)
    return Plan.certify(plan.noise, work, plan.delta, None, plan.correlation, plan.clipping)


@dataclass(frozen=True)
class Trials:
    """Every noise with every seed: accuracies in per cent."""

    accuracies: Mapping[str, list[float]]
    plans: Mapping[str, Plan | None]  # for the steps that were taken

    @property
    def means(self) -> dict[str, float | None]:
        return {name: statistics.fmean(values) for name, values in self.accuracies.items()}

    @property
    def spreads(self) -> dict[str, float | None]:
        """Standard deviations over seeds; nothing is known of the spread of one run."""
        return {n: statistics.stdev(v) if len(v) > 1 else None for n, v in self.accuracies.items()}

    @property
    def details(self) -> dict[str, Any]:
        certified = {name: None if plan is None else plan.bracket.certified for name, plan in self.plans.items()}
        return {"accuracies": dict(self.accuracies), "spread": self.spreads, "run_certified": certified}


def trials(
    context: Context, recipes: Mapping[str, Recipe] | Recipe, plans: Mapping[str, Plan | Planner | None], seeds: int
) -> Trials:
    """Train with each plan and each seed, one recipe for all or one for each name.

    A name that ends in SCORE has the noise's score taken of its released sums; a plan of None is not private. Plans
    are for any number of steps: runs take those of the recipe.
    """
    accuracies: dict[str, list[float]] = {}
    taken: dict[str, Plan | None] = {}
    for name, plan in plans.items():
        recipe = recipes if isinstance(recipes, Recipe) else recipes[name]
        used = shortened(plan, recipe.steps) if isinstance(plan, Plan) else plan
        for seed in range(context.seed, context.seed + seeds):
            post = "score" if name.endswith(SCORE) else None
            done = train(context, f"{name}-{seed}", recipe, used, seed, post)
            accuracies.setdefault(name, []).append(done.accuracy)
            taken[name] = done.plan
    return Trials(accuracies, taken)


def train(
    context: Context, name: str, recipe: Recipe, plan: Plan | Planner | None, seed: int, postprocess: str | None = None
) -> Trained:
    """Train in the folder `name` of the row, or go on there; a plan of None trains without privacy."""
    from torch import nn

    if plan is not None and not isinstance(plan, Plan):
        plan = plan(dimension_of(recipe, context))
    out = context.folder / name
    if plan is None:
        _remove_unfinished(out)
    job = recipe.job(plan, seed=seed, postprocess=postprocess, data_dir=context.data_dir)
    resolved = job.resolve(out, plan is not None and (out / CHECKPOINT).exists(), context.kept)
    if recipe.label_smoothing:
        loss = nn.CrossEntropyLoss(label_smoothing=recipe.label_smoothing)
        description = {**resolved.task.description, "label_smoothing": recipe.label_smoothing}
        resolved = replace(resolved, task=replace(resolved.task, loss=loss, description=description))

    def watch(step: int, steps: int, metrics: dict[str, Any]) -> None:
        context.say(f"{name}, step {step} of {steps}")

    return resolved.train(watch)


def dimension_of(recipe: Recipe, context: Context) -> int:
    """The number of parameters that the recipe trains."""
    from plrvo.tasks import catalog
    from plrvo.tasks.settings import Streams
    from plrvo.training.unwrap import trained_parameters

    request = catalog.Request(recipe.task, recipe.model, context.data_dir, dict(recipe.options), context.kept)
    return trained_parameters(catalog.prepare(request, Streams.from_seed(0).weights).module)


def _remove_unfinished(out: Path) -> None:
    """A run without privacy keeps no checkpoint: what an earlier attempt left behind is begun again."""
    for name in (WEIGHTS, METRICS):
        (out / name).unlink(missing_ok=True)
