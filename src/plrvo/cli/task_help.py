"""The help of a command that trains, for a task that was named: its own defaults, and the options that it has."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from plrvo.cli.help import Help, Row
from plrvo.cli.options import option_name
from plrvo.tasks import catalog
from plrvo.tasks.catalog import FAMILIES, NAMES, Family, Request
from plrvo.tasks.defaults import AMPLE, Usual
from plrvo.validate import InvalidArgument, counted

_LABELS = {"vision": "Images", "text": "Text", "tables": "Tables"}  # of a family, in the texts of options
_LABEL = re.compile(r"(?:^|(?<=\. ))((?:Images|Text|Tables)(?:, (?:text|tables))*): ")
_BY_DEFAULT = re.compile(r"; by default .*?(?=\.( |$))")
_FLAGS = ("--json", "--resume", "--verbose", "-v", "--help")
_LEARNING = ("clip", "learning_rate", "optimizer", "schedule", "average", "physical_batch")


def of_task(told: Help, words: Sequence[str], command: str = "train") -> Help:
    """The help for the task among the words that were typed; as it is where none was."""
    request = _asked(words)
    if request is None:
        return told
    try:
        usual = catalog.usual(request)
    except InvalidArgument:  # whatever else is wrong is told when it is asked for
        usual = catalog.usual(Request(request.name))
    family = catalog.family_of(request.name)
    others = {option_name(name, command) for other in FAMILIES for name in other.options} - {
        option_name(name, command) for name in family.options
    }
    shown = {option_name(name, command): value for name, value in _defaults(usual).items()}
    groups = {
        title: tuple(_row(row, family, shown) for row in rows if _option(row) not in others)
        for title, rows in told.groups.items()
    }
    size = f"{'' if usual.known else 'about '}{counted(usual.examples, 'example', ',')}"
    own = f"{request.name} has {size}. In brackets is what it does by default; options of other tasks are left out."
    example = told.example
    if example is not None and "--model" not in example:
        example = re.sub(r"\bdigits\b", request.name, example)
    return replace(
        told,
        usage=told.usage.replace("[TASK]", request.name),
        details=(own, *told.details),
        example=example,
        groups={title: rows for title, rows in groups.items() if rows},
    )


def _asked(words: Sequence[str]) -> Request | None:
    """The task among the words, with its model; a word behind an option is the option's."""
    before = ("", *words)
    name = next((w for b, w in zip(before, words, strict=False) if w in NAMES and (b[:1] != "-" or b in _FLAGS)), None)
    model = next((w for b, w in zip(before, words, strict=False) if b == "--model"), None)
    return None if name is None else Request(name, model)


def _defaults(usual: Usual) -> dict[str, str]:
    """What is done by default, by the names of fields."""
    now, later = usual.defaults, usual.defaults.at(AMPLE)
    found: dict[str, Any] = {"model": usual.model, **usual.parts}
    for name in ("delta", "steps", *_LEARNING):
        value, ample = _written(getattr(now, name)), _written(getattr(later, name))
        found[name] = value if value == ample else f"{value}; {ample} from epsilon {AMPLE:g} on"
    batch = counted(round(now.sample_rate * usual.examples), "example", ",")
    found["sample_rate"] = f"{now.sample_rate:.4g}, about {batch} a step"
    return {name: str(value) for name, value in found.items() if value is not None}


def _written(value: Any) -> Any:
    return f"{value:.4g}" if isinstance(value, float) else value


def _option(row: Row) -> str:
    """The option of a row by its long name."""
    return next((word for word in re.split(r"[ ,/]+", row.typed) if word.startswith("--")), row.typed)


def _row(row: Row, family: Family, shown: Mapping[str, str]) -> Row:
    text, default = _of_family(row.text, family), shown.get(_option(row))
    if _option(row) == "--epsilon":
        return Row(row.typed, f"{text} It has no default: 3, for example.")
    if default is None:
        return Row(row.typed, text)
    text = re.sub(r" \[[^]]*\]$", "", _BY_DEFAULT.sub("", text))
    return Row(row.typed, f"{text} [{default}]")


def _of_family(text: str, family: Family) -> str:
    """Of a text with a part for each family, the one for this family."""
    parts = _LABEL.split(text)
    if len(parts) == 1:
        return text
    label = _LABELS[family.name].lower()
    found = (part for labels, part in zip(parts[1::2], parts[2::2], strict=True) if label in labels.lower())
    return parts[0] + next(found, text).strip()
