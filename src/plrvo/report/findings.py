"""What was certified, what was refuted, and what a reader has to be warned of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from plrvo.accounting.printed import rounded_down, rounded_up
from plrvo.audit.receipt import Examined
from plrvo.audit.verdict import told_claim
from plrvo.report.auditing import read_audit_of
from plrvo.report.runs import AuditResult, Audits, Reproduction, Row, Training
from plrvo.validate import counted


class Tone(StrEnum):
    """How good the news is. Each has a sign and a word on the page, since colour alone tells nobody enough."""

    good = "good"
    bad = "bad"
    warning = "warning"
    note = "note"


@dataclass(frozen=True)
class Finding:
    """A statement with a word in front of it."""

    tone: Tone
    word: str
    text: str


def training_findings(run: Training) -> list[Finding]:
    """What was certified and what was refuted, and what a reader has to be warned of."""
    receipt = run.receipt
    if receipt is None:
        return [
            Finding(Tone.warning, "Not private", "No noise was added. Nothing is claimed about anybody in the data.")
        ]
    found = [*_verdict(receipt), *_bounds(receipt)]
    if run.stated:
        text = (
            "The metrics below stand in the receipt alone: no file of them lies beside it, and nothing was recomputed."
        )
        found.append(Finding(Tone.note, "Author's word", text))
    elif run.history and not receipt.metrics_covered:
        text = "The receipt has no digest of metrics.jsonl: nothing shows that the metrics below are those of this run."
        found.append(Finding(Tone.warning, "Not covered", text))
    if receipt.steps < receipt.planned:
        text = (
            f"Stopped after {receipt.steps} of {counted(receipt.planned, 'step')}. The numbers are for the steps taken."
        )
        found.append(Finding(Tone.warning, "Unfinished", text))
    if receipt.unsafe:
        text = "The run wrote unsafe diagnostics, which tell of private examples and lie outside of the guarantee."
        found.append(Finding(Tone.warning, "Warning", text))
    return found


def summary(runs: Sequence[Training]) -> str:
    """All of them in a sentence or two: the epsilons, and how many say less than a reader would expect."""
    receipts = [run.receipt for run in runs if run.receipt is not None and run.verified]
    brackets = [receipt.bracket.certified for receipt in receipts]
    epsilons = sorted(certified for certified in brackets if certified is not None)
    found = [
        f"{counted(len(runs), 'run')}, of which {len(receipts)} verify"
        if len(receipts) < len(runs)
        else counted(len(runs), "run")
    ]
    if epsilons:
        least, most = rounded_up(epsilons[0]), rounded_up(epsilons[-1])
        found.append(f"epsilon is at most {most}" if least == most else f"epsilon is from {least} to {most}, at most")
    text = ": ".join(found) + "."
    others = {
        "had a fixed seed": sum(bool(receipt.seeded) for receipt in receipts),
        "did not finish": sum(receipt.steps < receipt.planned for receipt in receipts),
        "added no noise": sum(run.receipt is None for run in runs),
        "do not verify": sum(run.verified is False for run in runs),
    }
    told = [f"{count} {what}" for what, count in others.items() if count]
    return text if not told else f"{text} Of these {', '.join(told)}."


def _verdict(receipt: Examined) -> list[Finding]:
    if receipt.differences:
        text = "The receipt does not verify: what it says and what was recomputed differ. Rely on none of its numbers."
        return [Finding(Tone.bad, "Not verified", text)]
    text = "Every epsilon of the receipt was recomputed while this page was made, and equals what it says."
    if receipt.away:
        text += f" {receipt.absent} not here: nothing is known of them."
        return [Finding(Tone.warning, "Account verified", text)]
    return [Finding(Tone.good, "Verified", text)]


def _bounds(receipt: Examined) -> list[Finding]:
    bracket, found = receipt.bracket, []
    if receipt.differences:
        return []
    if bracket.certified is not None:
        text = f"Epsilon is at most {rounded_up(bracket.certified)} at delta {rounded_up(receipt.delta)}: proved."
        found.append(Finding(Tone.good, "Certified", text))
    if bracket.refutes_published and bracket.published is not None and bracket.lower is not None:
        text = (
            f"The paper's formula says {bracket.published:.4g}, and an attacker provably reaches at least "
            f"{rounded_down(bracket.lower)}."
        )
        found.append(Finding(Tone.bad, "Refuted", text))
    if receipt.get("audit") is not None:
        found.append(audit_finding(read_audit_of(receipt)))
    return found


def audit_finding(audit: AuditResult) -> Finding:
    """The verdict of an attack."""
    reached = f"An attack reached epsilon {rounded_down(audit.audited)} at confidence {audit.confidence:g}"
    claim = {"certified": "certified", "published": "published", "receipt": "receipt's"}.get(audit.claim, "given")
    unknown = f" The claim was not verified: {audit.unknown}." if audit.unknown else ""
    if audit.differences:
        return Finding(Tone.bad, "Not verified", f"{audit.label}: {audit.differences[0]}.")
    if audit.refuted:
        text = f"{reached}: more than the {claim} claim of {told_claim(audit.claim, audit.claimed)} ({audit.found})."
        return Finding(Tone.bad, "Refuted", text + unknown)
    text = f"{reached}: the {claim} claim of {told_claim(audit.claim, audit.claimed)} survives ({audit.found})."
    if audit.certifiable is not None and audit.claimed >= audit.certifiable:
        text += (
            f" An attack of this size could show {rounded_down(audit.certifiable)} at most, and not refute this claim."
        )
    return Finding(Tone.warning if unknown else Tone.note, "Not refuted", text + unknown)


class Standing(StrEnum):
    """How a printed epsilon stands beside the bracket of its parameters."""

    holds = "holds"
    refuted = "refuted"
    open = "unproved"
    unknown = ""


def standing(row: Row) -> Standing:
    """Whether what is printed is proved, refuted, or neither."""
    printed, certified = row.printed_epsilon, row.bracket.certified
    if printed is None or (certified is None and row.bracket.lower is None):
        return Standing.unknown
    if row.refutes_printed:
        return Standing.refuted
    return Standing.holds if certified is not None and certified <= printed else Standing.open


def reproduction_headline(run: Reproduction) -> str:
    """How the printed epsilons stand, in one sentence."""
    stands = [standing(row) for row in run.rows]
    told = sum(one is not Standing.unknown for one in stands)
    if not told:
        return f"{_of('row', len(stands))}, measured again."
    words = {Standing.holds: "proved", Standing.refuted: "refuted", Standing.open: "neither proved nor refuted"}
    parts = [f"{stands.count(one)} {word}" for one, word in words.items() if stands.count(one)]
    remarked = sum(bool(row.flags) for row, one in zip(run.rows, stands, strict=True) if one is Standing.holds)
    if remarked:  # mostly for other parameters than the printed ones
        parts[0] += f" ({remarked} of them only with the remark in the table)"
    return f"Of {_of('printed epsilon', told)}: {', '.join(parts)}."


def audit_headline(run: Audits) -> str:
    """Whether anything was refuted, in one sentence."""
    if run.differences:
        return "The result does not follow from its own counts and setting."
    refuted = sum(result.refuted for result in run.results)
    if not refuted:
        return "Not refuted: no attack reached more than was claimed. This is no proof."
    if len(run.results) == 1:
        return "The claim is refuted: an attack reached more."
    return f"{refuted} of {len(run.results)} claims refuted: an attack reached more."


def reproduction_findings(run: Reproduction) -> list[Finding]:
    """How many printed epsilons hold, and what the reproduction itself has found."""
    stands = [standing(row) for row in run.rows]
    found: list[Finding] = []
    if run.runs:
        bad = [one for one in run.runs if one.differences]
        if bad:
            text = f"{len(bad)} of the {len(run.runs)} receipts of its runs do not verify: {run.differences[0]}."
            found.append(Finding(Tone.bad, "Not verified", text))
        else:
            found.append(Finding(Tone.good, "Verified", f"{_of('receipt', len(run.runs))} of its runs recomputed."))
    for which, tone, word, text in (
        (
            Standing.holds,
            Tone.good,
            "Certified",
            "prints an epsilon that is proved for the parameters below",
        ),
        (Standing.refuted, Tone.bad, "Refuted", "prints an epsilon that an attacker provably exceeds"),
        (Standing.open, Tone.warning, "Unproved", "prints an epsilon below what can be proved; no attack is known"),
    ):
        count = stands.count(which)
        if count:
            text = text if count == 1 else text.replace("prints", "print")
            found.append(Finding(tone, word, f"{_of('row', count)} of {len(stands)} {text}."))
    if any(one is not Standing.unknown for one in stands):
        text = f"The brackets of rows are as the file has them. `plrvo reproduce {run.entry}` computes them anew."
        found.append(Finding(Tone.note, "Not recomputed", text))
    flagged = sum(bool(row.flags) for row in run.rows)
    if flagged:
        text = f"{_of('row', flagged)} of {len(stands)} with a remark in the table: read it before you rely on them."
        found.append(Finding(Tone.warning, "Flagged", text))
    if run.status != "finished":
        found.append(Finding(Tone.warning, "Unfinished", f"The reproduction is {run.status}: more rows may follow."))
    if run.scale == "smoke":
        text = "The scale smoke only shows that everything runs. Its measured values mean nothing."
        found.append(Finding(Tone.warning, "Smoke", text))
    if run.stand_in:
        found.append(Finding(Tone.warning, "Stand-in", run.stand_in))
    found += [Finding(Tone.note, "Found", text) for text in run.findings]
    return found


def _of(what: str, count: int) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
