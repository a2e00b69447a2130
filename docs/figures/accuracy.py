"""The front page's picture: accuracy against certified epsilon, here and as others published it.

`python -m docs.figures.accuracy` writes it, the section of `docs/index.md` around it, and the lines of the README, from
`results/paper/study-scattering`; rows that have not been measured are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from plrvo.paper.study_scattering import EXAMPLES, PUBLISHED, Published, beside

ROOT = Path(__file__).parents[2]
RESULT = ROOT / "results" / "paper" / "study-scattering" / FILE
PAGE, PICTURE = ROOT / "docs" / "index.md", "images/accuracy.png"
README = ROOT / "README.md"
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
    words = (
        "A linear model on [scattering features](guide-training.md#recipes), which nothing was trained for, with "
        "Gaussian noise and without public data. Settings were chosen on another data set, by the test accuracy there; "
        "CIFAR-10's are Tramèr and Boneh's from epsilon 2 on, and its normalisation was chosen on it among four. "
        "Test accuracy at certified "
        f"epsilon (delta 1e-5), mean and spread over three seeds: {_points(rows)}. One command: "
        "`plrvo train fashion-mnist --epsilon 1`."
    )
    far = [point for point in PUBLISHED if all(point.epsilon != row["parameters"]["epsilon"] for row in rows)]
    alone = "".join(
        f" The one of {NAMES[point.task]} at epsilon {point.epsilon:g} is {point.source} ({point.accuracy:g} %): a "
        "deep network with augmentation, for which there is no run of ours."
        for point in far
    )
    others = (
        "Hollow marks are published results, those of their papers, with other accountants; they stand a little right "
        f"of their epsilon, so that none hides another.{alone} [All numbers](results.md), and "
        "[which recipe, at which epsilon](results.md#recipes)."
    )
    picture = shown("Test accuracy against certified epsilon, ours beside published results", PICTURE)
    return f"{words}\n\n{picture}\n\n{others}"


def lines(rows: Sequence[dict[str, Any]]) -> str:
    """The same in short, for the README."""
    return (
        "Trained from scratch on a small machine, with Gaussian noise and without public data, a linear model on "
        f"scattering features has these test accuracies at certified epsilon: {_points(rows)} "
        "([which recipe, and what others published](docs/results.md#recipes)).\n\n"
        f"![Test accuracy against certified epsilon, ours beside published results](docs/{PICTURE})"
    )


def _points(rows: Sequence[dict[str, Any]]) -> str:
    said = []
    for task, name in NAMES.items():
        mine = [row for row in rows if row["parameters"]["task"] == task]
        if mine:
            points = " and ".join(f"{_value(row)} % at {rounded_up(row['epsilon']['certified'], 3)}" for row in mine)
            said.append(f"{name} {points}")
    return "; ".join(said)


def _value(row: dict[str, Any]) -> str:
    return f"{row['measured']['accuracy']:.2f} ± {row['measured']['spread']:.2f}"


def draw(rows: Sequence[dict[str, Any]]) -> Any:
    """A panel for a data set, with axes of its own, so that spreads can be seen; hollow marks are published results."""
    tasks = [task for task in NAMES if any(row["parameters"]["task"] == task for row in rows)]
    figure, panels = plt.subplots(1, len(tasks), figsize=(9.0, 3.9), squeeze=False)
    sources = list(dict.fromkeys(point.source for point in PUBLISHED if point.task in tasks))
    marks = dict(zip(sources, MARKS, strict=False))
    grey = appearance.OTHER.colour
    for axes, task in zip(panels[0], tasks, strict=True):
        mine = sorted((row for row in rows if row["parameters"]["task"] == task), key=lambda row: row["label"])
        x = [row["epsilon"]["certified"] for row in mine]
        y, bars = ([row["measured"][key] for row in mine] for key in ("accuracy", "spread"))
        style = {"color": COLOURS[task], "marker": "o", "markersize": 5, "capsize": 5, "elinewidth": 1.5}
        axes.errorbar(x, y, bars, **style)
        for point in (point for point in PUBLISHED if point.task == task):
            axes.plot([beside(point, 1.13)], [point.accuracy], zorder=3, color=grey, **hollow(marks, point))
        axes.set(xscale="log", title=NAMES[task], xlim=(0.85, 10), xlabel="epsilon at delta = 1e-5")
        axes.set_xticks([1, 3, 8], ["1", "3", "8"])
        axes.minorticks_off()
        axes.margins(y=0.12)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0][0].set_ylabel("test accuracy, %")
    words = "plrvo, certified epsilon; mean and spread over seeds"
    ours = plt.Line2D([], [], color=grey, marker="o", markersize=5, label=words)
    theirs = [
        plt.Line2D([], [], color=grey, **hollow(marks, next(p for p in PUBLISHED if p.source == source)), label=source)
        for source in sources
    ]
    figure.legend(handles=[ours, *theirs], frameon=False, fontsize=8, loc="lower center", ncols=2)
    figure.tight_layout(rect=(0, 0.11, 1, 1))
    return figure


def hollow(marks: Mapping[str, str], point: Published) -> dict[str, Any]:
    """The mark of a published result."""
    return {"marker": marks[point.source], "linestyle": "none", "markerfacecolor": "none", "markersize": 9}


def pages(rows: Sequence[dict[str, Any]]) -> dict[Path, str]:
    """The front page and the README with their sections."""
    return {PAGE: renewed(PAGE, START, section(rows)), README: renewed(README, START, lines(rows))}


if __name__ == "__main__":
    found = measured()
    write_both(draw(found), ROOT / "docs" / PICTURE)
    for path, text in pages(found).items():
        path.write_text(text, encoding="utf-8")
