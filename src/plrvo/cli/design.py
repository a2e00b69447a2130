"""`plrvo design`: the noise for a task, beside the alternatives, with the reasons."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from plrvo.accounting import Plan, Workload
from plrvo.cli import options, show
from plrvo.designer import Accountant, Design, Limits, explain
from plrvo.designer.designed import design as search
from plrvo.files import check_figure, write_figure
from plrvo.validate import InvalidArgument, required

_PATIENCE = 1.0  # seconds after which a bar appears


class Choice(StrEnum):
    """Which of the compared noises is saved."""

    gamma = "gamma"
    laplace = "laplace"
    gaussian = "gaussian"
    recommended = "recommended"


def design(
    epsilon: options.EpsilonOption = None,
    delta: options.DeltaOption = 1e-5,
    sample_rate: options.RateOption = None,
    steps: options.StepsOption = None,
    dimension: options.DimensionOption = None,
    clip_min: Annotated[
        float | None,
        typer.Option("--clip-min", help="Smallest clip with which the model learns.", rich_help_panel=options.WORK),
    ] = None,
    clip_max: Annotated[
        float | None,
        typer.Option("--clip-max", help="Largest clip; twice the smallest unless given.", rich_help_panel=options.WORK),
    ] = None,
    dataset_size: Annotated[
        int | None,
        typer.Option(
            "--dataset-size", help="Number of examples, to warn of a large delta.", rich_help_panel=options.WORK
        ),
    ] = None,
    accountant: Annotated[
        Accountant, typer.Option("--accountant", help="Which epsilon must meet the budget.", rich_help_panel="Search")
    ] = Accountant.certified,
    k_max: Annotated[float, typer.Option("--k-max", help="Largest k to consider.", rich_help_panel="Search")] = 1e6,
    plan: Annotated[
        Path | None,
        typer.Option("--plan", help="Check this saved plan instead of searching.", rich_help_panel="Search"),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw the search space into this file.", rich_help_panel="Output")
    ] = None,
    save: Annotated[
        Path | None, typer.Option("--save", help="Write the plan to this JSON file.", rich_help_panel="Output")
    ] = None,
    choose: Annotated[
        Choice, typer.Option("--choose", help="Which of the compared noises --save writes.", rich_help_panel="Output")
    ] = Choice.gamma,
    as_json: options.JsonOption = False,
) -> int:
    """Find the Gamma-PLRV noise and clip with the largest clip/E|z| within a budget, and compare with other noises.

    Lists every constraint with its value, and recommends a noise with the reason: in high dimension that is Gaussian
    noise. With --plan it checks a saved plan; exit code 1 if a constraint fails.

    Example: plrvo design --epsilon 1 --sample-rate 0.04 --steps 1250 --dimension 26010 --clip-min 0.1
    """
    if plot is not None:
        check_figure(plot)
    with _warnings_in_one_line(), _patient_bar("searching") as progress:
        if plan is not None:
            found = explain(Plan.load(plan), epsilon, accountant)
        else:
            work = _workload(clip_min, sample_rate, steps, dimension)
            required(epsilon=epsilon)
            found = search(
                work,
                epsilon,  # type: ignore[arg-type]
                delta,
                clip_max=clip_max,
                accountant=accountant,
                dataset_size=dataset_size,
                limits=Limits(k_max=k_max),
                progress=lambda share: progress(0.8 * share),
            )
        result = found.explanation()
        progress(1.0)
    saved: Plan = found
    if save is not None:
        saved = found if choose is Choice.gamma and accountant is Accountant.published else found.alternative(choose)
        saved.save(save)
    if plot is not None:
        with _patient_bar("drawing"):
            _draw(found, plot)
    if as_json:
        show.print_json(result)
    else:
        _print(found, saved.noise.kind, save, plot)
    return 0 if found.feasible else 1


def _workload(clip: float | None, sample_rate: float | None, steps: int | None, dimension: int | None) -> Workload:
    required(clip_min=clip, sample_rate=sample_rate, steps=steps, dimension=dimension)
    try:
        return Workload(sample_rate=sample_rate, steps=steps, clip=clip, dimension=dimension)  # type: ignore[arg-type]
    except InvalidArgument as error:
        name = "clip_min" if error.argument == "clip" else error.argument
        raise InvalidArgument(name, error.value, error.expected) from None


def _draw(found: Design, path: Path) -> None:
    from plrvo.designer import SearchSpace, pictures

    write_figure(pictures.search_space(SearchSpace(found.problem), found.point), path)


@contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for warning in caught:
        print(f"plrvo: warning: {warning.message}", file=sys.stderr)


@contextmanager
def _patient_bar(label: str, console: Console | None = None) -> Iterator[Callable[[float], None]]:
    """A bar that shows itself only on a terminal, and only when the work takes longer than a moment."""
    started, console = time.monotonic(), console or Console(stderr=True)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    task = bar.add_task(label, total=1.0)

    def progress(share: float) -> None:
        bar.update(task, completed=share)
        if console.is_terminal and not bar.live.is_started and time.monotonic() - started > _PATIENCE:
            bar.start()

    try:
        yield progress
    finally:
        if bar.live.is_started:
            bar.stop()


def _print(found: Design, saved: str, save: Path | None, plot: Path | None) -> None:
    console = Console()
    show.bracket_table(found.noise, found.workload, found.bracket)
    budget = found.problem.epsilon
    if found.bracket.certified > budget:
        certified = show.rounded_up(found.bracket.certified)
        console.print(
            f"The published figure meets the budget of {budget:g}; what is certified is {certified}. Claim that, or "
            "use --accountant certified."
            if found.problem.accountant is Accountant.published and found.feasible
            else f"The budget of {budget:g} is missed: certified is {certified}.",
            style="bold red",
        )
    table = Table(title=f"J = C (k-1) theta = {found.snr:.4g}, under", title_justify="left")
    for name in ("constraint", "value", "", "limit", "binds", "what it is"):
        table.add_column(name, justify="right" if name in ("value", "limit") else "left")
    for row in found.constraints:
        verdict = ("yes" if row.binds else "no") if row.satisfied or not row.required else "[bold red]violated[/]"
        what = f"{row.meaning}. {row.note[:1].upper()}{row.note[1:]}." if row.note else f"{row.meaning}."
        table.add_row(row.name, f"{row.value:.4g}", row.relation, f"{row.limit:.4g}", verdict, what)
    console.print(table)
    _print_alternatives(console, found)
    for label, path in ((f"plan with {saved} noise", save), ("picture", plot)):
        if path is not None:
            console.print(f"{label}: {path}", highlight=False)


def _print_alternatives(console: Console, found: Design) -> None:
    comparison = found.comparison
    table = Table(title=f"Noises that certify epsilon {comparison.epsilon:g} at this clip", title_justify="left")
    for name in ("noise", "E|z|", "std", "clip/E|z|", "power raw", "power after score", "E|z| above limit"):
        table.add_column(name, justify="left" if name == "noise" else "right")
    for name, row in comparison.alternatives.items():
        marked = f"[bold]{name}[/]" if name == comparison.recommended else name
        numbers = (row.distortion, row.std, row.snr, row.power_raw, row.power_score)
        table.add_row(marked, *(f"{value:.4g}" for value in numbers), f"{row.excess:.1%}")
    console.print(table)
    console.print(f"Recommended: {comparison.recommended} ({comparison.case}). {comparison.reason}", highlight=False)
