"""Correlated noise: the cost of a step for a million parameters, against fresh noise, and of fitting bands."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

import plrvo
from checks.benchmarks.timing import interleaved, shown
from plrvo.accounting.correlated import (
    Correlation,
    Participation,
    SquareRoot,
    Strategy,
    Tree,
    Updates,
    fit_banded,
    fit_blt,
)
from plrvo.training.ftrl import NoiseStream, keyed_draws

DIMENSION, STEPS = 1_000_000, 2048
STEPS_A_TURN = 8  # a tree draws two nodes a step on average: over eight steps fifteen, however they fall
FILLED = 256  # steps before a square root is timed


def stepper(strategy: Strategy, noise: plrvo.Noise) -> Callable[[], None]:
    """A function that draws the noise of some steps."""
    draw = keyed_draws(noise, 1, DIMENSION, torch.zeros(1))
    stream = NoiseStream(Correlation(strategy, Participation(STEPS)), STEPS, draw, 4 * DIMENSION)

    def take() -> None:
        for _ in range(STEPS_A_TURN):
            stream.next_noise()

    if isinstance(strategy, SquareRoot):
        for _ in range(FILLED // STEPS_A_TURN):
            take()
    return take


def white(noise: plrvo.Noise) -> Callable[[], None]:
    """Fresh noise, added to a buffer as the engine does without a correlation."""
    generator, buffer = torch.Generator().manual_seed(0), torch.zeros(DIMENSION)

    def take() -> None:
        for _ in range(STEPS_A_TURN):
            noise.add_to([buffer], generator)

    return take


def run() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    strategies: dict[str, Strategy] = {
        "tree": Tree(),
        "banded:8": fit_banded(8, STEPS),
        "banded:32": fit_banded(32, STEPS),
        "blt, 3 buffers": fit_blt(3, STEPS),
        f"sqrt, at step {FILLED} (grows with the step)": SquareRoot(),
    }
    for noise in (plrvo.Gaussian(1.0), plrvo.Laplace(1.0)):
        contenders = {name: stepper(strategy, noise) for name, strategy in strategies.items()}
        times = interleaved({"white": white(noise), **contenders}, turns=5)
        fresh = times["white"].median / STEPS_A_TURN
        for name in strategies:
            mine = times[name].median / STEPS_A_TURN
            rows.append(
                {
                    "what": f"noise of a step, {noise.kind}, {DIMENSION:,} parameters, T = {STEPS}, {name}",
                    "ours": shown(mine),
                    "theirs": f"{shown(fresh)} (fresh noise)",
                    "ratio": f"{mine / fresh:.2f}x",
                }
            )
    falling = tuple(np.linspace(1.0, 0.05, 512))
    fits: dict[str, Callable[[], object]] = {
        "8 bands": lambda: fit_banded(8, STEPS),
        "64 bands": lambda: fit_banded(64, STEPS),
        "8 bands, momentum 0.9": lambda: fit_banded(8, STEPS, Updates(0.9)),
        "8 bands, momentum 0.9, 512 falling learning rates": lambda: fit_banded(8, 512, Updates(0.9, falling)),
        "blt, 3 buffers": lambda: fit_blt(3, STEPS),
    }
    for name, timing in interleaved(fits, turns=5).items():
        rows.append(
            {"what": f"fitting for T = {STEPS}: {name}", "ours": shown(timing.median), "theirs": "-", "ratio": "-"}
        )
    return rows
