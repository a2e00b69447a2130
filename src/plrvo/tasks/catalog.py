"""The preset tasks by name. Each belongs to a family, whose code is loaded when one of its tasks is asked for.

A family is a module with a function `prepare(request, generator)` that returns a `plrvo.tasks.preset.Preset`, and two
that need no torch: one with a function `check(request)` that refuses what can be refused by its words, one with
`usual(request)`, which says what is done by default. A new family is one entry here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from plrvo.validate import InvalidArgument, one_of

if TYPE_CHECKING:
    import torch

    from plrvo.tasks.defaults import Usual
    from plrvo.tasks.job import Job
    from plrvo.tasks.preset import Preset

Loaded = TypeVar("Loaded")


@dataclass(frozen=True)
class Request:
    """What the user asks for; a model of None is the family's own choice, `options` are those that were given.

    `kept`, if given, holds what was loaded for earlier requests: who trains on the same data many times passes the
    same dictionary each time.
    """

    name: str
    model: str | None = None
    data_dir: Path | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    kept: dict[tuple[Any, ...], Any] | None = None

    def loaded(self, what: str, load: Callable[[], Loaded]) -> Loaded:
        """What `load` gives for this data set; kept under the name of `what` where the request keeps things."""
        if self.kept is None:
            return load()
        key = (what, self.name, self.data_dir)
        if key not in self.kept:
            self.kept[key] = load()
        found: Loaded = self.kept[key]
        return found


@dataclass(frozen=True)
class Family:
    """Tasks that share their models and options."""

    name: str
    tasks: tuple[str, ...]
    module: str
    words: str
    recipes: str
    options: tuple[str, ...] = ()


FAMILIES = (
    Family(
        "vision",
        ("digits", "mnist", "fashion-mnist", "cifar-10", "cifar-100"),
        "plrvo.tasks.vision.task",
        "plrvo.tasks.vision.words",
        "plrvo.tasks.vision.recipes",
        ("views",),
    ),
    Family(
        "text",
        ("sst2", "qnli", "snli", "sick"),
        "plrvo.tasks.text.task",
        "plrvo.tasks.text.words",
        "plrvo.tasks.text.recipes",
        ("trainable", "layers", "bf16", "max_length", "limit", "data"),
    ),
    Family(
        "tables",
        ("e2e", "dart", "webnlg"),
        "plrvo.tasks.tables.task",
        "plrvo.tasks.tables.words",
        "plrvo.tasks.tables.recipes",
        ("trainable", "layers", "bf16", "max_length", "limit", "references", "test_limit", "beams", "top_p"),
    ),
)
NAMES = tuple(name for family in FAMILIES for name in family.tasks)


def request_of(job: Job, kept: dict[tuple[Any, ...], Any] | None = None) -> Request:
    """What the job asks of the catalog of tasks."""
    names = {name for family in FAMILIES for name in family.options}
    options = {name: value for name, value in job.asked.items() if name in names}
    return Request(job.task, job.model, job.data_dir, options, kept)


def check(request: Request) -> Family:
    """The family of the task. Options of another family are refused, not ignored, and so are words that it lacks."""
    one_of(NAMES, name=request.name)
    family = family_of(request.name)
    _check_options(request, family)
    importlib.import_module(family.words).check(request)
    return family


def usual(request: Request) -> Usual:
    """What the task does by default; it loads nothing."""
    one_of(NAMES, name=request.name)
    found: Usual = importlib.import_module(family_of(request.name).recipes).usual(request)
    return found


def family_of(name: str) -> Family:
    """The family of a task that there is."""
    return next(family for family in FAMILIES if name in family.tasks)


def prepare(request: Request, generator: torch.Generator) -> Preset:
    """The preset that is asked for."""
    family = check(request)
    preset: Preset = importlib.import_module(family.module).prepare(request, generator)
    return preset


def _check_options(request: Request, family: Family) -> None:
    for option, value in request.options.items():
        if option not in family.options:
            owners = [other for other in FAMILIES if option in other.options]
            raise InvalidArgument(
                option,
                value,
                f"no value for {request.name}: it is for {', '.join(name for other in owners for name in other.tasks)}",
            )
