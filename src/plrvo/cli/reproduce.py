"""`plrvo reproduce`: the paper's tables and figures, printed values beside measured ones, and studies beside it."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from plrvo.cli import options, show
from plrvo.cli import train_options as given
from plrvo.cli.progress import StepProgress
from plrvo.cli.signs import Signs
from plrvo.files import check_writable
from plrvo.paper.catalog import ENTRIES, find
from plrvo.paper.entry import Context, Entry, Group, Scale
from plrvo.paper.flags import remark_of
from plrvo.paper.reproduce import EPSILONS, Reproduction, columns
from plrvo.paper.wording import told
from plrvo.validate import InvalidArgument, installing, printable

_GROUPS = {
    Group.paper: "Tables and figures of the paper",
    Group.fair: "Comparisons that the paper does not make: every noise at the same certified epsilon",
    Group.study: "Studies beside the paper, at certified epsilons",
}


def reproduce(
    name: Annotated[str | None, typer.Argument(help="A table, a figure or a study, as --list names it.")] = None,
    listing: Annotated[
        bool,
        typer.Option(
            "--list", help="Name every entry, how long it takes and whether its data is here; -v, or a NAME, says more."
        ),
    ] = (False),
    scale: Annotated[
        Scale,
        typer.Option(
            help="quick: what two cores do, stand-ins named. full: as in the paper. smoke: only that it runs."
        ),
    ] = Scale.quick,
    seed: Annotated[int, typer.Option(help="The first of the seeds.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder of the results; runs/NAME-SCALE if not given.")] = None,
    data_dir: given.DataDirOption = None,
    verbose: options.VerboseOption = False,
    as_json: options.JsonOption = False,
) -> int:
    """Regenerate a table or figure of the paper, with what is printed beside what comes out.

    Writes reproduction.json, a CSV file, a plot, and the folders of all training runs with their receipts. Rows are
    kept as they finish: the same command goes on where it was stopped. `plrvo report` makes a page of the folder.

    Example: plrvo reproduce table-cnn-mnist --scale quick --out runs/mnist
    """
    if listing:
        rows = [_listed(entry, data_dir) for entry in (ENTRIES if name is None else (find(name),))]
        if as_json:
            show.print_json({"entries": rows})
        else:
            _print_list(rows, verbose or name is not None)
        return 0
    if name is None:
        raise InvalidArgument("entry", None, "one of those that `plrvo reproduce --list` shows")
    if seed < 0:
        raise InvalidArgument("seed", seed, "a whole number that is not negative")
    entry = find(name)
    _require(entry, scale)
    folder = out or Path("runs") / f"{name}-{scale.value}"
    check_writable(folder, "out", folder=True)
    context = Context(scale, folder, data_dir, seed)
    try:
        with Signs(name), StepProgress(name) as bar:
            found = Reproduction(entry, folder, context).run(bar.rows)
    except KeyboardInterrupt:
        print(f"plrvo: stopped; the same command goes on from {printable(str(folder))}", file=sys.stderr)
        raise typer.Exit(130) from None
    if as_json:
        show.print_json(found)
    else:
        _print_rows(found)
    return 0


def _require(entry: Entry, scale: Scale) -> None:
    """Refuse before work is done; data may still be downloaded, packages are the user's to install."""
    if scale not in entry.needs:
        raise InvalidArgument("scale", scale.value, "one of " + ", ".join(entry.needs))
    missing = [item.removeprefix("package ") for item in entry.needs[scale].missing(None) if item.startswith("package")]
    if missing:
        raise InvalidArgument("entry", entry.name, f"the packages {', '.join(missing)}: {installing('dev')}")


def _listed(entry: Entry, data_dir: Path | None) -> dict[str, Any]:
    scales = {}
    for scale in (Scale.quick, Scale.full):
        needs, missing = entry.needs[scale], entry.needs[scale].missing(data_dir)
        if needs.elsewhere:
            missing.append(needs.elsewhere)
        scales[scale.value] = {
            "minutes": needs.minutes,
            "machine": needs.machine,
            "needs": [*needs.data, *([needs.elsewhere] if needs.elsewhere else [])],
            "missing": missing,
            "runs_here": not missing,
            "stand_in": entry.stand_in.get(scale),
        }
    return {"name": entry.name, "group": entry.group.value, "title": entry.title, "paper": entry.where, **scales}


