"""`plrvo account`: the epsilon bracket of a given noise and workload."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from plrvo.accounting import epsilon
from plrvo.cli import options, show
from plrvo.cli.noise_options import NOT_GIVEN, with_noise_options
from plrvo.cli.options import read_workload
from plrvo.cli.progress import Waiting
from plrvo.cli.signs import Signs
from plrvo.noise import GammaPLRV, Specification
from plrvo.paper.cnn import CNN_DELTA, CNN_ROWS
from plrvo.validate import refuse_beside

_EXAMPLE = "plrvo account --noise-multiplier 1.1 --sample-rate 0.01 --steps 3000"


@with_noise_options()
def account(
    noise: Specification = NOT_GIVEN,
    clip: options.ClipOption = None,
    sample_rate: options.RateOption = None,
    steps: options.StepsOption = None,
    dimension: options.DimensionOption = None,
    delta: options.DeltaOrDefaultOption = None,
    table: Annotated[bool, typer.Option("--table", help="The nine rows of the paper's CNN table instead.")] = False,
    as_json: options.JsonOption = False,
) -> None:
    """What a noise costs: certified, lower and published epsilon, side by side.

    Gaussian noise needs no clip and no dimension: its multiplier is in units of the clip. Other noises do, for example
    --k 40000 --theta 6e-5 (gamma) with --clip 0.5 --dimension 26010.

    Example: plrvo account --noise-multiplier 1.1 --sample-rate 0.01 --steps 3000
    """
    if table:
        amounts = {"clip": clip, "sample_rate": sample_rate, "steps": steps, "dimension": dimension, "delta": delta}
        refuse_beside("--table, whose rows have their own", {**noise.given, **amounts})
        _paper_table(as_json)
        return
    amounts = {"clip": clip, "sample_rate": sample_rate, "steps": steps, "dimension": dimension}
    options.check_complete(noise, False, _EXAMPLE, **amounts)
    work = read_workload(clip, sample_rate, steps, dimension, noise)
    built = noise.noise(work.clip)
    with Signs("account", after=10, doing="computing the bounds"), Waiting("computing"):
        bracket = epsilon(built, work, options.DEFAULT_DELTA if delta is None else delta)
    if as_json:
        show.print_json(show.bracket_result(built, work, bracket))
    else:
        show.bracket_table(built, work, bracket)


def _paper_table(as_json: bool) -> None:
    """The paper's CNN settings: what it prints, and the bracket."""
    rows: list[dict[str, Any]] = []
    table = Table(title="The paper's CNN table: q = 0.01, T = 300, n = 26,010, delta = 1e-5")
    for name in ("clip", "theta", "k", "paper", "published", "certified", "lower", "published is"):
        table.add_column(name, justify="left" if name == "published is" else "right")
    for row in CNN_ROWS:
        work = row.workload
        bracket = epsilon(GammaPLRV(row.k, row.theta), work, CNN_DELTA)
        published = bracket.published or 0.0
        verdict = "too large" if published > bracket.certified else "not a bound"
        verdict = "refuted" if bracket.published_is_refuted else verdict
        rows.append({**asdict(row), "epsilon": asdict(bracket), "verdict": verdict})
        table.add_row(
            f"{row.clip:g}",
            f"{row.theta:g}",
            f"{row.k:g}",
            f"{row.printed_epsilon:g}",
            f"{published:.4f}",
            show.rounded_up(bracket.certified),
            show.rounded_down(bracket.lower),
            f"[bold red]{verdict}[/]" if verdict == "refuted" else verdict,
        )
    if as_json:
        show.print_json({"rows": rows})
        return
    console = Console()
    console.print(table)
    console.print(
        "paper: the epsilon it prints. published: its formula, recomputed. certified: a proved upper bound. lower: "
        "what an attacker provably reaches. The published figure is 'too large' where certified is smaller, and "
        "'refuted' where an attack exceeds it.",
        highlight=False,
    )
