"""The dominating profile of one unsampled step: an upper bound B(a) on H_a = E_Q (R - a)_+ over all clipped gradients.

**Small and large shifts.** Gradients whose shifts are all below a fifth of the clip have `contour`'s bound. Larger
shifts are added one by one, from the smallest to the largest. If W(V) bounds H, as a function of y = log a, for all
gradients of energy V whose shifts are at most s_(j-1), then so does

    W'(V) = max(W(V), sum over losses l of p_l W'(V - s_(j-1)^2)(y - l))       for shifts up to s_j:

a shift between s_(j-1) and s_j costs at least s_(j-1)^2 of the energy, and shows at most what s_j does. (p_l) is the
first law of a pair on a lattice that dominates the shift s_j (connect the dots: `Lomax.cells` have exact masses). There
are no more than 25 such shifts, and energies are multiples of C^2/800.

**Laplace noise** has a simpler bound near a = 1: a shift s shows no more than a Gaussian of signal s sqrt(pi/2), so a
gradient no more than one of signal C sqrt(pi/2) (theory, section 14).

**Symmetry.** H_a = 1 - a + a H_(1/a), since z -> g - z exchanges the hypotheses. So W is kept for a >= 1 only.

**The pair.** Let B be an upper bound at points 1 = a_0 < ... < a_J, symmetrised: B(1/a) = 1 - 1/a + B(a)/a. The true H
is convex, H_0 = 1 and H does not increase. So it lies below the lower convex hull of (0, 1), all these points and a
horizontal ray from the last: at a point between, the hull is a mean of B at others, and so at least the same mean of
H. The hull is convex, falls from 1 at a = 0, with slope -1 at least, and is at least (1 - a)_+. Therefore it is the
profile of a pair: its jump of slope at a_j is the Q-mass of an outcome with likelihood ratio a_j, its height at
infinity the P-mass of one with ratio infinity. Being above H at every a > 0, the pair dominates both (P, Q) and (Q, P)
for every gradient, also after sampling, and steps compose (theory, section 14).

By symmetry the hull on a >= 1 is that of the points there, with the point at 1 lowered to the chords from a to 1/a,

    (2 B(a) + a - 1)/(a + 1) at a = 1,   the least over all points,

and every mass at a has a mirror image, with the hypotheses exchanged. Masses are rounded, and may be too small: they
are all raised by what brings the computed profile above B again, and by 1e-11 for its own sums.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from plrvo.accounting.contour import LARGEST_CLIP, Contour, contours
from plrvo.accounting.gaussian_curve import gaussian_delta
from plrvo.noise.base import Array
from plrvo.noise.lomax import Lomax

_SMALL = 0.2  # of the clip: shifts up to here are bounded together
ENERGIES = 800
_FIRST_LARGE = round(_SMALL**2 * ENERGIES)
_ENERGY_RATIO = 1.032  # of neighbouring large shifts
_KNOTS = 20  # every so many energies the bound for small shifts is computed; its logarithm is convex in the energy
_PER_SIGNAL = 20  # lattice points
_SINGLE_UNTIL, _UNTIL = 5.0, 13.0  # y up to which large shifts are added one by one, and the last y, in signals
_RAISED = 1e-9  # relative, for the rounding of B
_LEAST_K = 0.3  # the rules of `lomax` are tested from here on
_LEAST_SIGNAL, _LARGEST_SIGNAL = 0.3, 8.0  # below it many steps cost less otherwise, above it epsilons are of no use
_LEAST_SIGNAL_OF_FEW = 0.01  # below it masses of cells would lose more than `_RAISED` to rounding
FEW = 64  # steps
_LEVELS = 1000  # of a single coordinate
_LEAST_BOUND = 1e-300  # for what has a largest loss
_LAPLACE_MAJORANT = math.sqrt(math.pi / 2) * (1 + 2.0**-50)


@dataclass(frozen=True, eq=False)
class Profile:
    """A symmetric pair: outcomes of log ratio y >= 0, their Q-mass at y and P-mass at -y (`low`), and the reverse.

    The P-mass of a ratio of infinity is `infinite`.
    """

    y: Array
    low: Array
    high: Array
    infinite: float


@lru_cache(maxsize=64)
def profile(law: Lomax, clip: float) -> Profile | None:
    """The dominating pair of a shift by up to `clip` (in units of the law), None where it has none (`worth_while`)."""
    if not worth_while(law, clip, few=True):
        return None
    step, near, last = lattice(clip * math.sqrt(law.information))
    y = step * np.arange(last + 1.0)
    bound = energy_bounds(law, clip, y, near, first=ENERGIES)[0]
    if law.k == math.inf:
        majorant = clip * _LAPLACE_MAJORANT
        bound = np.minimum(bound, [gaussian_delta(majorant, float(at)) for at in y])
    return hull_pair(y, bound)


@lru_cache(maxsize=64)
def one_coordinate(law: Lomax, shift: float) -> Profile | None:
    """The pair of a single coordinate, whose worst shift is the largest (theory, Lemma 18); None where it has none.

    H at y = log a is 1 - e^((y - s)/2) for Laplace noise and y up to s. For others it is a sum over the cells of losses
    above y, of differences of distribution functions, which err by less than 1e-13 together. There is no loss above the
    last level, so that nothing of this is charged to delta in every step.
    """
    last = float(law.largest_loss(np.asarray(shift))) * (1 + 2.0**-50)
    if not _LEAST_SIGNAL_OF_FEW <= shift <= LARGEST_CLIP or law.k < _LEAST_K:
        return None
    y = last / _LEVELS * np.arange(_LEVELS + 1.0)
    if law.k == math.inf:
        bound = -np.expm1((y - last) / 2)
    else:
        p, q = law.cells(shift, y)
        above_p, above_q = (np.concatenate([np.cumsum(mass[::-1])[::-1], [0.0]]) for mass in (p, q))
        bound = above_p - np.exp(y) * above_q + 1e-13
        bound[-1] = 0.0
    return hull_pair(y, np.maximum(bound, _LEAST_BOUND))


def worth_while(law: Lomax, clip: float, few: bool) -> bool:
    """Whether a shift by up to `clip` has a bound that may be better than others, in few steps (`FEW`) or in many.

    The pair has the worst gradient of every level. Where shifts are small these differ, and every step pays for that.
    """
    signal = clip * math.sqrt(law.information)
    least = _LEAST_SIGNAL_OF_FEW if few else _LEAST_SIGNAL
    return least <= signal <= _LARGEST_SIGNAL and clip <= LARGEST_CLIP and law.k >= _LEAST_K


def lattice(signal: float) -> tuple[float, int, int]:
    """The step of levels y, the place up to which large shifts are added one by one, and the last place."""
    step = signal / _PER_SIGNAL
    near, last = (math.ceil((many * signal + signal**2 / 2) / step) for many in (_SINGLE_UNTIL, _UNTIL))
    return step, near, last


def energy_bounds(law: Lomax, clip: float, y: Array, near: int, first: int = 0) -> Array:
    """Bounds at the levels y, multiples of their step up to place `near`: a row for each energy j C^2/ENERGIES.

    j runs from `first` to ENERGIES.
    """
    small, whole = contours(law, clip, (_SMALL, 1.0))
    bounds = _of_energies(whole, clip, y)[first:] if first < ENERGIES else _of_energy(whole, clip**2, y)
    one_by_one = _with_large_shifts(law, clip, float(y[1]), _of_energies(small, clip, y[: near + 1]), first)
    np.minimum(bounds[:, : near + 1], one_by_one, out=bounds[:, : near + 1])
    return bounds


def _of_energies(contour: Contour, clip: float, y: Array) -> Array:
    """Its bound for all energies, by chords of its logarithm between some of them."""
    knots = np.arange(0.0, ENERGIES + 1, _KNOTS)
    at_knots = contour.log_bound(clip**2 * knots / ENERGIES)
    energies = np.arange(1, ENERGIES + 1)
    left = (energies - 1) // _KNOTS  # the knot to the left, or the one before
    share = (energies / _KNOTS - left)[:, None]
    # Any line is valid: those that are best at both knots, and the one in the middle of them.
    best = np.array([_exponents(contour, row, y).argmin(axis=1) for row in at_knots])
    exponent = np.full((ENERGIES, len(y)), np.inf)
    for line in (best[left], best[left + 1], (best[left] + best[left + 1]) // 2):
        chord = (1 - share) * at_knots[left[:, None], line] + share * at_knots[left[:, None] + 1, line]
        np.minimum(exponent, chord - y * (contour.lines[line] - 1), out=exponent)
    return np.concatenate([np.zeros((1, len(y))), np.exp(np.minimum(exponent, 0.0))])


def _of_energy(contour: Contour, energy: float, y: Array) -> Array:
    exponent = _exponents(contour, contour.log_bound(np.array([energy]))[0], y).min(axis=1)
    return np.exp(np.minimum(exponent, 0.0))[None, :]


def _exponents(contour: Contour, log_bound: Array, y: Array) -> Array:
    """Of the bound that each line gives (columns) at each level (rows)."""
    return np.asarray(log_bound - np.multiply.outer(y, contour.lines - 1))


def _with_large_shifts(law: Lomax, clip: float, step: float, bounds: Array, first: int) -> Array:
    """The bounds for all shifts, of energies from `first` on. `bounds`: a row for each energy, for small shifts.

    Rows are turned into all shifts' in place, in blocks that do not depend on each other. A row between
    ENERGIES - spent and `first` is not read again.
    """
    spent = _FIRST_LARGE
    while spent < ENERGIES:
        index = min(max(spent + 1, math.floor(spent * _ENERGY_RATIO)), ENERGIES)
        matrix, constant = _added(law, clip * math.sqrt(index / ENERGIES), step, bounds.shape[1])
        for start, stop in ((spent, min(first, ENERGIES - spent + 1)), (max(first, spent), ENERGIES + 1)):
            for low in range(start, stop, spent):
                block = slice(low, min(low + spent, stop))
                rest = bounds[low - spent : block.stop - spent]
                np.maximum(bounds[block], rest @ matrix + constant, out=bounds[block])
        spent = index
    return bounds[first:]


def _added(law: Lomax, s: float, step: float, count: int) -> tuple[Array, Array]:
    """W -> sum of p_l W(y - l) as a matrix on the right and a constant, on lattice points y = 0 .. count-1.

    W(-y) = 1 - e^-y + e^-y W(y), and W beyond the last point is at most its value there.
    """
    mass = _lattice_pair(law, s, step)
    reach = len(mass) // 2
    # The value at y - l: a row for each place from -reach to count - 1 + reach, a column for each y.
    around = np.concatenate([np.zeros(count - 1), mass, np.zeros(count - 1)])
    taken = sliding_window_view(around, count)[::-1]
    fall = np.exp(-step * np.arange(reach, 0.0, -1.0))
    matrix = taken[reach : reach + count].copy()
    matrix[reach:0:-1] += fall[:, None] * taken[:reach]
    matrix[-1] += taken[reach + count :].sum(axis=0)
    return matrix, (1 - fall) @ taken[:reach]


def _lattice_pair(law: Lomax, s: float, step: float) -> Array:
    """P-masses of a pair on multiples of the step that dominates a shift by s: each cell's masses at its two ends."""
    cells = math.ceil(float(law.largest_loss(np.asarray(s))) / step)
    losses = step * np.arange(cells + 1.0)
    p, q = law.cells(s, losses)
    upper = np.clip((p - np.exp(losses[:-1]) * q) / -math.expm1(-step), 0.0, p)
    at: Array = np.zeros(cells + 1)
    at[1:] += upper
    at[:-1] += p - upper
    # The outcomes of negative loss are the mirror image: P and Q change places.
    mirrored = at * np.exp(-losses)
    total = float(at.sum() + mirrored.sum())
    return np.concatenate([mirrored[:0:-1], [at[0] + mirrored[0]], at[1:]]) / total


