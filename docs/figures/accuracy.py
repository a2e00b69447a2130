"""The front page's picture: accuracy against certified epsilon, here and as others published it.

`python -m docs.figures.accuracy` writes it, and the section of `docs/index.md` around it, from
`results/paper/study-scattering`; rows that have not been measured are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from docs.figures.both import shown, write_both
from docs.figures.renewed import renewed

from plrvo import appearance
from plrvo.accounting.printed import rounded_up
from plrvo.paper.document import FILE, read_reproduction
from plrvo.paper.study_scattering import EXAMPLES, PUBLISHED

ROOT = Path(__file__).parents[2]
RESULT = ROOT / "results" / "paper" / "study-scattering" / FILE
PAGE, PICTURE = ROOT / "docs" / "index.md", "images/accuracy.png"
START = "<!-- written by docs.figures.accuracy -->"
NAMES = {"mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "cifar-10": "CIFAR-10"}
COLOURS = dict(zip(EXAMPLES, ("#0b63b5", "#b3471b", "#0f7a6c"), strict=True))
MARKS = "*P^DX"


def measured() -> list[dict[str, Any]]:
    """The rows with Gaussian noise."""
    rows = read_reproduction(RESULT, "results")["rows"]
    return [row for row in rows if row["parameters"]["noise"] == "gaussian"]


def section(rows: Sequence[dict[str, Any]]) -> str:
    """Words, numbers and the picture."""
    said = []
    for task, name in NAMES.items():
        mine = [row for row in rows if row["parameters"]["task"] == task]
        if mine:
            points = " and ".join(f"{_value(row)} % at {rounded_up(row['epsilon']['certified'], 3)}" for row in mine)
            said.append(f"{name} {points}")
    words = (
        "A linear model on [scattering features](guide-training.md#recipes), which nothing was trained for, with "
        "Gaussian noise and without public data. Settings were chosen on another data set, by the test accuracy there; "
        "CIFAR-10's are Tramèr and Boneh's from epsilon 2 on, and its normalisation was chosen on it among four. "
        "Test accuracy at certified "
        f"epsilon (delta 1e-5), mean and spread over three seeds: {'; '.join(said)}. One command: "
        "`plrvo train fashion-mnist --epsilon 1`."
    )
    others = "Published results are those of their papers, with other accountants. [All numbers](results.md)."
    picture = shown("Test accuracy against certified epsilon, ours beside published results", PICTURE)
    return f"{words}\n\n{picture}\n\n{others}"


def _value(row: dict[str, Any]) -> str:
    return f"{row['measured']['accuracy']:.2f} ± {row['measured']['spread']:.2f}"


def draw(rows: Sequence[dict[str, Any]]) -> Any:
    """One colour for a data set; filled marks are ours, hollow ones published."""
    figure, axes = plt.subplots(figsize=(7.6, 4.6))
    for task, name in NAMES.items():
        mine = sorted((row for row in rows if row["parameters"]["task"] == task), key=lambda row: row["label"])
        if mine:
            x = [row["epsilon"]["certified"] for row in mine]
            y, bars = ([row["measured"][key] for row in mine] for key in ("accuracy", "spread"))
            axes.errorbar(x, y, bars, color=COLOURS[task], marker="o", capsize=3, label=f"{name}, plrvo")
    tasks = {row["parameters"]["task"] for row in rows}
    published = [point for point in PUBLISHED if point.task in tasks]
    sources = list(dict.fromkeys(point.source for point in published))
    for source, mark in zip(sources, MARKS, strict=False):
        style = {"marker": mark, "linestyle": "none", "markerfacecolor": "none", "markersize": 9}
        axes.plot([], [], color=appearance.OTHER.colour, label=source, **style)  # of data sets of any colour
        for point in (point for point in published if point.source == source):
            axes.plot([point.epsilon], [point.accuracy], color=COLOURS[point.task], **style)
    axes.set(xscale="log", xlabel="epsilon (plrvo: certified) at delta = 1e-5", ylabel="test accuracy, %")
    axes.set_xticks([1, 2, 3, 5, 8], ["1", "2", "3", "5", "8"])
    axes.minorticks_off()
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    return figure


def page(rows: Sequence[dict[str, Any]]) -> str:
    """The front page with its section."""
    return renewed(PAGE, START, section(rows))


if __name__ == "__main__":
    found = measured()
    write_both(draw(found), ROOT / "docs" / PICTURE)
    PAGE.write_text(page(found), encoding="utf-8")
