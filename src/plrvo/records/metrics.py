"""The metrics of a run, as its receipt covers them.

A receipt has the digest of the file, so that a page may chart its numbers as those of the run. What follows from the
ledger (the certified epsilon after a step) is recomputed, at the first step, the last and some between them; in all
others it is a number that does not fall.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from plrvo.accounting.bracket import AnyLedger
from plrvo.files import open_regular
from plrvo.records.compared import differing, is_count, is_finite, same
from plrvo.records.derived import file_digest
from plrvo.records.folder import METRICS
from plrvo.records.history import parse_history, write_history
from plrvo.validate import InvalidArgument, counted, shortened

_RECOMPUTED = 8  # rows: each of them costs an account
_TOLERANCE = 1e-4  # relative: more steps cost more, but for what grids add to a bound


def write_metrics(folder: Path, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Write the metrics of a run beside its receipt; what the receipt says of them."""
    check_rows(rows)
    write_history(folder / METRICS, list(rows))
    return summary(folder / METRICS, len(rows))


def check_rows(rows: Sequence[dict[str, Any]]) -> None:
    """Refuse rows that `differences` would find fault with."""
    last = 0
    for row in rows:
        step: Any = row.get("step")
        if not is_count(step) or step <= last:
            raise InvalidArgument("step", step, f"a whole number above {last}: steps rise from row to row")
        last = step
        for name, value in row.items():
            if not is_finite(value) or (name == "accuracy" and not 0 <= value <= 1):
                raise InvalidArgument(name, value, "a finite number" + (" from 0 to 1" if name == "accuracy" else ""))
    wrong = _every_epsilon(list(rows))
    if wrong is not None:
        raise InvalidArgument("epsilon_certified", None, f"metrics that do not {wrong}")


def summary(path: Path, rows: int) -> dict[str, Any]:
    """What a receipt says of the file."""
    return {"file": path.name, "sha256": file_digest(path), "rows": rows}


def differences(
    folder: Path,
    known: dict[str, Any],
    last: Any,
    ledger: AnyLedger,
    delta: float,
    seen: set[int] | None,
    older: bool = False,
) -> Iterator[str]:
    """Where the file beside a receipt is not the one that it knows, or contradicts it.

    `last` is the last row as the receipt has it; `seen` are the steps that the journal says were released,
    None where it is not here.
    """
    path = folder / known["file"]
    if not path.is_file():
        yield f"the metrics {path.name} are not beside the receipt"
        return
    with open_regular(path) as file:
        content = file.read()  # once: what is checked has the digest
    if hashlib.sha256(content).hexdigest() != known["sha256"]:
        yield f"the metrics {path.name} are not those that the receipt was written for"
        return
    try:
        rows = parse_history(content, path)
    except InvalidArgument as error:
        yield f"the metrics {path.name} cannot be read: expected {error.expected}"
        return
    if not is_count(known["rows"]) or len(rows) != known["rows"]:
        yield f"it counts {known['rows']} rows of metrics; there are {len(rows)}"
    if not same(last, rows[-1] if rows else None):
        yield f"its last metrics are {last}; the last row of {path.name} is another"
    steps: list[Any] = [row.get("step") for row in rows]
    if not all(is_count(step) and 0 < step <= ledger.steps for step in steps) or steps != sorted(set(steps)):
        yield f"the metrics {path.name} are not of rising steps up to the {ledger.steps} of the ledger"
        return
    unseen = [step for step in steps if seen is not None and step not in seen]
    if unseen:
        yield f"it has metrics of step {unseen[0]}, whose release is not in the journal"
    for row in rows:
        for name, value in row.items():
            if name == "epsilon_certified":
                continue
            if not is_finite(value) or (name == "accuracy" and not 0 <= value <= 1):
                after = counted(row["step"], "step")
                yield f"the metrics {path.name} have {shortened(name)} {shortened(value)} after {after}"
                return
    wrong = _every_epsilon(rows)
    if wrong is not None:
        yield f"the metrics {path.name} {wrong}"
    for row in _spread(rows):
        yield from epsilon_differences(row, ledger, delta, older)


def epsilon_differences(row: dict[str, Any], ledger: AnyLedger, delta: float, older: bool = False) -> Iterator[str]:
    """Whether the epsilon in a row of metrics is the one that the ledger had at that step."""
    step: Any = row.get("step")
    if not is_count(step) or not 0 < step <= ledger.steps:
        yield f"it has metrics of step {step}; the ledger has {counted(ledger.steps, 'step')}"
        return
    before = ledger.after(step)
    if before is None or "epsilon_certified" not in row:
        return
    value = before.certified(delta).value
    if any(differing("epsilon_certified", row["epsilon_certified"], value, older)):
        said = f"its metrics say epsilon {row['epsilon_certified']} after {counted(step, 'step')}"
        yield f"{said}; recomputed, it is {value}"


def _every_epsilon(rows: list[dict[str, Any]]) -> str | None:
    """What is wrong with the epsilons by themselves: the rows between those that are recomputed must fit in."""
    told = [row for row in rows if "epsilon_certified" in row]
    if told and len(told) != len(rows):
        return "have a certified epsilon in some rows only"
    last = 0.0
    for row in told:
        value = row["epsilon_certified"]
        if not is_finite(value):
            return f"have the certified epsilon {shortened(value)} after {counted(row['step'], 'step')}"
        if value < last * (1 - _TOLERANCE):
            return f"have a certified epsilon that falls, to {value} after {counted(row['step'], 'step')}"
        last = max(last, value)
    return None


def _spread(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if len(rows) <= _RECOMPUTED:
        return rows
    last = _RECOMPUTED - 1
    return [rows[i * (len(rows) - 1) // last] for i in range(_RECOMPUTED)]
