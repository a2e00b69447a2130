"""How numbers and tables reach the reader."""

from __future__ import annotations

import json
import math
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from plrvo.accounting import Epsilon, Workload, sigma_effective
from plrvo.accounting.correlated import Correlation, CyclicPoisson, Participation
from plrvo.accounting.printed import rounded_down as rounded_down  # every command finds them here
from plrvo.accounting.printed import rounded_up as rounded_up
from plrvo.cli.options import plain
from plrvo.noise import Noise
from plrvo.validate import printable


def print_json(result: dict[str, Any]) -> None:
    """One JSON object on stdout."""
    print(json.dumps(plain(result), allow_nan=False))


def harmless(value: Any) -> Any:
    """Plain data with every text in it fit for a table or a line: nothing that a terminal obeys, no markup of rich."""
    if isinstance(value, str):
        return escape(printable(value))
    if isinstance(value, dict):
        return {harmless(key): harmless(item) for key, item in value.items()}
    return [harmless(item) for item in value] if isinstance(value, list | tuple) else value


def bracket_result(noise: Noise, work: Workload, bracket: Epsilon) -> dict[str, Any]:
    """The keys that `account` and `calibrate` have in common."""
    return {
        "epsilon_certified": bracket.certified,
        "epsilon_lower": bracket.lower,
        "epsilon_published": bracket.published,
        "order": bracket.order,
        "method": bracket.method,
        "delta": bracket.delta,
        "sigma_effective": _or_none(lambda: sigma_effective(noise, work)),
        "distortion": noise.distortion,
        "noise": noise.to_dict(),
        "workload": work.to_dict(),
    }


def _or_none(compute: Any) -> Any:
    """None where a noise has no such number (the joint information of a shared scale that is not Gamma)."""
    try:
        return compute()
    except ValueError:
        return None


def refutation(bracket: Epsilon) -> str | None:
    """One sentence when the published figure is provably too small."""
    if not bracket.published_is_refuted or bracket.published is None:
        return None
    return (
        f"The published figure is refuted for this setting: an attack provably reaches epsilon "
        f"{rounded_down(bracket.lower)}, above the published {bracket.published:.4g}. Rely on certified."
    )


def bracket_table(noise: Noise, work: Workload, bracket: Epsilon, correlation: Correlation | None = None) -> None:
    """The bracket as a table for a terminal."""
    console = Console()
    table = Table(title=f"{_describe(noise)}, delta {bracket.delta:g}", title_justify="left")
    table.add_column("epsilon")
    table.add_column("value", justify="right")
    table.add_column("what it is")
    by = {"rdp": f"moments, order {bracket.order}", "pure": "bounded likelihood ratio", "pld": "loss distribution"}
    by |= {"exact": "exact curve", "profile": "loss distribution of the worst case"}
    by |= {
        "gdp": "Gaussian steps that show at least as much",
        "gift": "Gaussian steps of the same energy, and one more",
    }
    table.add_row("certified", rounded_up(bracket.certified), f"proved upper bound ({by[bracket.method]})")
    table.add_row("lower", rounded_down(bracket.lower), "an attacker provably reaches this")
    published = "-" if bracket.published is None else f"{bracket.published:.4g}"
    in_order = correlation is not None and isinstance(correlation.participation, Participation)
    no_bound = "the paper's formula; " + ("a loose bound here" if in_order and not noise.shared else "not a bound")
    note = "not covered by the paper" if bracket.published is None else no_bound
    table.add_row("published", published, note)
    console.print(table)
    sampling = f"sampling rate {work.sample_rate:g}" if correlation is None else _visits(correlation, work.steps)
    console.print(
        f"{work.steps} steps, {sampling}, clip {work.clip:g}, dimension {work.dimension}. "
        f"Expected |noise| per coordinate: {noise.distortion:.4g}.",
        highlight=False,
    )
    if bracket.certified == math.inf:
        console.print("No moment order is finite here: nothing can be certified. Use more noise.")
    sentence = refutation(bracket)
    if sentence:
        console.print(sentence, style="bold red")


def _visits(correlation: Correlation, steps: int) -> str:
    visits, found = correlation.participation, correlation.sensitivity(steps)
    strategy = f"{correlation.strategy.kind} noise of sensitivity {found.value:.4g}"
    if isinstance(visits, CyclicPoisson):
        return (
            f"{strategy}, sampling rate {visits.sample_rate:g} in {visits.groups} groups by turns, adjacency zero-out"
        )
    order = "fixed order" if visits.fixed else f"visits {visits.separation} steps apart"
    return f"{strategy}, {visits.epochs} epochs of {visits.steps_per_epoch} steps, {order}, adjacency zero-out"


def _describe(noise: Noise) -> str:
    base = noise.before_rounding
    parameters = ", ".join(f"{key}={value}" for key, value in base.to_dict().items() if key != "noise")
    return f"{base.kind} noise ({parameters})" + (f" on a grid of width {noise.cell:.4g}" if noise.cell else "")
