"""What can be refused of a search by its words alone, before torch is imported and anything is charged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from plrvo.accounting import Clipping
from plrvo.records.choices import check_clip
from plrvo.tasks.beforehand import check_beforehand
from plrvo.tasks.choices import check_choices
from plrvo.tasks.tuning.space import Listed
from plrvo.tasks.tuning.state import has_begun
from plrvo.tasks.tuning.tuning import Tuning
from plrvo.validate import InvalidArgument


def check_search(tuning: Tuning, out: Path) -> None:
    """Refuse a search of which no trial, or not every trial, could be begun in the new folder `out`."""
    if has_begun(out):
        raise InvalidArgument("out", str(out), "a new folder, or `resume`: this one holds a search")
    for optimizer in listed(tuning, "optimizer"):
        check_choices(optimizer, None)
    for schedule in listed(tuning, "schedule"):
        check_choices(None, schedule)
    for clip in listed(tuning, "clip"):
        check_clip(clip, tuning.job.clipping or Clipping.flat)
    check_beforehand(tuning.job, out)


def listed(tuning: Tuning, name: str) -> tuple[Any, ...]:
    """The values that a setting may take, if it varies over a list."""
    varied = tuning.vary.get(name)
    return varied.values if isinstance(varied, Listed) else ()
