"""What the checkpoint beside a receipt says of the same run, read without torch: the two must say the same.

A checkpoint is written just before the receipt of the same step (`plrvo.tasks.experiment`), and is its owner's alone:
a receipt that travels has none beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from plrvo.files import parse_json
from plrvo.records.folder import CHECKPOINT
from plrvo.records.weights import Tensors
from plrvo.validate import shortened

# Settings of the run under the same name in both.
_SETTINGS = ("learning_rate", "optimizer", "momentum", "weight_decay", "schedule", "average", "unsafe_diagnostics")
# What of a task only one of them has: where its data lay on the machine, and what a receipt counts by itself.
_UNLIKE = {"data_source", "data_dir", "budget", "trainable_parameters"}


def kept_beside(folder: Path) -> dict[str, Any]:
    """What a run put beside its state: its job, its account. Empty where nothing of that form can be read.

    Only the beginning of the file is read, and nothing is checked: fit to refuse a run, and not to go on from.
    """
    kept = Tensors.read(folder / CHECKPOINT)
    try:
        extra = None if kept is None else parse_json(kept.metadata["record"])["extra"]
    except (ValueError, LookupError, TypeError):
        return {}
    return extra if isinstance(extra, dict) else {}


def differences(receipt: dict[str, Any], folder: Path) -> Iterator[str]:
    """A sentence for each contradiction; none where there is no checkpoint."""
    path = folder / CHECKPOINT
    if not path.exists():
        return
    kept = Tensors.read(path)
    if kept is None:
        yield f"{CHECKPOINT} beside it cannot be read"
        return
    record = parse_json(kept.metadata["record"])
    taken, counted = record["steps_taken"], receipt["steps"]
    if taken != counted:
        steps = f"has taken {shortened(taken)} steps; it counts {shortened(counted)}"
        yield f"{CHECKPOINT} beside it {steps}: resume the run"
        return
    for name in ("plan", "ledger"):
        if record[name] is not None and record[name] != receipt[name]:  # steps that were counted had no plan
            yield f"{CHECKPOINT} beside it has another {name}"
    extra, run = record["extra"], receipt["run"]
    if not isinstance(extra, dict) or not isinstance(extra.get("fixed"), dict):
        return  # of a loop that is not ours, which keeps there what it likes
    fixed = extra["fixed"]
    if fixed.get("seed") is not None and run.get("seeded") is not True:
        yield f"{CHECKPOINT} beside it has a seed; it says seeded={shortened(run.get('seeded'))}"
    told = {**{name: run[name] for name in _SETTINGS if name in run}, "postprocess": receipt.get("postprocess")}
    told |= {name: run.get(name) for name in ("clipping", "expected_batch_size") if fixed.get(name) is not None}
    for name, value in told.items():
        if name in fixed and fixed[name] != value:
            yield f"{CHECKPOINT} beside it has {name} {shortened(fixed[name])}; it says {shortened(value)}"
    if isinstance(fixed.get("task"), dict):
        task, said = fixed["task"], receipt["task"]
        for name in sorted((task.keys() | said.keys()) - _UNLIKE):
            if task.get(name) != said.get(name):
                shown = f"{shortened(task.get(name))}; it says {shortened(said.get(name))}"
                yield f"{CHECKPOINT} beside it has {shortened(f'task.{name}')} {shown}"
    if extra.get("journal") != receipt.get("journal"):
        yield f"{CHECKPOINT} beside it has seen another journal"
    if extra.get("budget") != receipt.get("budget"):
        yield f"{CHECKPOINT} beside it was charged otherwise"
    if extra.get("job") is not None and _anywhere(extra["job"]) != receipt.get("job"):
        yield f"{CHECKPOINT} beside it has another job"


def _anywhere(job: dict[str, Any]) -> dict[str, Any]:
    """The job as a receipt repeats it: wherever the data and the account lay."""
    return {name: value for name, value in job.items() if name not in ("data_dir", "budget")}
