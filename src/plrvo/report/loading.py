"""What kind of run a path holds, and everything in it checked before the page is made."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from plrvo.audit.receipt import Examined, examine
from plrvo.files import read_json
from plrvo.paper.document import FILE as REPRODUCTION
from plrvo.paper.document import read_reproduction
from plrvo.paper.flags import Flag
from plrvo.records.fields import Fields, as_number
from plrvo.records.folder import CHECKPOINT, JOURNAL, METRICS, RECEIPT
from plrvo.records.history import read_history
from plrvo.records.receipt import Bracket
from plrvo.report.auditing import is_audit, read_audit_of, read_audits
from plrvo.report.runs import Reproduction, Row, Run, Training
from plrvo.validate import InvalidArgument

_PRIVATE = (JOURNAL, CHECKPOINT)  # what a private run leaves before its first receipt
_SHOWN = "bracket delta budget task model examples noise exact steps planned sample_rate clip adjacency sampler "
_SHOWN += "arithmetic randomness group dimension postprocess source searched stated"
_EXPECTED = (
    "a folder of `plrvo train` or `plrvo reproduce`, a receipt, or a file with the result of `plrvo audit --json`"
)


def read_run(path: str | Path) -> Run:
    """A training run, a reproduction or audits; a receipt is recomputed on the way.

    Bad input is refused with one line: nothing there, a file that is none of these, a private run without its receipt.
    """
    path = Path(path)
    if path.is_dir():
        return _folder(path)
    content = read_json(path, "runs", _EXPECTED)
    if isinstance(content, dict):
        if "receipt" in content:
            return _training(path.parent, path)
        if "rows" in content and "scale" in content:
            return _reproduction(path)
        if is_audit(content):
            return read_audits(content, path)
    raise InvalidArgument("runs", str(path), _EXPECTED)


def _folder(folder: Path) -> Run:
    if (folder / REPRODUCTION).is_file():
        return _reproduction(folder / REPRODUCTION)
    if (folder / RECEIPT).is_file():
        return _training(folder, folder / RECEIPT)
    if any((folder / name).exists() for name in _PRIVATE):
        raise InvalidArgument(
            "runs", str(folder), f"a private run with its {RECEIPT}: none has been written yet, or it is missing"
        )
    if (folder / METRICS).is_file():
        return _training(folder, None)
    raise InvalidArgument("runs", str(folder), f"{_EXPECTED}; there is neither {RECEIPT} nor {REPRODUCTION} in it")


def _training(folder: Path, receipt: Path | None, name: str | None = None) -> Training:
    metrics = folder / METRICS
    history: list[dict[str, float]] = []
    for row in _rows(metrics) if metrics.is_file() else []:
        numbers = {name: as_number(value) for name, value in row.items()}
        history.append({name: value for name, value in numbers.items() if value is not None})
    if not all("step" in row for row in history):
        raise InvalidArgument("runs", str(metrics), "metrics with a number in step in every line")
    seconds = (metrics if receipt is None else receipt).stat().st_mtime
    day = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d")
    examined = None if receipt is None else _receipt(receipt)
    stated = [] if examined is None or metrics.is_file() else examined.stated
    return Training(name or folder.resolve().name, history or stated, examined, day, bool(stated))


def _rows(metrics: Path) -> list[dict[str, Any]]:
    try:
        return read_history(metrics)
    except InvalidArgument as error:
        raise InvalidArgument("runs", str(metrics), error.expected) from None


def _receipt(path: Path) -> Examined:
    """The receipt recomputed; all that a page shows of it is of the right form, whether it verifies or not."""
    try:
        examined = examine(path)
        for shown in _SHOWN.split():
            getattr(examined, shown)
    except InvalidArgument as error:
        raise InvalidArgument("runs", str(path), error.expected) from None
    if examined.get("audit") is not None:
        read_audit_of(examined)
    return examined


def _reproduction(path: Path) -> Reproduction:
    given = Fields.of(read_reproduction(path, "runs"), path, "a reproduction, as `plrvo reproduce` writes it")
    folder, runs = path.parent, path.parent / "runs"
    receipts = sorted(runs.rglob(RECEIPT)) if runs.is_dir() else []
    return Reproduction(
        name=folder.resolve().name,
        folder=folder,
        entry=given.text("name"),
        group=given.text("group"),
        title=given.text("title"),
        paper=given.text("paper"),
        scale=given.text("scale"),
        status=given.text("status"),
        stand_in=given.text_or_none("stand_in"),
        rows=[_row(row) for row in given.parts("rows")],
        findings=given.texts("findings"),
        document=given.content,
        runs=[_training(one.parent, one, one.parent.relative_to(runs).as_posix()) for one in receipts],
    )


def _row(given: Fields) -> Row:
    epsilon, flags = given.part("epsilon"), given.part("flags")
    return Row(
        label=given.text("label"),
        parameters=given.part("parameters").content,
        printed=given.measures("printed"),
        measured=given.measures("measured"),
        printed_epsilon=epsilon.amount_or_none("printed"),
        bracket=Bracket(*(epsilon.amount_or_none(name) for name in ("certified", "lower", "published"))),
        flags={flag: flags.text(flag) for flag in Flag if flag in flags},
    )
