"""Certified upper bounds: what a guarantee may rest on. The better of the valid bounds, and which one it was.

- `rdp`: moments at integer orders (theory, sections 3 to 5), converted; for any mixture of noises.
- `pure`: the likelihood ratio of a step is bounded by e^r, so T steps cost at most T log1p(q (e^r - 1)).
- `pld`: the privacy loss distribution of the Poisson-subsampled Gaussian (dp-accounting), for Gaussian noise only, also
  on a grid, which is post-processing. An effective sigma of another noise is never used there: domination holds for
  moments, not for loss distributions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from plrvo.accounting.convert import delta_from_moments, epsilon_from_moments
from plrvo.accounting.moments import StepMoments
from plrvo.accounting.workload import Workload
from plrvo.noise.base import Noise
from plrvo.noise.gaussian import Gaussian

Entry = tuple[Noise, Workload]

# Shares of delta given to the event that a shared scale is very small; the best of these is used.
TAIL_SHARES = (1e-3, 0.1, 0.5)
_LARGEST_PLD_EPSILON = 500.0


@dataclass(frozen=True)
class Certificate:
    """A certified value (epsilon or delta), the order that gave it (None unless by moments) and the method."""

    value: float
    order: int | None
    method: str


def certified_epsilon(entries: Sequence[Entry], delta: float) -> Certificate:
    """The smallest certified epsilon of all entries together, at the given delta."""
    candidates = [Certificate(max(0.0, pure_epsilon(entries)), None, "pure")]
    for moment, rest in _moments(entries, delta):
        value, order = epsilon_from_moments(moment, rest, _largest_order(entries))
        candidates.append(Certificate(value, order, "rdp"))
    best = min(candidates, key=lambda candidate: candidate.value)
    # Beyond any use the loss distribution would not fit into memory.
    if _all_gaussian(entries) and 0 < best.value < _LARGEST_PLD_EPSILON:
        value = _gaussian_pld(entries, best.value).get_epsilon_for_delta(delta)
        best = min(best, Certificate(float(value), None, "pld"), key=lambda candidate: candidate.value)
    return best


def certified_delta(entries: Sequence[Entry], epsilon: float) -> Certificate:
    """The smallest certified delta of all entries together, at the given epsilon."""
    if pure_epsilon(entries) <= epsilon:
        return Certificate(0.0, None, "pure")
    if any(noise.shared for noise, _ in entries):
        return _delta_with_tails(entries, epsilon)
    ((moment, _),) = _moments(entries, 1.0)
    value, order = delta_from_moments(moment, epsilon, _largest_order(entries))
    best = Certificate(value, order, "rdp")
    if _all_gaussian(entries) and epsilon > 0:
        exact = float(_gaussian_pld(entries, epsilon).get_delta_for_epsilon(epsilon))
        best = min(best, Certificate(exact, None, "pld"), key=lambda candidate: candidate.value)
    return best


def pure_epsilon(entries: Sequence[Entry]) -> float:
    """sum of T log1p(q expm1(r)), r the largest log likelihood ratio of a step; `inf` for unbounded losses."""
    total = 0.0
    for noise, work in entries:
        r = noise.pure_loss(work.clip, work.dimension)
        if r < 700:
            total += work.steps * math.log1p(work.sample_rate * math.expm1(r))
        else:  # e^r is beyond a double: log(1 - q + q e^r) in logarithms
            stays = math.log1p(-work.sample_rate) if work.sample_rate < 1 else -math.inf
            total += work.steps * float(np.logaddexp(stays, math.log(work.sample_rate) + r))
    return total


def _moments(entries: Sequence[Entry], delta: float) -> list[tuple[Callable[[int], float], float]]:
    """The total moment, and the delta left for it: once, or once for each share of delta given to tails."""
    shared = sum(noise.shared for noise, _ in entries)
    choices = []
    for share in TAIL_SHARES if shared else (0.0,):
        steps = [
            (
                work.steps,
                StepMoments(
                    noise,
                    work.clip,
                    work.dimension,
                    work.sample_rate,
                    share * delta / (shared * work.steps) if noise.shared else 0.0,
                ),
            )
            for noise, work in entries
        ]
        choices.append((_total(steps), (1 - share) * delta))
    return choices


def _total(steps: Sequence[tuple[int, StepMoments]]) -> Callable[[int], float]:
    return lambda lambda_: sum(count * moments(lambda_) for count, moments in steps)


def _delta_with_tails(entries: Sequence[Entry], epsilon: float) -> Certificate:
    """The tails are cut at a delta of their own, so search for the delta at which epsilon is certified."""
    low, high = -690.0, 0.0  # log delta
    if certified_epsilon(entries, 0.999999).value > epsilon:
        return Certificate(1.0, None, "rdp")
    for _ in range(40):
        middle = (low + high) / 2
        if certified_epsilon(entries, math.exp(middle)).value <= epsilon:
            high = middle
        else:
            low = middle
    return Certificate(math.exp(high), certified_epsilon(entries, math.exp(high)).order, "rdp")


def _largest_order(entries: Sequence[Entry]) -> int:
    return min(noise.largest_order for noise, _ in entries)


def _all_gaussian(entries: Sequence[Entry]) -> bool:
    return all(isinstance(noise.before_rounding, Gaussian) for noise, _ in entries)


def _gaussian_pld(entries: Sequence[Entry], epsilon: float):  # type: ignore[no-untyped-def]
    """dp-accounting's pessimistic loss distribution, on a grid fine enough for an epsilon of this size."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    interval = min(1e-2, max(1e-7, epsilon / 2000))
    total = None
    for noise, work in entries:
        step = pld.from_gaussian_mechanism(
            1 / (noise.sensitivity(work.clip, work.dimension) * math.sqrt(noise.fisher_information())),
            sampling_prob=work.sample_rate,
            use_connect_dots=True,
            value_discretization_interval=interval,
        ).self_compose(work.steps)
        total = step if total is None else total.compose(step)
    return total
