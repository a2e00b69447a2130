"""Composition of pairs (P, Q) through the distribution of the loss log(P/Q) under P, erring on the lower side only.

The hockey-stick divergence of composed pairs is E_P[(1 - e^(epsilon - sum of losses))_+], increasing in every loss. So
each of these keeps it a lower bound: merging atoms (a post-processing of the outputs), rounding a loss down, and
dropping P-mass. One step is merged onto a lattice (`to_lattice`), once; the sum of T such losses is on the lattice too,
and nothing is rounded down again.

**The transform.** Its rounding is nothing in the bulk of a distribution and everything in a tail. So masses are tilted
by e^(theta l)/M(theta) towards the epsilon in question, composed, and tilted back. What leaves the window on either
side comes back on the other one, and would add to a mass there. The probability of that, under the tilted law, has
Chernoff's bound, which is subtracted from every point, and so is the bound of the transform's rounding (`transform`).
Where large losses are rare no tilt may be better; what leaves at the top is then a smaller loss, and costs nothing.

**Rounding.** With u = 2^-53 a mass is made in a dozen operations, a sum of at most N atoms, and a tilt, which errs by
u theta |l|: each step costs 2^-50 (16 + N + 4 theta |l|) of the mass, and 2^-50 (16 + N) (1 + |l|) of the loss.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from plrvo.accounting.law import Law
from plrvo.accounting.merge import Merged, merge
from plrvo.accounting.transform import law_of_sum
from plrvo.noise.base import Array

_SIZES = (1 << 14, 1 << 18)  # the fewest points of the lattice, and the most
_MERGED = 1e-4  # of epsilon that merging may cost: T steps cost about 50 T / size^2
_LOG_TAIL = math.log(1e-10)  # of the tilted law, outside the window
_AT_ONCE, _UNIT_SIZE = 20_000, 1 << 16  # steps that are composed in one stage, and points of the lattice before that
_LOG_UNIT_TAIL = math.log(1e-24)  # of a unit, outside its window: it may be one of many millions
_CUT = 1e-4  # share of delta below which losses beyond a cap are as likely; they are lowered to it
_LITTLE = 1e-4  # of a moment: what merging may take without another way being tried
_HAIR = 2.0**-50


@dataclass(frozen=True)
class Atoms:
    """A pair of discrete measures: masses under P and under Q of the same events."""

    p: Array
    q: Array

    @cached_property
    def losses(self) -> Array:
        return np.log(self.p / self.q)

    @cached_property
    def law(self) -> Law:
        return Law(self.losses, self.p)


def compose(parts: Sequence[tuple[Atoms, int]], delta: float) -> ComposedLoss:
    """The given pairs, each so many times, all independent."""
    share = _CUT * delta / len(parts)
    parts = [(_capped(atoms, share / times), times) for atoms, times in parts]
    if any(times > _AT_ONCE for _, times in parts):
        theta = _tilt([(atoms.law.binned, times) for atoms, times in parts], delta)
        parts = [_in_units(atoms, times, theta) for atoms, times in parts]
    steps = sum(times for _, times in parts)
    size = 1 << math.ceil(math.log2(min(max(math.sqrt(50 * steps / _MERGED), _SIZES[0]), _SIZES[1])))
    about = [(atoms.law.binned, times) for atoms, times in parts]
    theta = _tilt(about, delta)
    log_share = math.log(max(_CUT * delta, 5e-324))
    tilted, flat = _window(about, theta), _window(about, 0.0, log_share - math.log(size), log_share)
    found = _composed(parts, about, size, theta, tilted, theta)
    if flat[1] - flat[0] < (tilted[1] - tilted[0]) / 2:  # large losses are rare, and a tilt makes many of them likely
        found = max(found, _composed(parts, about, size, 0.0, flat, theta), key=lambda loss: loss.epsilon(delta))
    return found


def _in_units(atoms: Atoms, times: int, theta: float) -> tuple[Atoms, int]:
    """The same steps, but for a few that are left out, as fewer units of many steps each, where there are very many.

    A unit is composed without a tilt, as its bulk is what matters to the whole: `theta`, the tilt of the whole run,
    only says how to merge. Its masses are rounded down once more, for the exponentials that they are made with.
    """
    if times <= _AT_ONCE or not theta > 0:
        return atoms, times
    stages = math.ceil(math.log(times) / math.log(_AT_ONCE))
    about = round(times ** (1 / stages))
    many = min(range(max(2, about // 2), about + 1), key=lambda m: (times % m, -m))  # that leaves the fewest out
    law = [(atoms.law.binned, many)]
    window = _window(law, 0.0, _LOG_UNIT_TAIL, _LOG_UNIT_TAIL)
    unit = _composed([(atoms, many)], law, _UNIT_SIZE, 0.0, window, theta)
    kept = (unit.log_p > -500.0) & (unit.losses > -150.0)
    p, losses = np.exp(unit.log_p[kept] - 2.0**-40), np.minimum(unit.losses[kept], 150.0)
    return _in_units(Atoms(p, p * np.exp(-losses)), times // many, theta) if len(p) else (atoms, times)


def _composed(
    parts: Sequence[tuple[Atoms, int]],
    about: Sequence[tuple[Law, int]],
    size: int,
    theta: float,
    window: tuple[float, float],
    metric: float,
) -> ComposedLoss:
    """With masses tilted by theta; `metric` is the tilt that says which of two ways to merge is better."""
    bottom, top = window
    steps = sum(times for _, times in parts)
    widest = max(float(atoms.losses.max() - atoms.losses.min()) for atoms, _ in parts)
    # A law that ends, ends in the window. Rounding down moves a step by at most two points: room for few steps.
    bottom = max(bottom, sum(times * float(atoms.losses.min()) for atoms, times in parts))
    top = min(top, sum(times * float(atoms.losses.max()) for atoms, times in parts))
    room = 32 + min(2 * steps, size // 32)
    step = max(top - bottom, 1e-3 * widest, 1e-9) / (size - 32 - room)
    heaviest = max(range(len(parts)), key=lambda i: parts[i][1] * about[i][0].moments(theta)[2])
    heavy = [_heavy(atoms, law) for (atoms, _), (law, _) in zip(parts, about, strict=True)]
    step = _fitted(heavy[heaviest], step)

    merged = [(_merged(atoms, step, low, metric), times) for (atoms, times), (low, _) in zip(parts, heavy, strict=True)]
    laws = [(Law(part.losses, part.mass), times) for part, times in merged]
    found = [law.moments(theta) for law, _ in laws]
    value = math.fsum(times * one[0] for one, (_, times) in zip(found, laws, strict=True))
    offset, folded = 0, []
    for (part, times), (log_moment, mean, _) in zip(merged, found, strict=True):
        tilted = np.exp(np.log(part.mass) + theta * part.losses - log_moment - 2.0**-46)
        centre = round((mean - part.origin) / step)
        folded.append((np.bincount((part.places - centre) % size, tilted, minlength=size).astype(float), times))
        offset += times * centre
    total = law_of_sum(folded, size)
    # The window was found for the law before merging, whose mean may be larger.
    mean = sum(times * one[1] for one, (_, times) in zip(found, laws, strict=True))
    middle = sum(times * law.moments(theta)[1] for law, times in about)
    origin = math.fsum(times * part.origin for part, times in merged)
    first = math.floor((bottom + min(0.0, mean - middle) - origin) / step) - room
    start = origin + step * first
    outside = _outside(laws, theta, start, start + step * size)
    mass = np.maximum(np.roll(total.law, offset - first) - total.error - outside, 0.0)

    largest = max(float(np.abs(law.losses).max()) for law, _ in laws)
    digits = 16 + max(part.most for part, _ in merged)
    loss_hair = _HAIR * steps * digits * (1 + largest)
    mass_hair = _HAIR * (steps * (digits + 4 * theta * largest) + 4 * (abs(value) + abs(theta * start)) + 256)
    mass_hair += 2.0**-46 * steps
    losses = start + step * np.arange(size, dtype=float)
    keep = mass > 0
    with np.errstate(divide="ignore"):
        log_p = np.log(mass[keep]) + (value - theta * losses[keep] - mass_hair)
    return ComposedLoss(losses[keep] - loss_hair, log_p)


@dataclass(frozen=True)
class ComposedLoss:
    """Losses from below, in increasing order, and logarithms of P-masses from below."""

    losses: Array
    log_p: Array

    def epsilon(self, delta: float) -> float:
        """The largest epsilon that a threshold test on the loss shows at this delta."""
        if not len(self.losses):
            return 0.0
        above_p = np.cumsum(np.exp(self.log_p[::-1])) * (1 - 2.0**-34)  # a sum of at most 2^18 terms
        gain = above_p - delta
        usable = gain > 0
        if not np.any(usable):
            return 0.0
        # In units of e^-middle, so that no mass of Q is 0: where it would be, it is taken to be more.
        middle = float(self.losses[np.flatnonzero(usable[::-1])[-1]])
        with np.errstate(over="ignore"):  # where Q is so large the threshold shows nothing
            q = np.exp((self.log_p - (self.losses - middle))[::-1])
            above_q = np.cumsum(np.maximum(q, 1e-290)) * (1 + 2.0**-34)
        found = np.log(gain[usable]) - np.log(above_q[usable])
        best = float(np.max(found)) + middle
        return max(0.0, best - 2.0**-48 * (1 + abs(best) + abs(middle)))

    def delta(self, epsilon: float) -> float:
        gain = np.maximum(-np.expm1(np.minimum(epsilon - self.losses, 0.0)), 0.0)
        return float(np.sum(np.exp(self.log_p) * gain)) * (1 - 2.0**-34)


def _tilt(parts: Sequence[tuple[Law, int]], delta: float) -> float:
    """A theta that brings the tail at epsilon near to the bulk, and leaves the bulk in sight; any value is valid.

    Chernoff's epsilon, (log M(theta) - log delta)/theta, is least at the saddle point. The loss that theta makes the
    mean has a probability of about e^-D, D = theta mean - log M; half of the saddle point's D is enough.
    """
    spread = math.sqrt(sum(times * law.moments(0.0)[2] for law, times in parts))
    if not spread > 0:
        return 0.0
    tilts = np.geomspace(1e-3, 1e4, 106) / spread
    found = [[times * np.array(law.moments(float(theta))) for law, times in parts] for theta in tilts]
    log_moments, means, _ = np.sum(found, axis=1).T
    epsilons = (log_moments - math.log(delta)) / tilts
    saddle = int(np.argmin(epsilons))
    rarity = tilts * means - log_moments
    enough = rarity >= rarity[saddle] / 2
    if rarity[saddle] > -math.log(delta) / 2:  # else epsilon is near the end of the law, which is likely enough
        enough &= epsilons <= 1.15 * epsilons[saddle]  # a rare large loss is seen all at once or not at all
    return float(tilts[np.argmax(enough)])


def _window(
    parts: Sequence[tuple[Law, int]], theta: float, log_below: float = _LOG_TAIL, log_above: float = _LOG_TAIL
) -> tuple[float, float]:
    """Losses between which all but all of the tilted law of the total lies, about."""

    def log_moment(at: float) -> float:
        return sum(times * law.moments(at)[0] for law, times in parts)

    value = log_moment(theta)
    variance = sum(times * law.moments(theta)[2] for law, times in parts)
    tilts = [2.0**size / math.sqrt(max(variance, 1e-300)) for size in range(-6, 6)]
    top = min((log_moment(theta + s) - value - log_above) / s for s in tilts)
    bottom = max((value - log_moment(theta - s) + log_below) / s for s in tilts)
    return bottom, top


def _outside(laws: Sequence[tuple[Law, int]], theta: float, bottom: float, top: float) -> float:
    """Chernoff's bound on the tilted probability of a total below `bottom`, or at `top` and above.

    Without a tilt what leaves at the top comes back as a smaller loss, and is not charged.
    """
    value = sum(times * law.moments(theta)[0] for law, times in laws)
    variance = sum(times * law.moments(theta)[2] for law, times in laws)
    tilts = [2.0**size / math.sqrt(max(variance, 1e-300)) for size in range(-4, 6)]
    bound = 0.0
    for sign, end in ((1, top), (-1, bottom)):
        furthest = sum(times * float(law.losses[-1 if sign > 0 else 0]) for law, times in laws)
        if (sign > 0 and theta == 0) or sign * (furthest - end) < -1e-9 * (1 + abs(end)):
            continue
        exponents = []
        for s in tilts:
            moment = sum(times * law.moments(theta + sign * s)[0] for law, times in laws)
            slack = 1e-12 * (abs(moment) + abs(value)) + 1e-13 * sum(times for _, times in laws)
            exponents.append(moment - value - sign * s * end + slack)
        bound += math.exp(min(0.0, min(exponents)))
    return bound


def _merged(atoms: Atoms, step: float, origin: float, theta: float) -> Merged:
    """Upwards or downwards, whichever leaves more of the moment that epsilon depends on."""
    upwards = merge(atoms.p, atoms.q, step, origin)
    left = Law(upwards.losses, upwards.mass).moments(theta)[0]
    if left > (1 - _LITTLE) * atoms.law.moments(theta)[0] > 0:
        return upwards
    downwards = merge(atoms.p, atoms.q, step, origin, downwards=True)
    return downwards if Law(downwards.losses, downwards.mass).moments(theta)[0] > left else upwards


def _capped(atoms: Atoms, chance: float) -> Atoms:
    """With losses that are exceeded so rarely that they hardly count lowered to one: they would widen the window."""
    order = np.argsort(atoms.losses)[::-1]
    beyond = int(np.searchsorted(np.cumsum(atoms.p[order]), chance))
    cap = float(atoms.losses[order[min(beyond, len(order) - 1)]])
    return Atoms(atoms.p, np.maximum(atoms.q, atoms.p * math.exp(-cap)))


def _heavy(atoms: Atoms, law: Law) -> tuple[float, float]:
    """Losses, slightly lowered, near which most of the mass is: the lower one becomes a lattice point.

    Laplace noise has its mass on two losses, which the rounding of masses makes many nearly equal ones.
    """
    at = law.losses[np.argsort(law.mass)[-2:]]
    near = [float(atoms.losses[np.argmin(np.abs(atoms.losses - loss))]) for loss in sorted(at)]
    return near[0] - 2.0**-38 * (1 + abs(near[0])), near[-1] - 2.0**-38 * (1 + abs(near[-1]))


def _fitted(heavy: tuple[float, float], step: float) -> float:
    """A step that is slightly larger, if both heavy losses are then on the lattice."""
    between = math.floor((heavy[1] - heavy[0]) / step)
    return (heavy[1] - heavy[0]) / between if between >= 16 else step
