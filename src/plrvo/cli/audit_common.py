"""What the audit commands share: their options, the claim, the progress bar, and how a verdict is told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from plrvo.accounting import Workload, narrowest
from plrvo.audit import Audit
from plrvo.audit.blocks import Progress as Report
from plrvo.audit.plot import Point
from plrvo.audit.receipt import examine
from plrvo.audit.verdict import claimed_epsilon, told_claim
from plrvo.cli import options, show
from plrvo.noise import Noise, Specification
from plrvo.records import Receipt
from plrvo.validate import InvalidArgument, refuse_beside

PANEL = "Audit"
ClaimOption = Annotated[
    str | None,
    typer.Option(
        "--claim",
        help="What is put to the test: certified (the default), published or a number.",
        rich_help_panel=PANEL,
    ),
]
ReceiptOption = Annotated[
    Path | None,
    typer.Option(
        "--receipt", help="Put a run's receipt to the test: its noise, its steps, its claim.", rich_help_panel=PANEL
    ),
]
DeltaOption = options.DeltaOrDefaultOption
DEFAULT_DELTA = options.DEFAULT_DELTA
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


@dataclass(frozen=True)
class Subject:
    """What an audit takes from a verified receipt: the one kind of step that its run took."""

    receipt: Receipt
    noise: Noise
    work: Workload

    @property
    def epsilon(self) -> float:
        return float(self.receipt["epsilon"]["certified"])

    @property
    def delta(self) -> float:
        return self.receipt.delta

    def refuse(self, expected: str) -> InvalidArgument:
        return InvalidArgument("audited_receipt", str(self.receipt.path), expected)


def read_receipt(path: Path | None, claim: str | None, **options_given: Any) -> Subject | None:
    """The receipt to be tried, if any: it must verify, and it brings everything that it knows."""
    if path is None:
        return None
    refuse_beside("--receipt, which brings its own", {"claim": claim, **options_given})
    try:
        found = examine(path)
    except InvalidArgument as error:
        raise InvalidArgument("audited_receipt", str(path), error.expected) from None
    if found.differences:
        wrong = f"a receipt that verifies: in this one, {found.differences[0]}"
        raise InvalidArgument("audited_receipt", str(path), wrong)
    ledger = found.ledger
    if ledger.correlation is not None:
        raise InvalidArgument("audited_receipt", str(path), "noise that is drawn afresh in every step, not correlated")
    if len(ledger.entries) != 1:
        kinds = f"steps of one kind; this one has {len(ledger.entries)} kinds"
        raise InvalidArgument("audited_receipt", str(path), kinds)
    return Subject(found, *ledger.entries[0])


def claimed(claim: str | None, receipt: Subject | None, noise: Noise, work: Workload, delta: float) -> float:
    """The epsilon to be tried: a receipt's certified one, or what --claim says."""
    return receipt.epsilon if receipt is not None else claimed_epsilon(claim or "certified", noise, work, delta)


def word_for(claim: str | None, receipt: Subject | None) -> str:
    """What the claim rests on, for results."""
    return "receipt" if receipt is not None else claim or "certified"


def fitted(
    noise: Specification, work: Workload, delta: float, epsilons: Sequence[float]
) -> list[tuple[float | None, Noise]]:
    """The noise as given, or its shape fitted to each of the epsilons."""
    if not epsilons:
        return [(None, noise.noise(work.clip))]
    return [(value, narrowest(noise, work, value, delta)) for value in epsilons]


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
    word = "" if claim not in ("certified", "published", "receipt") else f" ({claim})"
    console.print(
        f"The claim of epsilon {told_claim(claim, result.epsilon_claimed)}{word} is {result.verdict}"
        + (" with what was found." if result.verdict == "consistent" else "."),
        style="bold red" if result.verdict == "refuted" else "bold",
    )
    console.print(
        f"Audited: epsilon is at least {show.rounded_down(result.epsilon_audited)} at delta {result.delta:g} "
        f"(confidence {result.confidence:g}). {result.found}"
    )
    if result.epsilon_claimed >= result.epsilon_certifiable:
        console.print(
            f"An attack of this size can show at most {show.rounded_down(result.epsilon_certifiable)}: it could not "
            "have refuted this claim. Consistent is not proved."
        )
