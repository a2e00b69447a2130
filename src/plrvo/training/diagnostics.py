"""What a run knows of private examples before the noise: for debugging on data that may be seen, never by default.

The size of a batch and the loss on its examples are functions of the private data that no noise covers. `Diagnostics`
writes them down step by step, once the user has asked for it by a name that cannot be misread; the receipt of such a
run says so, and the file lies outside its guarantee.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plrvo.records.folder import DIAGNOSTICS
from plrvo.records.history import read_history, write_history

WARNING = f"`unsafe_diagnostics`: {DIAGNOSTICS} tells of private examples without noise; no guarantee covers it"


@dataclass
class Diagnostics:
    """One row for what is known before the first step, and one for each step, of earlier processes too.

    The loop reports every part of a batch, then the end of the step.
    """

    path: Path
    rows: list[dict[str, Any]] = field(default_factory=list)
    _examples: int = 0
    _loss: float = 0.0

    def part(self, examples: int, loss: float) -> None:
        """So many examples went through the model with this mean loss."""
        if examples:  # the mean over none is not a number
            self._loss += examples * loss
            self._examples += examples

    def step(self, step: int) -> None:
        """The batch is complete."""
        mean = self._loss / self._examples if self._examples else None
        self.rows.append({"step": step, "batch_size": self._examples, "training_loss": mean})
        self._examples, self._loss = 0, 0.0

    def take_up(self, steps: int) -> None:
        """Go on after so many steps of a process before this one."""
        if self.path.exists():
            self.rows = [row for row in read_history(self.path) if row.get("step", 0) <= steps]

    def write(self) -> None:
        write_history(self.path, self.rows)
