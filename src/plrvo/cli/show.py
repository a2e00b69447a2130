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
from plrvo.validate import counted, printable


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
    """The answer in a line, and the bracket as a table for a terminal."""
    console = Console()
    console.print(f"{capital(described(noise, work.clip))}: {bracket_line(bracket)}.", highlight=False)
    table = Table()
    table.add_column("epsilon", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("what it is", no_wrap=True)
    by = {"rdp": f"moments, order {bracket.order}", "pure": "bounded likelihood ratio", "pld": "Gaussian losses"}
    by |= {"exact": "exact curve", "profile": "worst gradient"}
    by |= {"gdp": "Gaussian, as revealing", "gift": "Gaussian, same energy"}
    method = f"{bracket.method}: {by[bracket.method]}"
    table.add_row("certified", rounded_up(bracket.certified), f"proved upper bound ({method})")
    table.add_row("lower", rounded_down(bracket.lower), "an attacker provably reaches this")
    published = "-" if bracket.published is None else f"{bracket.published:.4g}"
    in_order = correlation is not None and isinstance(correlation.participation, Participation)
    no_bound = "the paper's formula; " + ("a loose bound here" if in_order and not noise.shared else "not a bound")
    note = "not covered by the paper" if bracket.published is None else no_bound
    table.add_row("published", published, note)
    console.print(table)
    sampling = f"sampling rate {work.sample_rate:g}" if correlation is None else _visits(correlation, work.steps)
    size = "" if noise.gaussian_sigma and work.dimension == 1 else f", dimension {work.dimension}"
    console.print(
        f"{counted(work.steps, 'step')}, {sampling}, clip {work.clip:g}{size}. "
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
        groups = counted(visits.groups, "group")
        return f"{strategy}, sampling rate {visits.sample_rate:g} in {groups} by turns, adjacency zero-out"
    order = "fixed order" if visits.fixed else f"visits {counted(visits.separation, 'step')} apart"
    epochs = f"{counted(visits.epochs, 'epoch')} of {counted(visits.steps_per_epoch, 'step')}"
    return f"{strategy}, {epochs}, {order}, adjacency zero-out"


def bracket_line(bracket: Epsilon) -> str:
    """What may be claimed, in words."""
    return (
        f"certified epsilon {rounded_up(bracket.certified)} at delta {rounded_up(bracket.delta)} "
        f"(an attacker reaches at least {rounded_down(bracket.lower)})"
    )


def described(noise: Noise, clip: float) -> str:
    """The noise in words and a few digits; a deviation beside what it is in clips."""
    base = noise.before_rounding
    named = {key: value for key, value in base.to_dict().items() if key != "noise" and value is not False}
    named |= {"noise multiplier": base.gaussian_sigma / clip} if base.gaussian_sigma else {}
    words = (f"{key} {_short(value)}" if value is not True else key for key, value in named.items())
    return f"{base.kind} noise ({', '.join(words)})" + (f" on a grid of width {noise.cell:.4g}" if noise.cell else "")


def capital(text: str) -> str:
    """As a sentence begins."""
    return text[:1].upper() + text[1:]


def _short(value: Any) -> str:
    if isinstance(value, dict):
        parts = (_short(item) if key in ("seed", "noise") else f"{key} {_short(item)}" for key, item in value.items())
        return " ".join(parts)
    return f"{value:.5g}" if isinstance(value, float) else str(value)
