"""Writes the pages about the paper and the studies beside it: `python -m docs.figures.entry_pages`.

`plrvo reproduce NAME` leaves a reproduction.json, which goes to `results/paper/NAME/`. Every number and finding
of the pages comes from these files; an entry without one is named, with how to run it. Pictures are drawn afresh.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from docs.figures import choosing
from docs.figures.both import write_both
from docs.figures.changes import Changes
from docs.figures.entry_section import Reproduced, line
from docs.figures.recipes import section as recipes

from plrvo.paper.catalog import ENTRIES
from plrvo.paper.drawing import picture
from plrvo.paper.entry import Group, Scale
from plrvo.paper.study_correlated import against_sampling
from plrvo.paper.wording import spread
from plrvo.tasks.catalog import FAMILIES
from plrvo.validate import counted

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "paper"
DOCS = ROOT / "docs"
IMAGES = DOCS / "images" / "paper"
OVERVIEW, STUDIES = "paper.md", "results.md"
VISION = {name for family in FAMILIES if family.name == "vision" for name in family.tasks}
# The pages beside the overview: name, title, what is on it.
PAGES = {
    "paper-computed.md": ("The paper: what is computed", "What needs no data: formulas, bounds and search spaces."),
    "paper-vision.md": ("The paper: images", "Tables and figures of models for images."),
    "paper-text.md": ("The paper: language", "Tables and figures of language models."),
    "paper-audits.md": (
        "The paper: audits",
        "Attacks on trained models; the [guide](guide-audit.md) has more.",
    ),
    STUDIES: (
        "Results",
        "Private training at a certified epsilon, beside the paper. What the paper itself prints is held against what "
        "comes out [table by table](paper.md), with [every noise at the same certified epsilon](paper.md#fair).",
    ),
}


def page_of(reproduced: Reproduced) -> str:
    """The page on which an entry has its section."""
    entry, data = reproduced.entry, reproduced.entry.needs[Scale.quick].data
    if entry.group is not Group.paper:
        return OVERVIEW if entry.group is Group.fair else STUDIES
    if "audit" in entry.name:
        return "paper-audits.md"
    if not data:
        return "paper-computed.md"
    return "paper-vision.md" if set(data) <= VISION else "paper-text.md"


def pages(results: Path = RESULTS) -> dict[str, str]:
    """Every page, by the name of its file."""
    everything = [Reproduced.read(entry, results) for entry in ENTRIES]
    written = {OVERVIEW: _overview(everything)}
    for name, (title, words) in PAGES.items():
        mine = [each for each in everything if page_of(each) == name]
        sections = [_section(each) for each in mine] or ["Nothing yet."]
        intro = f"{words} [How to read the tables](paper.md#reading)."
        last = _one_for_each(everything) if name == STUDIES else []
        first = recipes({each.entry.name: each.rows for each in everything}) if name == STUDIES else []
        written[name] = "\n\n".join((f"# {title}", intro, *first, *sections, *last)) + "\n"
    return written


def _one_for_each(everything: Sequence[Reproduced]) -> list[str]:
    """Where else the questions of the studies are answered: nothing is measured twice."""
    rows = {each.entry.name: each.rows for each in everything}
    tree, study = rows["table-ftrl"], rows["study-correlated"]
    parts = [
        "## One number for one thing { #one }",
        "What another entry measures is not measured here again. Tree-correlated noise is in the paper's own "
        "[table of DP-FTRL](paper-vision.md#table-ftrl), a head on MiniLM in the "
        "[figure of SST-2](paper-text.md#figure-sst2), and the CNN on Fashion-MNIST in the "
        "[fair comparison](paper.md#fair-cnn-fashion-mnist), with three seeds and tuned rates. Dropped for them were: "
        "a first run of the table of DP-FTRL, without Laplace noise; a run of the same head with fewer noises; and "
        "Fashion-MNIST with two seeds and one learning rate for all noises.",
    ]
    if tree and study:
        apart = against_sampling(tree, study)
        parts.append(f"Against the DP-SGD of [the study](#study-correlated), with Gaussian noise: {apart}.")
    return parts


def _section(reproduced: Reproduced) -> str:
    name, rows = reproduced.entry.name, reproduced.rows
    notes = [Changes().note(name), *([choosing.table(rows)] if name == "study-map" else [])] if rows else []
    return reproduced.section(image_of(reproduced), "\n\n".join(note for note in notes if note))


def image_of(reproduced: Reproduced) -> str:
    """The picture, as a page names it."""
    return f"images/paper/{reproduced.entry.name}.png"


def _overview(everything: Sequence[Reproduced]) -> str:
    paper, fair, studies = ([each for each in everything if each.entry.group is group] for group in Group)
    done = [each for each in paper if each.finished]
    parts = [
        "# The paper, table by table",
        "What PLRV-O (CCS '25) prints, beside what comes out. Each entry is one command, `plrvo reproduce NAME`; the "
        "pages are written from the files that it leaves, and never by hand. `plrvo reproduce --list` says what each "
        "needs.",
        f"{len(done)} of {len(paper)} tables and figures have results here. Where two cores or the data at hand could "
        f"not do what the paper did, a stand-in is named. {_flags(done)}".rstrip(),
        "## The comparison that the paper does not make { #fair }",
        "The paper gives each noise an epsilon of its own kind: the published formula for Gamma noise, an accountant "
        "for Gaussian noise. Here every noise is fitted to the same **certified** epsilon, searches the same clips, "
        "and has its learning rate chosen from the same list by the same rule, on another data set; with what was "
        "chosen each is trained with several seeds. *Score*: training uses the noise's score of the released sums, "
        "which costs no privacy ([theory](theory.md#section-9)).",
        *_plainly(fair),
        *(_section(each).replace("## ", "### ", 1) for each in fair),
        "## Every table and figure { #overview }",
        _list(paper),
        "## Beside the paper { #studies }",
        _list(studies),
        _READING,
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


_READING = """## How to read the tables { #reading }

