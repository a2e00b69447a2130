"""Training runs of a row: each in its own folder with its receipt, taken up again where an earlier attempt stopped."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from plrvo.accounting import Plan, Workload
from plrvo.accounting.correlated import Correlation
from plrvo.noise import Specification
from plrvo.paper.entry import Context

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
    label_smoothing: float = 0.0
    clipping: str = "flat"  # "l1" is for Laplace noise, and for plans of dimension 1
    evaluate_every: int | None = None  # None: at the end
    physical_batch: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict)  # of the task's family


@dataclass(frozen=True)
class Trained:
    """The metrics over steps, the last of them, and of a private run its plan and its receipt."""

    metrics: Mapping[str, Any]
    history: list[dict[str, Any]]
    receipt: Mapping[str, Any] | None
    plan: Plan | None = None

    @property
    def accuracy(self) -> float:
        return 100 * float(self.metrics["accuracy"])


def fitted(kind: str, work: Workload, epsilon: float, delta: float, correlation: Correlation | None = None) -> Plan:
    """The plan of the narrowest noise of a kind that certifies the budget."""
    return Plan.fitted(Specification(kind.removesuffix(SCORE)), work, delta, epsilon, correlation)


def shortened(plan: Plan, steps: int) -> Plan:
    """The plan of another number of steps with the same noise."""
    if steps == plan.workload.steps:
        return plan
    return Plan.certify(plan.noise, replace(plan.workload, steps=steps), plan.delta, None, plan.correlation)


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
    from plrvo.tasks import experiment
    from plrvo.training.loop import read_history

    streams = experiment.Streams.from_seed(seed)
    preset = _prepared(recipe, context, streams)
    if plan is not None and not isinstance(plan, Plan):
        plan = plan(1 if recipe.clipping == "l1" else trained_parameters(preset.module))
    out = context.folder / name
    clip = 1.0 if plan is None or recipe.optimizer != "sgd" else plan.workload.clip
    settings = experiment.Settings(
        out=out,
        learning_rate=recipe.learning_rate / clip,
        optimizer=recipe.optimizer,
        momentum=recipe.momentum,
        weight_decay=recipe.weight_decay,
        schedule=recipe.schedule,
        clipping=recipe.clipping,
        grad_sample_mode="hooks" if recipe.clipping == "l1" else "auto",  # l1 norms need the gradients themselves
        postprocess=postprocess,
        physical_batch=recipe.physical_batch or preset.defaults.physical_batch,
        evaluate_every=recipe.evaluate_every or recipe.steps,
        checkpoint_every=max(50, recipe.steps // 10),
        resume=plan is not None and (out / experiment.CHECKPOINT).exists(),
        seed=seed,
    )

    def watch(step: int, steps: int, metrics: dict[str, Any]) -> None:
        context.say(f"{name}, step {step} of {steps}")

    if plan is None:
        _remove_unfinished(out)
        history = experiment.run_plain(
            preset.task, preset.module, recipe.sample_rate, recipe.steps, settings, streams, watch
        )
        return Trained(history[-1], history, None)
    receipt = experiment.run_private(preset.task, preset.module, plan, settings, streams, watch)
    return Trained(receipt["run"]["metrics"], read_history(out / experiment.METRICS), receipt, plan)


def dimension_of(recipe: Recipe, context: Context) -> int:
    """The number of parameters that the recipe trains."""
    from plrvo.tasks import experiment

    return trained_parameters(_prepared(recipe, context, experiment.Streams.from_seed(0)).module)


def trained_parameters(module: Any) -> int:
    """The number of parameters of a module that are trained."""
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def _prepared(recipe: Recipe, context: Context, streams: Any) -> Any:
    from torch import nn

    from plrvo.tasks import catalog

    request = catalog.Request(recipe.task, recipe.model, context.data_dir, dict(recipe.options), context.kept)
    preset = catalog.prepare(request, streams.weights)
    if not recipe.label_smoothing:
        return preset
    loss = nn.CrossEntropyLoss(label_smoothing=recipe.label_smoothing)
    description = {**preset.task.description, "label_smoothing": recipe.label_smoothing}
    return replace(preset, task=replace(preset.task, loss=loss, description=description))


def _remove_unfinished(out: Path) -> None:
    """A run without privacy keeps no checkpoint: what an earlier attempt left behind is begun again."""
    from plrvo.tasks import experiment

    for name in (experiment.WEIGHTS, experiment.METRICS):
        (out / name).unlink(missing_ok=True)
