"""The files beside a receipt: its journal, its metrics and its weights are those that it was written for.

The weights that were trained are those of the journal's last release, and a checkpoint says what the receipt says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from plrvo.records import checkpoint, derived, journal, metrics
from plrvo.records.compared import is_count
from plrvo.records.folder import JOURNAL, METRICS, NO_WEIGHTS
from plrvo.records.opened import Opened, file_name
from plrvo.records.weights import Tensors
from plrvo.validate import shortened


def of_journal(read: Opened) -> Iterator[str]:
    """What was released is what the ledger counts."""
    known = read.receipt.get("journal")
    if known is None:
        beside = read.folder / JOURNAL
        if beside.exists() and read.revision > 1:
            yield f"{JOURNAL} lies beside the receipt, which does not tell of it"
        elif beside.exists():  # the first receipts may not know it; it counts the steps of the same run
            released = journal.Journal.open(beside).steps
            if released != read.ledger.steps:
                yield f"{JOURNAL} beside it has {released} released steps; the receipt counts {read.ledger.steps}"
        return
    if set(known) != {"file", "releases", "steps", "digest"}:
        yield f"its journal has the parts {shortened(sorted(known))}"
    if known["file"] in read.away:
        return
    if known["file"] != JOURNAL and (read.folder / JOURNAL).exists():
        yield f"its journal is {shortened(known['file'])}, and {JOURNAL} lies beside it"
    yield from journal.unreconciled(read.folder, {**known, "file": file_name(known["file"])}, read.ledger.steps)


def of_metrics(read: Opened) -> Iterator[str]:
    """Metrics of steps that were released, with their epsilons."""
    receipt, last = read.receipt, read.run.get("metrics")
    if last is not None and not isinstance(last, dict):
        yield f"run.metrics is {shortened(last)}"
        return
    known, journal_of = receipt.get("metrics"), receipt.get("journal") or {}
    if known is None or known["file"] in read.away:
        if last and last.keys() & {"step", "epsilon_certified"}:  # words of the caller's have neither
            yield from metrics.epsilon_differences(last, read.ledger, read.plan.delta, read.older)
        covered = not journal_of or isinstance(read.run.get("history"), list)  # a Trainer's are in the receipt itself
        if known is None and read.revision > 1 and (not covered or (read.folder / METRICS).exists()):
            yield f"{METRICS} is not covered"
        return
    if set(known) != {"file", "sha256", "rows"}:
        yield f"its metrics have the parts {shortened(sorted(known))}"
    if known["file"] != METRICS:
        yield f"its metrics are in {shortened(known['file'])}; readers look into {METRICS}"
    if receipt["journal"] is None:
        yield "it has metrics, and no journal of what was released"
        return
    released = None if journal_of["file"] in read.away else read.released
    seen = None if released is None else set(released.weights_at)
    known = {**known, "file": file_name(known["file"])}
    yield from metrics.differences(read.folder, known, last, read.ledger, read.plan.delta, seen, read.older)


def of_weights(read: Opened) -> Iterator[str]:
    """The weights of this run, with all that it trained."""
    known = read.receipt["weights"]
    if set(known) != {"file", "sha256"} | ({"trained"} if read.revision > 3 else set()):
        yield f"its weights have the parts {shortened(sorted(known))}"
    weights = read.folder / file_name(known["file"])
    if weights.name in read.away:
        return
    if not weights.is_file():
        yield f"the weights {weights.name} are not a file"
        return
    if derived.file_digest(weights) != known["sha256"]:
        yield f"the weights {weights.name} are not those that the receipt was written for"
    others = [other for name in NO_WEIGHTS if (other := read.folder / name).exists()]
    if weights.name in NO_WEIGHTS or any(weights.samefile(other) for other in others):
        yield f"its weights are {weights.name}, another file of the run"
        return
    held, trained = Tensors.read(weights), read.task.get("trainable_parameters")
    if held is None:
        yield f"the weights {weights.name} are not a safetensors file"
        return
    if trained is not None and held.elements < trained:
        yield f"the weights {weights.name} have {held.elements} numbers; {trained} parameters were trained"
    if read.revision > 3:
        yield from _released(read, held, known["trained"])


def _released(read: Opened, held: Tensors, names: Any) -> Iterator[str]:
    """The numbers that were trained are those of the last release, or the chosen one, by the digest in the journal."""
    released = read.released
    if released is None:
        if names is not None:
            yield "it names the weights that were trained, and has no journal of them"
        return
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names) or len({*names}) != len(names):
        yield f"weights.trained is {shortened(names)}, and no list of names"
        return
    trained = read.task.get("trainable_parameters")
    if trained is not None and held.count(names) != trained:
        yield f"weights.trained has {shortened(held.count(names))} numbers; {trained} parameters were trained"
    step: Any = read.run.get("weights_of_step", released.steps)
    which = "the last release" if step == released.steps else f"step {shortened(step)}"
    if released.steps and not (is_count(step) and held.digest(names) == released.weights_at.get(step, "")):
        yield f"the weights {held.path.name} are not those of {which} in the journal"


def of_checkpoint(read: Opened) -> Iterator[str]:
    """A checkpoint of the same run says the same."""
    yield from checkpoint.differences(read.receipt, read.folder)
