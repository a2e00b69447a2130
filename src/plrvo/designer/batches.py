"""How large batches should be, and how many steps: what a time limit and a budget leave to choose.

A machine that goes through P examples in the time takes T = P / B steps of B examples. With n examples, sampling rate
q = B / n, and the smallest Gaussian noise multiplier s that certifies the budget for (q, T), the mean gradient of a
step carries noise of norm

    s sqrt(d) / B        in units of the clip, for d parameters,

beside a signal of norm 1 at most. What T steps learn together is worth T (B / s sqrt(d))^2 = P B / (s^2 d): the
*signal to noise* of the run, an upper limit that is reached where all clipped gradients point one way. Small batches
lose, since s falls slower than B does. Large ones gain ever less, since s grows with q, and leave few steps: signal
adds up over steps, but an optimizer that follows one gradient at a time does not get far in a few of them, however
clear each is. Proposed is the row with the most *useful* signal,

    signal * T / (T + T0),        T0 = `ENOUGH_STEPS`,

which leaves half of it where there are T0 steps, and nearly all in many times as many. That factor is a rule of thumb
and no theorem; T0 was chosen among five numbers on MNIST and judged on Fashion-MNIST (`plrvo reproduce study-batches`).

Nothing here looks at the data that is trained on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from plrvo.accounting import Plan, Workload, calibrate
from plrvo.noise import Gaussian
from plrvo.validate import InvalidArgument, positive, positive_integer

ENOUGH_STEPS = 50  # half of the signal is of use in so many, by the study
FEW_STEPS = 2 * ENOUGH_STEPS  # below there is a warning
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

    def useful(self, enough_steps: float = ENOUGH_STEPS) -> float:
        """What of the signal an optimizer can use in so many steps."""
        return self.signal * self.steps / (self.steps + enough_steps)

    def plan(self, clip: float, dimension: int, epsilon: float, delta: float) -> Plan:
        """The plan of this row for a clip: fitted anew, as a multiplier times a clip is rounded to either side."""
        return Plan.fitted("gaussian", Workload(self.sample_rate, self.steps, clip, dimension), delta, epsilon)

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
    ([7, 15, 31, 62, 125, 250, 500, 1000], 62)
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
    """The row with the most useful signal; of equal ones that with the smallest batch."""
    return max(found, key=Batches.useful)


def _batches(size: int, examples: int, dimension: int, epsilon: float, delta: float, passes: float) -> Batches:
    rate, steps = size / examples, int(passes / size)
    multiplier = calibrate(Gaussian(1.0), Workload(rate, steps, 1.0, dimension), epsilon, delta).sigma
    noise = multiplier * math.sqrt(dimension) / size
    return Batches(size, rate, steps, multiplier, noise, steps / noise**2)
