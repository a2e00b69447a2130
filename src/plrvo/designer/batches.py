"""How large batches should be, and how many steps: what a time limit and a budget leave to choose.

A machine that goes through P examples in the time takes T = P / B steps of B examples. With n examples, sampling rate
q = B / n, and the smallest Gaussian noise multiplier s that certifies the budget for (q, T), the mean gradient of a
step carries noise of norm

    s sqrt(d) / B        in units of the clip, for d parameters,

beside a signal of norm 1 at most. What T steps learn together is worth T (B / s sqrt(d))^2 = P B / (s^2 d): the
*signal to noise* of the run, an upper limit that is reached where all clipped gradients point one way. Small batches
lose, since s falls slower than B does; large ones leave the optimizer few steps and gain ever less, since s grows with
q. Proposed is the smallest batch, and so the most steps, that is within `ENOUGH` of the best.

Nothing here looks at data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from plrvo.accounting import Workload, calibrate
from plrvo.noise import Gaussian
from plrvo.validate import InvalidArgument, positive, positive_integer

ENOUGH = 0.95  # of the best signal to noise
FEWEST_STEPS = 10
ALTERNATIVES = 8  # each batch is twice the one before


@dataclass(frozen=True)
class Batches:
    """One way to spend the time: `noise` is that of a step's mean gradient, in clips; `signal` that of the run."""

    batch: int
    sample_rate: float
    steps: int
    noise_multiplier: float
    noise: float
    signal: float

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def batches(
    examples: int,
    dimension: int,
    epsilon: float,
    delta: float,
    passes: float,
    progress: Callable[[float], None] | None = None,
) -> list[Batches]:
    """What can be done with `passes` examples that pass through the model, repeated ones counted.

    >>> found = batches(examples=1_000, dimension=650, epsilon=3.0, delta=1e-5, passes=10_000)
    >>> [each.batch for each in found], proposed(found).batch
    ([7, 15, 31, 62, 125, 250, 500, 1000], 1000)
    """
    positive_integer(examples=examples, dimension=dimension)
    positive(epsilon=epsilon, delta=delta, passes=passes)
    largest = min(examples, int(passes / FEWEST_STEPS))
    if largest < 1:
        raise InvalidArgument("passes", passes, f"at least {FEWEST_STEPS}, for as many steps of one example")
    sizes = sorted({max(1, largest >> i) for i in range(ALTERNATIVES)})
    found = []
    for size in sizes:
        found.append(_batches(size, examples, dimension, epsilon, delta, passes))
        if progress is not None:
            progress(len(found) / len(sizes))
    return found


def proposed(found: Sequence[Batches]) -> Batches:
    """The smallest batch whose signal to noise is near the best."""
    best = max(each.signal for each in found)
    return next(each for each in found if each.signal >= ENOUGH * best)


def _batches(size: int, examples: int, dimension: int, epsilon: float, delta: float, passes: float) -> Batches:
    rate, steps = size / examples, int(passes / size)
    multiplier = calibrate(Gaussian(1.0), Workload(rate, steps, 1.0, dimension), epsilon, delta).sigma
    noise = multiplier * math.sqrt(dimension) / size
    return Batches(size, rate, steps, multiplier, noise, steps / noise**2)
