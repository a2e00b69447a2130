"""A receipt recomputed, with what an audit in it says."""

from __future__ import annotations

from pathlib import Path

from plrvo.audit.one_run import differences
from plrvo.files import read_json


def found_by(receipt: Path) -> list[str]:
    """Everything in which the receipt differs from what it should say; a sentence each."""
    from plrvo.training.receipt import verify as recompute  # torch comes with it

    found = recompute(receipt)
    content = read_json(receipt, "receipt", "a receipt file")
    if not content.get("audit"):
        return found
    try:
        claimed, delta = content["epsilon"]["certified"], content["delta"]
    except (KeyError, TypeError):
        return found  # which says that a part of the receipt is missing
    return [*found, *differences(content["audit"], claimed, delta)]
