"""An attack on one scale for all coordinates: count the outputs that are positive (theory, section 6).

The gradient is x = C/sqrt(m) in m coordinates. Without it a sign is positive with probability 1/2, whatever the scale;
with it, given the inverse scale u, with probability 1 - e^(-ux)/2. So the count K is binomial without the example, and
a mixture of binomial laws with it. A function of the output shows no more than the output.

The likelihood ratio of the mixture increases in K, so that the best tests are K >= c. A smaller u makes every
P(K >= c) smaller and leaves Q as it is: rounding u down gives a pair that is nowhere easier to tell apart, and by
Blackwell's theorem it stays so with a coin and in composition.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy import special

from plrvo.accounting.lattice import Atoms
from plrvo.noise.base import Array
from plrvo.noise.seeds import Seed
from plrvo.noise.shared_scale import rounded_down

_MOST_SIGNS = 1 << 14
_DEVIATIONS = 8.0  # of the count, beyond which it is left out
_MOST_COUNTS = 4096


@lru_cache(maxsize=64)
def sign_count(seed: Seed, clip: float, dimension: int, q: float) -> Atoms:
    """One step in which the gradient moves all outputs with probability q, against none that moves."""
    m = min(dimension, _MOST_SIGNS)
    u, weights = rounded_down(seed)
    keep = weights > 1e-18
    shift, weights = u[keep] * (clip / math.sqrt(m) * (1 - 2.0**-50)), weights[keep]
    k = _counts(m, float(shift[-1]))
    # log C(m, k)/2^m. What it errs by, 1e-9 of a mass, is the same in P and Q: both are lowered.
    log_q = special.gammaln(m + 1.0) - special.gammaln(k + 1) - special.gammaln(m - k + 1) - m * math.log(2) - 1e-9
    without = np.exp(log_q)
    # log of the ratio given u: k log(2 - e^(-ux)) - (m - k) ux.
    positive = np.log1p(-np.expm1(-shift))
    with_it = np.empty(len(k))
    for start in range(0, len(k), 256):
        some = slice(start, start + 256)
        ratio = k[some, None] * positive - (m - k[some, None]) * shift
        with_it[some] = np.exp(np.minimum(log_q[some, None] + ratio, 0.0)) @ weights
    p = ((1 - q) * without + q * with_it) * (1 - 1e-15 * m - 1e-12)
    filled = p > 1e-290
    # A loss of more than 460 counts as one of 460.
    return Atoms(p[filled], np.maximum(without, 1e-200 * p)[filled])


def _counts(m: int, largest_shift: float) -> Array:
    """The counts that are likely without the example, or with it at the largest u."""
    deviation = _DEVIATIONS * math.sqrt(m) / 2
    low = max(0, math.floor(m / 2 - deviation))
    high = min(m, math.ceil(m * (1 - math.exp(-largest_shift) / 2) + deviation), low + _MOST_COUNTS)
    return np.arange(low, high + 1, dtype=float)
