"""A receipt recomputed, with what an audit in it says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from plrvo.audit.one_run import CanaryKind, differences
from plrvo.budget import Account
from plrvo.budget.address import Address
from plrvo.budget.compared import account_differences
from plrvo.records import Receipt
from plrvo.records.folder import RECEIPT
from plrvo.validate import a_path, shortened

_PARTS = {
    "audit",
    "kind",
    "epsilon_audited",
    "epsilon_claimed",
    "confidence",
    "verdict",
    "delta",
    "epsilon_certifiable",
}
_PARTS |= {"canaries", "guesses", "correct", "tried"}


class Verdict(StrEnum):
    """What is known of a receipt."""

    differs = "differs"
    elsewhere = "not as this account has it"  # and as recomputed by itself
    account = "account verified"  # and files of the run are not here to be compared
    verified = "verified"


@dataclass(frozen=True)
class Examined(Receipt):
    """A receipt beside what was recomputed: it verifies where there are no `differences`.

    `away` are files of the run that are not beside it, so that nothing can be said of them. `charged` are those of the
    differences that lie between the receipt and an account, and not in the receipt.
    """

    differences: tuple[str, ...] = ()
    away: tuple[str, ...] = ()
    charged: tuple[str, ...] = ()

    @property
    def sound(self) -> bool:
        """Whether all that it says by itself is as recomputed."""
        return len(self.differences) == len(self.charged)

    @property
    def verdict(self) -> Verdict:
        if self.differences:
            return Verdict.elsewhere if self.sound else Verdict.differs
        return Verdict.account if self.away else Verdict.verified

    @property
    def absent(self) -> str:
        """The files that are not here, in words."""
        return " and ".join([", ".join(self.away[:-1]), self.away[-1]] if self.away[1:] else self.away)


def examine(path: Path, budget: Account | None = None) -> Examined:
    """The receipt, and everything in which it differs from what it should say, and from the account it was charged to.

    Without an account nothing is said of one.
    """
    receipt = Receipt.read(path)  # once: what is shown is what was recomputed
    found = receipt.verify()
    try:
        audited = list(_audited(receipt.document))
    except (KeyError, TypeError, AttributeError, ValueError):
        audited = ["a part of the audit is missing or has the wrong form"]
    charged = [] if budget is None else account_differences(receipt.document, budget)
    return Examined(
        receipt.document, path, (*found.differences, *audited, *charged), found.away, charged=tuple(charged)
    )


def verify(path: str | Path, budget: Address | str | None = None) -> list[str]:
    """Recompute every number of a receipt; one sentence for each difference, none if all is as it says.

    `budget` is the file or the URL of the account that the run was charged to, to be compared with it. Files of the run
    that are not beside the receipt cannot differ: `plrvo verify` says which ones they are.

    Args:
        path: `receipt.json` of a run, or the run's folder.
        budget: the file or the URL of the account, or None.

    Returns:
        The differences, in words.

    Raises:
        InvalidArgument: where there is no receipt, or no account.
    """
    return list(examine(receipt_at(path), None if budget is None else Account(budget)).differences)


def receipt_at(path: str | Path) -> Path:
    """The receipt of a run that is named by the file or by its folder."""
    named = a_path(receipt=path)
    return named / RECEIPT if named.is_dir() else named


def _audited(content: dict[str, Any]) -> Iterator[str]:
    section, planted = content.get("audit"), content["task"].get("canaries")
    if section is None:
        if planted is not None and content["complete"] is True:
            yield "the run was finished with canaries in it, and says nothing of their audit"
        return
    if planted is None:
        yield "it has an audit, and its task no canaries"
        return
    if (planted["count"], planted["kind"]) != (section["canaries"], section["kind"]):
        yield f"it planted {planted['count']} {planted['kind']} canaries; its audit is about others"
    if content["complete"] is not True:
        yield "it has an audit, which is made after the last step only"
    if section["audit"] != "one-run" or section["kind"] not in list(CanaryKind):
        yield f"its audit is {shortened(section['audit'])} with {shortened(section['kind'])} canaries: there is no such"
    if set(section) != _PARTS:
        yield f"its audit has the parts {shortened(sorted(section))}"
    yield from differences(section, content["epsilon"]["certified"], content["delta"])
