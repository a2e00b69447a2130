"""A receipt recomputed, with what an audit in it says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plrvo.audit.one_run import CanaryKind, differences
from plrvo.validate import shortened

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


@dataclass(frozen=True)
class Examined:
    """A receipt beside what was recomputed: it verifies where there are no `differences`."""

    content: dict[str, Any]
    differences: list[str]

    @property
    def metrics_covered(self) -> bool:
        """Whether the receipt vouches for the metrics beside it; the first receipts did not."""
        return self.content.get("metrics") is not None

    @property
    def seeded(self) -> bool | None:
        """Whether the noise can be repeated by whoever knows a seed; None where the receipt does not say."""
        from plrvo.training.seeding import is_seeded

        return is_seeded(self.content["run"])

    @property
    def warning(self) -> str | None:
        """What has to be said before any epsilon of the run."""
        from plrvo.training.seeding import warning

        return warning(self.content["run"])


def examine(receipt: Path) -> Examined:
    """The receipt, and everything in which it differs from what it should say."""
    from plrvo.training import consistency  # torch comes with it
    from plrvo.training.receipt import read_receipt

    content = read_receipt(receipt)  # once: what is shown is what was recomputed
    found = consistency.differences(content, receipt.parent)
    try:
        found += _audited(content)
    except (KeyError, TypeError, AttributeError, ValueError):
        found.append("a part of the audit is missing or has the wrong form")
    return Examined(content, found)


def found_by(receipt: Path) -> list[str]:
    """Everything in which the receipt differs from what it should say; a sentence each."""
    return examine(receipt).differences


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
