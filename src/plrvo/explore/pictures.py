"""The charts of the page: epsilon over steps, noise over budget, and what is left to attackers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from plrvo import appearance
from plrvo.accounting import Epsilon
from plrvo.accounting.attacker import Pair, most_found
from plrvo.accounting.printed import rounded_down, rounded_up
from plrvo.explore.answers import Quick
from plrvo.explore.question import Question
from plrvo.report.charts import Chart, Line, line_chart


def costs(question: Question, quick: Quick, bracket: Epsilon | None) -> list[Chart]:
    """What steps and noises cost, as far as there is something to draw."""
    found = [_over_steps(question, quick, bracket), _by_budget(quick)]
    return [chart for chart in found if chart is not None]


def _over_steps(question: Question, quick: Quick, bracket: Epsilon | None) -> Chart | None:
    lines = [Line("certified, by moments", quick.over_steps, appearance.OTHER.style)] if quick.over_steps else []
    if bracket is not None and np.isfinite(bracket.certified):
        steps = float(question.work.steps)
        lines.append(Line("certified", [(steps, bracket.certified)], appearance.CERTIFIED.style))
        lines.append(Line("lower", [(steps, bracket.lower)], appearance.LOWER.style, tell=_lower))
    if not lines:
        return None
    return line_chart(
        "Epsilon over steps",
        "Every step spends some of the budget. At the end: the smallest certificate, and what an attacker reaches.",
        "step",
        "epsilon",
        lines,
        tell_x="{:,.0f}".format,
        tell_y=lambda value: f"epsilon {rounded_up(value)}",
    )


def _lower(value: float) -> str:
    return f"epsilon {rounded_down(value)}"


def _by_budget(quick: Quick) -> Chart | None:
    lines = [Line(kind, points, appearance.of(kind).style) for kind, points in quick.by_width.items() if points]
    if not lines:
        return None
    return line_chart(
        "Noise over budget, for every noise",
        "What certifies so much by moments: the lower a curve, the less noise for the same epsilon.",
        "epsilon",
        "E|z| over the clip",
        lines,
        tell_x=lambda value: f"{rounded_up(value, 3)}",
        tell_y=lambda value: f"E|z| {value:.3g} clips",
    )


def attacks(pairs: Sequence[Pair]) -> Chart:
    """What is left to attackers."""
    shares = [0.0, *np.geomspace(1e-3, 1, 40).tolist()]
    return line_chart(
        "Members that an attack can find",
        "No attack with so many false alarms finds more than this; blind guessing is the straight line.",
        "false alarms, %",
        "members found, %",
        [
            Line("at most", [(100 * f, 100 * most_found(pairs, f)) for f in shares], appearance.CERTIFIED.style),
            Line("blind guessing", [(0.0, 0.0), (100.0, 100.0)], appearance.OTHER.style),
        ],
        tell_x=lambda value: f"{value:.3g} %",
        tell_y=lambda value: f"{rounded_up(value, 3)} %",
        marked=False,
    )
