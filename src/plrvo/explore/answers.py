"""What the accountant answers: at once by moments, and soon by the smallest certificate.

Both are proved. While a slider moves, epsilon is that of moments, which takes milliseconds for every noise and is up to
a third too large; what is left standing is certified as `plrvo account` and `plrvo calibrate` certify it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from plrvo.accounting import Epsilon, Ledger, Plan
from plrvo.accounting.attacker import Pair, QuickMoments
from plrvo.explore.question import KINDS, LIMITS, Question
from plrvo.noise import Noise

_POINTS, _WIDTHS = 13, 8  # of the curves


@dataclass(frozen=True)
class Quick:
    """By moments alone.

    Attributes:
        noise: what was asked for, or the least noise that certifies the budget by moments; None if there is none.
        width: of `noise`, in clips.
        epsilon: what moments certify for it.
        over_steps: (steps, epsilon).
        by_width: of every kind, (epsilon, E|z| over the clip).
        pairs: of proved epsilon and delta, for what they leave to attackers.
    """

    noise: Noise | None
    width: float
    epsilon: float
    over_steps: Sequence[tuple[float, float]]
    by_width: Mapping[str, Sequence[tuple[float, float]]]
    pairs: Sequence[Pair]


@dataclass(frozen=True)
class Certified:
    """The bracket as the commands give it, of the noise that was asked for or fitted."""

    noise: Noise
    bracket: Epsilon


@lru_cache(maxsize=256)
def quick(question: Question) -> Quick:
    """Within a fraction of a second, for any question.

    >>> print(f"{quick(Question.read('width=1.1')).epsilon:.2f}")
    2.93
    """
    work, delta = question.work, question.delta
    width = question.width or _least_width(question)
    if width is None:
        return Quick(None, math.nan, math.inf, [], _by_width(question, 1.0), [])
    noise = question.at(question.noise, width)
    cost = _moments(noise, question)
    counts = sorted({max(1, round(work.steps * share)) for share in np.linspace(0, 1, _POINTS)})
    over_steps = [(float(count), cost.epsilon(delta, count)) for count in counts]
    pairs = QuickMoments([(noise, work)]).pairs(delta)
    epsilon = cost.epsilon(delta, work.steps)
    return Quick(noise, width, epsilon, _finite(over_steps), _by_width(question, width), pairs)


@lru_cache(maxsize=256)
def certify(question: Question) -> Certified:
    """As `plrvo account` answers, or `plrvo calibrate` where a budget is given."""
    if question.epsilon is None:
        noise = question.specification.noise(question.clip)
        return Certified(noise, Ledger().plus(noise, question.work).epsilon(question.delta))
    plan = Plan.fitted(question.specification, question.work, question.delta, question.epsilon)
    return Certified(plan.noise, plan.bracket)


def _moments(noise: Noise, question: Question) -> QuickMoments:
    """Of one step, to be taken any number of times."""
    return QuickMoments([(noise, replace(question.work, steps=1))])


def _least_width(question: Question) -> float | None:
    """The least noise that certifies the budget by moments; None where not even the widest of the page does."""
    narrowest, widest = LIMITS["width"]

    def meets(width: float) -> bool:
        cost = _moments(question.at(question.noise, width), question)
        return cost.epsilon(question.delta, question.work.steps) <= (question.epsilon or 0.0)

    low = high = 1.0
    while not meets(high):
        if high >= widest:
            return None
        low, high = high, min(2 * high, widest)
    while low > narrowest and meets(low):
        low, high = max(low / 2, narrowest), low
    for _ in range(12):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if meets(middle) else (middle, high)
    return high


def _by_width(question: Question, width: float) -> Mapping[str, Sequence[tuple[float, float]]]:
    found = {}
    for kind in KINDS:
        points = []
        for factor in np.geomspace(0.75, 4, _WIDTHS).tolist():
            noise = question.at(kind, width * factor)
            cost = _moments(noise, question).epsilon(question.delta, question.work.steps)
            points.append((cost, noise.distortion / question.clip))
        found[kind] = _finite(points)
    return found


def _finite(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    return [point for point in points if all(map(math.isfinite, point))]
