"""`plrvo verify`: recompute a receipt."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from plrvo.cli import options, show


def verify(
    receipt: Annotated[Path, typer.Argument(help="receipt.json of a run.", show_default=False)],
    as_json: options.JsonOption = False,
) -> int:
    """Recompute every number of a receipt; exit code 1 if any differs.

    Checks the plan's certificate, the epsilons from the ledger of steps, the budget, and the digest of the weights.
    """
    from plrvo.training.receipt import verify as recompute  # torch comes with it

    differences = recompute(receipt)
    verdict = "verified" if not differences else "differs"
    if as_json:
        show.print_json({"verdict": verdict, "differences": differences})
    else:
        print(f"{receipt}: {verdict}")
        for difference in differences:
            print(f"  - {difference}")
    return 1 if differences else 0
