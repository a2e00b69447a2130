"""How fast a run goes: steps in a log, what is done of a step that takes long, and examples per second.

The size of a batch is secret. Of a step under way a log counts examples only as far as nearly every batch has them: a
Poisson batch of so many examples on average has fewer than `nearly_certain` once in 2^40 times at most. Up to there the
count tells nothing of the batch; beyond, a log says nothing until the step is done. Times are not hidden (docs: side
channels).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from scipy.stats import poisson

_LOG, _STEPS = logging.getLogger(__name__), "%d of %d steps taken%s"  # one form: signs of life know it for one work
LONG = 1.0  # seconds, for a step


def nearly_certain(expected: float) -> int:
    """So many examples has a Poisson batch with this mean, but for once in 2^40 times; one of fixed odds as well.

    >>> nearly_certain(8192), nearly_certain(64), nearly_certain(8)
    (7562, 17, 0)
    """
    return int(poisson.ppf(2.0**-40, expected))


@dataclass
class Pace:
    """The clock of a run whose steps have `expected` examples on average; None counts none within a step."""

    expected: float | None = None
    clock: Callable[[], float] = time.monotonic
    heard: Callable[[str], None] | None = None  # what a bar shows of a step that takes long
    timed: int = 0  # steps of which the time is known
    seconds: float = 0.0  # that they took
    _first: float | None = None  # which takes longer than others: modules and losses are tried in it

    def __post_init__(self) -> None:
        self._begun, self._step, self._steps, self._done = self.clock(), 0, 0, 0

    def begin(self, step: int, steps: int) -> None:
        """Before the first batch."""
        self._step, self._steps, self._begun = step, steps, self.clock()
        self._tell()

    def part(self, examples: int) -> None:
        """A part of a step has been computed, and others follow."""
        self._done += examples
        if self.expected is None or self._done > nearly_certain(self.expected):
            return
        told = f"step {self._step + 1}: {self._done} of about {self.expected:.0f} examples"
        self._tell(f"; {told}")
        if self.heard is not None and self.clock() - self._begun >= LONG:
            self.heard(told)

    def stepped(self, step: int) -> None:
        """A step is done; what follows, until `go_on`, is not training."""
        passed = self.clock() - self._begun
        self._step, self._done = step, 0
        if self._first is None:
            self._first = passed
        else:
            self.timed, self.seconds = self.timed + 1, self.seconds + passed
        self._tell()

    def go_on(self) -> None:
        """Tests and checkpoints are done."""
        self._begun = self.clock()

    @property
    def seconds_a_step(self) -> float | None:
        """On average, without the first step where there are others."""
        return self.seconds / self.timed if self.timed else self._first

    @property
    def examples_per_second(self) -> float | None:
        """Of steps of the expected size; None where nothing is known."""
        each = self.seconds_a_step
        return self.expected / each if self.expected is not None and each else None

    def _tell(self, more: str = "") -> None:
        each = self.seconds_a_step
        took = f", {each:.3g} s each" if each is not None and each >= LONG else ""
        _LOG.debug(_STEPS, self._step, self._steps, took + more)
