"""What `plrvo design` says: the answer first, the comparison after it, and with -v what was searched."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from plrvo.accounting import Plan
from plrvo.cli import show
from plrvo.designer import Accountant, Comparison, Design
from plrvo.designer.batches import ENOUGH_STEPS, FEW_STEPS, Batches
from plrvo.validate import counted


def tell_verdict(path: Path, plan: Plan, budget: float) -> None:
    """Say whether a saved plan keeps the budget."""
    kept = plan.bracket.certified <= budget
    console = Console(highlight=False)
    console.print(
        f"{show.harmless(str(path))}: {'keeps' if kept else 'misses'} the budget of {budget:.15g}.", soft_wrap=True
    )
    console.print(f"{show.capital(show.described(plan.noise, plan.workload.clip))}: {show.bracket_line(plan.bracket)}.")


def tell_beside(comparison: Comparison, verbose: bool) -> None:
    """Print what the noise of a plan could be instead."""
    console = Console(highlight=False)
    console.print(f"{show.capital(comparison.recommended)} noise is recommended. {_reason(comparison, verbose)}")
    _print_alternatives(console, comparison, verbose)


def tell_choice(chosen: Plan) -> None:
    """Say what to use."""
    use = show.described(chosen.noise, chosen.workload.clip)
    line = f"Use {use} with clip {chosen.workload.clip:.4g}: {show.bracket_line(chosen.bracket)}."
    Console(highlight=False).print(line)


def tell_clips(found: Design) -> None:
    """Say which clips were searched where nobody named the smallest."""
    low, high = found.problem.clip_min, found.problem.clip_max
    Console(highlight=False).print(
        f"Clips from {low:g} to {high:g}, for want of --clip-min: noise scales with the clip, and which is best does "
        "not depend on it."
    )


def tell(found: Design, chosen: Plan, files: dict[str, Path | None], verbose: bool) -> None:
    """Print the reasons; `chosen` is the plan that --save writes."""
    console, comparison = Console(highlight=False), found.comparison
    reason = _reason(comparison, verbose)
    if chosen.noise.kind == comparison.recommended:
        console.print(f"Why: {reason}")
    else:
        console.print(f"As you asked; {comparison.recommended} noise is recommended. {reason}")
    _print_miss(console, found)
    _print_alternatives(console, comparison, verbose)
    if verbose or not found.feasible:
        _print_search(console, found)
    for label, path in files.items():
        if path is not None:
            tell_file(label, path)
    if not verbose and found.feasible:
        console.print("Option -v shows what was searched, and every constraint.")


def tell_file(label: str, path: Path) -> None:
    """Say what was written, and where."""
    Console(highlight=False).print(f"{label}: {show.harmless(str(path))}", soft_wrap=True)


def tell_batches(found: Sequence[Batches], chosen: Batches) -> None:
    """Print what fits in the time, and what is proposed."""
    console, best = Console(highlight=False), max(each.signal for each in found)
    most = chosen.useful()
    console.print(
        f"Use --sample-rate {chosen.sample_rate:.4g} --steps {chosen.steps}: batches of about {chosen.batch}, noise "
        f"multiplier {chosen.noise_multiplier:.4g}.\n"
    )
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("batch", "sample rate", "steps", "multiplier", "noise a step", "signal", "useful"):
        table.add_column(name, justify="right", no_wrap=True)
    for each in found:
        rate, signal = f"{each.sample_rate:.4g}", f"{each.signal / best:.0%}"
        noise = f"{each.noise_multiplier:.4g}", f"{each.noise:.3g}"
        cells = (str(each.batch), rate, str(each.steps), *noise, signal, f"{each.useful() / most:.0%}")
        table.add_row(*cells, style="bold" if each is chosen else None)
    console.print(table)
    console.print(
        "multiplier: of the noise. noise a step: norm of the noise in a mean gradient, in clips. signal: to noise, "
        "over the whole run, against the best of these. useful: what an optimizer can use of it, signal x steps / "
        f"(steps + {ENOUGH_STEPS}), against what is proposed: larger batches gain little signal and leave few steps."
    )
    if chosen.steps < FEW_STEPS:
        console.print(
            f"Only {counted(chosen.steps, 'step')}: an optimizer seldom gets far in fewer than {FEW_STEPS}. More "
            "time, or a larger learning rate than usual, will help."
        )


def _reason(comparison: Comparison, verbose: bool) -> str:
    """All of it and where more is told, or its first sentence."""
    if not verbose:
        return comparison.reason.split(". ")[0].rstrip(".") + "."
    return f"{comparison.reason} The map of where each noise wins: `plrvo reproduce study-map`."


def _print_miss(console: Console, found: Design) -> None:
    budget, certified = found.problem.epsilon, show.rounded_up(found.bracket.certified)
    if found.bracket.certified <= budget:
        return
    published = found.problem.accountant is Accountant.published and found.feasible
    console.print(
        f"The published figure meets the budget of {budget:.15g}; what is certified is {certified}. Claim that, or use "
        "--accountant certified."
        if published
        else f"The budget of {budget:.15g} is missed: certified is {certified}.",
        style="bold red",
    )


def _print_alternatives(console: Console, comparison: Comparison, verbose: bool) -> None:
    console.print(f"\nNoises that certify epsilon {show.rounded_up(comparison.epsilon)} at this clip:")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    details = ("C/E|z|", "power", "after score", "excess") if verbose else ()
    for name in ("noise", "E|z|", "std", "ratio", *details):
        table.add_column(name, justify="left" if name == "noise" else "right", no_wrap=True)
    least = min(row.distortion for row in comparison.alternatives.values())
    for name, row in comparison.alternatives.items():
        marked = f"[bold]{name}[/]" if name == comparison.recommended else name
        more = (*(f"{value:.3g}" for value in (row.snr, row.power_raw, row.power_score)), f"{row.excess:.1%}")
        cells = f"{row.distortion:.4g}", f"{row.std:.4g}", f"{row.distortion / least:.3g}"
        table.add_row(marked, *cells, *(more if verbose else ()))
    console.print(table)
    meaning = (
        " C: the clip. power: C^2 over the variance, raw and after the score. excess: of E|z| over the least that any "
        "noise of the same Fisher information has."
    )
    console.print("E|z|: expected size of the noise in a coordinate." + (meaning if verbose else ""))


def _print_search(console: Console, found: Design) -> None:
    point = found.point
    console.print(
        f"Gamma noise that was searched for: k {point.k:.4g}, theta {point.theta:.4g}, clip {point.clip:.4g}, "
        f"J = C (k-1) theta = {found.snr:.4g}; {show.bracket_line(found.bracket)}."
    )
    table = Table(title="Its constraints", title_justify="left")
    for name in ("constraint", "value", "", "limit", "binds"):
        table.add_column(name, justify="right" if name in ("value", "limit") else "left", no_wrap=True)
    for row in found.constraints:
        verdict = ("yes" if row.binds else "no") if row.satisfied or not row.required else "[bold red]violated[/]"
        table.add_row(row.name, f"{row.value:.4g}", row.relation, f"{row.limit:.4g}", verdict)
    console.print(table)
    for row in found.constraints:
        what = f"{row.meaning}. {show.capital(row.note)}." if row.note else f"{row.meaning}."
        console.print(f"{row.name}: {what}")
