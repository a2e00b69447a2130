"""`plrvo report`: one page about runs, which opens anywhere."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from plrvo.budget import Account
from plrvo.cli import options, show
from plrvo.files import check_writable, write_bytes
from plrvo.validate import InvalidArgument, installing, printable


def report(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Folders of `plrvo train` or `plrvo reproduce`, or files with the output of `plrvo audit --json`; not "
            "needed with --budget.",
            show_default=False,
            metavar="RUN",
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option("--budget", help="Account of the data, a file or a URL: what is spent of it, by which runs."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="The page.")] = Path("report.html"),
    as_json: options.JsonOption = False,
) -> int:
    """Make one HTML page about runs, which needs no network: what is certified, what is refuted, and how to check it.

    Every receipt and audit is recomputed on the way, a receipt compared with the account if it names it. The page says
    where one does not verify, and the exit code is 1.

    Example: plrvo report runs/digits --out digits.html
    """
    if out.suffix.lower() not in (".html", ".htm"):
        raise InvalidArgument("out", str(out), "a file name that ends in .html")
    check_writable(out, "out")
    if importlib.util.find_spec("jinja2") is None:
        raise InvalidArgument("out", str(out), f"jinja2: {installing('report')}")
    if not runs and budget is None:
        raise InvalidArgument("runs", None, "a run, or --budget")
    from plrvo.report.accounts import read_account
    from plrvo.report.loading import read_run
    from plrvo.report.page import make_page
    from plrvo.report.runs import Audits

    with Console(stderr=True).status("recomputing what the page will show"):
        read = [read_run(path) for path in runs or ()]
        if budget is not None:
            read = [read_account(Account(budget), read), *read]
        page = make_page(read)
    write_bytes(out, page)
    wrong = [f"{run.name}: {difference}" for run in read for difference in run.differences]
    unknown = [f"{run.name}: {reason}" for run in read if isinstance(run, Audits) for reason in run.unknown]
    if as_json:
        shown: list[dict[str, Any]] = [{"kind": run.kind, "name": run.name, "verified": run.verified} for run in read]
        verified = False if wrong else None if unknown else True
        told = {"path": str(out), "verified": verified, "differences": wrong, "unknown": unknown, "runs": shown}
        show.print_json(told)
    else:
        print(printable(f"page: {out}"))
        for difference in wrong:
            print(printable(f"does not verify: {difference}"))
        for reason in unknown:
            print(printable(f"not verified: {reason}"))
    return int(bool(wrong))
