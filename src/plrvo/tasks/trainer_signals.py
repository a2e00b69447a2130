"""Signals in a run: none of them is answered within a step, nor before the journal knows what the answer may look at.

Python answers a signal between any two of its instructions: Ctrl-C raises KeyboardInterrupt there. Within a step it
would leave weights of which a part has moved, which no repetition comes to; a second one, while the first is under way
out of the run, would leave weights that nobody has written down. So handlers that are written in Python are called

- after a step, and after a line of the journal, for signals that came within;
- after `before`, which writes the step down that they (or whoever catches what they raise) may look at;
- not at all once one of them has raised, until the run is left, or goes on with another step.

So are those that somebody registers while the run is under way, from the next step on (`take_over`).

Signals without a handler in Python end the process, which shows nothing.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Self


class Signals:
    """Stands before the handlers of the main thread, which alone is interrupted."""

    def __init__(self, before: Callable[[], None]) -> None:
        self._before = before
        self._ours: dict[int, Any] = {}
        self._waiting: list[tuple[Any, int, Any]] = []
        self._holds = 0
        self._has_raised = self._is_over = False

    def __enter__(self) -> Self:
        self._ours, self._waiting, self._has_raised, self._is_over = {}, [], False, False
        self.take_over()
        return self

    def take_over(self) -> None:
        """Stand before handlers that were put there since, each by itself: one may call that of before."""
        if self._is_over or threading.current_thread() is not threading.main_thread():
            return
        for number in signal.valid_signals():
            handler = signal.getsignal(number)
            if callable(handler) and handler is not self._ours.get(number):
                ours: Any = partial(self._heard, handler)
                self._ours[number] = ours
                signal.signal(number, ours)

    def __exit__(self, kind: Any, *_: object) -> None:
        self._is_over = True
        for number, ours in self._ours.items():
            theirs = ours.args[0]
            if signal.getsignal(number) is ours:  # not another one that was put there since
                signal.signal(number, theirs)
        self._has_raised = False
        if kind is not None:  # whoever called is interrupted already
            self._waiting = [each for each in self._waiting if each[1] != signal.SIGINT]
        self._answer()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Within, signals wait."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1
            self._answer()

    def go_on(self) -> None:
        """Whoever was interrupted has caught what was raised, and goes on."""
        self._has_raised = False

    def _answer(self) -> None:
        while self._waiting and not self._holds and not self._has_raised:
            self._heard(*self._waiting.pop(0))

    def _heard(self, handler: Any, number: int, frame: Any) -> None:
        if self._holds or self._has_raised:
            self._waiting.append((handler, number, frame))
            return
        if not self._is_over:
            self._holds += 1
            try:
                self._before()
            finally:
                self._holds -= 1
        try:
            handler(number, frame)
        except BaseException:
            self._has_raised = not self._is_over
            raise
        self._answer()
