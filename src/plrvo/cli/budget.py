"""`plrvo budget`: a privacy account of a data set, which runs are charged to."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from plrvo.accounting.adjacency import Adjacency
from plrvo.budget import Account
from plrvo.budget.account import State
from plrvo.budget.address import Url, address
from plrvo.budget.entry import Entry
from plrvo.cli import options, show
from plrvo.validate import counted, printable, required

_PLACE = "File of the account, or the URL of a database: postgresql://USER@HOST/DATABASE#ACCOUNT."
FileArgument = Annotated[str, typer.Argument(help=_PLACE, show_default=False, metavar="FILE")]
EntryArgument = Annotated[int, typer.Argument(help="Number of the entry.", show_default=False, metavar="ENTRY")]


def create(
    file: FileArgument,
    name: Annotated[
        str | None, typer.Option("--name", help="What the account is for.", show_default="the file's")
    ] = None,
    epsilon: options.EpsilonOption = None,
    delta: options.DeltaOption = 1e-5,
    adjacency: Annotated[
        str, typer.Option("--adjacency", help="add-or-remove, or zero-out, which correlated noise needs.")
    ] = "add-or-remove",
    as_json: options.JsonOption = False,
) -> int:
    """Make a new account: in a file that does not exist yet, on a disk of this machine, or in a database.

    Epsilon and delta hold for all runs together, whatever they are and in whatever order: plans may be chosen after
    the results of earlier ones have been seen.

    Example: plrvo budget create digits.budget --epsilon 5 --delta 1e-5
    """
    required(epsilon=epsilon)
    place = address(file)
    usual = place.account if isinstance(place, Url) else place.name
    account = Account.create(
        place, name=usual if name is None else name, epsilon=epsilon or 0.0, delta=delta, adjacency=adjacency
    )
    state = account.state()
    if as_json:
        show.print_json(_told(state))
    else:
        print(printable(f"{state.name}: epsilon {epsilon:.15g} at delta {delta:.15g}, {state.adjacency}"))
    return 0


def show_(file: FileArgument, as_json: options.JsonOption = False) -> int:
    """What is spent and what is left, as a bracket, with every entry.

    What is reserved counts as spent until it is settled.

    Example: plrvo budget show digits.budget
    """
    state = Account(file).state()
    if as_json:
        show.print_json(_told(state))
        return 0
    standing = state.standing()
    closed = ", closed" if state.closed else ""
    print(printable(f"{state.name}: epsilon {standing.epsilon:.15g} at delta {standing.delta:.15g}{closed}"))
    print(printable(f"adjacency: {state.adjacency}"))
    attacked = f"(an attacker reaches at least {show.rounded_down(standing.lower)})"
    print(f"spent: {show.rounded_up(standing.spent)}, however plans were chosen after earlier runs {attacked}")
    fixed = state.as_fixed()
    if fixed is not None and state.entries:
        print(
            f"for comparison: {show.rounded_up(fixed)}, had all plans been fixed before the first run; it is no claim"
        )
    print(str(standing))
    if state.entries:
        _print_entries(state.entries)
    return 0


def history(file: FileArgument, as_json: options.JsonOption = False) -> int:
    """Every event, in the order in which it happened; times are those of the clock then.

    Example: plrvo budget history digits.budget
    """
    events = Account(file).state().events
    if as_json:
        show.print_json(
            {"events": [{**event.document, "number": event.number, "digest": event.digest} for event in events]}
        )
        return 0
    for event in events:
        said = event.document
        what = [f"entry {said['entry']}"] if "entry" in said else []
        what += [counted(said["steps"], "step")] if "steps" in said else []
        what += [said["name"]] if "name" in said else []
        print(printable(f"{event.number:5d}  {said['at']}  {said['event']:9s} {', '.join(map(str, what))}"))
    return 0


def settle(
    file: FileArgument,
    entry: EntryArgument,
    whole: Annotated[bool, typer.Option("--whole", help="Charge all of the plan; asks for no proof.")] = False,
    as_json: options.JsonOption = False,
) -> int:
    """Give back what a run that ended has not released; the run cannot be resumed afterwards.

    Refused while the run is at work, and on another machine than its own.

    Example: plrvo budget settle digits.budget 2
    """
    found = Account(file).settle(entry, whole=whole)
    if as_json:
        show.print_json(_of_entry(found))
    else:
        print(
            printable(f"entry {entry} ({found.name}): charged for {found.charged} of {counted(found.planned, 'step')}")
        )
    return 0


def close(file: FileArgument) -> int:
    """Take no more plans; runs that have reserved may go on.

    Example: plrvo budget close digits.budget
    """
    account = Account(file)
    account.close()
    print(printable(f"{account.state().name}: closed"))
    return 0


def _told(state: State) -> dict[str, Any]:
    standing = state.standing()
    least, most = standing.left
    return {
        "id": state.id,
        "name": state.name,
        "epsilon": standing.epsilon,
        "delta": standing.delta,
        "adjacency": Adjacency(state.adjacency).value,
        "closed": state.closed,
        "spent": standing.spent,
        "spent_lower": standing.lower,
        "spent_if_fixed_beforehand": state.as_fixed(),
        "left_at_least": least,
        "left_at_most": most,
        "events": len(state.events),
        "entries": [_of_entry(entry) for entry in state.entries],
    }


def _of_entry(entry: Entry) -> dict[str, Any]:
    return {
        "entry": entry.number,
        "name": entry.name,
        "state": _state(entry),
        "planned": entry.planned,
        "released": entry.seen,
        "charged": entry.charged,
        "noise": entry.plan["noise"],
        "at": entry.at,
        "machine": entry.machine,
    }


def _state(entry: Entry) -> str:
    return "reserved" if entry.settled is None else "settled"


def _print_entries(entries: tuple[Entry, ...]) -> None:
    table = Table()
    for name in ("entry", "name", "noise", "state"):
        table.add_column(name)
    for name in ("steps", "released", "charged"):
        table.add_column(name, justify="right")
    for entry in entries:
        words = (str(entry.number), entry.name, entry.reserved.noise.before_rounding.kind, _state(entry))
        counts = (str(entry.planned), str(entry.seen), str(entry.charged))
        table.add_row(*(show.harmless(word) for word in (*words, *counts)))
    Console().print(table)
