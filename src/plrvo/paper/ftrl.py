"""The paper's table of DP-FTRL: tree-correlated noise without sampling, at three epsilons.

The paper prints neither k and theta nor its clip for them.
"""

from __future__ import annotations

from collections.abc import Sequence

from plrvo.paper.cnn_recipe import FEATURE_PACKAGES, PACKAGES
from plrvo.paper.correlated import DATA, SETTINGS, SHORT, SMOKE, TREE, against_gaussian, panels_of, rates_of, row_of
from plrvo.paper.entry import Entry, Needs, Result, Row, Scale
from plrvo.paper.wording import spread

# data set, epsilon, Gaussian and Gamma accuracy as printed
PRINTED = (
    ("mnist", 0.05, 30.34, 92.07),
    ("mnist", 0.23, 95.15, 96.86),
    ("mnist", 0.9, 97.50, 98.28),
    ("cifar-10", 0.05, 58.18, 68.55),
    ("cifar-10", 0.23, 76.09, 76.12),
    ("cifar-10", 0.9, 76.09, 76.12),
)


def _rows(scale: Scale) -> Sequence[Row]:
    settings = {setting.task: setting for setting in SETTINGS[scale]}
    return [
        row_of(TREE, settings[task], epsilon, 1, f"{task}-{epsilon}", {"gaussian": gaussian, "gamma": gamma})
        for task, epsilon, gaussian, gamma in PRINTED
        if scale is not Scale.smoke or epsilon == 0.9
    ]


def findings(rows: Sequence[Result]) -> list[str]:
    """Gamma beside Gaussian noise at the same certified epsilon."""
    printed = [row["printed"]["gamma"] - row["printed"]["gaussian"] for row in rows]
    return [
        f"At the same certified epsilon Gamma noise is {against_gaussian(rows, 'gamma')} from Gaussian noise; the "
        f"paper prints {spread(printed, '+z.2f')}.",
        "The authors' published code takes theta for a rate in its tree, which leaves next to no noise.",
        rates_of(rows),
    ]


ENTRIES = (
    Entry(
        name="table-ftrl",
        title="DP-FTRL with Gaussian and Gamma noise",
        where="table of DP-FTRL (tab:dp-ftrl-accuracy)",
        rows=_rows,
        needs={
            Scale.smoke: Needs(0.5, DATA, PACKAGES),
            Scale.quick: Needs(10, DATA, FEATURE_PACKAGES),
            Scale.full: Needs(8000, DATA, PACKAGES, "a graphics card"),
        },
        panels=panels_of(None),
        findings=findings,
        stand_in={
            Scale.quick: SHORT,
            Scale.full: "ResNet-18 in place of a VGG network of 550,570 parameters on CIFAR-10",
            Scale.smoke: SMOKE,
        },
    ),
)
