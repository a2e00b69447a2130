"""The page of the command line, made from the commands themselves: `python -m docs.figures.cli` writes it."""

from __future__ import annotations

from pathlib import Path

import typer

from plrvo.cli.help import Help, commands, continued, describe
from plrvo.cli.main import app

PAGE = Path(__file__).parents[1] / "cli.md"
BEGINNING = """# The command line

What every command says with `--help`; this page is made from the commands. Each takes `--json`, which prints one JSON
object and nothing else. The exit code is 0 for done, 1 for "the answer is no" (a claim is refuted, a receipt differs, a
constraint fails), 2 for bad input, in one line that names the option, its value and what would be right, 130 after
Ctrl-C, and 141 (128 + SIGPIPE) where nobody read the answer to its end, as in `plrvo verify RUN | head -1`, which says
nothing of the answer.
"""


# How the example of a command is walked through by a test of the pages (tests/docs/pages.py).
_WALKED = {
    "plrvo explore": "parsed: runs until Ctrl-C",
    "plrvo audit clipbkd": "parsed: takes hours",
    "plrvo audit mechanism": "exits: 1",
    "plrvo budget settle": "exits: 2",  # the account of the example has no second entry
    "plrvo reproduce": "parsed: takes an hour",
}


def page() -> str:
    """The page."""
    found = list(commands(typer.main.get_command(app), "plrvo"))
    return BEGINNING + "".join(_section(path, describe(command, path)) for path, command in found[1:])


def _section(path: str, told: Help) -> str:
    lines = ["", f"## {path}", "", told.summary]
    if told.example is not None:
        example = "\n".join(line[2:] for line in continued(told.example, 100).splitlines())
        lines += ["", *([f"<!-- {_WALKED[path]} -->"] if path in _WALKED else []), "```sh", example, "```"]
    lines += [line for paragraph in told.details for line in ("", _plain(paragraph))]
    for title, rows in told.groups.items():
        lines += ["", f"**{title}**", "", "| typed | what it does |", "|---|---|"]
        lines += [f"| `{row.typed}` | {_plain(row.text)} |" for row in rows if row.typed != "--help"]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """Text with nothing in it that Markdown takes for something else."""
    return text.replace("|", "\\|").replace("[", "\\[").replace("*", "\\*").replace("_", "\\_")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
