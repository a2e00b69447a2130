"""`plrvo verify`: recompute a receipt."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from plrvo.audit.receipt import found_by
from plrvo.cli import options, show
from plrvo.files import read_json

_UNSAFE = "the run wrote unsafe diagnostics, which tell of private examples and lie outside of this guarantee"


def verify(
    receipt: Annotated[Path, typer.Argument(help="receipt.json of a run.", show_default=False)],
    as_json: options.JsonOption = False,
) -> int:
    """Recompute every number of a receipt; exit code 1 if any differs.

    Checks the plan's certificate, the epsilons from the ledger of steps, the budget, the digest of the weights, and
    what an audit of the run says.
    """
    wrong = found_by(receipt)
    run = read_json(receipt, "receipt", "a receipt file").get("run")
    unsafe = isinstance(run, dict) and run.get("unsafe_diagnostics") is True
    verdict = "verified" if not wrong else "differs"
    if as_json:
        show.print_json({"verdict": verdict, "differences": wrong} | ({"note": _UNSAFE} if unsafe else {}))
    else:
        print(f"{receipt}: {verdict}")
        for difference in wrong:
            print(f"  - {difference}")
        if unsafe:
            print(f"note: {_UNSAFE}")
    return 1 if wrong else 0
