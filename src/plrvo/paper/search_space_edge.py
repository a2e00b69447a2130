"""The search space in an MNLI task: tau(epsilon), the largest (k-1) theta = 1/E|z| that a budget allows.

The paper says that tau grows about in proportion to k theta. At the edge of the certified region (k-1) theta is
compared with k theta and between shapes, and its growth with epsilon is measured as a power (`mnli` has the setting).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from plrvo import appearance
from plrvo.accounting.printed import rounded_down
from plrvo.paper.analytic import needs, points
from plrvo.paper.entry import Context, Entry, Measured, Panel, Result, Row, Scale
from plrvo.paper.flags import Flag
from plrvo.paper.mnli import BOTH, CLIP, at_published_edge, edge, gaussian_distortion, work_of
from plrvo.paper.wording import share, spread

SHAPES = (2.0, 10.0, 1000.0)
GAUSSIAN = "tau_gaussian"
MEASURES = ("tau_certified", "tau_published", GAUSSIAN)


def _measure(k: float, epsilon: float, context: Context) -> Measured:
    published, certified = (edge(accountant, epsilon, k) for accountant in BOTH)
    epsilons, flags = at_published_edge(k, published, epsilon)
    tau = ((k - 1) * certified, (k - 1) * published, 1 / gaussian_distortion(epsilon))
    details = {"k_theta_certified": k * certified}
    return Measured(dict(zip(MEASURES, tau, strict=True)), epsilons, flags, details)


def _rows(scale: Scale) -> Sequence[Row]:
    return [
        Row(
            key=f"{k:g}-{epsilon:g}",
            label=f"k {k:g}, epsilon {epsilon:g}",
            parameters={"k": k, "epsilon": epsilon, "shape": f"k = {k:g}"},
            printed=dict.fromkeys(MEASURES),
            measure=partial(_measure, k, epsilon),
        )
        for k in (SHAPES if scale is not Scale.smoke else SHAPES[-1:])
        for epsilon in points(scale, 0.1, 10.0, 9, 25)
    ]


def power(rows: Sequence[Result], name: str) -> float:
    """The power of epsilon with which tau grows over the whole range."""
    ends = (rows[0], rows[-1])
    tau, epsilon = ([row[part][key] for row in ends] for part, key in (("measured", name), ("parameters", "epsilon")))
    return math.log(tau[1] / tau[0]) / math.log(epsilon[1] / epsilon[0])


def findings(rows: Sequence[Result]) -> list[str]:
    """How tau depends on k and on epsilon, and what the published edge is worth."""
    by_k = {k: [row for row in rows if row["parameters"]["k"] == k] for k in SHAPES}
    factor = {
        k: mine[0]["measured"]["tau_certified"] / mine[0]["details"]["k_theta_certified"] for k, mine in by_k.items()
    }
    large = by_k[SHAPES[-1]]
    below = [row["measured"]["tau_certified"] / row["measured"][GAUSSIAN] for row in large]
    refuted = [row for row in rows if Flag.refuted in row["flags"]]
    worst = max(rows, key=lambda row: row["epsilon"]["lower"] / row["epsilon"]["printed"])
    over = [row for row in rows if row["measured"]["tau_published"] > row["measured"]["tau_certified"]]
    return [
        "At the edge (k-1) theta is k theta times (k-1)/k and nothing else: "
        + ", ".join(f"{value:.3f} at k = {k:g}" for k, value in factor.items())
        + ".",
        f"For k = {SHAPES[-1]:g} the certified tau grows with epsilon to the power {power(large, 'tau_certified'):.2f} "
        f"from epsilon {large[0]['parameters']['epsilon']:g} to {large[-1]['parameters']['epsilon']:g}, the published "
        f"one to the power {power(large, 'tau_published'):.2f}.",
        f"It is {spread(below, '.2f')} times 1/E|z| of Gaussian noise at the same certified epsilon.",
        f"The published edge lies above the certified one in {share(len(over), len(rows))}, and is refuted in "
        f"{len(refuted)}; at {worst['label']} an attack provably reaches {rounded_down(worst['epsilon']['lower'])}.",
    ]


def _paint(axes: Any, rows: Sequence[Result]) -> None:
    """Gaussian noise has no k: one line for all."""
    mine = [row for row in rows if row["parameters"]["k"] == SHAPES[-1]]
    epsilon, tau = (
        [row[part][name] for row in mine] for part, name in (("parameters", "epsilon"), ("measured", GAUSSIAN))
    )
    axes.plot(epsilon, tau, "--", color=appearance.GAUSSIAN.colour, label="Gaussian noise, certified")


ENTRIES = (
    Entry(
        name="figure-search-space-mnli",
        title=f"Feasible edge (k-1) theta against epsilon, MNLI (T = {work_of().steps}, BERT-base, C = {CLIP:g})",
        where="figure of configurations in an MNLI task (fig:task1_large_acc_qnli)",
        rows=_rows,
        needs=needs(1.5, 3),
        panels=(
            Panel(
                "epsilon",
                MEASURES[:2],
                "epsilon",
                "tau = 1/E|z|",
                lines="shape",
                xlog=True,
                ylog=True,
                paint=_paint,
            ),
        ),
        findings=findings,
    ),
)
