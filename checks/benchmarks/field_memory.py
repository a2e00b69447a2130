"""In which of its first steps a model of the field takes the most memory, and what stays after each.

`python -m checks.benchmarks.field_memory NAME` for single models. Megabytes, ours beside a step without privacy, each
in a process of its own: what there is before anything is made, with the model and its engine, then "peak/left" of
every step. A peak that only the first steps have is that of tries; what is left and grows from step to step is kept by
somebody.
"""

from __future__ import annotations

import sys
from pathlib import Path

import transformers  # noqa: F401  (before processes are forked)

from checks.benchmarks.field import _stepper
from checks.benchmarks.field_models import MODELS
from checks.benchmarks.processes import in_a_process
from checks.benchmarks.steps import OURS, PLAIN, highest_memory

_STEPS = 16
_RESET = Path("/proc/self/clear_refs")


def _left() -> float:
    return int(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) / 1024


def by_step(name: str, contender: str, steps: int) -> tuple[list[float], list[tuple[float, float]]]:
    """What there is before and after the model is made, and of every step its peak and what it leaves."""
    before = _left()
    step = _stepper(name, contender)
    made, found = [before, _left()], []
    for _ in range(steps):
        _RESET.write_text("5")  # the peak so far is forgotten
        step()
        found.append((highest_memory(), _left()))
    return made, found


def shown(name: str, steps: int = _STEPS) -> str:
    lines, peaks = [], {}
    for contender in (PLAIN, OURS):
        made, found = in_a_process(by_step, name, contender, steps)
        peaks[contender] = max(peak for peak, _ in found)
        pairs = " ".join(f"{peak:.0f}/{left:.0f}" for peak, left in found)
        lines.append(f"{contender:>10}: {made[0]:.0f}, made {made[1]:.0f}, steps {pairs}")
    return "\n".join([f"{MODELS[name].title}: {peaks[OURS] / peaks[PLAIN]:.2f}x no privacy", *lines])


if __name__ == "__main__":
    for each in sys.argv[1:] or MODELS:
        print(shown(each), flush=True)
