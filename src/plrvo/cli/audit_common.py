"""What the audit commands share: their options, the claim, the progress bar, and how a verdict is told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from plrvo.accounting import Workload
from plrvo.audit import Audit
from plrvo.audit.blocks import Progress as Report
from plrvo.audit.plot import Point
from plrvo.audit.verdict import claimed_epsilon
from plrvo.cli import show
from plrvo.noise import Noise

PANEL = "Audit"
ClaimOption = Annotated[
    str,
    typer.Option("--claim", help="What is put to the test: certified, published or a number.", rich_help_panel=PANEL),
]
ConfidenceOption = Annotated[
    float,
    typer.Option("--confidence", help="Probability that the audited epsilon is valid.", rich_help_panel=PANEL),
]
SeedOption = Annotated[
    int | None, typer.Option("--seed", help="Repeats an audit; drawn and reported by default.", rich_help_panel=PANEL)
]
JobsOption = Annotated[int, typer.Option("--jobs", help="Workers that share the runs.", rich_help_panel=PANEL)]
StateOption = Annotated[
    Path | None,
    typer.Option("--state", help="File that keeps finished runs; the same command resumes.", rich_help_panel=PANEL),
]
PlotOption = Annotated[
    Path | None, typer.Option("--plot", help="Draw audited against claimed epsilon.", rich_help_panel=PANEL)
]


def claimed(claim: str, noise: Noise, work: Workload, delta: float) -> float:
    """The epsilon to be tried. A receipt's claim (--receipt) is to be read here too, once receipts exist."""
    return claimed_epsilon(claim, noise, work, delta)


@contextmanager
def progress_bar(what: str) -> Iterator[Report]:
    """A bar on stderr, which leaves nothing behind."""
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def point(label: str, result: Audit) -> Point:
    """What the figure shows of a result."""
    return Point(label, result.epsilon_claimed, result.epsilon_audited, result.epsilon_certifiable)


def exit_code(results: Sequence[Audit]) -> int:
    """1 where any claim is refuted."""
    return int(any(result.verdict == "refuted" for result in results))


def tell(result: Audit, claim: str) -> None:
    """The verdict in words."""
    console = Console(highlight=False)
    word = "" if claim not in ("certified", "published") else f" ({claim})"
    console.print(
        f"The claim of epsilon {result.epsilon_claimed:.4g}{word} is {result.verdict}"
        + (" with what was found." if result.verdict == "consistent" else "."),
        style="bold red" if result.verdict == "refuted" else "bold",
    )
    console.print(
        f"Audited: epsilon is at least {show.rounded_down(result.epsilon_audited)} at delta {result.delta:g} "
        f"(confidence {result.confidence:g}). {result.found}"
    )
    if result.epsilon_claimed >= result.epsilon_certifiable:
        console.print(
            f"An attack of this size can show at most {show.rounded_down(result.epsilon_certifiable)}: it could not have "
            "refuted this claim. Consistent is not proved."
        )
