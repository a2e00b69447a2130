"""Metrics of a loop of your own, in the form in which a receipt covers them and `plrvo report` draws them.

A number that is measured while training goes on shows something of the weights then. So its step is written into the
journal, with a digest of the weights, before the number is kept: `plrvo verify` asks for both.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from plrvo.records.folder import JOURNAL, METRICS
from plrvo.records.journal import Journal
from plrvo.records.metrics import check_rows, write_metrics
from plrvo.training.receipts import weights_digest
from plrvo.training.unwrap import unwrapped
from plrvo.validate import InvalidArgument


class Recorded:
    """The curves of one run, in the folder of its receipt.

        recorded = Recorded(folder, model, optimizer)
        ...
            optimizer.step()
            recorded.log(accuracy=...)  # from public test data, whenever it is tested
        receipt = make_receipt(engine, optimizer, weights, task, **recorded.parts())

    Args:
        folder: a folder without a run; it is made where there is none.
        module: what `make_private` gave.
        optimizer: likewise.
    """

    def __init__(self, folder: str | Path, module: nn.Module, optimizer: Any) -> None:
        self.folder = Path(folder)
        for name in (JOURNAL, METRICS):
            if (self.folder / name).exists():
                raise InvalidArgument("folder", str(folder), f"a new one: this one holds {name} of another run")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.rows: list[dict[str, Any]] = []
        self._optimizer = optimizer
        self._trained = {name: p for name, p in unwrapped(module).named_parameters() if p.requires_grad}
        self._journal = Journal.open(self.folder / JOURNAL)

    def log(self, **values: float) -> None:
        """Keep numbers that were measured after the last step; an `accuracy` is from 0 to 1.

        Raises:
            InvalidArgument: before the first step, twice after one step, and for what is no number.
        """
        row = {"step": self._optimizer.steps_taken, **values}
        check_rows([*self.rows, row])
        self._release()
        self.rows.append(row)

    def parts(self) -> dict[str, Any]:
        """Write what was kept; what `make_receipt` takes of it, by name. The weights are those of now."""
        self._release()
        known = write_metrics(self.folder, self.rows)
        run = {"metrics": self.rows[-1]} if self.rows else {}
        return {"run": run, "journal": self._journal, "trained": list(self._trained), "metrics": known}

    def _release(self) -> None:
        self._journal.permits(self._optimizer.steps_taken, True, lambda: weights_digest(self._trained.values()))
