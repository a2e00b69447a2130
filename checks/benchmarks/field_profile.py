"""Where the milliseconds of a private step go; `python -m checks.benchmarks.field_profile NAME` for single models.

The functions of each part are timed from within (CPU, one thread), each without what it calls of another part. What is
left over is the pass forward and the way back to the inputs, which a step without privacy has too: there it stands
beside the weights' gradients, which are its own part here ("sums").
"""

from __future__ import annotations

import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch

from checks.benchmarks.field import FIRST, _stepper
from checks.benchmarks.field_models import MODELS
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
        self._since = time.process_time()

    def switch(self) -> None:
        now = time.process_time()
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


@contextmanager
def _timing(clock: Clock) -> Iterator[None]:
    """While hooks are made: they hold what they call."""
    patches = [
        mock.patch.object(owner, name, clock.timed(part, getattr(owner, name)))
        for part, functions in PARTS.items()
        for owner, name in functions
    ]
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in patches:
            patch.stop()


def profile(name: str, turns: int = 5) -> dict[str, dict[str, float]]:
    """Median milliseconds of each part of ours, and of a step without privacy, which takes turns with it."""
    clock = Clock()
    taken = {contender: defaultdict[str, list[float]](list) for contender in (OURS, PLAIN)}
    with _timing(clock):
        steps = {contender: _stepper(name, contender) for contender in taken}
        for contender, step in steps.items():
            for _ in range(FIRST.get(contender, 1)):
                step()
        for _ in range(turns):
            for contender, step in steps.items():
                clock.switch()
                clock.seconds.clear()
                step()
                clock.switch()
                for part in (REST, *PARTS):
                    taken[contender][part].append(clock.seconds.get(part, 0.0))
    return {
        contender: {part: 1e3 * statistics.median(values) for part, values in parts.items()}
        for contender, parts in taken.items()
    }


def run() -> list[dict[str, Any]]:
    rows, threads = [], torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for name in MODELS:
            rows.append(_row(name, profile(name)))
            print(f"  {rows[-1]['what']}: {rows[-1]['ratio']}", flush=True)
    finally:
        torch.set_num_threads(threads)
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
    torch.set_num_threads(1)
    for each in sys.argv[1:] or MODELS:
        row = _row(each, profile(each))
        print(f"{row['what']}: {row['ours']} | {row['theirs']} | {row['ratio']}", flush=True)
