"""What tight certificates change: the noise that a budget asks for, by moments alone and by the best of all methods.

The settings are those of the comparisons at equal certified epsilon, here and in the paper's place. Nothing is trained:
a setting is a workload, a delta and the epsilons that it is trained with. Noise is given as its multiplier, the
standard deviation over the clip, on which neither depends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from plrvo.accounting import Plan, Workload
from plrvo.accounting.calibration import calibrate_quickly
from plrvo.accounting.correlated import Correlation
from plrvo.noise import Noise
from plrvo.paper import classification, convergence, correlated, fair, generation_tables, study_e2e, study_sst2
from plrvo.paper.analytic import needs
from plrvo.paper.cnn import CNN_DELTA
from plrvo.paper.dependency import DIMENSION as CNN_DIMENSION
from plrvo.paper.entry import Context, Entry, Group, Measured, Panel, Result, Row, Scale, four_epsilons, having
from plrvo.paper.generation import TABLES
from plrvo.paper.training import Recipe, fitted
from plrvo.paper.wording import spread

NOISES = ("laplace", "gamma")
# Of what is trained. A test holds them to the workloads of committed results.
BIASES, ALL_LAYERS, SST2_HEAD, SNLI_HEAD = 26_498, 22_566_146, 770, 1_155
STORIES, LOW_RANK, CIFAR_HEAD = 15_191_712, 55_296, 12_810
NEGLIGIBLE = 0.005  # of a deviation
IN_HIGH_DIMENSION = 2**0.5  # Laplace over Gaussian deviation, where both have the same Fisher information


@dataclass(frozen=True)
class Compared:
    """A setting of entries that compare noises, and the budgets that it is trained with."""

    entries: tuple[str, ...]
    shown: str
    work: Workload
    delta: float
    epsilons: tuple[float, ...]
    correlation: Correlation | None = None

    @property
    def key(self) -> str:
        return self.shown.lower().replace(",", "").replace(" ", "-")


def settings() -> Iterator[Compared]:
    """Every setting, from the modules that train them, at scale quick."""

    def of(recipe: Recipe, clip: float, dimension: int) -> Workload:
        return Workload(recipe.sample_rate, recipe.steps, clip, dimension)

    one = fair.COMPARISONS[0]
    names = tuple(f"fair-{each.name}" for each in fair.COMPARISONS)
    yield Compared(names, "CNN", of(one.recipe, one.clips[-1], CNN_DIMENSION), one.delta, one.epsilons)

    parts = study_sst2.settings(Scale.quick)
    heads = [classification.settings_of(task, Scale.quick)[0] for task in ("sst2", "qnli")]
    for each, entry, shown, dimension in (
        (parts[0], "study-sst2", "SST-2, biases", BIASES),
        (parts[1], "study-sst2", "SST-2, all layers", ALL_LAYERS),
        (heads[0], "figure-sst2", "SST-2, head", SST2_HEAD),
        (heads[1], "figure-qnli", "SNLI, head", SNLI_HEAD),
    ):
        yield Compared((entry,), shown, of(each.recipe, each.clip, dimension), each.delta, each.epsilons)

    clip, quick = generation_tables.CLIP, Scale.quick
    whole, low = study_e2e.setting(quick), generation_tables.setting_of(TABLES[0], quick)
    yield Compared(("study-e2e",), "E2E, all layers", of(whole.recipe, clip, STORIES), whole.delta, study_e2e.EPSILONS)
    some = generation_tables.EPSILONS[quick]
    yield Compared((TABLES[0].name,), "E2E, low rank", of(low.recipe, clip, LOW_RANK), low.delta, some)

    budgets = tuple(sorted({printed[1] for printed in convergence.PRINTED}))
    longer = of(convergence.recipe_of(quick), convergence.CLIP, CNN_DIMENSION)
    yield Compared(("table-convergence", "figure-convergence"), "CNN, 700 steps", longer, CNN_DELTA, budgets)

    for setting, dimension in zip(correlated.SETTINGS[quick], (CNN_DIMENSION, CIFAR_HEAD), strict=True):
        for mechanism in (correlated.DP_SGD, correlated.BANDS, correlated.BY_TURNS, correlated.TREE):
            if mechanism is correlated.BY_TURNS and setting.task != "mnist":
                continue
            entry = "table-ftrl" if mechanism is correlated.TREE else "study-correlated"
            work = of(mechanism.recipe(setting, 0.1), 1.0, dimension)
            matrix = None if mechanism.correlation is None else mechanism.correlation(setting)
            shown = f"{setting.task}, {mechanism.shown}"
            yield Compared((entry,), shown, work, setting.delta, tuple(correlated.RATES), matrix)


def _measure(compared: Compared, epsilon: float, context: Context) -> Measured:
    work, delta, correlation = compared.work, compared.delta, compared.correlation

    def now(kind: str) -> Plan:
        return fitted(kind, work, epsilon, delta, correlation)

    plans = {kind: now(kind) for kind in NOISES}
    before = {kind: calibrate_quickly(plans[kind].noise, work, epsilon, delta, correlation) for kind in NOISES}
    gaussian = _multiplier(now("gaussian").noise, work)
    values = {"gaussian": gaussian}
    for kind in NOISES:
        wide, narrow = _multiplier(before[kind], work), _multiplier(plans[kind].noise, work)
        values |= {f"{kind}_by_moments": wide, kind: narrow, f"{kind}_left": narrow / wide}
        values |= {f"{kind}_over_gaussian_by_moments": wide / gaussian, f"{kind}_over_gaussian": narrow / gaussian}
    bracket = plans["gamma"].bracket
    details = {
        "method": {kind: plan.bracket.method for kind, plan in plans.items()},
        "noise": {kind: plan.noise.to_dict() for kind, plan in plans.items()},
        "by_moments": {kind: noise.to_dict() for kind, noise in before.items()},
        "workload": work.to_dict(),
        "delta": delta,
    }
    return Measured(values, four_epsilons(None, bracket), {}, details)


def _multiplier(noise: Noise, work: Workload) -> float:
    return float(noise.variance**0.5) / work.clip


_ENDS = ("_by_moments", "", "_left", "_over_gaussian_by_moments", "_over_gaussian")
_COLUMNS = ("gaussian", *(kind + end for kind in NOISES for end in _ENDS))


def _rows(scale: Scale) -> Sequence[Row]:
    some = [next(settings())] if scale is Scale.smoke else list(settings())
    return [
        Row(
            key=f"{compared.key}-{epsilon:g}",
            label=f"{compared.shown}, epsilon {epsilon:g}",
            parameters={
                "entries": list(compared.entries),
                "setting": compared.shown,
                "epsilon": epsilon,
                "correlated": compared.correlation is not None,
            },
            printed=dict.fromkeys(_COLUMNS),
            measure=partial(_measure, compared, epsilon),
        )
        for compared in some
        for epsilon in compared.epsilons
    ]


def findings(rows: Sequence[Result]) -> list[str]:
    """How much narrower, where most, and what is left between Laplace-like and Gaussian noise."""
    told = []
    for which, where in ((False, "With fresh noise in every step"), (True, "With correlated noise")):
        mine = [row for row in rows if row["parameters"]["correlated"] is which]
        left = [row["measured"]["gamma_left"] for row in mine]
        most = min(mine, key=lambda row: row["measured"]["gamma_left"])
        before, after = (
            [row["measured"][f"gamma_over_gaussian{ends}"] for row in mine] for ends in ("_by_moments", "")
        )
        gained = (
            f"{max(0.0, 1 - max(left)):.0%} to {1 - min(left):.0%} narrower than by moments alone, most in "
            f"{most['label']}"
            if min(left) < 1 - NEGLIGIBLE
            else f"as wide as by moments alone, to {NEGLIGIBLE:.1%}, at these budgets"
        )
        told.append(
            f"{where} Gamma noise of the same certified epsilon is {gained}. Its deviation is {spread(after, '.2f')} "
            f"times that of Gaussian noise; by moments alone {spread(before, '.2f')}."
        )
    apart = max(abs(row["measured"]["laplace"] / row["measured"]["gamma"] - 1) for row in rows)
    return [
        *told,
        f"In high dimension no proof could give less than {IN_HIGH_DIMENSION:.2f} times: both noises then show the "
        "same information (theory, section 10). Laplace noise and Gamma noise with k = 1,000 differ by at most "
        f"{apart:.1%}.",
    ]


ENTRIES = (
    Entry(
        name="study-narrower",
        title="What tight certificates change",
        where="the noise of every comparison at equal certified epsilon, by moments alone and by all methods",
        rows=_rows,
        needs=needs(4, 4),
        panels=(
            Panel(
                "epsilon",
                ("gamma_left",),
                "certified epsilon",
                "deviation now, over that by moments alone",
                title="Gamma noise, fresh in every step",
                lines="setting",
                xlog=True,
                only=having("correlated", False),
            ),
        ),
        findings=findings,
        stand_in=dict.fromkeys(Scale, "settings of scale quick; nothing is trained"),
        group=Group.study,
    ),
)
