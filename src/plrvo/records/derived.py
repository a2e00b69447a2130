"""What a receipt says that follows from its plan and its ledger: written by one side, recomputed by the other."""

from __future__ import annotations

import hashlib
import math
from functools import cache
from pathlib import Path
from typing import Any

from plrvo.accounting import Plan
from plrvo.accounting.bracket import AnyLedger
from plrvo.accounting.group import group_epsilon
from plrvo.accounting.selection import Search
from plrvo.accounting.selection.everything import Everything
from plrvo.files import open_regular
from plrvo.noise import Noise

Priced = AnyLedger | Search | Everything


def epsilons(ledger: Priced, delta: float) -> dict[str, float | None]:
    """The bracket. The paper's formula has no say where it is infinite, and JSON has no word for that."""
    bracket = ledger.epsilon(delta)
    published = bracket.published
    told = published is not None and math.isfinite(published)
    return {"certified": bracket.certified, "lower": bracket.lower, "published": published if told else None}


def group(ledger: Priced, delta: float, task: dict[str, Any]) -> dict[str, Any] | None:
    """What holds for all examples of one group, where the task says that they come in groups."""
    size = task.get("group_size")
    if size is None:
        return None
    value = group_epsilon(ledger, size, delta)
    return {"of": task.get("group"), "size": size, "certified": None if math.isinf(value) else value, "delta": delta}


def expected_batch_size(plan: Plan, examples: int) -> int:
    """What sums are divided by, where nothing else is asked for: a public number."""
    return max(1, round(plan.batch_share * examples))


def arithmetic(noise: Noise) -> str:
    """In which numbers the sums were made."""
    if noise.cell:
        return f"integers on a grid of width {noise.cell!r}, with exact noise from a cryptographic keystream"
    return "floating point (idealised: not safe against attacks on the last bits)"


def file_digest(path: Path) -> str:
    """SHA-256 of a file."""
    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@cache
def code_digest() -> str:
    """SHA-256 over the sources of this package, so that two receipts of one version can be told apart."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        digest.update(str(file.relative_to(root)).encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]
