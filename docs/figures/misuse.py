"""Writes the catalogue of misuse into docs/misuse.md, from the rows that tests run: `python -m docs.figures.misuse`."""

from __future__ import annotations

from pathlib import Path

from tests.misuse.catalogue import SECTIONS
from tests.misuse.row import ANY, MODES, Misuse

PAGE = Path(__file__).parents[1] / "misuse.md"
HEAD = """# What you do, what happens

A certificate is about a mechanism. This page lists ways to run another one by mistake, and what plrvo does about each:
most are refused with one line that names the argument and the fix, before anything is released. Every row is a test
(`tests/misuse`), in each of the modes that it applies to: `bookkeeping` (one backward pass, the default), `hooks`
(gradients of each example in full, for layers without a rule) and `exact` (integers). The same misuse against an engine
without these checks moves the clipped sum by three clips to more than a hundred (`tests/misuse/test_attacks.py`).

What nobody can check from inside: inputs that were mixed, and weights that were computed from the batch, before the
model is called (mixup), what Python decides by a look at the batch, and choices that were made by looking at the data.
These are [sharp edges](sharp-edges.md).
"""


def page() -> str:
    """The whole page."""
    lines = [HEAD]
    for section in SECTIONS:
        lines += [f"## {section.name}", "", "| you | what happens | modes |", "|---|---|---|"]
        lines += [f"| {_cell(row.does)} | {_cell(row.happens)} | {_modes(row)} |" for row in section.rows]
        lines.append("")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _modes(row: Misuse) -> str:
    return "all" if row.modes in (MODES, ANY) else ", ".join(row.modes)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
