"""Writes what `make torture` and `make fuzz` reached into docs/side-channels.md: `python -m docs.figures.torture`."""

from __future__ import annotations

import json
from pathlib import Path

from docs.figures.renewed import renewed

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "side-channels.md"
START = "<!-- torture: written by docs.figures.torture -->"
ROWS = {
    "SIGKILL": "processes killed (SIGKILL), at a random time or at a random call that touches a file",
    "SIGKILL of audits": "of these, audits",
    "SIGTERM": "processes asked to stop (SIGTERM)",
    "disks full": "disks full in the middle of a file",
    "read-only folders refused": "read-only folders",
    "second processes refused": "second processes on the same folder",
    "clocks turned back": "runs with a clock that went backwards, or files from the future",
    "corruptions": "files cut, flipped, zeroed, emptied, overwritten, removed",
    "corruptions refused": "of these, refused in one line",
    "corruptions without effect": "of these, without effect on the result",
    "runs resumed to their end": "training runs resumed to their end, with the same weights, metrics and receipt",
    "audits resumed to their end": "audits resumed to their end, with the same answer",
}


def section() -> str:
    """Two tables."""
    torture = json.loads((ROOT / "results" / "torture.json").read_text())
    counts, lost = torture["counts"], len(torture["lost"])
    lines = [
        "`make torture` starts training runs and audits as processes, and lets something happen to them, again and",
        "again, before they are resumed. Afterwards the result must be, bit by bit, that of a run that nothing",
        "happened to, or a refusal in one line; everything that was ever shown must be in the journal.",
        "",
        "| what happened | times |",
        "|---|---|",
        *(f"| {text} | {counts.get(name, 0)} |" for name, text in ROWS.items()),
        f"| **results lost, or steps seen and not counted** | **{lost}** |",
    ]
    fuzz = ROOT / "results" / "fuzz.json"
    if fuzz.exists():
        found = json.loads(fuzz.read_text())
        lines += [
            "",
            "`make fuzz` gives every reader of files inputs that a coverage-guided fuzzer makes, here for",
            f"{found['seconds']} seconds each. A reader takes a file or refuses it in one line: never another error,",
            "ten seconds, or two gigabytes.",
            "",
            "| reader | inputs | branches at first | branches in the end | failures |",
            "|---|---|---|---|---|",
        ]
        for name, row in found["readers"].items():
            cells = [name, f"{row['runs']:,}", str(row["edges_at_first"]), str(row["edges"]), str(int(row["failed"]))]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def page() -> str:
    """The page with the section renewed."""
    return renewed(PAGE, START, section())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
