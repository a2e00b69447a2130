"""Many sampled Laplace steps as the Gaussian steps of the same energy, for a small gift: `gift` (theory, Theorem 7).

A sampled Laplace step of shift t is not under the sampled Gaussian step of the same energy. After one more Gaussian
query of energy m^2, the *gift*, which is released once for the whole run, it almost is: T sampled steps have at most

    delta(epsilon) = delta of (T sampled Gaussian steps of signal t, and one Gaussian step of signal m) + T c.

**c.** With z = 1 - q + q e^y, p = q e^y / z and k the logarithm of the level that the rest of the run leaves to a step,

    omega(y) = q^2 e^(3y/2) / (z m sqrt(2 pi)) exp(-((log z - k)/m + m/2)^2 / 2)

weighs the levels y of the step. The swap lemma (Lemma 15) allows the Gaussian step wherever omega'' >= -l omega, with
l = 2/t - 1/4. With B = p (log z - k)/m^2 and h(p) = 1.75 (1-p)^2 + 1.5 p (1-p) + p^2/m^2,

    omega''/omega = (B - 2 (1-p))^2 - h(p):

it fails at most where h(p) > l, and only for k between log z - (m^2/p) (2 (1-p) +- sqrt(h - l)). There omega is
replaced by an arc A cos(sqrt(l) (y - y0)) that lies above it, and

    c = sup over k of max(1, e^-k) integral of (arc - omega)_+ w,   w(y) = e^(-|y|/2) delta_t(|y|),

delta_t(epsilon) the curve of a Gaussian step of signal t.

**From above.** k and y run over cells. For every k of a cell the integrand is at most the chord of its values at the
four corners and second derivatives times an eighth of the squared widths, which have bounds of their own:

- in y, -arc'' <= l A, omega'' <= (|B| + 2)^2 omega, and w is convex on either side of 0, so that its chord is above it;
- in k, omega'' <= ((log z - k)/m + m/2)^2 omega/m^2, and log omega is above its chord by at most (k-width/m)^2/8;
- the arc lies above omega where the lemma may fail, if it does so at the ends of these cells by the factor
  exp(y-width^2 (.4 + (p/m)^2 + |B|)/8 + (k-width/m)^2/8), since -(log omega)'' = 1.5 p (1-p) + (p/m)^2 + B (1-p).

The arcs are searched, and any arc is valid. Far out, c is at most the whole E (z R - e^k)_+ of the step and the gift,
for the Gaussian step that the Laplace step is under (`domination`), which falls in k. 1e-9 is added for the rounding of
a few dozen operations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

from plrvo.accounting.domination import SharedSteps, dominating_steps, gaussian_signal, laplace_shift, shared_steps
from plrvo.accounting.losses import Step
from plrvo.accounting.sampled_gaussian import Steps
from plrvo.accounting.workload import Workload
from plrvo.noise.base import Array, Noise

_LONGEST = 0.95  # of a shift: the lemma needs l > 1.75
_ROUNDING = 1e-9
_LEAST = 1e-4  # of the signals of gifts
_NEAR = 1.003  # the ratio of a gift to one that is too small
_CELL, _NARROWEST, _WIDEST = 0.04, 0.02, 0.4  # widths of cells, in units of the gift and of the arcs
_SPARE = 0.01  # of the budget, for large shifts of a scale that is shared: the gift depends on the largest
# Arcs that are tried: that of the cell before, those around the one that touches omega, and ever closer to the best.
_ROUNDS = ((0.0, (0,)), (1 / 8, (0, -1, 1, -2, 2)), *((1 / 8 / 3**i, (-1, 1, -2, 2)) for i in (1, 2, 3)))
_PIECE = 0.125  # of levels, with cells of one width


@dataclass(frozen=True)
class SampledLaplace:
    """`count` steps that move unit Laplace noise by a vector of norm `shift` with probability `rate`."""

    shift: float
    rate: float
    count: int


def smallest_gift(steps: Sequence[SampledLaplace], budget: float, most: float = 1.0) -> float | None:
    """About the smallest signal of a gift with which all steps cost at most the budget; None where it is above most."""
    each = budget / sum(part.count for part in steps) * (1 - _ROUNDING)
    # Down to a power of 2^(1/4): a gift hardly depends on it, and a run that goes on keeps its gift for a while.
    each = 2.0 ** (math.floor(4 * math.log2(each)) / 4) * (1 - _ROUNDING)
    if not most > _LEAST or not all(costs_at_most(each, part.shift, part.rate, most) for part in steps):
        return None
    signals = [_smallest(each, part.shift, part.rate) for part in steps]
    return None if None in signals else max(signal for signal in signals if signal is not None)


@lru_cache(maxsize=256)
def _smallest(bound: float, shift: float, rate: float) -> float | None:
    low, high, at = _LEAST, 1.0, 0.1
    while high > _NEAR * low:  # from the middle, as most gifts are not far from it
        low, high = (low, at) if costs_at_most(bound, shift, rate, at) else (at, high)
        at = max(math.sqrt(low * high), high / 2.5)  # far below it proofs take longest, and fail
    return high if high < 1 or costs_at_most(bound, shift, rate, high) else None  # only what was tried


def with_gift(entries: Sequence[tuple[Noise, Workload]], budget: float, most: float = 1.0) -> list[Step] | None:
    """Gaussian steps, the gift among them, that with `budget` more of delta show at least as much as all entries.

    None where no step is a sampled Laplace step, some step has no proof, or the gift would be above `most`.
    """
    found = _laplace_and_gaussian(entries, budget)
    if found is None or not budget > 0:
        return None
    signal = smallest_gift(found[0], budget, most)
    return None if signal is None else [Steps(signal, 1.0, 1), *found[1]]


def without_gift(entries: Sequence[tuple[Noise, Workload]], budget: float) -> list[Step] | None:
    """The same without the gift: no bound, but what no gift can go below."""
    found = _laplace_and_gaussian(entries, budget)
    return None if found is None else found[1]


def _laplace_and_gaussian(
    entries: Sequence[tuple[Noise, Workload]], budget: float
) -> tuple[list[SampledLaplace], list[Step]] | None:
    """The sampled Laplace steps, and Gaussian steps of their energy behind those that dominate all others.

    Of a shared scale the largest shift is taken, whose cost is the largest: the limit l falls in t, and w grows.
    """
    sampled, instead, others = [], list[Step](), []
    for noise, work in entries:
        shift = laplace_shift(noise, work)
        if work.sample_rate == 1 or not (noise.shared or shift is not None):
            others.append((noise, work))
            continue
        step: Steps | SharedSteps | None
        if shift is not None:
            step = Steps(shift, work.sample_rate, work.steps)
        else:
            entered = work.sample_rate * work.steps
            step = shared_steps(noise, work, _LONGEST, _SPARE * budget / entered)
            if step is None or step.pair.infinite * entered > budget:
                return None
            shift = step.longest
        sampled.append(SampledLaplace(shift, work.sample_rate, work.steps))
        instead.append(step)
    rest = dominating_steps(others)
    if not sampled or rest is None or max(part.shift for part in sampled) > _LONGEST:
        return None
    return sampled, rest + instead


@lru_cache(maxsize=1024)
def costs_at_most(bound: float, shift: float, rate: float, signal: float) -> bool:
    """Whether c <= bound is proved, by cells of k from the least at which the lemma may fail."""
    t, q, m = shift, rate, signal
    limit, bound = 2 / t - 0.25, bound * (1 - _ROUNDING)
    if t > _LONGEST or not q < 1:
        return False
    # h(p) = a p^2 - 2 p + 1.75 with a = 1/m^2 + 1/4 exceeds the limit from its root on; slightly earlier is safe.
    a = 1 / m**2 + 0.25
    first = (1 + math.sqrt(1 + a * (limit - 1.75))) / a * (1 - 1e-9)
    if first >= 1:
        return True
    levels = _Levels.of(t, q, m, limit, first)
    low, width = float(levels.lowest.min()) - 1e-9, _CELL * m
    end, beside = _end(t, q, m, low, bound), 0.0
    while low < end:
        cost, beside = levels.cost(low, low + width, bound, beside)
        if cost <= bound:
            low, width = low + width, min(2 * width, _WIDEST * m) if cost < bound / 2 else width
        elif width > _NARROWEST * m:  # wider cells cost more
            width = max(width / 4, _NARROWEST * m)
        else:
            return False
    return True


def _end(t: float, q: float, m: float, low: float, bound: float) -> float:
    """A k from which on the whole cost, which falls in k, is within the bound, and not far above the first such."""
    high, width = low, _CELL * m
    while _whole(t, q, m, high) > bound:
        low, high, width = high, high + width, 2 * width
    while high - low > _WIDEST * m:
        middle = (low + high) / 2
        low, high = (middle, high) if _whole(t, q, m, middle) > bound else (low, middle)
    return high


@dataclass(frozen=True)
class _Levels:
    """The levels y of a step, in cells, and for each cell between which k the lemma may fail somewhere in it."""

    m: float
    limit: float
    factor: float  # q^2 / (m sqrt(2 pi))
    y: Array  # the ends of cells
    log_z: Array
    p: Array
    w: Array
    highest: Array  # of a cell: k above this, no failure
    lowest: Array  # k below this, no failure
    beyond: float  # k below this, no failure above the last cell

    @staticmethod
    def of(t: float, q: float, m: float, limit: float, first: float) -> _Levels:
        root = math.sqrt(limit)
        start = math.log(first / (1 - first) * (1 - q) / q)
        bottom, top = start - 1.1 * math.pi / root, start + 2 * math.pi / root + 12 * t
        # The share p of a level grows with it, and cells become narrower: in each piece as narrow as at its end.
        pieces = np.append(np.arange(bottom, top, _PIECE), top)
        widths = _CELL * np.minimum(m / _share(pieces[1:], q), 1 / root)
        counts = np.ceil(np.diff(pieces) / widths).astype(int)
        cells = [
            np.linspace(low, high, count, endpoint=False)
            for low, high, count in zip(pieces[:-1], pieces[1:], counts, strict=True)
        ]
        y = np.union1d(np.concatenate([*cells, [top]]), [0.0] if bottom < 0 < top else [])
        p, log_z = _share(y, q), np.log1p(q * np.expm1(y))
        a = 1 / m**2 + 0.25
        # (m^2/p) sqrt(h - l) grows with p, and 2 (m^2/p) (1-p) falls.
        swing = m**2 * np.sqrt(np.maximum(a - 2 / p + (1.75 - limit) / p**2, 0.0))
        drop = 2 * m**2 * (1 - p) / p
        failing = p[1:] >= first
        highest = np.where(failing, log_z[1:] - drop[1:] + swing[1:], -np.inf)
        lowest = np.where(failing, log_z[:-1] - drop[:-1] - swing[1:], np.inf)
        factor = q**2 / (m * math.sqrt(2 * math.pi))
        beyond = float(log_z[-1] - drop[-1]) - m**2 * math.sqrt(a)
        return _Levels(m, limit, factor, y, log_z, p, _weight(np.abs(y), t), highest, lowest, beyond)

    def cost(self, low: float, high: float, enough: float, beside: float) -> tuple[float, float]:
        """An upper bound on c for k between low and high, any below `enough` will do; and where its arc was found.

        That is told as the way from the arc that touches omega, and tried first in the next cell.
        """
        if high >= self.beyond:
            return math.inf, beside
        bad = (self.highest >= low - 1e-9) & (self.lowest <= high + 1e-9)
        if not np.any(bad):
            return 0.0, beside
        where, half = np.flatnonzero(bad), math.pi / 2 / math.sqrt(self.limit)
        start, end = self.y[where[0]], self.y[where[-1] + 1]
        room = 2 * half - (end - start)
        if room <= 0 or end + 2 * half > self.y[-1] or start - 2 * half < self.y[0]:
            return math.inf, beside
        cells = slice(*np.searchsorted(self.y, [end - 2 * half, start + 2 * half]) + np.array([-1, 1]))
        scale = max(1.0, math.exp(-low)) * self.factor
        part = _Cell(self, cells, low, high, bad[cells.start : cells.stop - 1])
        touching = part.touching()
        best, nearest, around = math.inf, touching, touching + beside
        for share, places in _ROUNDS:
            for i in places:
                tried = float(min(max(around + i * share * room, end - half), start + half))
                found = scale * part.cost(tried)
                if found < best:
                    best, nearest = found, tried
                if found <= enough:
                    return best, nearest - touching
            around = nearest if share else touching
        return best, nearest - touching


class _Cell:
    """omega (without its constant factor) for the k of a cell, at the levels that an arc may reach."""

    def __init__(self, levels: _Levels, cells: slice, low: float, high: float, bad: NDArray[np.bool_]) -> None:
        m, self.limit, self.bad = levels.m, levels.limit, bad
        self.y, self.w = levels.y[cells], levels.w[cells]
        p, log_z = levels.p[cells], levels.log_z[cells]
        self.h, in_k = np.diff(self.y), (high - low) / m
        d = np.stack([(log_z - k) / m + m / 2 for k in (low, high)])
        self.omega = np.exp(1.5 * self.y - log_z - d**2 / 2)
        steep, far = (p / m)[1:], np.abs(d).max(axis=0)
        far = np.maximum(far[:-1], far[1:]) + self.h * steep
        # B = p (d - m/2)/m, whose derivative is B (1-p) + (p/m)^2.
        b = 1.1 * (steep * (far + m) + self.h * steep**2)
        self.swell = np.exp(self.h**2 / 8 * (0.4 + steep**2 + b) + in_k**2 / 8)
        most = self.omega.max(axis=0)
        most = np.maximum(most[:-1], most[1:]) * self.swell
        self.error = most * (self.h**2 / 8 * (b + 2) ** 2 + in_k**2 / 8 * far**2)

    def touching(self) -> float:
        """The centre of an arc that touches omega in the middle of where the lemma may fail."""
        middle, root = int(np.flatnonzero(self.bad).mean()), math.sqrt(self.limit)
        slope = (math.log(self.omega[:, middle + 1].sum()) - math.log(self.omega[:, middle].sum())) / self.h[middle]
        return float(self.y[middle] + math.atan(slope / root) / root)

    def cost(self, centre: float) -> float:
        """The integral of (arc - omega)_+ w for the lowest arc with this centre, at whichever k it is larger."""
        root = math.sqrt(self.limit)
        first, last = np.searchsorted(self.y, [centre - math.pi / 2 / root, centre + math.pi / 2 / root])
        ends = slice(max(0, int(first) - 1), int(last) + 1)  # the arc is 0 elsewhere
        y, w, omega = self.y[ends], self.w[ends], self.omega[:, ends]
        cells = slice(ends.start, ends.start + len(y) - 1)
        bad, h, angle = self.bad[cells], self.h[cells], root * (y - centre)
        if np.count_nonzero(bad) < np.count_nonzero(self.bad):
            return math.inf
        cosine = np.where(np.abs(angle) < math.pi / 2, np.cos(angle), 0.0)
        low, high = cosine[:-1][bad], cosine[1:][bad]
        if not min(low.min(), high.min()) > 0:
            return math.inf
        ratio = np.maximum(omega[:, :-1][:, bad] / low, omega[:, 1:][:, bad] / high)
        height = (ratio * self.swell[cells][bad]).max(axis=1) * (1 + 1e-12)
        gap = height[:, None] * cosine - omega
        error = self.error[cells] + height.max() * self.limit * h**2 / 8
        inside = np.maximum(cosine[:-1], cosine[1:]) > 0
        left, right = np.maximum(gap[:, :-1] + error, 0.0), np.maximum(gap[:, 1:] + error, 0.0)
        # The integral of a product of chords.
        chords = left @ (h / 6 * inside * (2 * w[:-1] + w[1:])) + right @ (h / 6 * inside * (w[:-1] + 2 * w[1:]))
        return float(np.max(chords))


def _share(y: Array, q: float) -> Array:
    return np.asarray(q * np.exp(y) / (1 + q * np.expm1(y)))


def _weight(y: Array, t: float) -> Array:
    """w at y >= 0, from above: the difference may cancel."""
    high, low = special.ndtr(-y / t + t / 2), special.ndtr(-y / t - t / 2)
    return np.asarray(np.exp(-y / 2) * (np.maximum(high - np.exp(y) * low, 0.0) + 1e-13 * high))


def _whole(t: float, q: float, m: float, k: float) -> float:
    """E (z R - e^k)_+ max(1, e^-k), with the Gaussian loss of the step at the upper end of each of its cells."""
    mass, z, log_z, tail = _of_a_step(t, q)
    d = (log_z - k) / m + m / 2
    first = z * special.ndtr(d)
    call = np.maximum(first - math.exp(k) * special.ndtr(d - m), 0.0) + 1e-13 * first
    return (float(mass @ call) + tail) * max(1.0, math.exp(-k)) * (1 + _ROUNDING)


@lru_cache(maxsize=16)
def _of_a_step(t: float, q: float) -> tuple[Array, Array, Array, float]:
    """Masses of the cells, z at their upper ends, its logarithm, and the mean of z beyond them."""
    signal = gaussian_signal(t, t)
    ends = np.linspace(-8.0, 38.0, 921)
    mass = np.append(special.ndtr(-8.0), special.ndtr(-ends[:-1]) - special.ndtr(-ends[1:]) * (1 - 1e-12))
    z = 1 + q * np.expm1(signal * ends - signal**2 / 2)
    # E z = E (1 - q + q e^L) is a normal tail again.
    return mass, z, np.log(z), float(special.ndtr(-38.0)) + float(special.ndtr(signal - 38.0))
