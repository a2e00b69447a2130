"""A receipt that has been opened: its plan and its ledger are valid, and the rest is yet to be compared."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plrvo.accounting import Plan
from plrvo.accounting.bracket import AnyLedger
from plrvo.records import derived, journal
from plrvo.records.derived import Priced
from plrvo.records.folder import NO_WEIGHTS
from plrvo.records.searched import Searched
from plrvo.validate import InvalidArgument


@dataclass(frozen=True)
class Opened:
    """A receipt in its folder, with its plan and its ledger."""

    receipt: dict[str, Any]
    folder: Path
    plan: Plan
    ledger: AnyLedger

    @property
    def task(self) -> dict[str, Any]:
        return mapping(self.receipt["task"], "task")

    @property
    def run(self) -> dict[str, Any]:
        return mapping(self.receipt["run"], "run")

    @property
    def older(self) -> bool:
        """Whether other code wrote it, whose certificates may have been larger."""
        return not is_of_this_code(self.receipt)

    @property
    def priced(self) -> Priced:
        """What the receipt's epsilons are of: its ledger, or the search that its run is the best trial of."""
        return self.ledger if "search" not in self.receipt else Searched.read(self.receipt["search"]).priced

    @property
    def revision(self) -> int:
        return int(self.receipt.get("revision", 1))

    @property
    def away(self) -> tuple[str, ...]:
        """The files of the run that are not here, if no weights are: these, or any others in their place."""
        if any(file.name not in NO_WEIGHTS for file in self.folder.glob("*.safetensors")):
            return ()
        parts = (self.receipt.get(name) for name in ("weights", "journal", "metrics"))
        names = [file_name(part["file"]) for part in parts if isinstance(part, dict)]
        missing = tuple(name for name in names if not os.path.lexists(self.folder / name))
        return missing if names and names[0] in missing else ()

    @property
    def released(self) -> journal.Journal | None:
        """The journal beside the receipt, if it has one that can be read."""
        known = self.receipt.get("journal")
        return None if known is None else journal.Journal.open(self.folder / file_name(known["file"]))


def is_of_this_code(receipt: dict[str, Any]) -> bool:
    """Whether the code that it names is this one."""
    versions = receipt.get("versions")
    return isinstance(versions, dict) and versions.get("plrvo_code") == derived.code_digest()


def file_name(file: Any) -> str:
    """The name of a file beside the receipt: no path to another place."""
    if not isinstance(file, str) or not file or Path(file).name != file or "\0" in file:
        raise InvalidArgument("file", file, "the name of a file beside the receipt")
    return file


def mapping(value: Any, name: str) -> dict[str, Any]:
    """A part that has names of its own."""
    if not isinstance(value, dict):
        raise InvalidArgument(name, value, "an object with names")
    return value
