"""What an attacker provably reaches: a lower bound on any epsilon that is valid for all clipped gradients.

The attacked gradient is fixed: norm C, spread equally over m coordinates. A coordinate's output is quantised into
intervals (a post-processing, so nothing is overstated), which gives an exact pair of discrete distributions; m of them,
the sampling coin, and T steps are composed so that every approximation errs downwards (`lattice`).

With a shared scale the coordinates are not independent; the bound then attacks one of them, or counts the signs of all
(`signs`), whichever shows more. On a grid the attacked
gradient is one of whole cells, no longer than the clip, and intervals end between cells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
from scipy import special

from plrvo.accounting.lattice import Atoms, ComposedLoss, compose
from plrvo.accounting.merge import merge
from plrvo.accounting.signs import sign_count
from plrvo.accounting.transform import law_of_sum
from plrvo.accounting.workload import Workload
from plrvo.noise.base import Array, Noise

Entry = tuple[Noise, Workload]

_SIZE = 1 << 16  # points of the lattice for the loss of many coordinates
_MOST_KINDS = 32  # of steps that are attacked
_MOST_STEPS = 10**10
_MAX_SPREAD = 1 << 14
_LARGEST_SIGNAL = 30.0  # length of a gradient in units of the noise
_SHORTEST = 1e-100  # in the same units: what a shorter gradient shows is nothing


def lower_loss(entries: Sequence[Entry], delta: float) -> ComposedLoss:
    """The composed loss of all entries, on which epsilon near this delta can be read."""
    few = _few_kinds(_few_steps(entries))
    found = compose([(_attack(*entry), entry[1].steps) for entry in few], delta)
    if any(noise.shared and work.dimension > 1 for noise, work in few):
        by_signs = compose([(_attack(*entry, signs=True), entry[1].steps) for entry in few], delta)
        found = max(found, by_signs, key=lambda loss: loss.epsilon(delta))
    return found


def _few_steps(entries: Sequence[Entry]) -> list[Entry]:
    """So many that the rounding of masses, 1e-11 a step, leaves something of a loss: an attacker may look at fewer."""
    steps = sum(work.steps for _, work in entries)
    share = 1.0 if steps <= _MOST_STEPS else _MOST_STEPS / 5 / steps
    return [(noise, replace(work, steps=max(1, int(share * work.steps)))) for noise, work in entries]


def _attack(noise: Noise, work: Workload, signs: bool = False) -> Atoms:
    """One step of a workload; with `signs`, those of all coordinates are counted where they share a scale."""
    unit, clip = _in_units(noise, work.clip)
    if signs and unit.shared and unit.seed is not None and work.dimension > 1:
        clip = min(clip, _LARGEST_SIGNAL / math.sqrt(unit.fisher_information()))
        return sign_count(unit.seed, clip, work.dimension, work.sample_rate)
    return _step(unit, clip, work.dimension, work.sample_rate)


def one_gradient_loss(
    noise: Noise, clip: float, dimension: int, rows: Sequence[tuple[float, int]], delta: float
) -> ComposedLoss:
    """The composed loss of rows that one and the same gradient moves: `rows` are pairs (factor, how many such rows).

    The gradient has norm `clip`, or less where that is beyond any use, and the spread that is worst for all rows
    together at order 2. A row shows factor times it.
    """
    noise, clip = _in_units(noise, clip)
    if clip < _SHORTEST:
        return compose([(Atoms(np.ones(1), np.ones(1)), 1)], delta)
    clip, spread = _within_sight(noise, clip, dimension, rows)
    parts = [(_released(noise, factor * clip / math.sqrt(spread), spread), count) for factor, count in rows]
    return compose(parts, delta)


def blocks_loss(
    noise: Noise, clip: float, dimension: int, rows: Sequence[tuple[float, int]], q: float, blocks: int, delta: float
) -> ComposedLoss:
    """As `one_gradient_loss`, for `blocks` independent blocks of such rows; one coin of probability q for each."""
    noise, clip = _in_units(noise, clip)
    if clip < _SHORTEST:
        return compose([(Atoms(np.ones(1), np.ones(1)), 1)], delta)
    clip, spread = _within_sight(noise, clip, dimension, rows)
    kinds = [_symmetric(noise, factor * clip / math.sqrt(spread), spread * count) for factor, count in rows]
    pair = _many(kinds)
    return compose([(Atoms((1 - q) * pair.q + q * pair.p, pair.q), blocks)], delta)


def _within_sight(noise: Noise, clip: float, dimension: int, rows: Sequence[tuple[float, int]]) -> tuple[float, int]:
    """The length of the attacked gradient, and the spread that is worst for all rows together at order 2."""
    information = noise.fisher_information()
    clip = min(clip, _LARGEST_SIGNAL / math.sqrt(information) / max(factor for factor, _ in rows))
    spread = 1
    if not noise.shared:
        size = clip * math.sqrt(information) * max(factor for factor, _ in rows)
        counts = 2 ** np.arange(int(math.log2(min(dimension, _MAX_SPREAD, max(1.0, (size / 0.003) ** 2)))) + 1)
        cost = np.sum([n * counts * noise.log_moment(f * clip / np.sqrt(counts), 2) for f, n in rows], axis=0)
        spread = int(counts[np.argmax(cost > cost.max() * (1 - 1e-9))])
    return clip, spread


def _few_kinds(entries: Sequence[Entry]) -> list[Entry]:
    """At most a few kinds of step, no more revealing: shorter gradients, smaller rates, and what is left over left out.

    A smaller rate is a post-processing (pass an output on with probability q'/q, and else noise of one's own), a
    shorter gradient is within the clip, and noises are measured in their own units first, where they have them.
    """
    kinds = [(_in_units(noise, work.clip), work) for noise, work in entries]
    if len(kinds) <= _MOST_KINDS:
        return list(entries)
    steps = [(noise, replace(work, clip=clip)) for (noise, clip), work in kinds]
    for ratio in (1e-6, 1e-4, 1e-3, 1e-2, 1e-1):
        groups: dict[tuple[Noise, int, int, int], list[Workload]] = {}
        for noise, work in steps:
            place = (math.floor(math.log(work.clip) / ratio), math.floor(math.log(work.sample_rate) / ratio))
            groups.setdefault((noise, work.dimension, *place), []).append(work)
        if len(groups) <= _MOST_KINDS:
            break
    merged = [
        (
            noise,
            Workload(
                min(w.sample_rate for w in same), sum(w.steps for w in same), min(w.clip for w in same), dimension
            ),
        )
        for (noise, dimension, _, _), same in groups.items()
    ]
    merged.sort(key=lambda e: e[1].steps * (e[1].clip * e[1].sample_rate) ** 2 * e[0].fisher_information())
    return merged[-_MOST_KINDS:]


def _in_units(noise: Noise, clip: float) -> tuple[Noise, float]:
    unit, width = noise.in_units()
    return unit, clip if unit is noise else clip / width * (1 - 2.0**-50)


@lru_cache(maxsize=64)
def _step(noise: Noise, clip: float, dimension: int, q: float) -> Atoms:
    """One step: mixture with the coin against no example (the direction in which the example is removed)."""
    if clip * math.sqrt(noise.fisher_information()) < _SHORTEST:
        return Atoms(np.ones(1), np.ones(1))
    # Far beyond any use, where losses would leave the range of doubles, a shorter gradient is attacked instead.
    clip = min(clip, _LARGEST_SIGNAL / math.sqrt(noise.fisher_information()))
    spread = _spread(noise, clip, dimension)
    x = clip / math.sqrt(spread)
    if noise.cell:
        x = noise.cell * math.floor(x / noise.cell)
        if x == 0:  # a grid so coarse that no gradient of whole cells is within the clip
            return Atoms(np.ones(1), np.ones(1))
    return _released(noise, x, spread, q)


def _released(noise: Noise, x: float, spread: int, q: float = 1.0) -> Atoms:
    """`spread` coordinates that move by x each with probability q, against none that move.

    An interval to the right of the middle has mass `high` where they move and `low` where not, and its mirror image
    the other way round. The divergence grows in every mass of P and falls in every mass of Q, so that P is taken from
    below and Q from above, by what each may err.
    """
    if spread > 1:
        pair = _many([_symmetric(noise, x, spread)])
        return Atoms((1 - q) * pair.q + q * pair.p, pair.q)
    (high, high_error), (low, low_error) = _coordinate(noise, x)
    nothing = Atoms(np.ones(1), np.ones(1))  # what is shown is less than the rounding of probabilities
    if not high.size:
        return nothing
    least = np.append(np.maximum(low - low_error, 0.0), np.maximum(high - high_error, 0.0))
    most = np.append(high + high_error, low + low_error)
    p = (1 - q) * np.roll(least, len(high)) + q * least
    keep = p > 1e-200 * np.append(high, high)
    if not keep.any():
        return nothing
    # A loss of more than 460 counts as one of 460: rounded down.
    return Atoms(p[keep], np.maximum(most, 1e-200 * p)[keep])


def _spread(noise: Noise, clip: float, dimension: int) -> int:
    """The power of two over which a gradient is worst at order 2; the smallest one in a tie.

    Spreading further than to shifts of a few thousandths of the noise's size gains nothing that could be seen.
    """
    if noise.shared:
        return 1
    size = clip * math.sqrt(noise.fisher_information())
    most = min(dimension, _MAX_SPREAD, max(1.0, (size / 0.003) ** 2))
    if noise.cell:  # a gradient on the grid moves a coordinate by a whole cell or not at all
        most = min(most, max(1.0, (clip / noise.cell) ** 2))
    counts = 2 ** np.arange(int(math.log2(most)) + 1)
    cost = counts * noise.log_moment(clip / np.sqrt(counts), 2)
    return int(counts[np.argmax(cost > cost.max() * (1 - 1e-9))])


def _coordinate(noise: Noise, x: float) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """Masses of intervals to the right of x/2, moved by x and not moved, with errors. The left is the mirror image."""
    scale = 1 / math.sqrt(noise.fisher_information())
    near = np.linspace(0.0, x / 2, 257)[:-1]
    far = np.concatenate([np.linspace(0.0, 12.0, 2400), np.geomspace(12.0, 1e9, 300)[1:], [np.inf]])
    t = np.concatenate([near, x / 2 + scale * far])
    if noise.cell:  # borders between cells of the output, whose middle is at x/2
        border = 0.5 * (1 + round(x / noise.cell) % 2)
        t = np.unique(np.ceil(t / noise.cell - border) + border) * noise.cell
    (high, high_error), (low, low_error) = _mass(noise, t - x / 2), _mass(noise, t + x / 2)
    keep = high > 1e-60
    return (high[keep], high_error[keep]), (low[keep], low_error[keep])


def _mass(noise: Noise, edges: Array) -> tuple[Array, Array]:
    """Probability of each interval, from whichever tail is smaller, and what it may err by.

    A tail t errs by less than 2^-50 (8 + |log t|) of itself: the rounding of its edge and of the logarithm that it
    is made of (tests compare with mpmath). The other end of the interval has the smaller tail.
    """
    lower_tail, upper_tail = noise.cdf(edges), noise.cdf(-edges)
    below = edges[:-1] < 0
    tail = np.where(below, lower_tail[1:], upper_tail[:-1])
    mass = np.maximum(np.where(below, np.diff(lower_tail), -np.diff(upper_tail)), 0.0)
    return mass, np.asarray(2.0**-49 * (8 * tail - special.xlogy(tail, tail)), dtype=float)


def _symmetric(noise: Noise, x: float, count: int) -> tuple[Array, Array, int]:
    """Losses of intervals and masses of them with their mirror images, both from below, for so many coordinates."""
    (high, high_error), (low, low_error) = _coordinate(noise, x)
    # No larger than it is, and 0 where rounding leaves no sign of it.
    loss = np.log(np.maximum(high - high_error, 1e-300) / np.maximum(low + low_error, high * 1e-200))
    return np.maximum(loss, 0.0), np.maximum(high - high_error + low - low_error, 0.0), count


def _many(kinds: Sequence[tuple[Array, Array, int]]) -> Atoms:
    """Independent coordinates of several kinds (losses, masses, how many), with losses on a lattice.

    An interval and its mirror image have losses +l and -l, and `mass` together. Intervals are merged so that l is a
    lattice point (`merge`), and their mirror images in the same way, so that the sum of all losses is exact. Where l is
    rounded down the two are exchanged with a small probability, a post-processing that keeps their mass.
    """
    kinds = [kind for kind in kinds if np.any(kind[0] > 0)]
    if not kinds:
        return Atoms(np.ones(1), np.ones(1))
    # The size of the sum: its mean and twelve standard deviations.
    squares = sum(count * float(np.sum(mass * loss**2)) for loss, mass, count in kinds)
    most = sum(count * float(loss.max()) for loss, _, count in kinds)
    room = min(most, squares / 2 + 12 * math.sqrt(squares)) / (_SIZE / 2 - 8)
    # The step is chosen so that the heaviest losses (all but all of them for Laplace noise) balance on the lattice.
    loss, mass, _ = max(kinds, key=lambda kind: kind[2] * float(np.sum(kind[1] * kind[0] ** 2)))
    heavy = float(loss[np.argmax(mass * loss**2)])
    levels = max(1, min(4096, math.floor(heavy / room)))
    near = np.abs(loss - heavy) <= heavy / levels
    odds = np.sum(mass[near] / (1 + np.exp(-loss[near]))) / np.sum(mass[near] / (1 + np.exp(loss[near])))
    heavy = max(float(np.log(odds)), heavy / 2)
    heavy -= min(2.0**-37, 1e-4 * heavy)  # below all losses that rounding alone makes different
    step = heavy / levels
    rows = []
    for loss, mass, count in kinds:
        high, low = mass / (1 + np.exp(-loss)), mass / (1 + np.exp(loss))
        ways = [merge(high, low, step, downwards=downwards) for downwards in (False, True)]
        pair = max(ways, key=lambda way: float(np.sum((way.mass + way.other) * way.places.astype(float) ** 2)))
        row: Array = np.zeros(_SIZE)
        fits = pair.places < _SIZE // 2  # what does not fit is left out
        # No loss is below 0, unless by rounding: -l would count as +l.
        places, both = np.maximum(pair.places[fits], 0), (pair.mass + pair.other)[fits]
        share = 1 / (1 + np.exp(-step * places))  # of the mass of +l and -l that lies at +l, with the example
        row += np.bincount(places % _SIZE, both * (1 - share), minlength=_SIZE)
        row += np.bincount(-places % _SIZE, both * share, minlength=_SIZE)
        rows.append((row, count))
    total = law_of_sum(rows, _SIZE)
    # Without the example the loss leans to the left: its left half is known best; the right one follows by symmetry.
    # What comes back there, having left the window on the right, or on the left a second time, is charged.
    mirrored = [(row[-np.arange(_SIZE)], count) for row, count in rows]
    error = total.error + _beyond(rows, _SIZE // 2) + _beyond(mirrored, _SIZE)
    half = np.arange(1, _SIZE // 2)
    without = np.maximum(total.law[-half] - error, 0.0)
    centre = max(0.0, float(total.law[0]) - error)
    tilt = np.exp(-step * half)
    q = np.concatenate([without[::-1], [centre], without * tilt])
    p = np.concatenate([(without * tilt)[::-1], [centre], without])
    keep = (p > 0) & (q > 0)
    return Atoms(p[keep], q[keep])


def _beyond(rows: Sequence[tuple[Array, int]], end: int) -> float:
    """Chernoff's bound on the probability of a sum of `end` or more; indices of the right half are negative."""
    laws = []
    for law, count in rows:
        filled = np.flatnonzero(law)
        laws.append((np.where(filled < _SIZE // 2, filled, filled - _SIZE), law[filled], count))
    if sum(count * int(index.max()) for index, _, count in laws) < end:
        return 0.0
    tilts = np.geomspace(1e-4, 10.0, 41)[:, None] / max(int(index.max()) for index, _, _ in laws)
    exponents = -tilts[:, 0] * end
    for index, mass, count in laws:
        exponents = exponents + count * special.logsumexp(tilts * index, b=mass, axis=1)
    return math.exp(min(0.0, float(exponents.min())))
