"""The tables of how accuracy depends on theta and on k (CNN-MNIST, q = .01, 300 steps, delta = 1e-5)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from plrvo.accounting import Plan, Workload
from plrvo.accounting.printed import rounded_up
from plrvo.designer import Point
from plrvo.noise import GammaPLRV
from plrvo.paper.cnn import CNN_DELTA, unlike_printed
from plrvo.paper.cnn_recipe import PACKAGES, SEEDS, cnn_recipe
from plrvo.paper.entry import Context, Entry, Measured, Needs, Panel, Result, Row, Scale, four_epsilons
from plrvo.paper.flags import Flag, refutation
from plrvo.paper.training import trials
from plrvo.paper.wording import share

DIMENSION = 26_010
EPSILONS = tuple(f"epsilon.{name}" for name in ("printed", "published", "certified", "lower"))


@dataclass(frozen=True)
class Setting:
    """One line as printed; accuracies are means and spreads of five trials."""

    epsilon: float
    k: float
    theta: float
    clip: float
    accuracy: float
    spread: float

    @property
    def ratio(self) -> float:
        """C/E|z|, the paper's signal-to-noise ratio."""
        return Point(self.k, self.theta, self.clip).snr

    @property
    def plan(self) -> Plan:
        work = Workload(sample_rate=0.01, steps=300, clip=self.clip, dimension=DIMENSION)
        return Plan.certify(GammaPLRV(self.k, self.theta), work, CNN_DELTA)


BY_THETA = (
    Setting(0.0457, 1418, 1.01e-5, 3, 18.456, 1.87),
    Setting(0.7971, 1418, 1.01e-4, 3, 64.174, 4.43),
    Setting(238.10, 1418, 1.01e-3, 3, 93.658, 0.34),
)
BY_K = tuple(
    Setting(epsilon, k, 1.01e-3, 1, accuracy, spread)
    for epsilon, k, accuracy, spread in (
        (1.0691, 500, 87.614, 1.34),
        (4.1055, 1000, 92.146, 0.91),
        (8.3310, 1390, 93.792, 0.57),
        (8.7180, 1418.922, 93.634, 0.79),
        (8.8879, 1430, 93.702, 0.63),
        (9.9292, 1500, 93.438, 0.42),
        (20.4878, 2000, 94.13, 0.49),
        (66.5293, 3000, 95.114, 0.22),
        (363.376, 5000, 96.00, 0.45),
        (2230.0, 10000, 96.212, 0.40),
    )
)


def _measure(setting: Setting, context: Context) -> Measured:
    plan = setting.plan
    done = trials(context, cnn_recipe("mnist", context.scale), {"gamma": plan}, SEEDS[context.scale])
    flags = {**unlike_printed(setting.epsilon, plan.bracket.published), **refutation(plan.bracket)}
    return Measured(done.means, four_epsilons(setting.epsilon, plan.bracket), flags, done.details)


def _rows(settings: Sequence[Setting], varied: str, scale: Scale) -> Sequence[Row]:
    return [
        Row(
            key=f"{varied}-{getattr(setting, varied):g}",
            label=f"{varied} {getattr(setting, varied):g}",
            parameters={"k": setting.k, "theta": setting.theta, "clip": setting.clip},
            printed={"gamma": setting.accuracy},
            measure=partial(_measure, setting),
        )
        for setting in (settings[:1] if scale is Scale.smoke else settings)
    ]


def findings(varied: str, rows: Sequence[Result]) -> list[str]:
    """What the table says."""
    ordered = sorted(rows, key=lambda row: float(row["parameters"][varied]))
    steps = [b["measured"]["gamma"] >= a["measured"]["gamma"] for a, b in itertools.pairwise(ordered)]
    grows = (
        f"Accuracy grows with {varied}"
        if all(steps)
        else f"Accuracy grows with {varied} in {share(sum(steps), len(steps), 'step')}"
    )
    wrong = [row for row in rows if Flag.misprinted in row["flags"]]
    refuted = [row for row in rows if Flag.refuted in row["flags"]]
    dearest = max((row["epsilon"]["certified"] or float("inf")) for row in rows)
    apart = max(abs(row["measured"]["gamma"] - row["printed"]["gamma"]) for row in rows)
    return [
        f"Accuracies are within {apart:.1f} points of the printed ones.",
        f"{grows}, and so does epsilon: what grows is the signal-to-noise ratio C (k - 1) theta, for which the privacy "
        f"is paid (certified epsilon up to {rounded_up(dearest)}).",
        f"In {share(len(wrong), len(rows))} an epsilon is printed that the parameters do not give.",
        f"In {share(len(refuted), len(rows))} the published epsilon is refuted.",
    ]


def _entry(varied: str, settings: Sequence[Setting], where: str, minutes: float) -> Entry:
    return Entry(
        name=f"table-{varied}",
        title=f"CNN on MNIST: accuracy by {varied}",
        where=where,
        rows=partial(_rows, settings, varied),
        needs=Needs.at_scales(0.2, minutes, 5 * minutes, ("mnist",), PACKAGES),
        panels=(
            Panel(varied, ("gamma",), varied, "test accuracy, %", xlog=True),
            Panel(varied, EPSILONS, varied, "epsilon", xlog=True, ylog=True),
        ),
        findings=partial(findings, varied),
        stand_in={Scale.quick: "one seed instead of five trials", Scale.smoke: "four steps of one row"},
    )


ENTRIES = (
    _entry("theta", BY_THETA, "table of theta (tab:theta_dependency)", 1),
    _entry("k", BY_K, "table of k (tab:k_dependency)", 3),
)
