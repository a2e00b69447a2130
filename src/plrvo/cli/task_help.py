"""The help of a command that trains, for a task that was named: its own defaults, and the options that it has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args, get_type_hints

from plrvo.cli.help import Help, Row
from plrvo.cli.options import option_name
from plrvo.tasks import catalog
from plrvo.tasks.catalog import FAMILIES, NAMES, Family, Request
from plrvo.tasks.defaults import AMPLE, Usual
from plrvo.tasks.job import MOMENTUM, Job
from plrvo.validate import InvalidArgument, counted, positive

_LABELS = {"vision": "Images", "text": "Text", "tables": "Tables"}  # of a family, in the texts of options
_LABEL = re.compile(r"(?:^|(?<=\. ))((?:Images|Text|Tables)(?:, (?:text|tables))*): ")
_BY_DEFAULT = re.compile(r"; by default .*?(?=\.( |$))")
_OF_SAMPLING = ("sample_rate", "steps")  # which correlated noise does not have
_OF_PLAN = ("delta", "clip", *_OF_SAMPLING)  # which a plan brings
# What is done where a task leaves a choice open, and a job has no value for it.
_OTHERWISE = {
    "clipping": "flat",
    "noise": "auto",
    "postprocess": "neither",
    "average": "none: the weights of the last step",
    "physical_batch": "a whole step",
    "views": "1: the example itself",
    "max_length": "what the model takes",
    "limit": "all",
    "references": "all",
    "test_limit": "all",
}
_LEARNING = ("clip", "learning_rate", "optimizer", "schedule", "average", "physical_batch")


def of_task(told: Help, given: Mapping[str, str], command: str = "train") -> Help:
    """The help for the task that is given, beside the options that are; as it is where none is."""
    name = given.get("task")
    if name not in NAMES:
        return told
    asked = _asked(given)
    family = catalog.family_of(name)
    try:
        options = {option: value for option, value in asked.items() if option in family.options}
        usual = catalog.usual(Request(name, asked.get("model"), options=options))
    except InvalidArgument:  # whatever is wrong beside it is told when it is asked for
        usual = catalog.usual(Request(name))
    others = {option_name(name, command) for other in FAMILIES for name in other.options} - {
        option_name(name, command) for name in family.options
    }
    shown = {option_name(name, command): value for name, value in _defaults(usual, asked).items()}
    groups = {
        title: tuple(_row(row, family, shown) for row in rows if _option(row) not in others)
        for title, rows in told.groups.items()
    }
    size = f"{'' if usual.known else 'about '}{counted(usual.examples, 'example', ',')}"
    own = f"{name} has {size}. In brackets is what it does by default; options of other tasks are left out."
    if "limit" in asked:
        own = own.replace(" has ", " trains on ", 1)
    example = told.example
    if example is not None and name not in example.split():
        example = re.sub(r"\bdigits\b", name, re.sub(r" --model \S+", "", example))
    return replace(
        told,
        usage=told.usage.replace("[TASK]", name),
        details=(own, *(text for part in told.details if (text := _of_family(part, family)))),
        example=example,
        groups={title: rows for title, rows in groups.items() if rows},
    )


def _asked(given: Mapping[str, str]) -> dict[str, Any]:
    """What is given, as a job has it; without what no job could have."""
    found: dict[str, Any] = {"plan": given["plan"]} if "plan" in given else {}
    for name, hint in get_type_hints(Job).items():
        kind = (get_args(hint) or (hint,))[0]
        if name in given and kind in (str, int, float, bool):
            try:
                value = True if kind is bool else kind(given[name])
                if kind in (int, float):
                    positive(**{name: value})
            except ValueError:
                continue
            found[name] = value
    return found


def _defaults(usual: Usual, asked: Mapping[str, Any]) -> dict[str, str]:
    """What is done by default beside what is asked for, by the names of fields."""
    budget = asked.get("epsilon")
    now, later = usual.defaults.at(budget), usual.defaults.at(budget or AMPLE)
    found: dict[str, Any] = {"model": usual.model, **usual.parts}
    for name in ("delta", "steps", *_LEARNING):
        value, ample = _written(getattr(now, name)), _written(getattr(later, name))
        found[name] = value if value == ample else f"{value}; {ample} from epsilon {AMPLE:g} on"
    batch = counted(round(now.sample_rate * usual.examples), "example", ",")
    found["sample_rate"] = f"{now.sample_rate:.4g}, about {batch} a step"
    if asked.get("optimizer", now.optimizer) == "sgd":
        found["momentum"] = MOMENTUM
    found |= {name: text for name, text in _OTHERWISE.items() if found.get(name) is None}
    settled = {*asked, *(_OF_PLAN if "plan" in asked else _OF_SAMPLING if "correlation" in asked else ())}
    return {name: str(value) for name, value in found.items() if value is not None and name not in settled}


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
    """Of a text with a part for each family, the one for this family; nothing of a text that is for others."""
    parts = _LABEL.split(text)
    if len(parts) == 1:
        return text
    label = _LABELS[family.name].lower()
    found = (part for labels, part in zip(parts[1::2], parts[2::2], strict=True) if label in labels.lower())
    return f"{parts[0]}{next(found, '')}".strip()