| column | what it is |
|---|---|
| printed ε | what the paper states for its parameters |
| published ε | the paper's own formula, evaluated with these parameters. [It is not a bound](guide-published.md) |
| certified ε | a proved upper bound for the same parameters, rounded up: what may be claimed. |
| lower ε | what an attack provably reaches, rounded down: no valid claim is below it |
| ⚑ | what is printed does not fit: it does not follow from its parameters, or is refuted; below the table it says how |

A certified epsilon is the one that was proved when its row was measured. Since then certificates of noise that is not
Gaussian [have become tighter](tight.md#changes).

*Gamma* is Gamma-PLRV noise, the paper's. Values in parentheses are the paper's; all others were measured or computed
here. A *stand-in* replaces what two cores or the data at hand cannot do; `--scale full` does without as far as it can.
Where a row has both the paper's accuracy and a stand-in's, the two are not measurements of the same thing."""


def _flags(done: Sequence[Reproduced]) -> str:
    """How many rows of tables print an epsilon, and how many of those carry a flag; figures only have axes."""
    tables = [each for each in done if each.entry.name.startswith("table-")]
    rows = [row for each in tables for row in each.rows if row["epsilon"].get("printed") is not None]
    if not rows:
        return ""
    flagged = [row for row in rows if row["flags"]]
    # One per cent, because what is printed is rounded.
    below = [row for row in rows if (row["epsilon"]["lower"] or 0) > 1.01 * row["epsilon"]["printed"]]
    return (
        f"In the tables among them an epsilon is printed in {counted(len(rows), 'row')}: {len(flagged)} with a flag "
        f"(⚑), and in {len(below)} an attack provably reaches more than what is printed."
    )


def _plainly(fair: Sequence[Reproduced]) -> list[str]:
    """The outcome in one sentence, over all budgets of all comparisons."""
    budgets = [budget for each in fair if each.finished for budget in _budgets(each)]
    if not budgets:
        return ["**No comparison has been run to its end yet.**"]
    best: dict[str, int] = {}
    for budget in budgets:
        winner = max(budget, key=lambda noise: budget[noise]).replace("_", " ")
        best[winner] = best.get(winner, 0) + 1
    wins = ", ".join(f"{noise} in {count}" for noise, count in sorted(best.items(), key=lambda item: -item[1]))
    gaps = [budget["gamma"] - budget["gaussian"] for budget in budgets]
    ahead = sum(gap > 0 for gap in gaps)
    return [
        f"**What is found**, in {len(budgets)} settings of task and budget. Most accurate: {wins}. Gamma noise, used "
        f"as the paper uses it, is ahead of Gaussian noise in {ahead or 'none'}, and {spread(gaps, '+z.1f')} points "
        "from it. Why that is to be expected in high dimension: [theory](theory.md#section-10).",
    ]


def _budgets(reproduced: Reproduced) -> list[dict[str, float]]:
    """Accuracy by noise, for each epsilon of a comparison."""
    found: dict[Any, dict[str, float]] = {}
    for row in reproduced.rows:
        given = row["parameters"]
        found.setdefault(given["epsilon"], {})[given["noise"]] = row["measured"]["accuracy"]
    return list(found.values())


def _list(paper: Sequence[Reproduced]) -> str:
    lines = ["| entry | what and where | first finding | state |", "|---|---|---|---|"]
    for each in paper:
        link = f"[{each.entry.name}]({page_of(each)}#{each.entry.name})"
        what = f"{each.entry.title}: {each.entry.where.partition(' (')[0]}"
        cells = [link, what, each.findings[0] if each.findings else "-", each.state]
        lines.append(line(cells))
    return "\n".join(lines)


def draw_pictures(results: Path = RESULTS, only: Sequence[str] = ()) -> None:
    """Draw what is finished and shows anything, for light and for dark pages; `only` these, if any are named."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    for each in (Reproduced.read(entry, results) for entry in ENTRIES):
        if not each.drawn or (only and each.entry.name not in only):
            continue
        write_both(picture(each.entry.panels, each.rows, each.entry.title, each.stand_in), DOCS / image_of(each))


if __name__ == "__main__":
    where = Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS
    draw_pictures(where)
    for file, text in pages(where).items():
        (DOCS / file).write_text(text, encoding="utf-8")
