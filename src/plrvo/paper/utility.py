"""Accuracy against epsilon for vision: the CNN on MNIST and ResNet-18 on CIFAR-10 with three noises.

The figure prints no numbers. Its settings, from the authors' files, are q = .04, 1,250 steps, C = .1, delta = 1e-5 and
(k, theta) by epsilon. Gaussian and Laplace noise are fitted to certify the same epsilon, Laplace with l2 clipping (the
paper's has l1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from plrvo.accounting import Plan, Workload
from plrvo.noise import GammaPLRV
from plrvo.paper.cnn import CNN_DELTA, unlike_printed
from plrvo.paper.cnn_recipe import FEATURE_PACKAGES, PACKAGES
from plrvo.paper.dependency import DIMENSION
from plrvo.paper.entry import Context, Entry, Measured, Needs, Panel, Result, Row, Scale, four_epsilons, having
from plrvo.paper.flags import refutation
from plrvo.paper.training import Recipe, dimension_of, fitted, trials
from plrvo.paper.wording import spread

STEPS = 1250
EPSILONS = (0.1, 0.5, 1.0, 2.0, 3.0)
MEASURES = ("gaussian", "laplace", "gamma")


@dataclass(frozen=True)
class Model:
    """A data set with the network that the paper trains on it, and what stands in for it."""

    name: str
    task: str
    network: str
    dimension: int
    parameters: tuple[tuple[float, float], ...]  # k and theta by epsilon
    quick_model: str
    quick_steps: int


CNN = Model(
    "CNN on MNIST",
    "mnist",
    "cnn",
    DIMENSION,
    ((1013, 6.58e-5), (100.06, 3.870e-3), (100.02, 8.647e-3), (100.01, 1.629e-2), (100.00, 2.344e-2)),
    "cnn",
    100,
)
RESNET = Model(
    "ResNet-18 on CIFAR-10",
    "cifar-10",
    "resnet18",
    11_173_962,
    ((33_000, 3e-7), (33_000, 1.2e-5), (33_000, 2.2e-5), (33_000, 4.4e-5), (33_000, 6.4e-5)),
    "efficientnet-lite0-head",
    250,
)


def recipe_of(model: Model, scale: Scale) -> Recipe:
    """Adam as in the authors' code."""
    full = Recipe(model.task, model.network, 0.04, STEPS, 1e-3, weight_decay=1e-4, label_smoothing=0.15)
    if scale is Scale.full:
        return replace(full, physical_batch=500)
    if scale is Scale.quick:
        return replace(full, model=model.quick_model, steps=model.quick_steps)
    return replace(full, model="logistic", steps=2)


def _measure(model: Model, index: int, context: Context) -> Measured:
    epsilon, (k, theta) = EPSILONS[index], model.parameters[index]
    work = Workload(sample_rate=0.04, steps=STEPS, clip=0.1, dimension=model.dimension)
    gamma = Plan.certify(GammaPLRV(k, theta), work, CNN_DELTA)
    recipe = recipe_of(model, context.scale)
    trained = replace(work, dimension=dimension_of(recipe, context))
    plans = {
        "gaussian": fitted("gaussian", trained, epsilon, CNN_DELTA),
        "laplace": fitted("laplace", trained, epsilon, CNN_DELTA),
        "gamma": Plan.certify(GammaPLRV(k, theta), trained, CNN_DELTA),
    }
    done = trials(context, recipe, plans, 1)
    flags = {**unlike_printed(epsilon, gamma.bracket.published), **refutation(gamma.bracket)}
    details = {**done.details, "trained_dimension": trained.dimension, "trained_steps": recipe.steps}
    return Measured(done.means, four_epsilons(epsilon, gamma.bracket), flags, details)


def _rows(scale: Scale) -> Sequence[Row]:
    rows = []
    for model in (CNN, RESNET):
        for index, epsilon in enumerate(EPSILONS[:1] if scale is Scale.smoke else EPSILONS):
            k, theta = model.parameters[index]
            rows.append(
                Row(
                    key=f"{model.task}-{epsilon}",
                    label=f"{model.task} {epsilon}",
                    parameters={"model": model.name, "epsilon": epsilon, "k": k, "theta": theta},
                    printed=dict.fromkeys(MEASURES),
                    measure=partial(_measure, model, index),
                )
            )
    return rows


def findings(rows: Sequence[Result]) -> list[str]:
    """Who is ahead, and at which certified epsilon."""
    texts = []
    for name in dict.fromkeys(row["parameters"]["model"] for row in rows):
        mine = [row for row in rows if row["parameters"]["model"] == name]
        gaps = [row["measured"]["gamma"] - row["measured"]["gaussian"] for row in mine]
        ratios = [row["epsilon"]["certified"] / row["epsilon"]["printed"] for row in mine]
        texts.append(
            f"{name}: the authors' Gamma noise is {spread(gaps, '+z.1f')} points from Gaussian noise, at "
            f"{spread(ratios, '.2f')} times the certified epsilon of the latter."
        )
    return texts


def _panel(model: Model) -> Panel:
    return Panel(
        "epsilon",
        MEASURES,
        "epsilon as printed",
        "test accuracy, %",
        title=model.name,
        only=having("model", model.name),
    )


_DATA = ("mnist", "cifar-10")
ENTRIES = (
    Entry(
        name="figure-utility-cv",
        title="Accuracy against epsilon, vision",
        where="utility curves (fig:utility_cv)",
        rows=_rows,
        needs={
            Scale.smoke: Needs(0.5, _DATA, PACKAGES),
            Scale.quick: Needs(12, _DATA, FEATURE_PACKAGES),
            Scale.full: Needs(3000, _DATA, PACKAGES, "a graphics card"),
        },
        panels=(_panel(RESNET), _panel(CNN)),
        findings=findings,
        stand_in={
            Scale.quick: "noise for 1,250 steps, of which 100 (CNN) and 250 are taken; a linear head on features of "
            "EfficientNet-Lite0 in place of ResNet-18; one seed",
            Scale.smoke: "linear models, two steps",
        },
    ),
)
