"""A small entry with rows that cost nothing, and one that stops where it is told to."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from plrvo.paper.entry import Context, Entry, Measured, Needs, Panel, Row, Scale
from plrvo.paper.flags import Flag
from plrvo.paper.reproduce import Reproduction

FILES = ("reproduction.json", "{}.csv", "{}.png")


class Stopped(Exception):
    """What a person's Ctrl-C is to a row."""


def toy_row(i: int) -> Row:
    def measure(context: Context) -> Measured:
        # Text that a careless CSV would break, and a number with all of its digits.
        values = {"root": math.sqrt(i), "nothing": None}
        return Measured(
            values, {"certified": i / 3}, {Flag.differs: f'odd, "{i}"\nand more'} if i % 2 else {}, {"square": i * i}
        )

    return Row(f"row-{i}", f"row {i}, the {i}th", {"i": i}, {"root": float(i), "nothing": None}, measure)


TOY = Entry(
    name="toy",
    title="Roots",
    where="nowhere",
    rows=lambda scale: [toy_row(i) for i in range(2 if scale is Scale.smoke else 4)],
    needs={scale: Needs(0.01) for scale in Scale},
    panels=(Panel("i", ("root",), "i", "root"),),
    findings=lambda rows: [f"{len(rows)} rows"],
)


def stopping(entry: Entry, after: int) -> Entry:
    """The entry, whose row number `after` raises `Stopped` instead of measuring."""

    def stop(context: Context) -> Measured:
        raise Stopped

    def rows(scale: Scale) -> list[Row]:
        found = list(entry.rows(scale))
        return [*found[:after], replace(found[after], measure=stop), *found[after + 1 :]]

    return replace(entry, rows=rows)


def run(entry: Entry, out: Path, scale: Scale = Scale.quick, seed: int = 0) -> dict:
    return Reproduction(entry, out, Context(scale, out, seed=seed)).run()


def contents(entry: Entry, out: Path) -> list[bytes]:
    return [(out / name.format(entry.name)).read_bytes() for name in FILES]
