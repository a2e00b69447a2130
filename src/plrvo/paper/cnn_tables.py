"""The CNN tables, measured: each setting's Gamma noise, and Gaussian and Laplace noise at the printed epsilon.

Gamma noise has the parameters that give the printed epsilon by the published formula; where others are printed, the
row is flagged. Gaussian and Laplace noise are fitted so that the printed epsilon is *certified* for them: this is the
paper's comparison, in which the Gaussian's epsilon is a guarantee and that of Gamma noise the published figure. What
happens at the same certified epsilon is the entry `fair-...`. Optimizer and loss are those of the authors' code.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from plrvo.accounting import Plan, epsilon
from plrvo.paper.cnn import CNN_DELTA, CNN_ROWS, CnnRow, unlike_printed
from plrvo.paper.cnn_recipe import PACKAGES, SEEDS, cnn_recipe
from plrvo.paper.dependency import BY_K
from plrvo.paper.entry import Context, Entry, Measured, Needs, Panel, Result, Row, Scale, four_epsilons
from plrvo.paper.flags import Flag, Flags, refutation
from plrvo.paper.training import fitted, trials
from plrvo.paper.wording import share, spread

MEASURES = ("gaussian", "laplace", "gamma", "gamma_score")


def flags_of(row: CnnRow) -> Flags:
    """Where the row's own numbers do not fit together, and where its epsilon is refuted."""
    unlike = unlike_printed(row.printed_epsilon, row.as_printed)
    fits = {flag: f"{remark}; theta {row.theta:g} does" for flag, remark in unlike.items()}
    return {**fits, **refutation(epsilon(row.noise, row.workload, CNN_DELTA))}


def _measure(task: str, row: CnnRow, context: Context) -> Measured:
    """All noises, all seeds."""
    recipe, work = cnn_recipe(task, context.scale), row.workload
    plans = {
        "gaussian": fitted("gaussian", work, row.printed_epsilon, CNN_DELTA),
        "laplace": fitted("laplace", work, row.printed_epsilon, CNN_DELTA),
        "gamma": Plan.certify(row.noise, work, CNN_DELTA),
        "gamma_score": Plan.certify(row.noise, work, CNN_DELTA),
    }
    done = trials(context, recipe, plans, SEEDS[context.scale])
    epsilons = four_epsilons(row.printed_epsilon, plans["gamma"].bracket)
    return Measured(done.means, epsilons, flags_of(row), done.details)


def _rows(task: str, scale: Scale) -> Sequence[Row]:
    rows = []
    for row in CNN_ROWS if scale is not Scale.smoke else CNN_ROWS[3:4]:
        printed = row.mnist if task == "mnist" else row.fashion
        rows.append(
            Row(
                key=f"epsilon-{row.printed_epsilon}",
                label=f"epsilon {row.printed_epsilon}",
                parameters={"clip": row.clip, "theta": row.theta, "printed theta": row.printed_theta, "k": row.k},
                printed={"gaussian": printed.gaussian, "gamma": printed.gamma, "laplace": None, "gamma_score": None},
                measure=partial(_measure, task, row),
            )
        )
    return rows


def findings(rows: Sequence[Result]) -> list[str]:
    """What the table says when all of its rows are there."""
    wrong = [row for row in rows if Flag.misprinted in row["flags"]]
    refuted = [row for row in rows if Flag.refuted in row["flags"]]
    ahead = [row for row in rows if row["measured"]["gamma"] > row["measured"]["gaussian"]]
    gaps = {}
    for kind in ("gamma", "gaussian"):
        apart = [row["measured"][kind] - row["printed"][kind] for row in rows]
        gaps[kind] = f"{spread(apart, '+z.1f')} points"
    below = [row for row in rows if row["epsilon"]["certified"] < row["epsilon"]["printed"]]
    count = len(rows)
    return [
        f"In {share(len(wrong), count)} a theta is printed that does not give the epsilon.",
        f"In {share(len(refuted), count)} the printed epsilon is refuted: an attack provably reaches more.",
        f"In {share(len(below), count)} Gamma noise is certified for less than the printed epsilon, by which the "
        "Gaussian noise beside it was chosen: the published formula over-counts there, and Gamma noise has more "
        "noise than it needs.",
        f"With the paper's parameters Gamma noise is ahead of Gaussian noise in {share(len(ahead), count)}.",
        f"Measured accuracy is {gaps['gaussian']} from the printed one with Gaussian noise, and {gaps['gamma']} with "
        "Gamma noise.",
        *_beside_the_table_of_k(rows),
    ]


def _beside_the_table_of_k(rows: Sequence[Result]) -> list[str]:
    """The paper's other table of the same network with the same steps, where it has more signal and less accuracy."""
    least = min(BY_K, key=lambda setting: setting.ratio)
    more = [row for row in rows if row["printed"]["gamma"] > least.accuracy and _ratio(row) < least.ratio]
    if not more:
        return []
    return [
        f"In {share(len(more), len(rows))} more accuracy is printed than in the paper's table of k for the same "
        f"network and steps at a larger ratio of signal to noise: {least.accuracy:.1f} % at C (k - 1) theta = "
        f"{least.ratio:.2f}, and {more[0]['printed']['gamma']:.1f} % at {_ratio(more[0]):.2f} here."
    ]


def _ratio(row: Result) -> float:
    """C (k - 1) theta with the larger theta, where two are at hand."""
    has = row["parameters"]
    return float(has["clip"] * (has["k"] - 1) * max(has["theta"], has["printed theta"]))


def _entry(task: str, where: str) -> Entry:
    shown = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST"}[task]
    return Entry(
        name=f"table-cnn-{task}",
        title=f"CNN on {shown}, nine budgets",
        where=where,
        rows=partial(_rows, task),
        needs=Needs.at_scales(0.3, 15, 75, (task,), PACKAGES),
        panels=(Panel("epsilon.printed", MEASURES, "epsilon as printed", "test accuracy, %", xlog=True),),
        findings=findings,
        stand_in={Scale.quick: "one seed instead of five trials", Scale.smoke: "four steps of one row"},
    )


ENTRIES = (
    _entry("mnist", "table of CNN-MNIST (tab:cnn_mnist_results)"),
    _entry("fashion-mnist", "table of CNN-Fashion-MNIST (tab:cnn_fmnist_results)"),
)
