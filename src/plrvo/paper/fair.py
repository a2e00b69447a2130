"""The comparison that the paper does not make: every noise at the same *certified* epsilon.

Each noise is fitted to the budget, searches the same clips, and has its learning rate chosen from the same list, by the
same rule: the pair that is best on another data set, which stands for public data, so that the choice costs no privacy
and favours no noise. With the pair so chosen each noise is trained with several seeds. Gamma noise has k = 1,000,
within 0.3 % of the Laplace limit, which is the best of its family on raw error; `gamma_score` and `laplace_score` are
trained on the noise's score of the released sums, which is free.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from plrvo.accounting import Plan, Workload
from plrvo.paper.cnn import CNN_DELTA
from plrvo.paper.cnn_recipe import PACKAGES
from plrvo.paper.entry import Context, Entry, Group, Measured, Needs, Panel, Result, Row, Scale, four_epsilons
from plrvo.paper.training import Recipe, dimension_of, fitted, train, trials
from plrvo.paper.wording import share

NOISES = ("gaussian", "laplace", "gamma", "gamma_score")
SEEDS = {Scale.smoke: 1, Scale.quick: 3, Scale.full: 10}


@dataclass(frozen=True)
class Comparison:
    """A task, the one on which choices are made, and what there is to choose from."""

    name: str
    title: str
    recipe: Recipe
    tuning_task: str
    clips: tuple[float, ...]
    rates: tuple[float, ...]
    epsilons: tuple[float, ...]
    delta: float = CNN_DELTA
    data: tuple[str, ...] = ()
    minutes: float = 30


def _chosen(comparison: Comparison, noise: str, epsilon: float, context: Context) -> tuple[float, float, Any]:
    """The clip and rate that are best on the other data set, and what was tried."""
    tuned = {}
    for clip, rate in itertools.product(comparison.clips, comparison.rates):
        tuning = replace(comparison.recipe, task=comparison.tuning_task, learning_rate=rate)
        recipe, plan = _planned(comparison, tuning, noise, epsilon, clip, context)
        name = f"tuning-{clip:g}-{rate:g}"
        tuned[clip, rate] = train(context, name, recipe, plan, context.seed, _post(noise)).accuracy
    clip, rate = max(tuned, key=lambda pair: tuned[pair])
    return clip, rate, [{"clip": c, "learning_rate": r, "accuracy": value} for (c, r), value in tuned.items()]


def _post(noise: str) -> str | None:
    return "score" if noise.endswith("_score") else None


def _planned(
    comparison: Comparison, recipe: Recipe, noise: str, epsilon: float, clip: float, context: Context
) -> tuple[Recipe, Plan]:
    """The recipe for the scale, and its plan."""
    if context.scale is Scale.smoke:
        recipe = replace(recipe, steps=2)
    work = Workload(recipe.sample_rate, recipe.steps, clip, dimension_of(recipe, context))
    return recipe, fitted(noise, work, epsilon, comparison.delta)


def _measure(comparison: Comparison, noise: str, epsilon: float, context: Context) -> Measured:
    clip, rate, tuned = _chosen(comparison, noise, epsilon, context)
    chosen = replace(comparison.recipe, learning_rate=rate)
    recipe, plan = _planned(comparison, chosen, noise, epsilon, clip, context)
    folder = context.folder / f"chosen-{clip:g}-{rate:g}"
    done = trials(replace(context, folder=folder), recipe, {noise: plan}, SEEDS[context.scale])
    spread = done.spreads[noise]
    values = {"accuracy": done.means[noise], "spread": spread, "clip": clip, "learning_rate": rate}
    details = {
        **done.details,
        "noise": {noise: plan.noise.to_dict()},
        "workload": plan.workload.to_dict(),
        "delta": comparison.delta,
        "tuned_on": comparison.tuning_task,
        "tuned": tuned,
    }
    return Measured(values, four_epsilons(None, plan.bracket), details=details)


def _rows(comparison: Comparison, scale: Scale) -> Sequence[Row]:
    smoke = scale is Scale.smoke
    if smoke:
        comparison = replace(comparison, clips=comparison.clips[:1], epsilons=comparison.epsilons[:1])
        comparison = replace(comparison, rates=comparison.rates[:2])
    return [
        Row(
            key=f"{noise}-{epsilon}",
            label=f"{noise.replace('_', ' ')} {epsilon}",
            parameters={"noise": noise, "epsilon": epsilon, "clips": list(comparison.clips)}
            | {"rates": list(comparison.rates)},
            printed={"accuracy": None},
            measure=partial(_measure, comparison, noise, epsilon),
        )
        for epsilon in comparison.epsilons
        for noise in (NOISES[-1:] if smoke else NOISES)
    ]


def findings(rows: Sequence[Result]) -> list[str]:
    """The order at each budget, and whether it is larger than the spread over seeds."""
    texts = []
    for epsilon in sorted({row["parameters"]["epsilon"] for row in rows}):
        mine = sorted(
            (row for row in rows if row["parameters"]["epsilon"] == epsilon),
            key=lambda row: -row["measured"]["accuracy"],
        )
        shown = ", ".join(_with_spread(row) for row in mine)
        best, gaussian = mine[0], next(row for row in mine if row["parameters"]["noise"] == "gaussian")
        gamma = next(row for row in mine if row["parameters"]["noise"] == "gamma")
        gap = gamma["measured"]["accuracy"] - gaussian["measured"]["accuracy"]
        noise = max(gamma["measured"]["spread"] or 0, gaussian["measured"]["spread"] or 0)
        size = "more than twice" if abs(gap) > 2 * noise else "within twice"
        texts.append(
            f"At certified epsilon {epsilon:g}: {shown}. Best: {best['parameters']['noise'].replace('_', ' ')}. Gamma "
            f"noise as the paper uses it is {gap:+.1f} points from Gaussian noise, {size} the spread over seeds."
        )
    edge = [row for row in rows if row["measured"]["learning_rate"] in _ends(row["parameters"]["rates"])]
    if edge:
        texts.append(
            f"In {share(len(edge), len(rows))} the best learning rate is the least or the largest of the list: one "
            "beyond it might do better."
        )
    return texts


def _ends(rates: Sequence[float]) -> tuple[float, float]:
    return min(rates), max(rates)


def _with_spread(row: Result) -> str:
    value, spread = row["measured"]["accuracy"], row["measured"]["spread"]
    return f"{row['parameters']['noise'].replace('_', ' ')} {value:.1f}" + (f" +- {spread:.1f}" if spread else "")


def _entry(comparison: Comparison) -> Entry:
    data, packages = comparison.data, PACKAGES
    return Entry(
        name=f"fair-{comparison.name}",
        title=comparison.title,
        where="all noises at the same certified epsilon",
        rows=partial(_rows, comparison),
        needs=Needs.at_scales(0.5, comparison.minutes, 3 * comparison.minutes, data, packages),
        panels=(
            Panel(
                "epsilon.certified",
                ("accuracy",),
                "certified epsilon",
                "test accuracy, %: mean and spread over seeds",
                lines="noise",
                xlog=True,
                spread="spread",
            ),
        ),
        findings=findings,
        stand_in={Scale.smoke: "two steps of one noise"},
        group=Group.fair,
    )


_CNN = Recipe("mnist", "cnn", 0.01, 300, 1e-3)
_GRID: dict[str, Any] = {"clips": (0.1, 0.5), "rates": (1e-3, 3e-3, 1e-2), "epsilons": (0.1, 1.0)}
_BOTH = ("mnist", "fashion-mnist")
COMPARISONS = (
    Comparison("cnn-mnist", "CNN on MNIST at the same certified epsilon", _CNN, "fashion-mnist", **_GRID, data=_BOTH),
    Comparison(
        "cnn-fashion-mnist",
        "CNN on Fashion-MNIST at the same certified epsilon",
        replace(_CNN, task="fashion-mnist"),
        "mnist",
        **_GRID,
        data=_BOTH,
    ),
)
ENTRIES = tuple(_entry(comparison) for comparison in COMPARISONS)
