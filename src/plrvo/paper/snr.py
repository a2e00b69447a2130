"""Signal-to-noise ratio as a surrogate of accuracy: the settings of the CNN tables, trained with Gamma noise.

The paper's ratio is C/E|z| = C (k - 1) theta. Whether it tells accuracy is judged by the rank correlation of the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from plrvo.accounting import Plan
from plrvo.paper.cnn import CNN_DELTA, CNN_ROWS, CnnRow
from plrvo.paper.cnn_recipe import PACKAGES, SEEDS, cnn_recipe
from plrvo.paper.cnn_tables import flags_of
from plrvo.paper.entry import Context, Entry, Measured, Needs, Panel, Result, Row, Scale, four_epsilons
from plrvo.paper.training import trials


def _measure(row: CnnRow, context: Context) -> Measured:
    plan = Plan.certify(row.noise, row.workload, CNN_DELTA)
    done = trials(context, cnn_recipe("mnist", context.scale), {"accuracy": plan}, SEEDS[context.scale])
    values = {**done.means, "snr": row.clip / row.noise.distortion}
    return Measured(values, four_epsilons(row.printed_epsilon, plan.bracket), flags_of(row), done.details)


def _rows(scale: Scale) -> Sequence[Row]:
    return [
        Row(
            key=f"epsilon-{row.printed_epsilon}",
            label=f"epsilon {row.printed_epsilon}",
            parameters={"clip": row.clip, "theta": row.theta, "k": row.k, "size of noise": row.noise.distortion},
            printed={"accuracy": row.mnist.gamma},
            measure=partial(_measure, row),
        )
        for row in (CNN_ROWS[:2] if scale is Scale.smoke else CNN_ROWS)
    ]


def findings(rows: Sequence[Result]) -> list[str]:
    """How well the ratio orders the settings, and what does as well."""
    from scipy.stats import spearmanr

    snr, accuracy = ([row["measured"][name] for row in rows] for name in ("snr", "accuracy"))
    certified, printed = ([row["epsilon"][name] for row in rows] for name in ("certified", "printed"))
    paper = [row["printed"]["accuracy"] for row in rows]
    return [
        f"Rank correlation of the ratio with measured accuracy: {spearmanr(snr, accuracy).statistic:.2f}; with the "
        f"accuracy that the paper prints: {spearmanr(snr, paper).statistic:.2f}.",
        f"The certified epsilon orders the settings as the ratio does (rank correlation "
        f"{spearmanr(snr, certified).statistic:.2f}; the printed one {spearmanr(snr, printed).statistic:.2f}): with k "
        "this large, noise is Laplace's, and both are functions of b/C alone.",
    ]


ENTRIES = (
    Entry(
        name="figure-snr",
        title="Signal-to-noise ratio and accuracy",
        where="figure of the ratio (fig:SNR)",
        rows=_rows,
        needs=Needs.at_scales(0.3, 4, 20, ("mnist",), PACKAGES),
        panels=(Panel("snr", ("accuracy",), "C (k - 1) theta", "test accuracy, %"),),
        findings=findings,
        stand_in={Scale.quick: "CNN-MNIST, one seed: the paper does not say which runs it shows"},
    ),
)
