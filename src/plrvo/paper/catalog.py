"""Every table and figure of the paper by name, and the comparisons that it does not make."""

from __future__ import annotations

from plrvo.paper import (
    audits,
    classification,
    cnn_tables,
    convergence,
    dependency,
    fair,
    ftrl,
    generation_tables,
    snr,
    utility,
    vit,
)
from plrvo.paper.entry import Entry
from plrvo.validate import InvalidArgument

ENTRIES: tuple[Entry, ...] = (
    *snr.ENTRIES,
    *utility.ENTRIES,
    *vit.ENTRIES,
    *classification.ENTRIES,
    *generation_tables.ENTRIES,
    *audits.ENTRIES,
    *convergence.ENTRIES,
    *ftrl.ENTRIES,
    *dependency.ENTRIES,
    *cnn_tables.ENTRIES,
    *fair.ENTRIES,
)


def find(name: str) -> Entry:
    """The entry of that name."""
    for entry in ENTRIES:
        if entry.name == name:
            return entry
    raise InvalidArgument("entry", name, "one of those that `plrvo reproduce --list` shows")
