"""How large batches should be: rows of equal work and equal certified epsilon, from few large steps to many small ones.

Linear models on scattering features at certified epsilon 1, with Gaussian noise and what `plrvo train` does by default,
apart from sampling rate and steps, which are those that `plrvo design --minutes` compares (`plrvo.designer.batches`).
Every row goes through the same number of examples. The learning rate is the default, and once more the default times
sqrt(S / T) for T steps where the default has S; of both the better counts. Two rules for a row are compared: the
smallest batch with some share of the best signal, and the most useful signal, T / (T + T0) of it. Their constants are
chosen on MNIST and judged on Fashion-MNIST, where `plrvo train` has settings that were chosen on MNIST as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import product

from plrvo.accounting import Workload
from plrvo.designer.batches import ENOUGH_STEPS, Batches, batches
from plrvo.paper.cnn_recipe import PACKAGES
from plrvo.paper.entry import Context, Entry, Group, Measured, Needs, Panel, Result, Row, Scale, four_epsilons, having
from plrvo.paper.study_scattering import DELTA, EXAMPLES, recipe_of
from plrvo.paper.training import dimension_of, fitted, trials

EPSILON, DIMENSION = 1.0, 39_700  # the dimension of MNIST and Fashion-MNIST, before data is there
CHOSEN_ON, JUDGED_ON = "mnist", "fashion-mnist"
EPOCHS = {Scale.smoke: (10,), Scale.quick: (3, 10), Scale.full: (3, 10, 30)}
SEEDS = {Scale.smoke: 1, Scale.quick: 1, Scale.full: 3}
SHARES = (0.95, 0.9, 0.8, 0.7, 0.6)  # of the best signal, to choose from
NEEDED = (25, 50, 100, 200, 400)  # steps in which half of the signal is of use, to choose from
AT_ONCE = 4096  # examples: a batch of all of them does not fit in every memory
Rule = Callable[[Sequence[Result]], Result]  # one of rows, small batches first
_COLUMNS = ("signal", "accuracy", "at_default_rate", "at_scaled_rate")


@cache
def alternatives(epochs: int, examples: int) -> tuple[Batches, ...]:
    """What `plrvo design` compares where so many passes over the data fit in the time."""
    return tuple(batches(examples, DIMENSION, EPSILON, DELTA, epochs * examples))


def _measure(task: str, epochs: int, place: int, context: Context) -> Measured:
    usual, clip = recipe_of(task, EXAMPLES.get(task, 1437), EPSILON)
    found = alternatives(epochs, EXAMPLES.get(task, 1437))
    each, best = found[place], max(one.signal for one in found)
    recipe = replace(usual, sample_rate=each.sample_rate, steps=each.steps, physical_batch=AT_ONCE)
    scaled = replace(recipe, learning_rate=usual.learning_rate * math.sqrt(usual.steps / each.steps))
    work = Workload(each.sample_rate, each.steps, clip, dimension_of(recipe, context))
    plan = fitted("gaussian", work, EPSILON, DELTA)
    done = trials(
        context, {"default": recipe, "scaled": scaled}, {"default": plan, "scaled": plan}, SEEDS[context.scale]
    )
    default, other = done.means["default"], done.means["scaled"]
    values = {
        "signal": 100 * each.signal / best,
        "at_default_rate": default,
        "at_scaled_rate": other,
    }
    values["accuracy"] = max(value for value in (default, other) if value is not None)
    rates = {"default": recipe.learning_rate, "scaled": scaled.learning_rate}
    details = {**done.details, "learning_rates": rates, "workload": work.to_dict(), "alternative": each.to_dict()}
    return Measured(values, four_epsilons(None, plan.bracket), {}, details)


def _rows(scale: Scale) -> Sequence[Row]:
    tasks = ("digits",) if scale is Scale.smoke else (CHOSEN_ON, JUDGED_ON)
    places: Iterable[int] = (6,) if scale is Scale.smoke else range(8)
    rows = []
    for epochs, task, place in product(EPOCHS[scale], tasks, places):
        examples = EXAMPLES.get(task, 1437)
        size = min(examples, epochs * examples // 10) >> (7 - place)
        rows.append(
            Row(
                key=f"{task}-{epochs}-{size}",
                label=f"{task}, {epochs} epochs, batches of {size:,}",
                parameters={
                    "task": task,
                    "epochs": epochs,
                    "batch": size,
                    "sample rate": size / examples,
                    "steps": epochs * examples // size,
                },
                printed=dict.fromkeys(_COLUMNS),
                measure=partial(_measure, task, epochs, place),
            )
        )
    return rows


def _of(rows: Sequence[Result], task: str) -> list[list[Result]]:
    """The rows of a task by epochs, small batches first."""
    mine = [row for row in rows if row["parameters"]["task"] == task]
    epochs = dict.fromkeys(row["parameters"]["epochs"] for row in mine)
    groups = ([row for row in mine if row["parameters"]["epochs"] == each] for each in epochs)
    return [sorted(group, key=lambda row: float(row["parameters"]["batch"])) for group in groups]


def by_share(share: float) -> Rule:
    """The smallest batch with this share of the best signal."""
    return lambda group: next((row for row in group if row["measured"]["signal"] >= 100 * share), group[-1])


def by_steps(needed: float) -> Rule:
    """The most useful signal, if half of it is of use in so many steps."""

    def useful(row: Result) -> float:
        steps = row["parameters"]["steps"]
        return float(row["measured"]["signal"] * steps / (steps + needed))

    return lambda group: max(group, key=useful)


def lost(rows: Sequence[Result], task: str, rule: Rule) -> float:
    """Points by which the row of a rule is below the best one: mean over epochs."""
    points = [_accuracy(max(group, key=_accuracy)) - _accuracy(rule(group)) for group in _of(rows, task)]
    return sum(points) / len(points)


def _accuracy(row: Result) -> float:
    return float(row["measured"]["accuracy"])


def findings(rows: Sequence[Result]) -> list[str]:
    """The best row of each group, and what each rule loses to it."""
    told = []
    tasks = tuple(dict.fromkeys(row["parameters"]["task"] for row in rows))
    for group in (group for task in tasks for group in _of(rows, task)):
        best, largest, chosen = max(group, key=_accuracy), group[-1], by_steps(ENOUGH_STEPS)(group)
        told.append(f"{_told(best)}, the best of its group. Proposed: {_told(chosen)}. Largest: {_told(largest)}.")
    for task in tasks:
        how = "chosen" if task == CHOSEN_ON else "judged"
        shares = ", ".join(f"{lost(rows, task, by_share(share)):.2f} with {share:.0%}" for share in SHARES)
        steps = ", ".join(f"{lost(rows, task, by_steps(needed)):.2f} with {needed}" for needed in NEEDED)
        told.append(
            f"{task}, where rules are {how}: the smallest batch with a share of the best signal is so many points "
            f"below the best row, on average: {shares}. The most useful signal, by the steps in which half of it is of "
            f"use: {steps}."
        )
    return told


def _told(row: Result) -> str:
    given, found = row["parameters"], row["measured"]
    return f"{row['label']} ({given['steps']} steps, {found['signal']:.0f} % of the signal) {found['accuracy']:.2f} %"


ENTRIES = (
    Entry(
        name="study-batches",
        title="Large batches or many steps",
        where="the same work and the same certified epsilon, in few large steps and in many small ones",
        rows=_rows,
        needs={
            Scale.smoke: Needs(0.3, (), PACKAGES),
            Scale.quick: Needs(15, (CHOSEN_ON, JUDGED_ON), PACKAGES),
            Scale.full: Needs(150, (CHOSEN_ON, JUDGED_ON), PACKAGES),
        },
        panels=tuple(
            Panel(
                "steps",
                ("accuracy",),
                "steps",
                "test accuracy, %",
                task,
                lines="epochs",
                xlog=True,
                only=having("task", task),
            )
            for task in (CHOSEN_ON, JUDGED_ON)
        ),
        findings=findings,
        stand_in={
            Scale.smoke: "one row of the digits of scikit-learn",
            Scale.quick: "3 and 10 epochs, one seed, the better of two learning rates",
            Scale.full: "3, 10 and 30 epochs, three seeds, the better of two learning rates",
        },
        group=Group.study,
    ),
)
