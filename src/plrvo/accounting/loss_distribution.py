"""Composition of steps through the law of their privacy loss, from above: `pld` and `profile`.

A step is a pair of hypotheses, given as the law of the loss L = log dP/dQ under the first. Each outcome is spread onto
the two neighbouring points of a grid so that its mass under both hypotheses is kept, which makes the pair easier to
tell apart ("connect the dots", Doroshenko et al. 2022). The steps are composed by a Fourier transform, and

    delta(epsilon) = E[(1 - e^(epsilon - L))_+],   L the total loss under the first hypothesis.

A step says itself what its law is on a grid (`Step.loss`): Gaussian ones by quadrature (`sampled_gaussian`), others by
a pair that dominates all gradients (`profile`). Mass that a step leaves out (its tails, infinite losses) is
charged to delta.

**Rounding.** A transform leaves errors of about 1e-16 in every point, which is nothing in the bulk of a distribution
and everything in a tail of 1e-12. So masses are tilted by e^(theta l) / M(theta), composed, and tilted back. At the
saddle point of the epsilon in question the tail is made the bulk. A smaller theta needs a narrower window, and is taken
where rounding allows it. With u = 2^-53 and T steps:

- The 2-norm of the error of the composed, tilted distribution has a bound (`transform`). By Cauchy and Schwarz delta
  errs by at most that times the 2-norm of the factors of the masses, which is added.
- A mass has a relative error (`Loss.mass_error`), its tilt 2 u theta |l|: a factor on delta for every step.
- A loss has an error (`Loss.error`): epsilon is raised by so much for every step.
- What leaves the window at the bottom, or at the top, comes back at the other end: masses are only added. What
  is missing above the window has Chernoff's bound, which is added to delta, and so is what steps leave out.
- The tails that are cut are never below 4e-300, and a hundredth more is charged for them: more than whatever is lost
  to numbers below 1e-308, which have few digits or are 0.

**The grid.** Spreading adds about a sixth of the squared interval h to the variance of a step, and theta T h^2/12 to
epsilon, where theta is about 2 log(1/delta)/epsilon. With h = epsilon/(100 sqrt(T)), or epsilon/2000 if that is less,
epsilon grows by a few parts in ten thousand. h is wider where the composed distribution would have more than a million
points. Losses far beyond it are rare in a step, and lie on a coarser part of the same grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from plrvo.accounting.transform import UNIT, law_of_sum
from plrvo.noise.base import Array

_U = 2.0**-53
_MOST_POINTS = 1 << 22  # of a composed distribution
_DIGITS = 1 << 12  # far from 0 the losses of a step are this many times as large as the cells they lie in
_LOG_TAIL = math.log(1e-8)  # share of delta that lies outside the window
_LOG_ROUNDING = math.log(1e-6)  # share of delta that a tilt below the saddle point may cost
_TILTS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the saddle point
_CUT = 1e-15  # share of delta that the tails of all steps may cost


@dataclass(frozen=True)
class Loss:
    """Masses at losses places * interval of one step, under the first hypothesis, and what is charged besides."""

    interval: float
    places: NDArray[np.int64]
    mass: Array
    error: float  # the largest, of a loss
    mass_error: float  # relative, of a mass
    lost: float  # mass of what is left out

    @cached_property
    def losses(self) -> Array:
        return np.asarray(self.interval * self.places, dtype=float)

    @cached_property
    def log_mass(self) -> Array:
        with np.errstate(divide="ignore"):
            return np.log(self.mass)

    def moments(self, theta: float) -> tuple[float, float, float]:
        """log of the moment generating function, mean and variance, tilted by e^(theta l)."""
        exponent = self.log_mass + theta * self.losses
        top = float(exponent.max())
        weight = np.exp(exponent - top)
        total = float(weight.sum())
        mean = float(weight @ self.losses) / total
        return math.log(total) + top, mean, float(weight @ (self.losses - mean) ** 2) / total


class Step(Protocol):
    """A kind of step, taken so many times."""

    @property
    def count(self) -> int: ...

    @property
    def moderate(self) -> bool:
        """Whether its losses fit into memory."""

    def loss(self, interval: float, log_cut: float, added: bool) -> Loss:
        """The law of its loss where an example is removed, or added; tails of a mass e^log_cut may be left out."""


class Estimate(NamedTuple):
    """About an epsilon, and no bound, with its saddle point."""

    epsilon: float
    theta: float


def estimate(steps: Sequence[Step], delta: float, guess: float) -> Estimate:
    """Of all steps together; `guess` sets the grid."""
    return _parts(steps, guess, delta, added=False).cumulants.estimate(delta)


def composed_epsilon(steps: Sequence[Step], delta: float, guess: float) -> float:
    """An upper bound on the epsilon of all steps, in both directions; `guess` (an upper bound) sets the grid."""
    return _in_both_directions(tuple(steps), delta, guess)


@lru_cache(maxsize=256)
def _in_both_directions(steps: tuple[Step, ...], delta: float, guess: float) -> float:
    removed = _epsilon(steps, delta, guess, added=False)
    if not removed < math.inf:
        return math.inf
    # Removing an example shows more as a rule, and then one look at the other direction is enough.
    parts = _parts(steps, removed or guess, delta, added=True)
    if parts.highest <= removed:
        return removed  # up to the tails, which cost less than delta
    other = _Composed.of(parts, removed)
    if other is not None and other.delta(removed) <= delta:
        return removed
    return max(removed, _epsilon(steps, delta, guess, added=True))


def composed_delta(steps: Sequence[Step], epsilon: float) -> float:
    """An upper bound on the delta of all steps, in both directions."""
    if not all(part.moderate for part in steps):
        return 1.0
    both = [_delta(steps, epsilon, added) for added in (False, True)]
    return min(1.0, max(both)) if all(delta >= 0 for delta in both) else 1.0  # max(0.3, nan) is 0.3


def _epsilon(steps: Sequence[Step], delta: float, guess: float, added: bool) -> float:
    best, target = math.inf, min(guess, _parts(steps, guess, delta, added).cumulants.estimate(delta).epsilon)
    for _ in range(8):  # each time for the epsilon that was found; all of them are bounds
        composed = _Composed.of(_parts(steps, target, delta, added), target)
        found = math.inf if composed is None else composed.epsilon(delta)
        if not found < best:
            break
        best, target, step = found, found, abs(target - found)
        if step <= 0.06 * best:
            break
    return best


def _delta(steps: Sequence[Step], epsilon: float, added: bool) -> float:
    least = 1e-300
    for _ in range(2):  # the first round says where x may be cut
        parts = _parts(steps, epsilon, least, added)
        if parts.highest <= epsilon:
            return parts.lost
        composed = _Composed.of(parts, epsilon)
        if composed is None:
            return 1.0
        found = composed.delta(epsilon)
        least = max(least, found)
    return found


@dataclass(frozen=True)
class _Parts:
    """One-step losses on a common grid, how often each is taken, and the window of an epsilon."""

    losses: list[tuple[Loss, int]]
    cumulants: _Cumulants
    window: _Window

    @property
    def interval(self) -> float:
        return self.losses[0][0].interval

    @property
    def lost(self) -> float:
        """The mass that is cut from all of them together."""
        return sum(times * part.lost for part, times in self.losses)

    @property
    def raised(self) -> float:
        """What the sum of all losses may err by."""
        return sum(times * part.error for part, times in self.losses)

    @property
    def highest(self) -> float:
        return self.cumulants.highest + self.raised


def _parts(steps: Sequence[Step], epsilon: float, delta: float, added: bool) -> _Parts:
    count = sum(part.count for part in steps)
    log_cut = max(math.log(delta) + math.log(_CUT / (2 * count)), -690.0)
    interval = max(1e-12, min(1e-2, epsilon / max(2000.0, 100 * math.sqrt(count))))
    while True:
        losses = [(part.loss(interval, log_cut, added), part.count) for part in steps]
        cumulants = _Cumulants(losses)
        window = _Window.of(cumulants, interval, epsilon)
        excess = window.width / interval / (_MOST_POINTS / 4)
        if excess <= 1:
            return _Parts(losses, cumulants, window)
        interval *= 1.1 * excess


def places_between(low: float, high: float, interval: float) -> Array:
    """Multiples of the interval from below `low` to above `high`: all near 0, further out about 1/_DIGITS apart."""
    far = max(abs(low), abs(high)) / interval + 2
    sizes = np.arange(float(2 * _DIGITS))
    for level in range(1, 1 + max(0, math.ceil(math.log2(far / _DIGITS)))):
        sizes = np.append(sizes, np.arange(_DIGITS, 2.0 * _DIGITS) * 2.0**level)
    places = np.concatenate([-sizes[:0:-1], sizes])
    first = np.searchsorted(places, math.floor(low / interval), "right") - 1
    last = np.searchsorted(places, math.ceil(high / interval))
    return places[first : max(first + 1, last) + 1]  # two at least, where every loss rounds to 0


@dataclass(frozen=True)
class _Window:
    """A tilt for an epsilon, and the losses between which all but all of the tilted law lies."""

    theta: float
    value: float  # log of the moment generating function at theta
    bottom: float
    top: float
    missing: float  # delta of what lies above

    @property
    def width(self) -> float:
        return self.top - self.bottom

    @staticmethod
    def of(cumulants: _Cumulants, interval: float, epsilon: float) -> _Window:
        """The narrowest of a few tilts up to the saddle point. Any is valid: what they cost is charged."""
        saddle = cumulants.saddle(epsilon)
        log_delta = cumulants.log_delta(saddle, epsilon)
        log_rounding = math.log(500 * UNIT * cumulants.count) - _LOG_ROUNDING - log_delta
        windows = []
        for share in _TILTS:
            theta = share * saddle
            value, _, variance = cumulants.at(theta)
            if share == 1 or log_rounding + value - theta * epsilon <= 0:
                log_tail = min(0.0, _LOG_TAIL + log_delta - value + theta * epsilon)
                windows.append(_Window._between_tails(cumulants, interval, theta, value, variance, log_tail))
        return min(windows, key=lambda window: window.width)

    @staticmethod
    def _between_tails(
        cumulants: _Cumulants, interval: float, theta: float, value: float, variance: float, log_tail: float
    ) -> _Window:
        """By Chernoff's bounds on the tails of the tilted law."""
        steps = [2.0**size / math.sqrt(max(variance, 1e-300)) for size in range(-1, 6)]
        above = [(cumulants.at(theta + s)[0], s) for s in steps]
        below = [(cumulants.at(theta - s)[0], s) for s in steps]
        top = min(min((k - value - log_tail) / s for k, s in above), cumulants.highest + interval)
        bottom = max(max((value - k + log_tail) / s for k, s in below), cumulants.lowest - interval)
        missing = 0.0
        if top < cumulants.highest:
            missing = min(math.exp(min(0.0, k - (theta + s) * top)) for k, s in above)
        return _Window(theta, value, bottom, top, missing)


