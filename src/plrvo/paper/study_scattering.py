"""Private models from scratch on a small machine: linear models on scattering features, at two certified epsilons.

Every noise is trained with the settings that `plrvo train TASK --model scattering` uses where nothing is said
(`plrvo.tasks.vision.recipes`): chosen on another data set, or for CIFAR-10 published by others. Published results are
facts of their papers: they have another accountant, and CIFAR-10's has augmentation and a deep network.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from plrvo.accounting import Workload
from plrvo.paper.cnn_recipe import PACKAGES
from plrvo.paper.entry import Context, Entry, Group, Measured, Needs, Panel, Result, Row, Scale, four_epsilons, having
from plrvo.paper.training import Recipe, dimension_of, fitted, trials

DELTA = 1e-5
NOISES = ("gaussian", "laplace", "gamma", "gamma_score")
EPSILONS = (1.0, 3.0)
SEEDS = {Scale.smoke: 1, Scale.quick: 3, Scale.full: 5}
EXAMPLES = {"mnist": 60_000, "fashion-mnist": 60_000, "cifar-10": 50_000}
# What each scale trains: (task, epsilon, noise).
_ALL = [(task, epsilon, noise) for task in EXAMPLES for epsilon in EPSILONS for noise in NOISES]
COVERED = {
    Scale.smoke: [("digits", EPSILONS[1], NOISES[0])],
    Scale.quick: [row for row in _ALL if (row[0] != "cifar-10" if row[1] == EPSILONS[0] else row[2] == "gaussian")],
    Scale.full: _ALL,
}
AIMS = {("mnist", 1.0): 97.5, ("fashion-mnist", 1.0): 87.5, ("cifar-10", 3.0): 65.0}


@dataclass(frozen=True)
class Published:
    """What others report: per cent of the test images, at delta 1e-5, without public data."""

    task: str
    epsilon: float
    accuracy: float
    source: str


_LINEAR = "Tramèr and Boneh 2021, scattering, linear"
_CNN = "Tramèr and Boneh 2021, scattering, CNN"
PUBLISHED = (
    Published("mnist", 3.0, 98.7, _LINEAR),
    Published("mnist", 3.0, 98.7, _CNN),
    Published("fashion-mnist", 3.0, 89.7, _LINEAR),
    Published("fashion-mnist", 3.0, 89.0, _CNN),
    Published("cifar-10", 3.0, 67.0, _LINEAR),
    Published("cifar-10", 3.0, 69.3, _CNN),
    Published("cifar-10", 8.0, 81.4, "De et al. 2022, Wide-ResNet-40-4"),
)


def recipe_of(task: str, examples: int, epsilon: float) -> tuple[Recipe, float]:
    """What `plrvo train` does by default at this epsilon, and its clip."""
    from plrvo.tasks.vision.recipes import scattering_defaults

    usual = scattering_defaults(task, examples).at(epsilon)
    names = ("sample_rate", "steps", "learning_rate", "optimizer", "schedule", "average", "physical_batch")
    return Recipe(task, "scattering", **{name: getattr(usual, name) for name in names}), usual.clip


def _measure(task: str, noise: str, epsilon: float, context: Context) -> Measured:
    smoke = context.scale is Scale.smoke
    recipe, clip = recipe_of(task, EXAMPLES.get(task, 1437), epsilon)
    if smoke:
        recipe = replace(recipe, steps=2)
    work = Workload(recipe.sample_rate, recipe.steps, clip, dimension_of(recipe, context))
    plan = fitted(noise, work, epsilon, DELTA)
    seeds, before = SEEDS[context.scale], time.process_time()
    resumed = context.folder.exists()  # then only a part of the time is seen here
    done = trials(context, recipe, {noise: plan}, seeds)
    values = {"accuracy": done.means[noise], "spread": done.spreads[noise]}
    seconds = None if resumed else round((time.process_time() - before) / seeds, 1)
    details = {**done.details, "processor_seconds_each": seconds, "method": plan.bracket.method}
    return Measured(values, four_epsilons(None, plan.bracket), details=details)


def _rows(scale: Scale) -> Sequence[Row]:
    return [
        Row(
            key=f"{task}-{epsilon:g}-{noise}",
            label=f"{task}, epsilon {epsilon:g}, {noise.replace('_', ' ')}",
            parameters={"task": task, "noise": noise, "epsilon": epsilon},
            printed={"accuracy": None, "spread": None},
            measure=partial(_measure, task, noise, epsilon),
        )
        for task, epsilon, noise in COVERED[scale]
    ]


def findings(rows: Sequence[Result]) -> list[str]:
    """By data set: every noise at each epsilon, and what others have published."""
    texts = []
    for task in dict.fromkeys(row["parameters"]["task"] for row in rows):
        mine = [row for row in rows if row["parameters"]["task"] == task]
        for epsilon in dict.fromkeys(row["parameters"]["epsilon"] for row in mine):
            at = [row for row in mine if row["parameters"]["epsilon"] == epsilon]
            shown = ", ".join(_with_spread(row) for row in at)
            best = max(row["measured"]["accuracy"] for row in at)
            aim = AIMS.get((task, epsilon))
            verdict = "" if aim is None else f" The aim was {aim:g}: {'reached' if best >= aim else 'missed'}."
            texts.append(f"{task} at certified epsilon {epsilon:g}: {shown}.{verdict}")
        others = "; ".join(f"{p.accuracy:g} at {p.epsilon:g} ({p.source})" for p in PUBLISHED if p.task == task)
        if others:
            texts.append(f"{task}, published by others: {others}.{_beside_published(task, mine)}")
    return texts


def _beside_published(task: str, rows: Sequence[Result]) -> str:
    """At each epsilon that both have: which published results are above the best row, to the tenth that they give."""
    said = []
    for epsilon in dict.fromkeys(p.epsilon for p in PUBLISHED if p.task == task):
        at = [row["measured"]["accuracy"] for row in rows if row["parameters"]["epsilon"] == epsilon]
        theirs = [p.accuracy for p in PUBLISHED if (p.task, p.epsilon) == (task, epsilon)]
        if not at:
            continue
        best = round(max(at), 1)
        found = {
            "above": [value for value in theirs if value > best],
            "the same": [value for value in theirs if value == best],
            "below": [value for value in theirs if value < best],
        }
        verdicts = [
            f"{' and '.join(f'{value:g}' for value in values)} {'are' if len(values) > 1 else 'is'} {word}"
            for word, values in found.items()
            if values
        ]
        said.append(f" At epsilon {epsilon:g} ours is {best:.1f}, to a tenth of a point: {', '.join(verdicts)}.")
    return "".join(said)


def _with_spread(row: Result) -> str:
    spread = row["measured"]["spread"]
    name = row["parameters"]["noise"].replace("_", " ")
    return f"{name} {row['measured']['accuracy']:.2f}" + ("" if spread is None else f" ± {spread:.2f}")


def beside(point: Published, factor: float) -> float:
    """Where it is drawn: to the right of an epsilon that rows have, so that none hides another."""
    if point.epsilon not in EPSILONS:
        return point.epsilon
    there = [other for other in PUBLISHED if (other.task, other.epsilon) == (point.task, point.epsilon)]
    return float(point.epsilon * factor ** (there.index(point) + 1))


def _paint_published(task: str, axes: Any, rows: Sequence[Result]) -> None:
    for number, point in enumerate(p for p in PUBLISHED if p.task == task):
        style = {"color": "#444", "marker": "*P^"[number], "linestyle": "none", "markerfacecolor": "none"}
        axes.plot([beside(point, 1.05)], [point.accuracy], label=point.source, markersize=9, **style)


ENTRIES = (
    Entry(
        name="study-scattering",
        title="Linear models on scattering features",
        where="private training from scratch, beside what others have published",
        rows=_rows,
        needs={
            Scale.smoke: Needs(0.2, (), PACKAGES),
            Scale.quick: Needs(40, tuple(EXAMPLES), (*PACKAGES, "PIL")),
            Scale.full: Needs(125, tuple(EXAMPLES), (*PACKAGES, "PIL")),
        },
        panels=tuple(
            Panel(
                "epsilon.certified",
                ("accuracy",),
                "certified epsilon",
                "test accuracy, %: mean and spread over seeds",
                task,
                lines="noise",
                xlog=True,
                only=having("task", task),
                spread="spread",
                paint=partial(_paint_published, task),
                legend_below=True,
            )
            for task in EXAMPLES
        ),
        findings=findings,
        stand_in={
            Scale.smoke: "two steps on the digits of scikit-learn",
            Scale.quick: "MNIST and Fashion-MNIST at epsilon 1, all at 3 with Gaussian noise; three seeds",
            Scale.full: "five seeds",
        },
        group=Group.study,
    ),
)
