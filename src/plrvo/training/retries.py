"""What was tried before is tried again at random: in one of so many passes, or in fewer where that would take long.

A try of a loss over a large vocabulary takes as long as some dozen steps, one of a small network less than a step. So
that nobody waits for what is nearly always as it was, tries of a kind take about a hundredth of a run's time at most;
but they never become more than `RAREST` times as rare. First tries look at more, and set no price: until something was
tried again it is as often as it may be. Which pass it is stays secret: chances follow from times, passes do not.
"""

from __future__ import annotations

import math
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SHARE = 0.01  # of the time
RAREST = 64
_FEW = 3  # tries, of which the shortest counts: a machine that sleeps makes one long
_LATEST = 8  # passes, of which the shortest counts: in others there were tries, or somebody looked at results


class Retries:
    """The clock of one run's passes, and of tries by their kind."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock, self._last = clock, clock()
        self._passes = deque[float](maxlen=_LATEST)
        self._seconds: dict[str, deque[float]] = {}  # of the latest tries of each kind

    def passed(self) -> None:
        """A pass with all that belongs to it is done."""
        now = self._clock()
        self._passes.append(now - self._last)
        self._last = now

    @contextmanager
    def timed(self, kind: str, *, again: bool) -> Iterator[None]:
        """A try of this kind."""
        began = self._clock()
        try:
            yield
        finally:
            if again:
                self._seconds.setdefault(kind, deque(maxlen=_FEW)).append(self._clock() - began)

    def is_due(self, kind: str, one_in: int) -> bool:
        """Whether to try once more: once in `one_in` passes on average, if tries take no time."""
        return not secrets.randbelow(self.one_in(kind, one_in))

    def one_in(self, kind: str, least: int) -> int:
        """In one of how many passes it is tried."""
        shortest = min(self._passes, default=0.0)
        wanted = min(self._seconds.get(kind, (0.0,))) / (SHARE * shortest) if shortest > 0 else 0.0
        return max(least, math.ceil(min(wanted, least * RAREST)))
