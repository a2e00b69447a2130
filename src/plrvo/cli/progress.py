"""Progress on stderr, so that stdout stays clean for results."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column


class StepProgress:
    """A bar over steps with the latest metrics beside it; the counter is whole at 80 columns."""

    def __init__(self, label: str, steps: int | None = None, console: Console | None = None) -> None:
        def whole() -> Column:
            return Column(no_wrap=True)

        self._bar = Progress(
            TextColumn("{task.description}", table_column=Column(no_wrap=True, max_width=30)),
            BarColumn(bar_width=8),
            MofNCompleteColumn(table_column=whole()),
            TextColumn("{task.fields[shown]}", table_column=Column(no_wrap=True, ratio=1)),
            TimeRemainingColumn(compact=True, table_column=whole()),
            console=console or Console(stderr=True),
            expand=True,
        )
        self._steps = steps
        self._task = self._bar.add_task(label, total=steps, shown="")

    def __enter__(self) -> StepProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self._steps is not None:  # a run that was finished before has no step to report
            self._shown(completed=self._steps)
        self._bar.stop()

    def _shown(self, **values: Any) -> None:
        """Begin with the first news: what is refused before it leaves no bar behind."""
        self._bar.start()
        self._bar.update(self._task, **values)

    def __call__(self, step: int, steps: int, metrics: dict[str, Any]) -> None:
        parts = []
        if "accuracy" in metrics:
            parts.append(f"accuracy {100 * metrics['accuracy']:.1f} %")
        elif "loss" in metrics:
            parts.append(f"test loss {metrics['loss']:.3f}")
        if "epsilon_certified" in metrics:
            parts.append(f"epsilon {metrics['epsilon_certified']:.3f}")
        self._shown(completed=step, total=steps, shown=", ".join(parts))

    def rows(self, done: int, count: int, shown: str) -> None:
        """Progress over the rows of a table, and what is being done for the one at hand."""
        self._shown(completed=done, total=count, shown=shown)
