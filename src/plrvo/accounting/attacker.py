"""What a guarantee leaves to an attacker who decides, from the model, whether an example was trained on.

If (epsilon, delta) is proved, every attack with a share f of false alarms finds at most

    t <= e^epsilon f + delta    and    t <= 1 - (1 - delta - f) e^(-epsilon)

of the members: the definition, with the sets on which the attack says yes and no. Each proved pair gives such a bound,
and the smallest counts. Its largest distance to the diagonal, t - f, is the most that an attack can gain over guessing.

One pair at a small delta says little about guesses: at a larger delta a far smaller epsilon is proved. `QuickMoments`
has pairs of many deltas, in a fraction of a second.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from plrvo.accounting.bracket import AnyLedger
from plrvo.accounting.by_loss import Entry
from plrvo.accounting.certified import rdp_certificate
from plrvo.accounting.moments import StepMoments
from plrvo.accounting.workload import Workload
from plrvo.noise.base import Noise

Pair = tuple[float, float]  # epsilon and delta, both proved
_DELTAS = tuple(np.geomspace(1e-10, 0.5, 40).tolist())
_QUICK = ("gaussian", "laplace", "gamma")  # noises whose moments take milliseconds
_HIGH = 10_000  # a dimension from which on those of Gamma-PLRV noise take no sum over coordinates
_ENTRIES = 8  # kinds of step, each of which takes its time
_LARGEST_ORDER = 512  # every order gives a bound, and large ones take long


class QuickMoments:
    """Epsilon by moments, of entries with fresh noise in each step and no shared scale, whose tail would take a share
    of delta.

    A step in more dimensions shows at least as much: to leave coordinates out is post-processing.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self._steps = [(work.steps, _step(noise, work)) for noise, work in entries]
        self._largest = min(_LARGEST_ORDER, *(noise.largest_order for noise, _ in entries))

    @staticmethod
    def fit(ledger: AnyLedger) -> bool:
        """Whether all its pairs are found within a second or so."""
        known = all(noise.before_rounding.kind in _QUICK and not noise.shared for noise, _ in ledger.entries)
        return known and ledger.correlation is None and 0 < len(ledger.entries) <= _ENTRIES

    def epsilon(self, delta: float, times: int = 1) -> float:
        """What is certified for all entries, each taken so many times."""

        def moment(order: int) -> float:
            return times * math.fsum(count * step(order) for count, step in self._steps)

        with np.errstate(over="ignore"):  # to infinity, which is the right answer
            return rdp_certificate(moment, delta, self._largest).value

    def pairs(self, *deltas: float) -> list[Pair]:
        """Proved pairs, those that are finite, at many deltas and at these."""
        found = [(self.epsilon(delta), delta) for delta in (*_DELTAS, *deltas)]
        return [pair for pair in found if math.isfinite(pair[0])]


def _step(noise: Noise, work: Workload) -> StepMoments:
    dimension = max(work.dimension, _HIGH) if noise.kind == "gamma" else work.dimension
    return StepMoments(noise, work.clip, dimension, work.sample_rate)


def most_found(pairs: Sequence[Pair], false_alarms: float) -> float:
    """The largest share of members that an attack with so many false alarms can find.

    >>> print(f"{most_found([(1.0, 1e-5)], 0.01):.4f}")
    0.0272
    """
    return min((_bound(epsilon, delta, false_alarms) for epsilon, delta in pairs), default=1.0)


def most_gained(pairs: Sequence[Pair]) -> float:
    """The largest share of found members beyond the share of false alarms: (e^eps - 1 + 2 delta)/(e^eps + 1)."""
    return min((math.tanh(epsilon / 2) + 2 * delta / (1 + _exp(epsilon)) for epsilon, delta in pairs), default=1.0)


def most_often_right(pairs: Sequence[Pair]) -> float:
    """The share of right guesses that nobody exceeds who tells apart, for a fair coin, the runs with an example and
    without it: half of one and of the largest gain, which for one pair is 1 - (1 - delta)/(1 + e^epsilon).

    >>> print(f"{most_often_right([(0.0, 0.0)]):.3f} {most_often_right([(1.0, 1e-5)]):.3f}")
    0.500 0.731
    """
    return min(1.0, (1 + most_gained(pairs)) / 2)


def _bound(epsilon: float, delta: float, false_alarms: float) -> float:
    other = 1 - max(0.0, 1 - delta - false_alarms) * math.exp(-epsilon)
    return min(1.0, _exp(epsilon) * false_alarms + delta, other)


def _exp(epsilon: float) -> float:
    return math.exp(min(epsilon, 700.0))
