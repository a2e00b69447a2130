"""Composition of steps through the law of their privacy loss, from above: `pld` and `profile`.

A step is a pair of hypotheses, given as the law of the loss L = log dP/dQ under the first, on a grid of losses
(`losses`). The steps are composed by a Fourier transform, and

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
epsilon, where theta is about 2 log(1/delta)/epsilon. With h = epsilon/(105 sqrt(T)), or epsilon/2100 if that is less,
epsilon grows by a few parts in ten thousand. h is wider where the composed distribution would have more than a million
points. Steps that are taken very often are composed to units first (`repeated`), which have a grid of their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from plrvo.accounting.losses import Loss, Step
from plrvo.accounting.repeated import Repeated, in_units
from plrvo.accounting.root import root_between
from plrvo.accounting.transform import law_of_sum
from plrvo.accounting.window import Cumulants, Estimate, Window
from plrvo.noise.base import Array

_U = 2.0**-53
_SOME_POINTS, _MOST_POINTS = 1 << 20, 1 << 22  # of a composed distribution: intervals become wider, and the end
_NEAR = 1.02  # times its estimate: where a composition in stages ends above it, one at once is tried
_COARSE = 4.0  # times the interval, where a coarse grid will do
_ABOUT_ONE, _LARGE_DELTA = 2.0, 1e-6  # what a coarse grid is for, and the least delta that it is asked about
_CUT = 1e-15  # share of delta that the tails of all steps may cost


@lru_cache(maxsize=256)
def estimate(steps: tuple[Step, ...], delta: float, guess: float) -> Estimate:
    """Of all steps together; `guess` sets the grid, which may be coarse. `inf` where losses do not fit into memory."""
    if not all(part.moderate for part in steps):
        return Estimate(math.inf, math.inf)
    losses, _ = _losses(steps, guess, delta, added=False, times=_COARSE)
    return Cumulants.of(losses).estimate(delta)


def composed_epsilon(steps: Sequence[Step], delta: float, guess: float) -> float:
    """An upper bound on the epsilon of all steps, in both directions; `guess` (an upper bound) sets the grid."""
    return _in_both_directions(tuple(steps), delta, guess)


@lru_cache(maxsize=256)
def _in_both_directions(steps: tuple[Step, ...], delta: float, guess: float) -> float:
    about = estimate(steps, delta, guess)
    in_stages = tuple(in_units(part, about.theta) for part in steps)
    found = _both(in_stages, delta, guess, min(guess, about.epsilon))
    if in_stages != steps and not found <= _NEAR * about.epsilon:  # rare large losses: units have too coarse a grid
        found = min(found, _both(steps, delta, guess, min(guess, about.epsilon)))
    return found


def _both(steps: tuple[Step, ...], delta: float, guess: float, target: float) -> float:
    removed = _epsilon(steps, delta, target, added=False)
    if not removed < math.inf:
        return math.inf
    # Removing an example shows more as a rule, and then one look at the other direction is enough, often a coarse one.
    for times in (_COARSE, 1):
        parts = _parts(steps, removed or guess, delta, added=True, times=times)
        if parts.highest <= removed and parts.lost <= delta:
            return removed
        other = _Composed.of(parts, removed)
        if other is not None and other.delta(removed) <= delta:
            return removed
    return max(removed, _epsilon(steps, delta, removed or guess, added=True))


def composed_delta(steps: Sequence[Step], epsilon: float) -> float:
    """An upper bound on the delta of all steps, in both directions."""
    if not all(part.moderate for part in steps):
        return 1.0
    both = [_delta(steps, epsilon, added) for added in (False, True)]
    return min(1.0, max(both)) if all(delta >= 0 for delta in both) else 1.0  # max(0.3, nan) is 0.3


def coarse_deltas(steps: Sequence[Step], epsilons: Sequence[float]) -> list[float]:
    """Upper bounds on the deltas at several epsilons, in both directions: quick, and good where deltas are large."""
    if not all(part.moderate for part in steps):
        return [1.0] * len(epsilons)
    # A grid for an epsilon of about one: where deltas are large theta is small, and so is what the grid adds.
    least = max(min(epsilons), 1e-9)
    both = []
    for added in (False, True):
        parts = _parts(steps, least, _LARGE_DELTA, added, times=_ABOUT_ONE / least)
        composed = _Composed.of(parts, least)
        both.append([1.0 if composed is None else composed.delta(epsilon) for epsilon in epsilons])
    return [min(1.0, max(one)) if all(delta >= 0 for delta in one) else 1.0 for one in zip(*both, strict=True)]


def _epsilon(steps: Sequence[Step], delta: float, target: float, added: bool) -> float:
    """The grid and the window are those of `target`, which should be near."""
    best = math.inf
    long = any(isinstance(part, Repeated) for part in steps)
    for _ in range(3 if long else 8):  # each time for the epsilon that was found; all of them are bounds
        composed = _Composed.of(_parts(steps, target, delta, added), target)
        found = math.inf if composed is None else composed.epsilon(delta)
        if not found < best:
            break
        best, target, step = found, found, abs(target - found)
        if step <= 0.06 * best:
            break
    return best


def _delta(steps: Sequence[Step], epsilon: float, added: bool) -> float:
    in_stages = [in_units(part, 1.0) for part in steps]
    if in_stages == list(steps):
        return _delta_of(steps, epsilon, added)
    cumulants = Cumulants.of(_losses(steps, epsilon, 1e-20, added, _COARSE)[0])
    theta = cumulants.saddle(epsilon)
    found = _delta_of([in_units(part, theta) for part in steps], epsilon, added)
    if not found <= 2 * math.exp(cumulants.log_delta(theta, epsilon)):  # as for epsilon
        found = min(found, _delta_of(steps, epsilon, added))
    return found


def _delta_of(steps: Sequence[Step], epsilon: float, added: bool) -> float:
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
    cumulants: Cumulants
    window: Window

    @property
    def interval(self) -> float:
        return self.losses[0][0].interval

    @property
    def lost(self) -> float:
        return sum(times * part.lost for part, times in self.losses)

    @property
    def raised(self) -> float:
        return sum(times * part.error for part, times in self.losses)

    @property
    def highest(self) -> float:
        return self.cumulants.highest + self.raised


def _losses(
    steps: Sequence[Step], epsilon: float, delta: float, added: bool, times: float
) -> tuple[list[tuple[Loss, int]], float]:
    """On the grid of an epsilon, with an interval so many times as wide; and the interval."""
    count = sum(part.count for part in steps)
    log_cut = max(math.log(delta) + math.log(_CUT / (2 * count)), -690.0)
    times /= 1.4 if any(isinstance(part, Repeated) for part in steps) else 1.0  # they have been spread already
    interval = times * max(1e-12, min(1e-2, epsilon / max(2100.0, 105 * math.sqrt(count))))
    return [(part.loss(interval, log_cut, added), part.count) for part in steps], interval


def _parts(steps: Sequence[Step], epsilon: float, delta: float, added: bool, times: float = 1.0) -> _Parts:
    before = math.inf
    while True:
        losses, interval = _losses(steps, epsilon, delta, added, times)
        cumulants = Cumulants.of(losses)
        window = Window.of(cumulants, interval, epsilon)
        excess = window.width / interval / _SOME_POINTS
        if excess <= 1 or excess > 0.99 * before:  # more steps than points, all of one loss: no interval will do
            return _Parts(losses, cumulants, window)
        times, before = 1.1 * excess * times, excess


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
            half = np.exp((theta * part.losses - part.law.moments(theta)[0]) / 2)
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
        over = slice(int(np.searchsorted(self.losses, epsilon, "right")), None)
        back = self.back[over]
        if not len(back):
            return self.missing * math.exp(self.log_factor)
        if back[0] == math.inf:  # far from where the law was tilted to: useless
            return 1.0
        gain = back * -np.expm1(epsilon - self.losses[over])
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
        width, target = 1e-13 * high, math.log(delta)
        # Above the highest loss nothing is left where no outcome has an infinite one.
        root = root_between(lambda e: math.log(max(self.delta(e), 5e-324)) - target, low, high, width)
        while not self.delta(root) <= delta:
            root, width = root + width, 2 * width
        return root
