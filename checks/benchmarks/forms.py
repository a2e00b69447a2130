"""Norm and sum of a linear layer's gradients in the two forms that there are: which is cheaper, and which is chosen.

Computing time of one thread, the two taking turns. Shapes are those of layers of the models in `field_models`.
"""

from __future__ import annotations

import time

import torch

from checks.benchmarks.timing import interleaved, shown
from plrvo.training.clipping.contributions import Contribution, Outer, PerExample, is_direct

# Examples, positions, rows, columns.
SHAPES = ((32, 65, 192, 192), (32, 65, 192, 768), (32, 65, 576, 192), (8, 64, 256, 256), (8, 64, 1024, 256))
SHAPES += ((8, 64, 768, 768), (8, 16, 256, 256), (64, 8, 64, 64))


def _row(shape: tuple[int, int, int, int]) -> dict[str, object]:
    examples, positions, rows, columns = shape
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(examples, positions, n, generator=generator) for n in (rows, columns))
    factors = torch.ones(examples)

    def used(contribution: Contribution) -> None:
        contribution.squared_norms()
        contribution.weighted_sum(factors)

    contenders = {
        "direct": lambda: used(PerExample(Outer(left, right).per_example())),
        "ghost": lambda: used(Outer(left, right)),
    }
    times = interleaved(contenders, turns=15, clock=time.thread_time)
    chosen = "direct" if is_direct(positions, rows, columns) else "ghost"
    other = "ghost" if chosen == "direct" else "direct"
    return {
        "what": f"norms and sum, {examples} examples of {positions} positions, weight {rows} x {columns}",
        "ours": f"{chosen} {shown(times[chosen].median)}",
        "theirs": f"{other} {shown(times[other].median)}",
        "ratio": f"{times[chosen].median / times[other].median:.2f}x the time",
    }


def run() -> list[dict[str, object]]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [_row(shape) for shape in SHAPES]
    finally:
        torch.set_num_threads(threads)
