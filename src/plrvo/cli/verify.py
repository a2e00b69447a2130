"""`plrvo verify`: recompute a receipt."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from plrvo.audit.receipt import Examined, examine, receipt_at
from plrvo.budget import Account
from plrvo.cli import options, show
from plrvo.records.consistency import REVISION
from plrvo.validate import printable

_UNSAFE = "the run wrote unsafe diagnostics, which tell of private examples and lie outside of this guarantee"
_FIRST = "metrics.jsonl is not covered: receipts of the first revision do not vouch for metrics"
_NO_METRICS = "the receipt was made without a metrics.jsonl, and vouches for no metrics"


def verify(
    receipt: Annotated[
        Path, typer.Argument(help="receipt.json of a run, or the run's folder.", show_default=False, metavar="RECEIPT")
    ],
    budget: Annotated[
        str | None, typer.Option("--budget", help="Account that the run was charged to, to be compared.")
    ] = None,
    as_json: options.JsonOption = False,
) -> int:
    """Recompute every number of a receipt, and say what it certifies; exit code 1 if any differs.

    Checks the plan's certificate, the epsilons from the ledger of steps, the budget, every number that occurs twice,
    the digests of weights, metrics and journal, and what an audit of the run says. With --budget also that the account
    has an entry of this plan with at least so many steps, and is no older copy.

    Example: plrvo verify runs/digits/receipt.json
    """
    receipt = receipt_at(receipt)
    account = None if budget is None else Account(budget)
    found = examine(receipt, account)
    if as_json:
        told = {"verdict": found.verdict, "differences": list(found.differences), "away": list(found.away)}
        show.print_json({**told, "account_differences": list(found.charged), **_certified(found)})
    else:
        partly = found.away and not found.differences
        what = f"the account is verified; {found.absent} not here" if partly else found.verdict
        print(printable(f"{receipt}: {what}"))
        for line in [*(f"- {difference}" for difference in found.differences), *_sentences(found, account)]:
            print(printable(f"  {line}"))
    return int(bool(found.differences))


def _certified(found: Examined) -> dict[str, Any]:
    """What a verified receipt certifies; nothing is known of one that differs by itself."""
    known = found.sound
    return {
        "epsilon_certified": found["epsilon"]["certified"] if known else None,
        "epsilon_lower": found["epsilon"]["lower"] if known else None,
        "delta": found["delta"] if known else None,
        "adjacency": found["adjacency"] if known else None,
        "unit": found.unit if known else None,
        "unit_by_author": found.unit_is_authors if known else None,
        "group": found.group if known else None,
        "steps": found["steps"] if known else None,
        "planned_steps": found.planned if known else None,
        "arithmetic": found["arithmetic"] if known else None,
        "randomness": found.run.get("randomness") if known else None,
        "seeded": found.seeded if known else None,
        "isolation": found.isolation if known else None,
        "metrics_covered": found.metrics_covered if known else None,
        "budget": found.get("budget") if known else None,
        "search": found.get("search") if known else None,
        "notes": _notes(found) if known else [],
    }


def _sentences(found: Examined, account: Account | None) -> list[str]:
    if not found.sound:
        return ["Rely on none of its numbers."]
    told = _certified(found)
    return [
        *(["The receipt by itself is as recomputed:"] if found.charged else []),
        *([] if found.warning is None else [found.warning]),
        f"certified epsilon {show.rounded_up(told['epsilon_certified'])} at delta {show.rounded_up(told['delta'])} "
        f"(an attacker reaches at least {show.rounded_down(told['epsilon_lower'])})",
        *([] if found.searched is None else [f"of {found.searched}"]),
        f"adjacency: {told['adjacency']}",
        *found.unit_lines,
        f"steps: {told['steps']} of the plan's {told['planned_steps']}",
        f"arithmetic: {told['arithmetic']}",
        f"randomness: {told['randomness'] or 'not said'}",
        f"examples apart: {told['isolation']}",
        *([_account_line(told["budget"], account)] if told["budget"] else []),
        *(f"note: {note}" for note in _notes(found)[found.warning is not None :]),
    ]


def _account_line(known: dict[str, Any], account: Account | None) -> str:
    """The account by its name and its place where it is at hand: a receipt has its number alone."""
    charged = f"{known['account']}, entry {known['entry']}"
    if account is None:
        return f"account: {charged} (--budget FILE compares it)"
    state = account.state()
    return f"account: {state.name} ({account}), {charged}" if state.id == known["account"] else f"account: {charged}"


def _notes(found: Examined) -> list[str]:
    """What a reader has to know beside the numbers, the worst first."""
    notes = [] if found.warning is None else [found.warning]
    if found.unsafe:
        notes.append(_UNSAFE)
    if found.get("revision", 1) < REVISION:
        notes.append(f"of an older form (revision {found.get('revision', 1)}): it says less than receipts of today")
    if not found.metrics_covered:
        notes.append(_FIRST if found.get("revision", 1) == 1 else _NO_METRICS)
    return notes
