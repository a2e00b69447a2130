"""Peak memory of a step of one large parameter: a private one has room for one gradient, as one without privacy has.

Megabytes beyond those of the process before there was a model: parameters, momentum, gradient, and what else a step
takes. The first private step tries the module, before there is momentum. Each contender has a process of its own.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import nn

from checks.benchmarks.processes import in_a_process
from checks.benchmarks.steps import OURS, PLAIN, highest_memory, stepping

SIZES = (10**7, 10**8)
_BATCH, _LATER = 4, 2


def take(contender: str, parameters: int) -> tuple[float, float]:
    """Of the first step, and of later ones."""
    before = highest_memory()
    side = math.isqrt(parameters)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(_BATCH, side, generator=generator)
    y = torch.randint(0, side, (_BATCH,), generator=generator)
    step = stepping(contender, nn.Linear(side, side, bias=False), x, y)
    peaks = []
    for steps in (1, _LATER):
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        for _ in range(steps):
            step()
        peaks.append(highest_memory() - before)
    return peaks[0], peaks[1]


def run() -> list[dict[str, Any]]:
    rows = []
    for parameters in SIZES:
        peaks = {contender: in_a_process(take, contender, parameters) for contender in (PLAIN, OURS)}
        for number, which in enumerate(("first step", "later steps")):
            ours, theirs = peaks[OURS][number], peaks[PLAIN][number]
            rows.append(
                {
                    "what": f"peak memory, one parameter of {parameters:.0e} numbers, {which}".replace("e+0", "e"),
                    "ours": f"{ours:.0f} MB",
                    "theirs": f"{theirs:.0f} MB without privacy",
                    "ratio": f"{ours / theirs:.2f}x the memory",
                    "parameters": parameters,
                    "megabytes": {OURS: ours, PLAIN: theirs},
                }
            )
    return rows
