"""One table, figure or study as a section of a page, from the file that `plrvo reproduce` wrote."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docs.figures.both import shown

from plrvo.paper.document import FILE, read_reproduction
from plrvo.paper.drawing import tells, values
from plrvo.paper.entry import Entry, Group, Needs, Scale, place_of
from plrvo.paper.flags import remark_of
from plrvo.paper.wording import share, told
from plrvo.validate import counted

LONGEST_TABLE = 24  # rows; of longer ones the picture is shown
# Which extra brings what an entry needs: the first that one of its packages or data sets asks for.
EXTRAS = {"cifar-10": "vision", "transformers": "text", "torch": "train", "matplotlib": "report"}
EPSILONS = ("printed", "published", "certified", "lower")


@dataclass(frozen=True)
class Reproduced:
    """An entry and what is known of it: the content of its reproduction.json, or None."""

    entry: Entry
    found: Mapping[str, Any] | None

    @staticmethod
    def read(entry: Entry, results: Path) -> Reproduced:
        path = results / entry.name / FILE
        if not path.exists():
            return Reproduced(entry, None)
        found = read_reproduction(path, "results")
        if found["scale"] == Scale.smoke or found["name"] != entry.name:
            raise ValueError(f"{path}: a result of {entry.name} at scale quick or full was expected")
        return Reproduced(entry, found)

    @property
    def finished(self) -> bool:
        return self.found is not None and self.found["status"] == "finished"

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [] if self.found is None else self.found["rows"]

    @property
    def findings(self) -> list[str]:
        return [] if self.found is None else self.found["findings"]

    @property
    def state(self) -> str:
        if self.found is None:
            return "not run"
        count = counted(len(self.rows), "row")
        return f"{self.found['scale']}, {count}" + ("" if self.finished else ", unfinished")

    @property
    def stand_in(self) -> str | None:
        """What was run in place of what the paper ran."""
        return self.found["stand_in"] if self.found is not None and self.entry.group is Group.paper else None

    @property
    def drawn(self) -> bool:
        """Whether it is finished, and a picture of it shows anything."""
        return self.finished and any(tells(panel, self.rows) for panel in self.entry.panels)

    def _in_words(self) -> str:
        """What a picture would show that has one value everywhere."""
        found: dict[str, set[float]] = {}
        for panel in self.entry.panels:
            found.setdefault(panel.ylabel, set()).update(values(panel, self.rows))
        ends = {label: (min(shown), max(shown)) for label, shown in found.items() if shown}
        said = [
            f"{label}: between {low:.3g} and {high:.3g}" if high > low else f"{label}: {low:.3g}"
            for label, (low, high) in ends.items()
        ]
        return f"No picture: it would say no more than this ({'; '.join(said)})." if said else ""

    def section(self, image: str, note: str = "") -> str:
        """Findings first, then the picture, the values, and how to run it; `note` is what else to know of the rows."""
        parts = [f"## {self.entry.title} {{ #{self.entry.name} }}", _where(self.entry)]
        if self.found is None:
            parts.append(f"**Not here.** {_why_not(self.entry)}")
        else:
            if self.found["stand_in"]:
                word = "Stand-in" if self.entry.group is Group.paper else "Setting"
                parts.append(f"**{word}** (scale {self.found['scale']}): {self.found['stand_in']}.{self._origin()}")
            if not self.finished:
                parts.append(f"**Unfinished.** Rows so far: {len(self.rows)}.")
            parts += [note, "\n".join(f"- {text}" for text in self.findings)]
            if self.finished:
                parts.append(shown(self.entry.title, image) if self.drawn else self._in_words())
            parts += [self._table(), self._samples()]
        parts.append(how_to_run(self.entry))
        return "\n\n".join(part for part in parts if part)

    def _table(self) -> str:
        if len(self.rows) > LONGEST_TABLE:
            return f"All {len(self.rows)} rows are in `results/paper/{self.entry.name}/reproduction.json`."
        names = self.found["columns"] if self.found else []
        epsilons = [name for name in EPSILONS if any(row["epsilon"].get(name) is not None for row in self.rows)]
        names = [name for name in names if any(_pair(row, name) != "-" for row in self.rows)]
        if not self.rows or not (names or epsilons):
            return ""
        head = ["row", *(f"{name} ε" for name in epsilons), *(name.replace("_", " ") for name in names)]
        lines = [line(head), "|---" + "|--:" * (len(head) - 1) + "|"]
        for row in self.rows:
            cells = [row["label"] + (" ⚑" if row["flags"] else "")]
            cells += [_epsilon(name, row["epsilon"].get(name)) for name in epsilons]
            lines.append(line([*cells, *(_pair(row, name) for name in names)]))
        if any(row["printed"].get(name) is not None for row in self.rows for name in names):
            lines += ["", "Measured here; in parentheses what the paper prints."]
        flags = [f"- ⚑ {row['label']}: {remark_of(row)}." for row in self.rows if row["flags"]]
        return "\n".join([*lines, *([""] if flags else []), *flags])

    def _origin(self) -> str:
        """Rows that were measured before the entry was one say so."""
        before = [row["details"]["provenance"] for row in self.rows if "provenance" in row["details"]]
        if not before:
            return ""
        scripts = ", ".join(sorted({f"`{one['script']}` of version {one['version']}" for one in before}))
        return f" In {share(len(before), len(self.rows))} numbers are those of {scripts}, which this entry replaces."

    def _samples(self) -> str:
        """What the models of the rows write, where they write."""
        writing = [row for row in self.rows if "samples" in row["details"]]
        if not writing:
            return ""
        lines = ["Some of the texts, for the same tables in every row:", ""]
        for i, sample in enumerate(writing[0]["details"]["samples"]):
            lines += [f"{i + 1}. `{sample['table']}`", ""]
            texts = {row["label"]: row["details"]["samples"][i]["text"] for row in writing}
            lines += [*(f"    - {label}: {text or '(nothing)'}" for label, text in texts.items()), ""]
        return "\n".join(lines[:-1])


def how_to_run(entry: Entry) -> str:
    """The command, and what it takes."""
    data = " --data-dir FOLDER" if entry.needs[Scale.quick].data else ""
    lines = ["```sh", f"plrvo reproduce {entry.name}{data}", "```", ""]
    quick, full = (_needs(entry.needs[scale]) for scale in (Scale.quick, Scale.full))
    if quick == full:
        return "\n".join([*lines, f"At either scale: {quick}."])
    return "\n".join([*lines, f"- `--scale quick`: {quick}.", f"- `--scale full`: {full}."])


def _needs(needs: Needs) -> str:
    minutes = needs.minutes
    time = f"{60 * minutes:.0f} seconds" if minutes < 1 else f"{minutes:.0f} minutes"
    time = "1 minute" if time == "1 minutes" else time
    words = [f"about {time if minutes < 120 else f'{minutes / 60:.0f} hours'} on {needs.machine}"]
    extra = next((extra for what, extra in EXTRAS.items() if what in (*needs.packages, *needs.data)), None)
    words += [f"the extra `{extra}`"] * (extra is not None)
    words += [f"the data {', '.join(f'`{name}`' for name in needs.data)}"] * bool(needs.data)
    return "; ".join([*words, *([needs.elsewhere] if needs.elsewhere else [])])


def _why_not(entry: Entry) -> str:
    needs = entry.needs[Scale.quick]
    if needs.elsewhere:
        return f"It needs {needs.elsewhere}."
    return "Its rows have not been measured for this page yet; the command below measures them."


def _where(entry: Entry) -> str:
    """Where it is in the paper, with the paper's own label as code."""
    return re.sub(r"\((\w+[:_][^) ]*)\)", r"(`\1`)", place_of(entry.group, entry.where))


def line(cells: list[str]) -> str:
    """One line of a table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _pair(row: Mapping[str, Any], name: str) -> str:
    measured, printed = (row[part].get(name) for part in ("measured", "printed"))
    here = "-" if measured is None else told(name, measured)
    return here if printed is None else f"{here} ({printed:.4g})"


def _epsilon(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:g}" if name == "printed" else told(name, value)
