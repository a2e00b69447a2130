"""What a private trainer says of itself in its receipt: what it trained, how, and what its last test measured."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from plrvo.records.seeding import CALLERS_GENERATORS, UNSEEDED
from plrvo.training.unwrap import trained_parameters

_PREFIX = "eval_"
_OURS = ("step", "epsilon_certified")  # what the names of a row mean in every receipt, whatever a user measures
_TIMES = ("eval_runtime", "eval_samples_per_second", "eval_steps_per_second", "eval_model_preparation_time")


def task_of(model: nn.Module, examples: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Data and model; what is given comes first."""
    name = name_of(examples)
    return {
        **({} if name is None else {"name": name}),
        "model": type(model).__name__,
        "trainable_parameters": trained_parameters(model),
        "examples": len(examples),
        **given,
    }


def name_of(examples: Any) -> str | None:
    """What a data set of the package `datasets` is called, if it is called anything but the form of its files."""
    info = getattr(examples, "info", None)
    name, kind = (getattr(info, part, None) for part in ("dataset_name", "builder_name"))
    if not isinstance(name, str) or not name or name == kind:
        return None
    part = getattr(info, "config_name", None)
    return name if part in (None, "", "default") else f"{name} {part}"


def run_of(
    optimizer: Any, args: Any, seeded: bool, log: Sequence[Mapping[str, Any]], weights_of: int | None
) -> dict[str, Any]:
    """How the steps were taken, what was measured on the way, and last of the weights.

    These are those after the step `weights_of`, or after the last one.
    """
    rows = measured(log)
    own = [row for row in rows if weights_of in (None, row["step"])]
    return {
        "optimizer": type(optimizer).__name__,
        "learning_rate": args.learning_rate,
        "schedule": str(getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type)),
        "seeded": seeded,
        "randomness": CALLERS_GENERATORS if seeded else UNSEEDED,
        "metrics": own[-1] if own else None,
        "history": rows,
        **({} if weights_of is None else {"weights_of_step": weights_of}),
    }


def measured(log: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The evaluations in a Trainer's log, one row for each step, without the prefix of their names.

    A loss that is no number is left out: a receipt could not be written with it. A measure that has the name of
    something else in the row keeps its prefix.

    >>> measured([{"step": 2, "eval_loss": 0.5, "eval_runtime": 1.0}, {"step": 2, "eval_accuracy": 0.75, "epoch": 1.0}])
    [{'step': 2, 'loss': 0.5, 'accuracy': 0.75}]
    """
    rows: dict[int, dict[str, Any]] = {}
    for entry in log:
        found = {
            (own if (own := name.removeprefix(_PREFIX)) not in _OURS else name): float(value)
            for name, value in entry.items()
            if name.startswith(_PREFIX)
            and name not in _TIMES
            and isinstance(value, int | float)
            and math.isfinite(value)
        }
        if found and entry["step"] > 0:
            rows.setdefault(entry["step"], {"step": entry["step"]}).update(found)
    return [rows[step] for step in sorted(rows)]
