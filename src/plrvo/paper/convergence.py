"""Convergence of CNN-MNIST at three epsilons: the table and the plot.

The convergence step is the first one at which accuracy has gained less than one point over the 200 steps before. The
paper prints neither clip, k and theta nor the number of steps for which its epsilons hold: here both noises are fitted
to the printed epsilon, certified for all steps of the run, with the clip of the paper's CNN tables.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from plrvo.accounting import Plan, Workload
from plrvo.files import read_json, write_json
from plrvo.paper.cnn import CNN_DELTA
from plrvo.paper.cnn_recipe import PACKAGES, cnn_recipe
from plrvo.paper.dependency import DIMENSION
from plrvo.paper.entry import Context, Entry, Measured, Needs, Panel, Result, Row, Scale, four_epsilons
from plrvo.paper.flags import Flag, flagged
from plrvo.paper.training import Recipe, fitted, train

if TYPE_CHECKING:
    from plrvo.tasks.resolved import Trained

WINDOW, GAIN = 200, 1.0  # steps, points of accuracy
CLIP = 0.5
STEPS = {Scale.smoke: 4, Scale.quick: 700, Scale.full: 1500}
# kind, epsilon, convergence step, accuracy there, its gain over the window, seconds
PRINTED = (
    ("gamma", 0.38, 501, 95.55, 0.69, 57.60),
    ("gamma", 0.93, 499, 96.23, 0.14, 55.58),
    ("gamma", 1.99, 399, 96.44, 0.61, 44.73),
    ("gaussian", 0.38, 699, 91.00, -0.19, 90.44),
    ("gaussian", 0.93, 599, 93.31, 0.80, 61.16),
    ("gaussian", 1.99, 499, 94.04, -0.27, 51.35),
)


def converged(history: Sequence[tuple[int, float]]) -> tuple[int, float, float] | None:
    """(step, accuracy, gain over the window before) at convergence; None if the run ended before.

    >>> converged([(0, 10.0), (100, 80.0), (200, 90.0), (300, 90.5), (400, 90.9)])
    (400, 90.9, 0.9)
    """
    at = dict(history)
    for step, accuracy in history:
        if step - WINDOW in at and accuracy - at[step - WINDOW] < GAIN:
            return step, accuracy, round(accuracy - at[step - WINDOW], 6)
    return None


def recipe_of(scale: Scale) -> Recipe:
    """The CNN of the tables, tested every 25 steps."""
    every = 25 if scale is not Scale.smoke else 2
    return replace(cnn_recipe("mnist", scale, STEPS[scale]), evaluate_every=every)


def _measure(kind: str, epsilon: float, context: Context) -> Measured:
    recipe = recipe_of(context.scale)
    work = Workload(sample_rate=recipe.sample_rate, steps=STEPS[context.scale], clip=CLIP, dimension=DIMENSION)
    plan = fitted(kind, work, epsilon, CNN_DELTA)
    done, seconds = _timed(context, recipe, plan)
    curve = [(row["step"], 100 * row["accuracy"]) for row in done.history]
    found = converged([(0, 10.0), *curve])
    values: dict[str, float | None] = {"step": None, "accuracy": None, "gain": None, "seconds": None}
    if found:
        values = dict(zip(("step", "accuracy", "gain"), found, strict=True))
        values["seconds"] = None if seconds is None else round(seconds * found[0] / work.steps, 2)
    details: dict[str, Any] = {"curve": curve, "last_accuracy": curve[-1][1], "steps": work.steps}
    flags = flagged(Flag.not_converged, f"not converged within {work.steps} steps", when=not found)
    return Measured(values, four_epsilons(epsilon, plan.bracket), flags, details)


def _timed(context: Context, recipe: Recipe, plan: Plan) -> tuple[Trained, float | None]:
    """The run and its seconds, tests included; no time is known of a run that was stopped and continued."""
    clock, whole = context.folder / "seconds.json", not (context.folder / "run").exists()
    began = time.monotonic()
    done = train(context, "run", recipe, plan, context.seed)
    if whole:
        write_json(clock, time.monotonic() - began)
    return done, float(read_json(clock, "out", "seconds")) if clock.exists() else None


def _rows(scale: Scale) -> Sequence[Row]:
    rows = []
    for kind, epsilon, step, accuracy, gain, seconds in PRINTED[:1] if scale is Scale.smoke else PRINTED:
        rows.append(
            Row(
                key=f"{kind}-{epsilon}",
                label=f"{kind} {epsilon}",
                parameters={"kind": kind, "epsilon": epsilon, "curve": f"{kind}, epsilon {epsilon}"},
                printed={"step": step, "accuracy": accuracy, "gain": gain, "seconds": seconds},
                measure=partial(_measure, kind, epsilon),
            )
        )
    return rows


def findings(rows: Sequence[Result]) -> list[str]:
    """Which noise was quicker, and which better, at each epsilon."""
    texts = []
    for epsilon in sorted({row["parameters"]["epsilon"] for row in rows}):
        mine = {row["parameters"]["kind"]: row for row in rows if row["parameters"]["epsilon"] == epsilon}
        steps = {kind: row["measured"]["step"] for kind, row in mine.items()}
        last = {kind: row["details"]["last_accuracy"] for kind, row in mine.items()}
        shown = {kind: f"converges at step {step:.0f}" if step else "does not converge" for kind, step in steps.items()}
        texts.append(
            f"At certified epsilon {epsilon:g} Gamma noise {shown['gamma']} and Gaussian noise "
            f"{shown['gaussian']}; they end at {last['gamma']:.1f} and {last['gaussian']:.1f} %."
        )
    return texts


_NEEDS = Needs.at_scales(0.2, 8, 20, ("mnist",), PACKAGES)
_CURVES = Panel("step", ("accuracy",), "steps", "test accuracy, %", lines="curve", curve="curve")
_STAND_IN = {
    Scale.quick: "both noises at the same certified epsilon over 700 steps; the paper's parameters are not printed; "
    "seconds are those of a machine that may have had other work",
    Scale.full: "both noises at the same certified epsilon over 1,500 steps; the paper's parameters are not printed; "
    "seconds are those of a machine that may have had other work",
    Scale.smoke: "four steps of one row",
}
ENTRIES = (
    Entry(
        name="table-convergence",
        title="Convergence of CNN-MNIST",
        where="table of convergence (tab:convergence)",
        rows=_rows,
        needs=_NEEDS,
        panels=(Panel("epsilon", ("step",), "epsilon", "convergence step", lines="kind"), _CURVES),
        findings=findings,
        stand_in=_STAND_IN,
    ),
    Entry(
        name="figure-convergence",
        title="Accuracy over steps, CNN-MNIST",
        where="plot of convergence (fig:convergence-plot)",
        rows=_rows,
        needs=_NEEDS,
        panels=(_CURVES,),
        findings=findings,
        stand_in=_STAND_IN,
    ),
)
