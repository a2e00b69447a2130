"""Table to text with all layers of a small model: E2E and stories15M, at two certified epsilons and without noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from plrvo.accounting.printed import rounded_down
from plrvo.paper.entry import Entry, Group, Needs, Result, Row, Scale
from plrvo.paper.flags import Flag
from plrvo.paper.generation import TABLES
from plrvo.paper.generation_tables import NOISES, PACKAGES, PAIRS, PANELS, STORIES, Setting, rows_of, setting_of
from plrvo.paper.training import Recipe

EPSILONS = (3.0, 8.0)


def setting(scale: Scale) -> Setting:
    """Batches of about 126 pairs."""
    if scale is Scale.smoke:
        return setting_of(TABLES[0], scale)
    options = {"trainable": "all", "test_limit": 100, "beams": 4}
    recipe = Recipe("e2e", STORIES, 0.003, 40, 4e-4, "adamw", schedule="linear", options=options)
    if scale is Scale.full:
        recipe = replace(recipe, steps=400, options={"trainable": "all", "beams": 4})
    return Setting(recipe, PAIRS["e2e"])


def _rows(scale: Scale) -> Sequence[Row]:
    return rows_of(setting(scale), EPSILONS[-1:] if scale is Scale.smoke else EPSILONS)


def findings(rows: Sequence[Result]) -> list[str]:
    """By the test loss, and what the published formula makes of it."""
    loss = {(row["parameters"]["noise"], row["parameters"]["target"]): row["details"]["loss"] for row in rows}
    plain = loss.pop(("none", None))
    gaps = [loss[NOISES["gamma"], epsilon] - loss[NOISES["gaussian"], epsilon] for epsilon in EPSILONS]
    told = [
        "Few steps teach a model of this size the form of a sentence, not the table: texts repeat themselves, and the "
        "overlap metrics, which reward common words, do not order the rows as the test loss does.",
        f"By the test loss ({plain:.2f} without noise) noise costs {min(loss.values()) - plain:.2f} or more, and Gamma "
        f"noise is behind Gaussian noise of the same certified epsilon by {' and '.join(f'{gap:.2f}' for gap in gaps)} "
        f"(epsilon {' and '.join(f'{epsilon:g}' for epsilon in EPSILONS)}). One seed: a hint, no more.",
    ]
    refuted = [row for row in rows if Flag.refuted in row["flags"]]
    if refuted:
        most = max(refuted, key=lambda row: row["epsilon"]["lower"] / row["epsilon"]["published"])
        told.append(
            f"The published formula gives {most['label']} a value of {most['epsilon']['published']:.2f}, where an "
            f"attack provably reaches {rounded_down(most['epsilon']['lower'], 3)}: with few steps, a small sampling "
            "rate and little noise it is furthest from a guarantee."
        )
    group = next(row["details"]["group"] for row in rows if row["details"].get("group"))
    proved = (
        "no guarantee is proved"
        if group["certified"] is None
        else f"epsilon {math.ceil(group['certified'])} is certified"
    )
    return [
        *told,
        f"The certified epsilon is that of one pair of a table and a text; a table has up to {group['size']} of them, "
        f"for which, taken together, {proved}. METEOR knows exact matches and stems only.",
    ]


ENTRIES = (
    Entry(
        name="study-e2e",
        title="E2E: all layers of stories15M",
        where="table to text with a small model, at two certified epsilons",
        rows=_rows,
        needs={
            Scale.smoke: Needs(0.2, ("e2e",), PACKAGES),
            Scale.quick: Needs(35, ("e2e", STORIES), PACKAGES),
            Scale.full: Needs(400, ("e2e", STORIES), PACKAGES),
        },
        panels=PANELS,
        findings=findings,
        stand_in={
            Scale.smoke: "two steps of a model with random weights, forty pairs, two tables",
            Scale.quick: "40 steps of about 126 pairs; 100 tables of the test split, four beams; one seed",
            Scale.full: "400 steps of about 126 pairs; four beams; one seed",
        },
        group=Group.study,
    ),
)
