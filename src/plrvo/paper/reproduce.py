"""Run an entry: row by row, each kept as it finishes, so that work which was stopped goes on where it was.

`reproduction.json` is rewritten whole after each row; beside it are the same rows as CSV and the figure. A folder holds
one entry at one scale with one seed: to go on in it is the default, to put something else into it is refused. What an
entry that grows has done at quick scale counts at full scale.
"""

from __future__ import annotations

import csv
import io
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import plrvo
from plrvo.files import locked, write_bytes, write_json
from plrvo.paper.document import FILE, read_reproduction, sealed
from plrvo.paper.drawing import draw
from plrvo.paper.entry import Context, Entry, Measured, Result, Row, Scale
from plrvo.paper.flags import remark_of
from plrvo.validate import InvalidArgument

_LOG = logging.getLogger(__name__)
LOCK, RUNS = ".reproduce.lock", "runs"
EPSILONS = ("printed", "published", "certified", "lower")
Watch = Callable[[int, int, str], None]  # rows done, rows in all, the row at hand


@dataclass(frozen=True)
class Reproduction:
    """An entry at a scale, in a folder."""

    entry: Entry
    out: Path
    context: Context

    @property
    def heading(self) -> dict[str, Any]:
        scale = self.context.scale
        return {
            "name": self.entry.name,
            "group": self.entry.group.value,
            "title": self.entry.title,
            "paper": self.entry.where,
            "scale": scale.value,
            "seed": self.context.seed,
            "stand_in": self.entry.stand_in.get(scale),
        }

    def run(self, watch: Watch | None = None) -> dict[str, Any]:
        """Measure what is missing, write everything, and return what `reproduction.json` holds."""
        rows = list(self.entry.rows(self.context.scale))
        if self.out.exists() and not self.out.is_dir():
            raise InvalidArgument("out", str(self.out), "a folder, not a file")
        with locked(self.out / LOCK, "out"):
            done = self._done(rows)
            for i, row in enumerate(rows):
                if watch is not None:
                    watch(i, len(rows), row.label)
                if row.key not in done:
                    _LOG.debug("row %d of %d, %s", i + 1, len(rows), row.label)
                    done[row.key] = self._measured(row, i, len(rows), watch)
                    self._write([done[key.key] for key in rows if key.key in done], "unfinished")
            if watch is not None:
                watch(len(rows), len(rows), "")
            return self._finish([done[row.key] for row in rows])

    def _measured(self, row: Row, done: int, count: int, watch: Watch | None) -> Result:
        def say(text: str) -> None:
            _LOG.debug("row %d of %d, %s: %s", done + 1, count, row.label, text)
            if watch is not None:
                watch(done, count, f"{row.label}: {text}")

        measured = row.measure(replace(self.context, folder=self.out / RUNS / row.key, say=say))
        return as_result(row, measured)

    def _done(self, rows: list[Row]) -> dict[str, Result]:
        """The rows that are there, of this entry, scale and seed, and with the parameters that they have today."""
        if not (self.out / FILE).exists():
            return {}
        found = read_reproduction(self.out, "out")
        grown = self.entry.grows and (found.get("scale"), self.context.scale) == (Scale.quick, Scale.full)
        for name in ("name", "scale", "seed"):
            if found.get(name) != self.heading[name] and not (name == "scale" and grown):
                raise InvalidArgument("out", str(self.out), f"a new folder: in this one {name} is {found.get(name)}")
        stored = {row["key"]: row for row in found["rows"]}
        done = {row.key: stored[row.key] for row in rows if row.key in stored}
        for row in rows:
            if row.key in done and done[row.key]["parameters"] != plain(row.parameters):
                other = f"a new folder: in this one {row.label} has other parameters"
                raise InvalidArgument("out", str(self.out), other)
        return done

    def _write(self, rows: list[Result], status: str) -> dict[str, Any]:
        telling = status == "finished" and self.context.scale is not Scale.smoke
        found = {**self.heading, "version": plrvo.__version__, "status": status, "columns": columns(rows), "rows": rows}
        found = sealed({**found, "findings": self.entry.findings(rows) if telling else []})
        write_json(self.out / FILE, found)
        return found

    def _finish(self, rows: list[Result]) -> dict[str, Any]:
        table, picture = self.out / f"{self.entry.name}.csv", self.out / f"{self.entry.name}.png"
        write_bytes(table, as_csv(rows).encode())
        draw(self.entry.panels, rows, picture, self.entry.title, self.entry.stand_in.get(self.context.scale))
        found = self._write(rows, "finished")
        return {**found, "files": {"json": str(self.out / FILE), "csv": str(table), "plot": str(picture)}}


def as_result(row: Row, measured: Measured) -> Result:
    """A finished row as plain data."""
    found = {
        "key": row.key,
        "label": row.label,
        "parameters": dict(row.parameters),
        "printed": dict(row.printed),
        "measured": dict(measured.values),
        "epsilon": {name: measured.epsilon.get(name) for name in EPSILONS},
        "flags": dict(measured.flags),
        "details": dict(measured.details),
    }
    return plain(found)


def plain(found: Mapping[str, Any]) -> Result:
    """What a file gives back when it is read."""
    given: Result = json.loads(json.dumps(dict(found), allow_nan=False))
    return given


def columns(rows: list[Result]) -> list[str]:
    """The names of what is measured or printed, in order of appearance."""
    return list(dict.fromkeys(name for row in rows for part in ("measured", "printed") for name in row[part]))


def as_csv(rows: list[Result]) -> str:
    """One line a row: parameters, the four epsilons, then printed and measured values side by side."""
    parameters = list(dict.fromkeys(name for row in rows for name in row["parameters"]))
    names = columns(rows)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    pairs = [f"{name} ({kind})" for name in names for kind in ("printed", "measured")]
    writer.writerow(["row", *parameters, *(f"epsilon ({name})" for name in EPSILONS), *pairs, "flags", "remark"])
    for row in rows:
        writer.writerow(["" if cell is None else cell for cell in _cells(row, parameters, names)])
    return text.getvalue()


def _cells(row: Result, parameters: list[str], names: list[str]) -> Iterator[Any]:
    yield row["label"]
    yield from (row["parameters"].get(name) for name in parameters)
    yield from (row["epsilon"].get(name) for name in EPSILONS)
    for name in names:
        yield row["printed"].get(name)
        yield row["measured"].get(name)
    yield ", ".join(row["flags"])
    yield remark_of(row)
