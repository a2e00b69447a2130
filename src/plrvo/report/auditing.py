"""Results of audits, recomputed from their own counts, and their claims from the noise and the steps beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from plrvo.accounting import Clipping, Workload
from plrvo.accounting.plan import refuse_unproved
from plrvo.audit import Counts, epsilon_bound
from plrvo.audit.one_run import differences as one_run_differences
from plrvo.audit.verdict import claimed_epsilon, claimed_number, told_claim
from plrvo.noise import noise_from_dict
from plrvo.records import Receipt
from plrvo.records.fields import Fields
from plrvo.report.runs import AuditResult, Audits
from plrvo.validate import counted, probability

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
    results = [_with_claim(read_audit(row, _label(row)), {**content, **row.content}) for row in rows]
    return Audits(path.name, title, results, content)


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
    return replace(result, differences=_differences(given, result))


def _with_claim(result: AuditResult, setting: Mapping[str, Any]) -> AuditResult:
    """The result with what is wrong with its claim, or why nothing is known of it.

    A certified claim may be larger than what is certified today, by tighter bounds; a smaller one was never proved.
    """
    try:
        due = _claim_due(result, setting)
    except (KeyError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
        return replace(result, unknown=f"the file does not have what the claim follows from ({error})")
    if due is None:
        return replace(result, unknown="it is that of a receipt, which is not in the file")
    off = due - result.claimed if result.claim == "certified" else abs(due - result.claimed)
    if off <= 1e-9 * (1 + due):
        return result
    wrong = f"it says that its claim ({result.claim}) is epsilon {result.claimed}; recomputed, it is {due}"
    return replace(result, differences=[*result.differences, wrong])


def _claim_due(result: AuditResult, setting: Mapping[str, Any]) -> float | None:
    if result.claim == "receipt":
        return None
    if result.claim not in ("certified", "published"):
        return claimed_number(result.claim)
    noise, work = noise_from_dict(setting["noise"]), Workload.from_dict(setting["workload"])
    clipping = Clipping.named(setting.get("clipping", Clipping.flat))
    refuse_unproved(clipping, noise, None)
    work = replace(work, dimension=clipping.coordinates(work.dimension))
    return claimed_epsilon(result.claim, noise, work, result.delta)


def _label(given: Fields) -> str:
    kind = given.part("noise").text("noise") if "noise" in given else "any"
    claim = given.text_or_none("claim") or "certified"
    word = f"{claim} " if claim in ("certified", "published", "receipt") else ""
    return f"{kind} noise, {word}epsilon {told_claim(claim, given.amount('epsilon_claimed'), 3)}"


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
        probability(delta=result.delta)
        bound = epsilon_bound(counts, result.delta, 1 - result.confidence)
        most = epsilon_bound(Counts(0, counts.negatives, 0, counts.positives), result.delta, 1 - result.confidence)
    except (TypeError, ValueError, ArithmeticError) as error:
        return [f"the counts of the audit are not those of an attack ({error})"]
    found = []
    if abs(result.audited - bound) > 1e-9 * (1 + bound):
        found.append(f"it says that the audit reached epsilon {result.audited}; recomputed, it is {bound}")
    if result.certifiable is not None and abs(result.certifiable - most) > 1e-9 * (1 + most):
        found.append(f"it says that the audit could show epsilon {result.certifiable}; recomputed, it is {most}")
    if given.content.get("verdict") != result.verdict:
        found.append(f"its verdict is {given.content.get('verdict')!r}; recomputed, it is {result.verdict}")
    return found
