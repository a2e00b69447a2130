"""Progress on stderr, so that stdout stays clean for results."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column

from plrvo.accounting.printed import rounded_up

_REST = 67  # columns of bar, counter, numbers and time


class StepProgress:
    """A bar over steps with the latest metrics beside it; the counter is whole at 80 columns."""

    def __init__(self, label: str, steps: int | None = None, console: Console | None = None) -> None:
        def whole() -> Column:
            return Column(no_wrap=True)

        console = console or Console(stderr=True)
        self._bar = Progress(
            # What names the run gives way to the numbers.
            TextColumn(
                "{task.description}", table_column=Column(no_wrap=True, max_width=max(8, console.width - _REST))
            ),
            BarColumn(bar_width=8),
            MofNCompleteColumn(table_column=whole()),
            TextColumn("{task.fields[shown]}", table_column=Column(no_wrap=True, ratio=1)),
            TimeRemainingColumn(compact=True, table_column=whole()),
            console=console,
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
            parts.append(f"epsilon {rounded_up(metrics['epsilon_certified'])}")
        # Both are of the last test, which was some steps ago.
        when = f" at {metrics['step']}" if metrics.get("step", step) != step else ""
        self._shown(completed=step, total=steps, shown=", ".join(parts) + when)

    def during(self, told: str) -> None:
        """What is done of a step that takes long."""
        self._shown(shown=told)

    def rows(self, done: int, count: int, shown: str) -> None:
        """Progress over the rows of a table, and what is being done for the one at hand."""
        self._shown(completed=done, total=count, shown=shown)


class Waiting:
    """A sign of life and a clock, and no count of what is done: for work whose size is secret."""

    def __init__(self, label: str, console: Console | None = None) -> None:
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=console or Console(stderr=True),
            transient=True,
        )
        self._bar.add_task(label, total=None)

    def __enter__(self) -> Waiting:
        if self._bar.console.is_terminal:  # a file has no use for it
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar.console.is_terminal:
            self._bar.stop()
