"""Progress on stderr, so that stdout stays clean for results."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class StepProgress:
    """A bar over steps with the latest metrics beside it."""

    def __init__(self, label: str) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[shown]}"),
            TimeRemainingColumn(compact=True),
            console=Console(stderr=True),
        )
        self._task = self._bar.add_task(label, total=None, shown="")

    def __enter__(self) -> StepProgress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def __call__(self, step: int, steps: int, metrics: dict[str, Any]) -> None:
        parts = []
        if "loss" in metrics:
            parts.append(f"test loss {metrics['loss']:.3f}")
        if "accuracy" in metrics:
            parts.append(f"accuracy {100 * metrics['accuracy']:.1f} %")
        if "epsilon_certified" in metrics:
            parts.append(f"epsilon {metrics['epsilon_certified']:.3f}")
        self._bar.update(self._task, completed=step, total=steps, shown=", ".join(parts))

    def rows(self, done: int, count: int, shown: str) -> None:
        """Progress over the rows of a table, and what is being done for the one at hand."""
        self._bar.update(self._task, completed=done, total=count, shown=shown)
