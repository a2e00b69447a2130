"""Which noise to take: `python -m docs.figures.choosing` writes the beginning of docs/guide-choosing-noise.md.

Its numbers are those of `results/paper/study-map`, whose section of docs/results.md has the table too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from docs.figures.entry_section import line
from docs.figures.renewed import renewed

from plrvo.paper.document import FILE, read_reproduction
from plrvo.paper.study_map import DELTA, EPSILON, MANY, NOISES, TRAINING
from plrvo.paper.wording import spread

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guide-choosing-noise.md"
RESULT = ROOT / "results" / "paper" / "study-map" / FILE
START = "<!-- written by docs.figures.choosing -->"
FEW = "dimension, one release"
TRAINED = "dimension, training"
Rows = Sequence[Mapping[str, Any]]


def measured() -> Rows:
    """The rows of the map."""
    rows: Rows = read_reproduction(RESULT, "results")["rows"]
    return rows


def table(rows: Rows) -> str:
    """What was changed, where it was looked, and where each noise has less error than Gaussian noise."""
    axes = list(dict.fromkeys(row["parameters"]["axis"] for row in rows))
    head = ["what is changed", "where", *(f"{kind.capitalize()} has less error at" for kind in NOISES), "least error"]
    lines = [line(head), "|" + "---|" * len(head)]
    for axis in axes:
        mine = [row for row in rows if row["parameters"]["axis"] == axis]
        least = min(row["measured"][f"{kind}_error"] for row in mine for kind in NOISES)
        lines.append(line([axis, _at(mine), *(_at(won(mine, kind)) for kind in NOISES), f"{least:.2f}"]))
    return "\n".join(lines)


def won(rows: Rows, kind: str) -> Rows:
    """Where this noise has less error than Gaussian noise."""
    return [row for row in rows if row["measured"][f"{kind}_error"] < 1]


def _at(rows: Rows) -> str:
    return ", ".join(f"{row['parameters']['at']:g}" for row in rows) or "none"


def section(rows: Rows) -> str:
    """What to take, and why."""
    few, trained = ([row for row in rows if row["parameters"]["axis"] == axis] for axis in (FEW, TRAINED))
    most, next_one = threshold(few)
    most_trained, next_trained = threshold(trained)
    after = spread(
        [row["measured"]["gamma_error_after_score"] for row in rows if row["details"]["workload"]["dimension"] >= MANY],
        ".2f",
    )
    parts = [
        "\n".join(
            [
                "| what you do | take |",
                "|---|---|",
                "| train a network | Gaussian noise; Laplace or PLRV noise with its [score](theory.md#section-9) comes "
                f"level with it: {after} times its error in a small signal |",
                f"| release a few numbers: {most} or fewer | Laplace or Gamma-PLRV noise |",
                "| need delta = 0 | Laplace noise: Gaussian noise has no guarantee then |",
            ]
        ),
        "Where they have less error than Gaussian noise of the same certified epsilon, one thing changed at a time "
        f"around epsilon {EPSILON:g} and delta {DELTA:g} ([the map](results.md#study-map)). The last column is the "
        "least error of both, in units of Gaussian noise's.",
        table(rows),
        "## How few is few? { #few }",
        f"In one release they win with {most} coordinates and lose with {next_one}; in a training run of "
        f"{TRAINING.steps:,} steps they win with {most_trained} and lose with {next_trained}. Where between it changes "
        "depends on budget and steps: `comparison.crossover` says it for yours, and [a picture](#recommended) draws it "
        "for 300 steps. What counts is how many coordinates *one example can move*.",
    ]
    return "\n\n".join(parts)


def threshold(rows: Rows) -> tuple[str, str]:
    """The most coordinates with which both noises win, and the next number that was looked at."""
    ours = [all(row["measured"][f"{kind}_error"] < 1 for kind in NOISES) for row in rows]
    if ours != sorted(ours, reverse=True) or not any(ours) or all(ours):
        raise ValueError("the map has no single place where the order of noises changes")
    last, first = (f"{rows[place]['parameters']['at']:g}" for place in (sum(ours) - 1, sum(ours)))
    return last, first


def page(rows: Rows) -> str:
    """The whole guide, with this section anew."""
    return renewed(PAGE, START, section(rows))


if __name__ == "__main__":
    PAGE.write_text(page(measured()), encoding="utf-8")