@dataclass(frozen=True)
class _Composed:
    """Tilted masses in a window, the logarithms that tilt them back, and what is charged besides."""

    losses: Array
    mass: Array
    log_back: Array
    error: float  # of all masses together, in the 2-norm
    missing: float
    raised: float
    log_factor: float

    @staticmethod
    def of(parts: _Parts, epsilon: float) -> _Composed | None:
        """All parts, in the window of `epsilon`; None where that is beyond memory."""
        window, interval, raised = parts.window, parts.interval, parts.raised
        theta, value = window.theta, window.value
        bottom = min(window.bottom, epsilon) - 4 * raised
        points = max(2.0, (window.top - bottom) / interval + 4)
        if not points <= _MOST_POINTS:
            return None
        size, first = 1 << math.ceil(math.log2(points)), math.floor(bottom / interval) - 1
        offset, folded = 0, []
        for part, count in parts.losses:
            # Twice the root of the factor, which is beyond a double where the mass is nearly 0.
            half = np.exp((theta * part.losses - part.moments(theta)[0]) / 2)
            tilted = part.mass * half * half
            tilted /= tilted.sum()
            centre = round(float(np.sum(tilted * part.places)))
            folded.append((np.bincount((part.places - centre) % size, tilted, size).astype(float), count))
            offset += count * centre
        total = law_of_sum(folded, size)
        mass = np.roll(total.law, offset - first)
        losses = interval * (first + np.arange(size, dtype=float))
        widest = max(float(np.abs(part.losses[[0, -1]]).max()) for part, _ in parts.losses)
        count = parts.cumulants.count
        # The sums of M are pairwise, and were divided by again: what is left is covered twenty times over.
        log_factor = _U * (256 + count * (64 + 4 * abs(theta) * widest) + 8 * (abs(value) + abs(theta * epsilon)))
        log_factor += sum(count * part.mass_error for part, count in parts.losses)
        missing = window.missing + parts.lost
        return _Composed(losses, mass, value - theta * losses, total.norm, missing, raised, log_factor)

    @cached_property
    def back(self) -> Array:
        return np.where(self.log_back > 300, np.inf, np.exp(np.minimum(self.log_back, 300.0)))

    def delta(self, epsilon: float) -> float:
        epsilon -= self.raised
        if epsilon < self.losses[0]:  # the window says nothing about it
            return 1.0
        over = self.losses > epsilon
        if not np.any(over):
            return self.missing * math.exp(self.log_factor)
        if self.back[over][0] == math.inf:  # far from where the law was tilted to: useless
            return 1.0
        gain = self.back[over] * -np.expm1(epsilon - self.losses[over])
        top = float(gain.max())
        # In units of the largest: the square of a gain below 1e-162 is 0, and nothing would be charged.
        rounding = self.error * top * float(np.linalg.norm(gain / top)) if top > 0 else 0.0
        shown = max(0.0, float(np.sum(gain * self.mass[over])))  # rounding leaves masses below 0 too
        return (shown + rounding + self.missing) * math.exp(self.log_factor)

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon >= 0 that the window shows, from above; `inf` where there is none."""
        low = max(0.0, float(self.losses[0]) + 2 * self.raised)
        high = max(low, float(self.losses[-1]) + 2 * self.raised)
        if self.delta(low) <= delta:
            return low
        if not self.delta(high) <= delta:
            return math.inf
        from scipy import optimize  # here, so that importing plrvo does not wait for it

        width, target = 1e-13 * high, math.log(delta)
        root = float(optimize.toms748(lambda e: math.log(self.delta(e)) - target, low, high, xtol=width, rtol=1e-13))
        while not self.delta(root) <= delta:
            root, width = root + width, 2 * width
        return root


class _Cumulants:
    """log of the moment generating function of the total loss, and two derivatives."""

    def __init__(self, parts: Sequence[tuple[Loss, int]]) -> None:
        self._parts = parts
        self.count = sum(times for _, times in parts)
        self.highest = sum(times * float(part.losses[-1]) for part, times in parts)
        self.lowest = sum(times * float(part.losses[0]) for part, times in parts)

    def at(self, theta: float) -> tuple[float, float, float]:
        found = [(times, part.moments(theta)) for part, times in self._parts]
        value, mean, variance = (sum(times * one[i] for times, one in found) for i in range(3))
        return value, mean, variance

    def log_delta(self, theta: float, epsilon: float) -> float:
        """About log delta at an epsilon, by the saddle point approximation with any theta near its saddle point."""
        value, mean, variance = self.at(theta)
        spread = math.sqrt(2 * math.pi * max(variance, 1e-300))
        value -= theta * epsilon + (epsilon - mean) ** 2 / (2 * max(variance, 1e-300))
        return min(0.0, value - math.log(1 + theta * (1 + theta) * spread))

    def estimate(self, delta: float) -> Estimate:
        """About the epsilon at this delta, by the same approximation."""
        low, high, target = -4.0, 5.0, math.log(delta)  # log10 theta
        for _ in range(16):
            middle = (low + high) / 2
            theta = 10.0**middle
            low, high = (middle, high) if self.log_delta(theta, self.at(theta)[1]) > target else (low, middle)
        return Estimate(max(0.0, self.at(10.0**high)[1]), 10.0**high)

    def saddle(self, epsilon: float) -> float:
        """theta > 0 at which the tilted mean is about epsilon. Any value is valid; a good one makes errors small."""
        low, high = 0.0, 1.0
        while self.at(high)[1] < epsilon and high < 1e6:
            low, high = high, 4 * high
        for _ in range(14):
            middle = (low + high) / 2
            if self.at(middle)[1] < epsilon:
                low = middle
            else:
                high = middle
        return high
