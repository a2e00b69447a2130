"""How times are taken: the contenders take turns, and the median of the turns counts."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """Median seconds of one contender, and the spread of its turns (interquartile range)."""

    median: float
    spread: float


def interleaved(
    contenders: dict[str, Callable[[], object]], turns: int = 7, clock: Callable[[], float] = time.perf_counter
) -> dict[str, Timing]:
    """Time each contender `turns` times, taking turns so that a busy moment hits all of them alike.

    With `time.process_time` as the clock only what this process computes counts, on however busy a machine.
    """

    def seconds_of(run: Callable[[], object]) -> Callable[[], float]:
        def timed_run() -> float:
            start = clock()
            run()
            return clock() - start

        return timed_run

    for run in contenders.values():
        run()
    return timed({name: seconds_of(run) for name, run in contenders.items()}, turns)


def timed(contenders: dict[str, Callable[[], float]], turns: int) -> dict[str, Timing]:
    """The same for contenders that say themselves how many seconds they took."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(turns):
        for name, run in contenders.items():
            seconds[name].append(run())
    timings = {}
    for name, values in seconds.items():
        quartiles = statistics.quantiles(values, n=4)
        timings[name] = Timing(statistics.median(values), quartiles[2] - quartiles[0])
    return timings


def shown(seconds: float) -> str:
    """Seconds in the unit that reads best."""
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "us")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
