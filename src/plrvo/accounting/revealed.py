"""Steps whose coordinates share one random scale, as pairs of an observer who sees the scale (theory, section 15).

Given the inverse scale u a step is a Laplace step of shift u C. u does not depend on the data, so the pair of u and the
output has the profile E_u H(u C), and the coin of a sampled step is tossed for all u alike. u is rounded up on a grid
(`shared_scale`), which shows more. Beyond the last point, with probability `beyond`, everything is shown.

A bound on E_u H at many levels is turned into one pair (`profile`): the profile of the mixture is convex and symmetric,
as those of its parts are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import special

from plrvo.accounting.profile import Profile, hull_pair
from plrvo.noise.base import Array
from plrvo.noise.seeds import Seed
from plrvo.noise.shared_scale import rounded_up

_TAIL = 1e-25  # probability of scales that are not looked at
_LEAST_SHIFT = 1e-4  # smaller ones have bounds by moments, whose digits do not depend on levels near 0
_ROUNDED = 1e-14  # of a sum of masses, which is 1
_LARGEST_SHIFT = 20.0  # larger ones show everything, but for e^-50
_MASS_MARGIN = 1e-11  # relative: sums of differences of distribution functions
_CURVE_MARGIN = 4e-12  # of the larger of two terms whose difference a Gaussian curve is
_PER_SIGNAL = 40  # levels
_UNTIL = 8.0  # the last level, in the largest signal
_GROWTH = 1.01  # of levels that only large scales reach


@dataclass(frozen=True, eq=False)
class Shifts:
    """Shifts of a step in units of its Laplace scale, and their probabilities, from above."""

    sizes: Array
    masses: Array
    beyond: float

    @property
    def mean(self) -> float:
        return float(self.sizes @ self.masses / self.masses.sum())

    @property
    def largest(self) -> float:
        return float(self.sizes[-1])

    def up_to(self, most: float, spare: float = 0.0) -> Shifts:
        """With all that is larger beyond, and the largest of a probability of at most `spare`."""
        above = np.cumsum(self.masses[::-1])[::-1]
        kept = (self.sizes <= most) & (above > spare)
        return Shifts(self.sizes[kept], self.masses[kept], self.beyond + float(self.masses[~kept].sum()))


@lru_cache(maxsize=64)
def revealed_shifts(seed: Seed, clip: float) -> Shifts | None:
    """u times the clip; None where the law of u is not known well enough, or no u is within sight."""
    u, masses = rounded_up(seed, _TAIL)
    if not np.isfinite(u[-1]):
        return None
    filled = masses > 0
    # A distribution function and its complement that are not quite one: what is in neither may be anywhere.
    lost = 1 - math.fsum(masses)
    lost = lost if lost > _ROUNDED else 0.0
    found = Shifts(u[filled] * (clip * (1 + 2.0**-50)), masses[filled] * (1 + _MASS_MARGIN), _TAIL + lost)
    found = found.up_to(_LARGEST_SHIFT)
    return found if len(found.sizes) and found.mean >= _LEAST_SHIFT else None


@lru_cache(maxsize=64)
def gaussian_pair(seed: Seed, clip: float, most: float, spare: float) -> tuple[Profile, float] | None:
    """Gaussian steps of signal u C, `up_to` some, and the largest: no bound, unless an excess or a gift is added."""
    shifts = revealed_shifts(seed, clip)
    if shifts is None or not shifts.sizes[0] <= most or spare > 0.5:
        return None
    shifts = shifts.up_to(most, spare)
    return mixed_gaussian_pair(shifts.sizes, shifts), shifts.largest


def mixed_gaussian_pair(signals: Array, shifts: Shifts) -> Profile:
    """Gaussian steps of a signal for each shift."""
    largest = float(signals.max())
    y = levels(shifts.mean / _PER_SIGNAL, 2 * _UNTIL * shifts.mean, _UNTIL * largest + largest**2 / 2)
    return hull_pair(y, shifts.masses @ gaussian_curves(signals, y) + shifts.beyond)


def levels(step: float, uniform_until: float, last: float) -> Array:
    """Multiples of the step, and from some level on a geometric sequence."""
    y = step * np.arange(np.ceil(min(uniform_until, last) / step) + 1)
    count = max(1, int(np.ceil(np.log(max(last, y[-1] * _GROWTH) / y[-1]) / np.log(_GROWTH))))
    return np.concatenate([y, y[-1] * _GROWTH ** np.arange(1.0, count + 1)])


def gaussian_curves(signals: Array, y: Array) -> Array:
    """The delta of each signal (rows) at each level y >= 0, from above."""
    m, scaled = signals[:, None], y / signals[:, None]
    high = special.ndtr(m / 2 - scaled)
    # Where the second term is 0 for a double, or the exponential no double, the first alone is above.
    low = np.exp(np.minimum(y, 700.0)) * special.ndtr(-m / 2 - scaled)
    return np.asarray(np.maximum(high - low, 0.0) + _CURVE_MARGIN * high)
