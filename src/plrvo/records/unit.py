"""Whose presence a guarantee hides: that of one example, what one example is, and which of them belong together.

What a preset task calls one example follows from its name: a receipt with the job of such a task says these words, and
no others. Without a job they are the word of whoever wrote the loop. Nothing can be compared with it, so it has a form
in which it cannot be taken for more, and is shown as what it is.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from plrvo.accounting.printed import rounded_up
from plrvo.validate import InvalidArgument, counted, shortened

EXAMPLE = "one training example"
_LONGEST = 120
_OF_GUARANTEES = ("epsilon", "delta", "certif", "guarant", "ε", "δ")
_FIT = f"at most {_LONGEST} printable characters on one line, which say nothing of epsilon, delta or certificates"
_AUTHOR, _RUN = "as its author says", "as the run recorded"


@dataclass(frozen=True)
class Unit:
    """What one example is, and a group of them, in the words of a task; None where it is silent: one training example.

    A task with a group also records how many examples the largest one has, `group_size`, which only data can show.
    """

    unit: str | None = None
    group: str | None = None


PAIRS = Unit("one pair of a table and a text; a table with r texts is r examples", "all texts of one table")
PRESETS = dict.fromkeys(("e2e", "dart", "webnlg"), PAIRS)  # other preset tasks are silent


def differences(task: Mapping[str, Any], job: Any) -> Iterator[str]:
    """Where a description has other words than its task, or words that no author may put there."""
    if job is None:
        yield from (f"task.{name} is {shortened(task[name])}: expected {_FIT}" for name in _unfit(task))
        if "group" in task and "group_size" not in task:
            yield f"task.group is {shortened(task['group'])}, and task.group_size is missing"
        return
    asked = job.get("task") if isinstance(job, Mapping) else None
    due = PRESETS.get(asked, Unit()) if isinstance(asked, str) else Unit()
    for name, words in (("unit", due.unit), ("group", due.group)):
        if (name in task) != (words is not None) or task.get(name) != words:
            said = shortened(task[name]) if name in task else "missing"
            yield f"task.{name} is {said}; {shortened(asked)} has {'none' if words is None else shortened(words)}"
    size, most = task.get("group_size"), job.get("references") if isinstance(job, Mapping) else None
    if ("group_size" in task) != (due.group is not None):
        yield f"task.group_size is {shortened(size)}; {shortened(asked)} has {'no' if due.group is None else 'a'} group"
    elif size is not None and most is not None and size > most:
        yield f"task.group_size is {shortened(size)}; its job asks for at most {shortened(most)} texts of a table"


def check_author(task: Mapping[str, Any]) -> None:
    """Refuse words of a caller with which no receipt would verify."""
    for name in _unfit(task):
        raise InvalidArgument(f"task[{name!r}]", task[name], f"{_FIT}, such as 'one patient with all scans'")
    if "group" in task and "group_size" not in task:
        raise InvalidArgument("task['group']", task["group"], "task['group_size'] beside it: the most examples of one")


def unit_of(task: Mapping[str, Any]) -> str:
    """What one example is."""
    return task["unit"] if _fit(task.get("unit")) else EXAMPLE


def unit_line(task: Mapping[str, Any], job: Any) -> str:
    """The same with whose word it is, for a receipt that has no differences."""
    return f"privacy unit{f', {_AUTHOR}' if is_authors(task, job) else ''}: {unit_of(task)}"


def is_authors(task: Mapping[str, Any], job: Any) -> bool:
    """Whether the unit is the word of a caller: neither a preset's nor the default."""
    return job is None and "unit" in task


def group_line(group: Mapping[str, Any], job: Any) -> str:
    """What is certified for examples that belong together, which is more than for one of them."""
    whole, size = group["of"] or "one group", counted(group["size"], "example")
    whom = f"for {whole} (at most {size}, {_AUTHOR if job is None else _RUN})"
    if group["certified"] is None:
        return f"{whom}: no epsilon is certified at this delta"
    return f"{whom}: certified epsilon {rounded_up(group['certified'])} at delta {rounded_up(group['delta'])}"


def _unfit(task: Mapping[str, Any]) -> list[str]:
    return [name for name in ("unit", "group") if name in task and not _fit(task[name])]


def _fit(words: Any) -> bool:
    if not isinstance(words, str) or not words.isprintable() or not 0 < len(words.strip()) <= len(words) <= _LONGEST:
        return False
    plain = unicodedata.normalize("NFKC", words).casefold()
    return not any(word in plain for word in _OF_GUARANTEES)
