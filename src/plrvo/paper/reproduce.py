"""Run an entry: row by row, each kept as it finishes, so that work which was stopped goes on where it was.

`reproduction.json` is rewritten whole after each row; beside it are the same rows as CSV and the figure. A folder holds
one entry at one scale with one seed: to go on in it is the default, to put something else into it is refused.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import plrvo
from plrvo.files import json_digest, locked, read_json, write_bytes, write_json
from plrvo.paper.drawing import draw
from plrvo.paper.entry import Context, Entry, Measured, Result, Row, Scale
from plrvo.validate import InvalidArgument

FILE, LOCK, RUNS = "reproduction.json", ".reproduce.lock", "runs"
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
            done = self._done([row.key for row in rows])
            for i, row in enumerate(rows):
                if watch is not None:
                    watch(i, len(rows), row.label)
                if row.key not in done:
                    done[row.key] = self._measured(row, i, len(rows), watch)
                    self._write([done[key.key] for key in rows if key.key in done], "unfinished")
            if watch is not None:
                watch(len(rows), len(rows), "")
            return self._finish([done[row.key] for row in rows])

    def _measured(self, row: Row, done: int, count: int, watch: Watch | None) -> Result:
        def say(text: str) -> None:
            if watch is not None:
                watch(done, count, f"{row.label}: {text}")

        measured = row.measure(replace(self.context, folder=self.out / RUNS / row.key, say=say))
        return as_result(row, measured)

    def _done(self, keys: list[str]) -> dict[str, Result]:
        path = self.out / FILE
        if not path.exists():
            return {}
        found = read_reproduction(self.out)
        for name, value in self.heading.items():
            if found.get(name) != value:
                raise InvalidArgument("out", str(self.out), f"a new folder: in this one {name} is {found.get(name)}")
        rows = {row["key"]: row for row in found["rows"]}
        return {key: rows[key] for key in keys if key in rows}

    def _write(self, rows: list[Result], status: str) -> dict[str, Any]:
        telling = status == "finished" and self.context.scale is not Scale.smoke
        found = {**self.heading, "version": plrvo.__version__, "status": status, "columns": columns(rows), "rows": rows}
        found |= {"findings": self.entry.findings(rows) if telling else []}
        found["digest"] = json_digest(found)
        write_json(self.out / FILE, found)
        return found

    def _finish(self, rows: list[Result]) -> dict[str, Any]:
        table, picture = self.out / f"{self.entry.name}.csv", self.out / f"{self.entry.name}.png"
        write_bytes(table, as_csv(rows).encode())
        draw(self.entry.panels, rows, picture, self.entry.title)
        found = self._write(rows, "finished")
        return {**found, "files": {"json": str(self.out / FILE), "csv": str(table), "plot": str(picture)}}


def read_reproduction(folder: Path) -> dict[str, Any]:
    """What `reproduction.json` of a folder holds; refused if it is not what was written."""
    found = read_json(folder / FILE, "out", "a folder of `plrvo reproduce`")
    if not isinstance(found, dict) or found.get("digest") != json_digest(_without_digest(found)):
        raise InvalidArgument(
            "out",
            str(folder),
            f"a {FILE} as it was written: this one is damaged; remove it, and rows are measured again",
        )
    return found


def _without_digest(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if name != "digest"}


def as_result(row: Row, measured: Measured) -> Result:
    """A finished row as plain data: what a file gives back when it is read."""
    found = {
        "key": row.key,
        "label": row.label,
        "parameters": dict(row.parameters),
        "printed": dict(row.printed),
        "measured": dict(measured.values),
        "epsilon": {name: measured.epsilon.get(name) for name in EPSILONS},
        "flag": measured.flag,
        "details": dict(measured.details),
    }
    plain: Result = json.loads(json.dumps(found, allow_nan=False))
    return plain


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
    writer.writerow(["row", *parameters, *(f"epsilon ({name})" for name in EPSILONS), *pairs, "flag"])
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
    yield row["flag"]
