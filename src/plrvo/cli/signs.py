"""Signs of life in a log, where no bar is shown: a plain line when work has begun, and every so many seconds.

The library says what it does through `logging`, under the name `plrvo` at level DEBUG; a terminal has a bar in their
place.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from types import TracebackType
from typing import TextIO

from plrvo.validate import printable

EVERY = 20.0  # seconds between two lines about the same work
PATIENCE = 2.0  # seconds before the first: what is done or refused sooner leaves none


class Signs(logging.Handler):
    """Lines on stderr about what is under way: the latest that was logged, and for how long the command has run.

    `doing` is what is told until something is logged, of work that logs nothing.
    """

    def __init__(
        self,
        label: str,
        stream: TextIO | None = None,
        every: float = EVERY,
        after: float = PATIENCE,
        doing: str = "",
    ) -> None:
        super().__init__(logging.DEBUG)
        self._label, self._stream, self._every, self._after = label, stream or sys.stderr, every, after
        self._begun, self._now, self._kind = time.monotonic(), doing, doing
        self._since = self._begun  # when work of this kind began
        self._changed, self._ended = threading.Condition(), False
        self._log, self._before = logging.getLogger("plrvo"), (logging.NOTSET, True)
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Signs:
        if not self._stream.isatty():
            self._before = self._log.level, self._log.propagate
            self._log.setLevel(logging.DEBUG)
            self._log.propagate = False  # Opacus shows whatever comes to the root
            self._log.addHandler(self)
            self._thread = threading.Thread(target=self._tell, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is not None:
            self._log.removeHandler(self)
            self._log.setLevel(self._before[0])
            self._log.propagate = self._before[1]
            with self._changed:
                self._ended = True
                self._changed.notify()
            self._thread.join()

    def emit(self, record: logging.LogRecord) -> None:
        """What is logged by the same words, with other numbers, is the same work."""
        if record.levelno != logging.DEBUG:  # what is worse goes its own way
            return
        with self._changed:
            other = str(record.msg) != self._kind
            self._now, self._kind = record.getMessage(), str(record.msg)
            if other:
                self._since = time.monotonic()
                self._changed.notify()

    def _tell(self) -> None:
        """A kind of work is told soon after it has begun for the first time; whatever was told before, now and then."""
        with self._changed:
            told, last = set[str](), self._begun
            while not self._ended:
                now = time.monotonic()
                due = last + self._every if self._kind in told else self._since + self._after
                if not self._kind or now < due:
                    self._changed.wait(max(0.0, due - now) if self._kind else None)
                    continue
                told.add(self._kind)
                last = now
                passed = f"{now - self._begun:.0f} s"
                print(printable(f"plrvo: {self._label}: {self._now} ({passed})"), file=self._stream, flush=True)
