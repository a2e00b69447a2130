"""Training with noise that is correlated over steps, and with that of DP-SGD, on small models.

Each noise is fitted to certify the epsilon, at a delta just below 1/N; the learning rate is chosen for each mechanism
and epsilon on Fashion-MNIST with Gaussian noise, and used for every noise and data set. The published formula is for
sampled batches: no figure of it is given where noise is correlated.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from plrvo.accounting import Plan, Workload
from plrvo.accounting.correlated import Correlation, CyclicPoisson, Participation, Tree, Updates, fit_banded
from plrvo.paper.entry import Context, Measured, Numbers, Panel, Result, Row, Scale, four_epsilons, having
from plrvo.paper.flags import refutation
from plrvo.paper.training import Recipe, dimension_of, fitted, train, trials
from plrvo.paper.wording import spread

NOISES = ("gaussian", "laplace", "gamma", "gamma_score")
MOMENTUM = 0.9
# For gradients in units of the clip, to choose from at each epsilon.
RATES = {0.05: (0.005, 0.02, 0.08), 0.23: (0.02, 0.08, 0.3), 0.9: (0.02, 0.08, 0.3)}


@dataclass(frozen=True)
class Setting:
    """A data set: what the paper trains, what stands in for it, and for how long."""

    task: str
    size: int
    model: str
    batch: int
    epochs: int
    delta: float
    restart: int | None = None  # epochs

    @property
    def per_epoch(self) -> int:
        return -(-self.size // self.batch)

    @property
    def steps(self) -> int:
        return self.per_epoch * self.epochs


@dataclass(frozen=True)
class Mechanism:
    """How noise and batches hang together over steps; without a correlation, it is DP-SGD."""

    key: str
    shown: str
    correlation: Callable[[Setting], Correlation] | None = None

    @property
    def correlated(self) -> bool:
        return self.correlation is not None

    def recipe(self, setting: Setting, rate: float) -> Recipe:
        sample_rate = 1.0 if self.correlated else setting.batch / setting.size
        return Recipe(setting.task, setting.model, sample_rate, setting.steps, rate, "sgd", MOMENTUM)


def _tree(setting: Setting) -> Correlation:
    restart = None if setting.restart is None else min(setting.restart, setting.epochs) * setting.per_epoch
    return Correlation(Tree(), Participation(setting.per_epoch, setting.epochs), restart)


def _bands(setting: Setting) -> Correlation:
    strategy = fit_banded(min(32, setting.per_epoch), setting.steps, Updates(MOMENTUM))
    return Correlation(strategy, Participation(setting.per_epoch, setting.epochs))


def _by_turns(setting: Setting) -> Correlation:
    bands = min(8, setting.per_epoch // 2)
    sampled = CyclicPoisson(bands, bands * setting.batch / setting.size)
    return Correlation(fit_banded(bands, setting.steps, Updates(MOMENTUM)), sampled)


TREE = Mechanism("tree", "in order, tree", _tree)
BANDS = Mechanism("banded-32", "in order, 32 bands", _bands)
DP_SGD = Mechanism("dp-sgd", "DP-SGD, Poisson")
BY_TURNS = Mechanism("banded-8-cyclic", "8 bands, sampled by turns", _by_turns)
TUNING = {
    Scale.quick: Setting("fashion-mnist", 60_000, "cnn-tanh", 500, 1, 1.66e-5),
    Scale.smoke: Setting("fashion-mnist", 60_000, "logistic", 15_000, 1, 1.66e-5),
}
SETTINGS = {
    Scale.full: (
        Setting("mnist", 60_000, "cnn-tanh", 250, 40, 1.66e-5),
        Setting("cifar-10", 50_000, "resnet18", 500, 100, 1.99e-5, 20),
    ),
    Scale.quick: (
        Setting("mnist", 60_000, "cnn-tanh", 500, 1, 1.66e-5),
        Setting("cifar-10", 50_000, "efficientnet-lite0-head", 1000, 3, 1.99e-5),
    ),
    Scale.smoke: (
        Setting("mnist", 60_000, "logistic", 15_000, 1, 1.66e-5),
        Setting("cifar-10", 50_000, "logistic", 12_500, 1, 1.99e-5),
    ),
}
DATA = ("mnist", "cifar-10", "fashion-mnist")
SHORT = (
    "one epoch in batches of 500 on MNIST; three epochs in batches of 1,000 of a linear head on features of "
    "EfficientNet-Lite0 on CIFAR-10; one seed"
)
SMOKE = "linear models, four steps, one learning rate"


def _chosen(mechanism: Mechanism, epsilon: float, context: Context) -> tuple[float, list[dict[str, float]]]:
    """The rate that is best on Fashion-MNIST with Gaussian noise, and what was tried; once for all data sets."""
    smoke = context.scale is Scale.smoke
    setting, place = TUNING[Scale.smoke if smoke else Scale.quick], ("rate", mechanism.key, epsilon)
    if place not in context.kept:
        tried = []
        for rate in RATES[epsilon][:1] if smoke else RATES[epsilon]:
            recipe = mechanism.recipe(setting, rate)
            plan = _plan("gaussian", mechanism, setting, recipe, epsilon, context)
            done = train(context, f"tuning-{rate:g}", recipe, plan, context.seed)
            tried.append({"learning_rate": rate, "accuracy": done.accuracy})
        context.kept[place] = tried
    tried = context.kept[place]
    return max(tried, key=lambda one: one["accuracy"])["learning_rate"], tried


def _plan(noise: str, mechanism: Mechanism, setting: Setting, recipe: Recipe, epsilon: float, context: Context) -> Plan:
    work = Workload(recipe.sample_rate, recipe.steps, 1.0, dimension_of(recipe, context))
    correlation = None if mechanism.correlation is None else mechanism.correlation(setting)
    return fitted(noise, work, epsilon, setting.delta, correlation)


def _measure(mechanism: Mechanism, setting: Setting, epsilon: float, seeds: int, context: Context) -> Measured:
    rate, tried = _chosen(mechanism, epsilon, context)
    recipe = mechanism.recipe(setting, rate)
    if setting in SETTINGS[Scale.full]:
        recipe = replace(recipe, physical_batch=250)
    plans = {name: _plan(name, mechanism, setting, recipe, epsilon, context) for name in NOISES}
    done = trials(context, recipe, plans, seeds)
    bracket = plans["gamma"].bracket
    if mechanism.correlated:
        bracket = replace(bracket, published=None)
    details = {
        **done.details,
        "steps": setting.steps,
        "delta": setting.delta,
        "dimension": plans["gamma"].workload.dimension,
        "noise": {name: plan.noise.to_dict() for name, plan in plans.items()},
        "learning_rate": rate,
        "tuned": tried,
    }
    printed = epsilon if mechanism is TREE else None
    return Measured(done.means, four_epsilons(printed, bracket), refutation(bracket), details)


def row_of(mechanism: Mechanism, setting: Setting, epsilon: float, seeds: int, key: str, printed: Numbers) -> Row:
    """All noises with a mechanism, at one epsilon."""
    return Row(
        key=key,
        label=f"{setting.task} {epsilon}" + ("" if mechanism is TREE else f", {mechanism.shown}"),
        parameters={
            "task": setting.task,
            "mechanism": mechanism.shown,
            "epsilon": epsilon,
            "model": setting.model,
            "batch": setting.batch,
            "epochs": setting.epochs,
        },
        printed={name: printed.get(name) for name in NOISES},
        measure=partial(_measure, mechanism, setting, epsilon, seeds),
    )


def mechanism_of(row: Result) -> str:
    """By its shown name."""
    return str(row["parameters"]["mechanism"])


def against_gaussian(rows: Sequence[Result], noise: str) -> str:
    """How many points a noise is from Gaussian noise in the same place."""
    gains = [row["measured"][noise] - row["measured"]["gaussian"] for row in rows]
    return f"{spread(gains, '+z.1f')} points ({statistics.fmean(gains):+z.1f} on average)"


def rates_of(rows: Sequence[Result]) -> str:
    """The rates that were chosen, by mechanism."""
    found: dict[str, dict[float, float]] = {}
    for row in rows:
        found.setdefault(mechanism_of(row), {})[row["parameters"]["epsilon"]] = row["details"]["learning_rate"]
    told = "; ".join(f"{name} {', '.join(f'{rate:g}' for rate in rates.values())}" for name, rates in found.items())
    return (
        "Learning rates (in units of the clip) were chosen among three for each mechanism and epsilon, on "
        f"Fashion-MNIST with Gaussian noise: {told}."
    )


def panels_of(lines: str | None) -> tuple[Panel, ...]:
    """One for each data set; with lines for each value of a parameter, of two noises."""

    def of(task: str) -> Panel:
        ys = NOISES if lines is None else ("gaussian", "gamma")
        only = having("task", task)
        return Panel("epsilon", ys, "epsilon", "test accuracy, %", title=task, xlog=True, only=only, lines=lines)

    return of("mnist"), of("cifar-10")
