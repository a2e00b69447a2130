"""A receipt beside the account that it was charged to: each tells of the other, and they must agree.

A file that was put back from an older copy does not know what its runs know: their receipts have the number and the
digest of an event that it lacks, or has otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from plrvo.budget.account import Account, State, differing
from plrvo.validate import shortened


def account_differences(receipt: Mapping[str, Any], account: Account | State) -> list[str]:
    """A sentence for each contradiction between a receipt and an account."""
    state = account.state() if isinstance(account, Account) else account
    try:
        return list(_differences(receipt, state))
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        return [f"what it says of its account has the wrong form ({shortened(error)})"]


def _differences(receipt: Mapping[str, Any], state: State) -> Iterator[str]:
    record = receipt.get("budget")
    if record is None:
        yield "the run was charged to no account"
        return
    others = differing(state, record)
    if others:
        yield from others
        return
    entry = state.entry(record["entry"])
    searched = receipt["search"]["cost"] if "search" in receipt else None
    if searched != (None if entry.reserved.search is None else entry.reserved.search.to_dict()):
        yield f"entry {entry.number} of the account has another search, or none"
    elif searched is None and _asked(receipt["plan"]) != _asked(entry.plan):
        yield f"entry {entry.number} of the account has another plan"
    known, steps = min(entry.seen, entry.charged), receipt["steps"]
    if not steps <= known:
        yield f"it counts {shortened(steps)} steps; entry {entry.number} of the account has released {known}"


def _asked(plan: Mapping[str, Any]) -> dict[str, Any]:
    """What a plan fixes: its epsilons become tighter with the version."""
    return {name: value for name, value in plan.items() if not name.startswith("epsilon_")}
