"""Results of audits, recomputed from their own counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from plrvo.audit import Counts, epsilon_bound
from plrvo.audit.one_run import differences as one_run_differences
from plrvo.records import Receipt
from plrvo.records.fields import Fields
from plrvo.report.runs import AuditResult, Audits
from plrvo.validate import counted

_EXPECTED = "the result of `plrvo audit --json`"


def is_audit(content: dict[str, Any]) -> bool:
    """Whether a document is a result, or several in `rows`."""
    rows = content.get("rows", [content])
    return isinstance(rows, list) and bool(rows) and all(isinstance(r, dict) and "epsilon_audited" in r for r in rows)


def read_audits(content: dict[str, Any], path: Path) -> Audits:
    """One result, or the list of results of one command."""
    given = Fields.of(content, path, _EXPECTED)
    rows = given.parts("rows") if "rows" in given else [given]
    attack = "one run with canaries" if "canaries" in rows[0] else "many runs, with an example and without it"
    subject = [given.text_or_none("data") or given.text_or_none("task"), given.text_or_none("model")]
    about = ", ".join(word for word in subject if word)
    title = f"{attack} ({about})" if about else attack
    return Audits(path.name, title, [read_audit(row, _label(row)) for row in rows], content)


def read_audit_of(receipt: Receipt) -> AuditResult:
    """The audit of the run itself that a receipt has."""
    return read_audit(Fields.of(receipt["audit"], receipt.path, "a receipt", "audit"), "the run itself, with canaries")


def read_audit(given: Fields, label: str) -> AuditResult:
    """One result; its bound and verdict are computed once more from what it counted."""
    result = AuditResult(
        label=label,
        claim=given.text_or_none("claim") or "certified",
        audited=given.amount("epsilon_audited"),
        claimed=given.amount("epsilon_claimed"),
        certifiable=given.amount_or_none("epsilon_certifiable"),
        confidence=given.amount("confidence"),
        delta=given.amount("delta"),
        found=_found(given),
    )
    return AuditResult(**{**vars(result), "differences": _differences(given, result)})


def _label(given: Fields) -> str:
    kind = given.part("noise").text("noise") if "noise" in given else "any"
    claim = given.text_or_none("claim") or "certified"
    word = f"{claim} " if claim in ("certified", "published", "receipt") else ""
    return f"{kind} noise, {word}epsilon {given.amount('epsilon_claimed'):.3g}"


def _found(given: Fields) -> str:
    if "canaries" in given:
        guesses, canaries = given.amount("guesses"), given.amount("canaries")
        about = f"{counted(guesses, 'guess', 'g')} about {counted(canaries, 'canary', 'g')}"
        return f"{given.amount('correct'):g} of {about} were right"
    return (
        f"{given.amount('false_positives'):g} false alarms in {given.amount('negatives'):g} runs without the example, "
        f"{given.amount('false_negatives'):g} misses in {given.amount('positives'):g} with it"
    )


def _differences(given: Fields, result: AuditResult) -> list[str]:
    if "canaries" in given:
        return one_run_differences(given.content, result.claimed, result.delta)
    names = ("false_positives", "negatives", "false_negatives", "positives")
    try:
        counts = Counts(**{name: given.content[name] for name in names})
        bound = epsilon_bound(counts, result.delta, 1 - result.confidence)
    except (TypeError, ValueError, ArithmeticError) as error:
        return [f"the counts of the audit are not those of an attack ({error})"]
    found = []
    if abs(result.audited - bound) > 1e-9 * (1 + bound):
        found.append(f"it says that the audit reached epsilon {result.audited}; recomputed, it is {bound}")
    if given.content.get("verdict") != result.verdict:
        found.append(f"its verdict is {given.content.get('verdict')!r}; recomputed, it is {result.verdict}")
    return found
