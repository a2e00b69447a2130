"""What a page can be about: training runs, reproductions of a table or figure, audits, and a privacy account."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from plrvo.audit.receipt import Examined
from plrvo.budget.account import State
from plrvo.paper.flags import Flags
from plrvo.records.receipt import Bracket


@dataclass(frozen=True)
class AuditResult:
    """One attack. `differences` say where its numbers do not follow from what the file has beside them.

    `unknown` says why the claim could not be recomputed, where it could not.
    """

    label: str
    claim: str
    audited: float
    claimed: float
    certifiable: float | None
    confidence: float
    delta: float
    found: str
    differences: Sequence[str] = ()
    unknown: str | None = None

    @property
    def proved(self) -> bool:
        """Whether the claim is a certified epsilon, which is rounded up."""
        return self.claim in ("certified", "receipt")

    @property
    def refuted(self) -> bool:
        return self.audited > self.claimed

    @property
    def verdict(self) -> str:
        return "refuted" if self.refuted else "consistent"


@dataclass(frozen=True)
class Training:
    """A folder that `plrvo train` wrote; `receipt` is None for a run without privacy.

    `name` is the folder's own name, and `history` the metrics over steps.
    """

    kind: ClassVar[str] = "training"
    name: str
    history: Sequence[Mapping[str, float]]
    receipt: Examined | None
    written: str | None = None  # the day of the receipt's file, or of its metrics
    stated: bool = False  # whether `history` is the word of the receipt's author, and in no file

    @property
    def kind_of_noise(self) -> str:
        return str(self.receipt.noise["noise"]) if self.receipt else "no"

    @property
    def differences(self) -> Sequence[str]:
        return self.receipt.differences if self.receipt else ()

    @property
    def verified(self) -> bool | None:
        """None for a run that claims nothing."""
        return None if self.receipt is None else not self.receipt.differences

    @property
    def metric(self) -> str | None:
        """The first of the usual names that the whole history has; an accuracy is from 0 to 1."""
        if self.history and all(0 <= row.get("accuracy", -1) <= 1 for row in self.history):
            return "accuracy"
        return "loss" if self.history and all("loss" in row for row in self.history) else None


@dataclass(frozen=True)
class Row:
    """A row of a table: what the paper prints, what was measured, and the epsilons of its parameters."""

    label: str
    parameters: Mapping[str, Any]
    printed: Mapping[str, float | None]
    measured: Mapping[str, float | None]
    printed_epsilon: float | None
    bracket: Bracket
    flags: Flags

    @property
    def refutes_printed(self) -> bool:
        """Whether an attacker provably exceeds the epsilon that the paper prints."""
        return (
            self.printed_epsilon is not None
            and self.bracket.lower is not None
            and self.printed_epsilon < self.bracket.lower
        )


@dataclass(frozen=True)
class Reproduction:
    """A folder that `plrvo reproduce` wrote. `runs` are the training folders inside of it, with their receipts."""

    kind: ClassVar[str] = "reproduction"
    name: str
    folder: Path
    entry: str
    group: str
    title: str
    paper: str
    scale: str
    status: str
    stand_in: str | None
    rows: Sequence[Row]
    findings: Sequence[str]
    document: Mapping[str, Any]
    runs: Sequence[Training] = ()

    @property
    def measures(self) -> list[str]:
        """The names of all measures, in the order in which they come."""
        return list(dict.fromkeys(name for row in self.rows for part in (row.printed, row.measured) for name in part))

    @property
    def differences(self) -> list[str]:
        return [f"{run.name}: {difference}" for run in self.runs for difference in run.differences]

    @property
    def verified(self) -> bool | None:
        """Whether every receipt inside verifies; None where there is none."""
        return not self.differences if self.runs else None


@dataclass(frozen=True)
class Audits:
    """A file with the result of `plrvo audit`."""

    kind: ClassVar[str] = "audit"
    name: str
    title: str
    results: Sequence[AuditResult]
    document: Mapping[str, Any]

    @property
    def differences(self) -> list[str]:
        return [difference for result in self.results for difference in result.differences]

    @property
    def unknown(self) -> list[str]:
        return [f"the claim of {result.label}: {result.unknown}" for result in self.results if result.unknown]

    @property
    def verified(self) -> bool | None:
        """None where the counts are right, and a claim could not be recomputed."""
        return False if self.differences else None if self.unknown else True


@dataclass(frozen=True)
class Charged:
    """An account as it is now. `runs` are those of the page that it has an entry for, by the number of the entry.

    `differences` lie between the account and receipts that name it; `others` are runs of the page that it has no part
    in.
    """

    kind: ClassVar[str] = "account"
    name: str
    where: str  # as it is typed after `plrvo budget show`, where the page was made
    state: State
    runs: Mapping[int, Training]
    others: Sequence[str]
    differences: Sequence[str]

    @property
    def verified(self) -> bool:
        return not self.differences


Run = Training | Reproduction | Audits | Charged
