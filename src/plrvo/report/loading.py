"""What kind of run a path holds, and everything in it checked before the page is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from plrvo.accounting import Plan
from plrvo.audit.receipt import examine
from plrvo.files import read_json
from plrvo.paper.document import FILE as REPRODUCTION
from plrvo.paper.document import read_reproduction
from plrvo.paper.flags import Flag
from plrvo.report.auditing import is_audit, read_audit, read_audits
from plrvo.report.fields import Fields, as_number
from plrvo.report.runs import Bracket, Receipt, Reproduction, Row, Run, Training
from plrvo.validate import InvalidArgument

RECEIPT = "receipt.json"
METRICS = "metrics.jsonl"
_PRIVATE = ("journal.jsonl", "checkpoint.safetensors")  # what a private run leaves before its first receipt
_EXPECTED = (
    "a folder of `plrvo train` or `plrvo reproduce`, a receipt, or a file with the result of `plrvo audit --json`"
)


def read_run(path: Path) -> Run:
    """A training run, a reproduction or audits; a receipt is recomputed on the way.

    Bad input is refused with one line: nothing there, a file that is none of these, a private run without its receipt.
    """
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
    from plrvo.training.loop import read_history  # torch comes with it

    metrics = folder / METRICS
    history: list[dict[str, float]] = []
    for row in read_history(metrics) if metrics.is_file() else []:
        numbers = {name: as_number(value) for name, value in row.items()}
        history.append({name: value for name, value in numbers.items() if value is not None})
    if not all("step" in row for row in history):
        raise InvalidArgument("runs", str(metrics), "metrics with a number in step in every line")
    return Training(name or folder.resolve().name, history, None if receipt is None else _receipt(receipt))


def _receipt(path: Path) -> Receipt:
    try:
        examined = examine(path)
    except InvalidArgument as error:
        raise InvalidArgument("runs", str(path), error.expected) from None
    differences = examined.differences
    given = Fields.of(examined.content, path, "a receipt")
    plan, run, epsilon = given.part("plan"), given.part("run"), given.part("epsilon")
    work, delta = plan.part("workload"), given.amount("delta")
    task = given.part("task")
    group = given.part("group") if "group" in given else None
    return Receipt(
        document=given.content,
        differences=differences,
        plan=None if differences else Plan.from_dict(plan.content),
        bracket=Bracket(epsilon.amount("certified"), epsilon.amount("lower"), epsilon.amount_or_none("published")),
        delta=delta,
        budget=plan.amount_or_none("epsilon"),
        task=task.text_or_none("name") or "a task without a name",
        model=task.text_or_none("model"),
        examples=task.amount_or_none("examples"),
        noise=_noise(plan.part("noise")),
        steps=round(given.amount("steps")),
        planned=round(work.amount("steps")),
        sample_rate=work.amount("sample_rate"),
        clip=work.amount("clip"),
        adjacency=given.text("adjacency"),
        sampler=given.text("sampler"),
        arithmetic=given.text("arithmetic"),
        randomness=run.text_or_none("randomness") or "a source that the receipt does not name",
        warning=examined.warning,
        metrics_covered=examined.metrics_covered,
        unsafe=run.content.get("unsafe_diagnostics") is True,
        group=None if group is None else {**group.content, "certified": group.amount_or_none("certified")},
        audit=read_audit(given.part("audit"), "the run itself, with canaries") if "audit" in given else None,
    )


def _noise(given: Fields) -> dict[str, Any]:
    """Kind and parameters of the noise itself, without the grid that it may be rounded to."""
    given = given.part("base") if "base" in given else given
    return {"noise": given.text("noise"), **{k: v for k, v in given.content.items() if k != "noise"}}


def _reproduction(path: Path) -> Reproduction:
    given = Fields.of(read_reproduction(path, "runs"), path, "a reproduction, as `plrvo reproduce` writes it")
    folder, runs = path.parent, path.parent / "runs"
    receipts = sorted(runs.rglob(RECEIPT)) if runs.is_dir() else []
    return Reproduction(
        name=folder.resolve().name,
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
