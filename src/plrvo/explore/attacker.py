"""What a guarantee leaves to an attacker who decides, from the model, whether an example was trained on.

If (epsilon, delta) is proved, every attack with a share f of false alarms finds at most

    t <= e^epsilon f + delta    and    t <= 1 - (1 - delta - f) e^(-epsilon)

of the members: the definition, with the sets on which the attack says yes and no. Each proved pair gives such a bound,
and the smallest counts. Its largest distance to the diagonal, t - f, is the most that an attack can gain over guessing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Pair = tuple[float, float]  # epsilon and delta, both proved


def most_found(pairs: Sequence[Pair], false_alarms: float) -> float:
    """The largest share of members that an attack with so many false alarms can find.

    >>> print(f"{most_found([(1.0, 1e-5)], 0.01):.4f}")
    0.0272
    """
    return min((_bound(epsilon, delta, false_alarms) for epsilon, delta in pairs), default=1.0)


def most_gained(pairs: Sequence[Pair]) -> float:
    """The largest share of found members beyond the share of false alarms: (e^eps - 1 + 2 delta)/(e^eps + 1)."""
    return min((math.tanh(epsilon / 2) + 2 * delta / (1 + _exp(epsilon)) for epsilon, delta in pairs), default=1.0)


def _bound(epsilon: float, delta: float, false_alarms: float) -> float:
    other = 1 - max(0.0, 1 - delta - false_alarms) * math.exp(-epsilon)
    return min(1.0, _exp(epsilon) * false_alarms + delta, other)


def _exp(epsilon: float) -> float:
    return math.exp(min(epsilon, 700.0))
