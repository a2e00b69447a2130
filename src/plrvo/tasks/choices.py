"""Choices of a run by name, and the folder that takes it: what needs neither data nor torch to be refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from plrvo.files import check_writable
from plrvo.records.folder import CHECKPOINT, JOURNAL, RECEIPT, WEIGHTS
from plrvo.validate import InvalidArgument, one_of

OPTIMIZERS = ("sgd", "adam", "adamw")
# The share of the learning rate, by the steps taken and all steps. No step has none of it: each costs privacy.
SCHEDULES: dict[str, Callable[[int, int], float]] = {
    "constant": lambda step, steps: 1.0,
    "linear": lambda step, steps: 1 - step / steps,
    "cosine": lambda step, steps: (1 + math.cos(math.pi * step / steps)) / 2,
    "warmup": lambda step, steps: min(1.0, 10 * (step + 1) / steps),
}


def check_choices(optimizer: str | None, schedule: str | None) -> None:
    """Refuse names that there are not; None is a choice yet to be made."""
    if optimizer is not None:
        one_of(OPTIMIZERS, optimizer=optimizer)
    if schedule is not None:
        one_of(SCHEDULES, schedule=schedule)


def check_delta(delta: float, examples: int) -> None:
    """Refuse a delta at which releasing an example whole would be private."""
    if delta >= 1 / examples:
        smallest = f"less than 1/N = {1 / examples:.3g}; larger deltas allow leaking an example"
        raise InvalidArgument("delta", delta, smallest)


def check_folder(out: Path, resume: bool) -> None:
    """Refuse a folder that cannot take a run, or holds another one."""
    if out.exists() and not out.is_dir():
        raise InvalidArgument("out", str(out), "a folder, not a file")
    if resume and not (out / CHECKPOINT).exists():
        raise InvalidArgument("resume", str(out), f"a folder that holds {CHECKPOINT}")
    if not resume and any((out / name).exists() for name in (CHECKPOINT, WEIGHTS, RECEIPT, JOURNAL)):
        raise InvalidArgument("out", str(out), "a new folder, or `resume`: this one holds a run")
    check_writable(out, "out", folder=True)