def hull_pair(y: Array, bound: Array) -> Profile:
    """The symmetric hull of a bound at levels y from 0 on, as masses."""
    bound = bound * (1 + _RAISED)
    a = np.expm1(y)  # a - 1, whose differences keep their digits
    at_one = (2 * bound + a) / (a + 2)
    start = int(np.argmin(at_one))
    vertices = [(0.0, float(at_one[start]), 0)]
    for j in range(max(1, start), len(y)):
        point = (float(a[j]), float(bound[j]), j)
        while len(vertices) > 1 and _slope(vertices[-1], point) <= _slope(vertices[-2], vertices[-1]):
            vertices.pop()
        vertices.append(point)
    at = np.array([j for _, _, j in vertices])
    wanted, y = np.array([height for _, height, _ in vertices]), y[at]
    slopes = np.array([_slope(p, r) for p, r in pairwise(vertices)] + [0.0])
    low = np.concatenate([[0.0], np.maximum(np.diff(np.minimum(slopes, 0.0)), 0.0)])
    high, infinite = low * np.exp(y), float(wanted[-1])
    # Sums of positive terms, so that no digits are lost: E (R - a)_+ at every vertex.
    shown = np.array([infinite + np.sum(high[j + 1 :] * -np.expm1(y[j] - y[j + 1 :])) for j in range(len(y))])
    factor = max(1.0, float(np.max(wanted / shown))) * (1 + 1e-11)
    low, high, infinite = low * factor, high * factor, infinite * factor
    # Both hypotheses have a total of at least 1.
    low[0] = high[0] = max(0.0, 1 - float(np.sum(low + high)) - infinite) + 1e-13
    return Profile(y, low, high, infinite)


def _slope(left: tuple[float, float, int], right: tuple[float, float, int]) -> float:
    return (right[1] - left[1]) / (right[0] - left[0])
