"""One table or figure of the paper: what it needs, its rows, and how each row is measured.

A row has what the paper prints and a function that measures the same thing here. The framework (`reproduce`) runs the
rows one after another and keeps each as it finishes; it knows nothing of noise or models. A new table is one `Entry`.
"""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from plrvo.accounting import Epsilon
from plrvo.paper.flags import Flags

Numbers = Mapping[str, float | None]
Result = dict[str, Any]  # a finished row, as plain data


class Scale(StrEnum):
    """How much of the paper's work is done; smoke only shows that it runs, its numbers mean nothing."""

    smoke = "smoke"
    quick = "quick"
    full = "full"


class Group(StrEnum):
    """Where an entry belongs: the paper's own tables and figures, or what it has not."""

    paper = "paper"
    fair = "fair"  # its comparisons, made at the same certified epsilon
    study = "study"  # other training, at a certified epsilon


@dataclass(frozen=True)
class Context:
    """What a row may use: the data folder, a folder of its own for training runs, a seed, a place for progress.

    `kept` holds data that was loaded for earlier rows.
    """

    scale: Scale
    folder: Path
    data_dir: Path | None = None
    seed: int = 0
    say: Callable[[str], None] = lambda text: None
    kept: dict[tuple[Any, ...], Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Measured:
    """What came out: values named as in `Row.printed`, the bracket, remarks, and whatever else is worth keeping.

    `epsilon` has the names printed, published, certified and lower; `flags` say where the paper's numbers do not fit
    together. `details` are plain data: single runs, curves, receipts' digests.
    """

    values: Numbers
    epsilon: Numbers = field(default_factory=dict)
    flags: Flags = field(default_factory=dict)
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """One line of a table, or one point of a figure."""

    key: str  # unique in the entry, and fit for a file name
    label: str
    parameters: Mapping[str, Any]
    printed: Numbers
    measure: Callable[[Context], Measured]


@dataclass(frozen=True)
class Panel:
    """One system of axes: which values are drawn against what.

    `x` and `ys` name parameters, measured values or epsilons of the rows; `lines` names the parameter whose values are
    lines of their own. Printed values of the same name are drawn beside the measured ones. `levels` names values that
    do not depend on x, drawn as horizontal lines. A panel that no row belongs to is left out. `paint` draws what is not
    a line, on the axes and from the rows that it is given.
    """

    x: str
    ys: tuple[str, ...]
    xlabel: str
    ylabel: str
    title: str = ""
    lines: str | None = None
    xlog: bool = False
    ylog: bool = False
    only: Callable[[Result], bool] = lambda row: True
    curve: str | None = None  # rows whose details hold a whole curve of (x, y) under this name
    levels: tuple[str, ...] = ()
    diagonal: bool = False  # with the line y = x
    spread: str | None = None  # the measured value that is the spread of the others, drawn as bars
    paint: Callable[[Any, Sequence[Result]], None] | None = None
    legend_below: bool = False  # the axes, where it would cover what is in them


def having(name: str, value: object) -> Callable[[Result], bool]:
    """Whether a parameter of a row has this value: for panels that show some of the rows."""
    return lambda row: bool(row["parameters"].get(name) == value)


@dataclass(frozen=True)
class Needs:
    """What a scale needs: data sets (folders of the data folder), importable packages, minutes on a machine.

    `elsewhere` says what no option of ours brings: a graphics card, weights from a hub.
    """

    minutes: float
    data: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    elsewhere: str | None = None
    machine: str = "two cores"  # whose minutes these are

    @staticmethod
    def at_scales(
        smoke: float, quick: float, full: float, data: tuple[str, ...] = (), packages: tuple[str, ...] = ()
    ) -> dict[Scale, Needs]:
        """Minutes by scale, where all of them need the same."""
        minutes = {Scale.smoke: smoke, Scale.quick: quick, Scale.full: full}
        return {scale: Needs(value, data, packages) for scale, value in minutes.items()}

    def missing(self, data_dir: Path | None) -> list[str]:
        """What is not there: packages to install, data sets that would have to be downloaded."""
        absent = [f"package {name}" for name in self.packages if importlib.util.find_spec(name) is None]
        folder = data_dir or (Path(os.environ["PLRVO_DATA"]) if "PLRVO_DATA" in os.environ else None)
        absent += [f"data {name}" for name in self.data if folder is None or not (folder / name).exists()]
        return absent


@dataclass(frozen=True)
class Entry:
    """A table, a figure or a study. `stand_in` says, by scale, what replaces what the paper used.

    One that `grows` has the rows of its quick scale in its full one, measured in the same way, and others beside them.
    """

    name: str
    title: str
    where: str  # in the paper, or what it is beside it
    rows: Callable[[Scale], Sequence[Row]]
    needs: Mapping[Scale, Needs]
    panels: tuple[Panel, ...]
    findings: Callable[[Sequence[Result]], list[str]] = lambda rows: []
    stand_in: Mapping[Scale, str] = field(default_factory=dict)
    group: Group = Group.paper
    grows: bool = False


def place_of(group: str, where: str) -> str:
    """Where an entry of this group is in the paper, or that it is not there, as a sentence."""
    return f"In the paper: {where}." if group == Group.paper else f"Not in the paper: {where}."


def finite(value: float | None) -> float | None:
    """The value, or None for an infinity, which is not a number for a file."""
    return None if value is None or math.isinf(value) else value


def four_epsilons(printed: float | None, bracket: Epsilon) -> dict[str, float | None]:
    """What the paper prints beside our bracket."""
    return {
        "printed": printed,
        "published": finite(bracket.published),
        "certified": finite(bracket.certified),
        "lower": finite(bracket.lower),
    }