def _print_list(rows: list[dict[str, Any]], verbose: bool) -> None:
    """A line for each entry, or all that there is to say of it."""
    console = Console(highlight=False)
    width = max(len(row["name"]) for row in rows)
    for group, title in _GROUPS.items():
        of_group = [row for row in rows if row["group"] == group]
        if not of_group:
            continue
        console.print(title, style="bold")
        for row in of_group:
            if verbose:
                _print_entry(console, row, width)
            else:
                line = f"  {row['name']:<{width}}  {_time(row['quick']):>6}  "
                whole = textwrap.fill(
                    line + _here(row["quick"]),
                    console.width,
                    subsequent_indent=" " * len(line),
                    break_on_hyphens=False,
                    break_long_words=False,
                )
                console.print(whole, soft_wrap=True)
        console.print()
    missing = [item for row in rows for scale in ("quick", "full") for item in row[scale]["missing"]]
    if any(item.startswith("data ") for item in missing):
        console.print(
            "Data sets that are not here are looked for in --data-dir, and downloaded where that is possible."
        )
    if any(item.startswith("package ") for item in missing):
        console.print(f"Packages that are not installed: {installing('dev')}.", markup=False, soft_wrap=True)
    if verbose:
        console.print("Times are for two cores unless --list --json names another machine.")
    else:
        console.print("Times: --scale quick on two cores. More about one: --list NAME; about all: -v.")


def _here(scale: dict[str, Any]) -> str:
    missing = ", ".join(item.removeprefix("data ") for item in scale["missing"])
    return "ready" if scale["runs_here"] else f"not here: {missing}"


def _print_entry(console: Console, row: dict[str, Any], width: int) -> None:
    """What it is called and how long it takes; below, for there is no room beside, what it is and what is missing."""
    console.print(f"{row['name']:<{width}}  quick {_time(row['quick']):>6}  full {_time(row['full']):>6}")
    console.print(Padding(f"{row['title']}.", (0, 0, 0, 4)))
    for scale in ("quick", "full"):
        if row[scale]["missing"]:
            console.print(Padding(f"{scale}, not here: {', '.join(row[scale]['missing'])}.", (0, 0, 0, 4), style="dim"))


def _time(scale: dict[str, Any]) -> str:
    minutes = scale["minutes"]
    if minutes >= 120:
        return f"{minutes / 60:.0f} h"
    return f"{minutes:.0f} min" if minutes >= 1 else f"{60 * minutes:.0f} s"


def _print_rows(found: dict[str, Any]) -> None:
    console, found = Console(), show.harmless(found)  # rows of an earlier attempt come from files
    console.print(f"{found['title']} ({found['paper']}), scale {found['scale']}", highlight=False)
    for rows in _alike(found["rows"]):
        console.print(_table(rows))
    console.print("Printed, published, certified and lower are epsilons; the paper's values are in parentheses.")
    for row in found["rows"]:
        if row["flags"]:
            console.print(f"{row['label']}: {remark_of(row)}", style="bold red", highlight=False)
    if found["stand_in"]:
        console.print(f"Stand-in: {found['stand_in']}.", highlight=False)
    for text in found["findings"]:
        console.print(f"- {text}", highlight=False)
    console.print(f"files: {', '.join(found['files'].values())}", highlight=False)


def _alike(rows: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The rows that measure the same things, together: a figure may have parts."""
    parts: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for row in rows:
        parts.setdefault(tuple(columns([row])), []).append(row)
    return list(parts.values())


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("row")
    epsilons = [name for name in EPSILONS if any(row["epsilon"][name] is not None for row in rows)]
    for name in epsilons:
        table.add_column(name, justify="right", min_width=len(name))
    names = columns(rows)
    for name in names:
        table.add_column(name.replace("_", " "), justify="right", overflow="fold")
    for row in rows:
        cells = [row["label"], *(_number(name, row["epsilon"][name]) for name in epsilons)]
        table.add_row(*cells, *(_pair(row, name) for name in names))
    return table


def _number(name: str, value: float | None) -> str:
    return "-" if value is None else told(name, value)


def _pair(row: dict[str, Any], name: str) -> str:
    measured, printed = row["measured"].get(name), row["printed"].get(name)
    return _number(name, measured) + ("" if printed is None else f"\n({printed:g})")
