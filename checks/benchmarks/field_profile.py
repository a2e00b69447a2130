"""Where the milliseconds of a private step go; `python -m checks.benchmarks.field_profile NAME` for single models.

The functions of each part are timed from within (time that passes, one thread), each without what it calls of another
part. What is left over is the pass forward and the way back to the inputs, which a step without privacy has too: there
it stands beside the weights' gradients, which are its own part here ("sums"). Noise is what is left of it when the sums
are there: its first numbers are drawn on another core before.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from checks.benchmarks.field import FIRST, _stepper
from checks.benchmarks.field_models import MODELS
from checks.benchmarks.processes import Contender
from checks.benchmarks.steps import OURS, PLAIN
from plrvo.training.clipping.module import BookkeepingModule
from plrvo.training.clipping.optimizer import BookkeepingMixin, SamplesMixin
from plrvo.training.optimizer import NoiseMixin
from plrvo.training.watch import Watch

PARTS: dict[str, list[tuple[Any, str]]] = {
    "records": [(BookkeepingModule, "_note"), (BookkeepingModule, "_record")],
    "norms": [(BookkeepingMixin, "_norms"), (SamplesMixin, "_norms_of")],
    "sums": [(BookkeepingMixin, "_total"), (SamplesMixin, "clip_and_accumulate")],
    "noise": [(NoiseMixin, "add_noise")],
    "checks": [
        *((Watch, name) for name in ("_before", "_after", "_leave", "_check_loss", "_leave_backward", "new_step")),
        *((BookkeepingModule, name) for name in ("_detach_parameters", "_tap")),
    ],
    "update": [(torch.optim.SGD, "step")],
}
REST = "forward and back"


class Clock:
    """Adds up the time of parts, each without the parts within it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._under_way = [REST]
        self._since = time.perf_counter()

    def switch(self) -> None:
        now = time.perf_counter()
        self.seconds[self._under_way[-1]] += now - self._since
        self._since = now

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            self.switch()
            self._under_way.append(part)
            try:
                return function(*args, **kwargs)
            finally:
                self.switch()
                self._under_way.pop()

        return called


def _time_parts(clock: Clock) -> None:
    """From now on, in this process: hooks hold what they call."""
    for part, functions in PARTS.items():
        for owner, name in functions:
            setattr(owner, name, clock.timed(part, getattr(owner, name)))


def _profiled(name: str, contender: str) -> Callable[[], dict[str, float]]:
    """A step that says how many milliseconds its parts took."""
    clock = Clock()
    _time_parts(clock)
    step = _stepper(name, contender)

    def taken() -> dict[str, float]:
        clock.switch()
        clock.seconds.clear()
        step()
        clock.switch()
        return {part: 1e3 * clock.seconds.get(part, 0.0) for part in (REST, *PARTS)}

    return taken


def profile(name: str, turns: int = 7) -> dict[str, dict[str, float]]:
    """Median milliseconds of each part of ours, and of a step without privacy, which takes turns with it."""
    processes = {c: Contender(partial(_profiled, name, c), FIRST.get(c, 1)) for c in (OURS, PLAIN)}
    taken: dict[str, list[dict[str, float]]] = {contender: [] for contender in processes}
    for _ in range(turns):
        for contender, process in processes.items():
            taken[contender].append(process.step()[1])
    for process in processes.values():
        process.end()
    return {c: {part: statistics.median(one[part] for one in of) for part in of[0]} for c, of in taken.items()}


def run() -> list[dict[str, Any]]:
    rows = []
    for name in MODELS:
        rows.append(_row(name, profile(name)))
        print(f"  {rows[-1]['what']}: {rows[-1]['ratio']}", flush=True)
    return rows


def _row(name: str, found: dict[str, dict[str, float]]) -> dict[str, Any]:
    ours, plain = (sum(found[contender].values()) for contender in (OURS, PLAIN))
    return {
        "what": f"parts of a step, {MODELS[name].title}",
        "ours": "; ".join(f"{part} {ms:.1f} ms" for part, ms in found[OURS].items() if ms >= 0.05),
        "theirs": "; ".join(f"{part} {ms:.1f} ms" for part, ms in found[PLAIN].items() if ms >= 0.05),
        "ratio": f"{ours / plain:.2f}x no privacy",
        "model": name,
        "title": MODELS[name].title,
        "milliseconds": found,
    }


if __name__ == "__main__":
    for each in sys.argv[1:] or MODELS:
        row = _row(each, profile(each))
        print(f"{row['what']}: {row['ours']} | {row['theirs']} | {row['ratio']}", flush=True)
