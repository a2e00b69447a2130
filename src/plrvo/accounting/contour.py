"""Theorem A: the divergence of an unsampled step, over all gradients, by an integral over a line of complex orders.

With R = dP/dQ, H_a = E_Q (R - a)_+ and c > 1, (x - a)_+ = (1/2 pi) integral of x^w a^(1-w)/(w(w-1)) du, w = c + iu. So
for a gradient with shifts s_i <= s_0 and sum s_i^2 = V,

    H_a <= a^(1-c) J(c),   J = (1/pi) integral over u > 0 of e^(V K(c, u))/|w(w-1)| du,
    K(c, u) = sup over 0 < s <= s_0 of log|M_s(w)|/s^2,   M_s(w) = E_Q r_s^w       (theory, section 14).

H grows with every shift, so J bounds gradients of less energy too. Everything here is in the unit in which the score is
at most 1 (`noise.lomax`), where |log r_s| <= s. K is bounded between the points of two grids, P = w(w-1):

- *Between shifts.* |d^2 M/ds^2| <= |P| M_s(c), so |M_s| is at most the chord of its values at both ends of a cell of
  width D, plus D^2/8 |P| M(c) at the right end (M_s(c) grows with s).
- *Between small shifts.* d^2 M/ds^2 = P Q(s) with |Q'| <= G (below). As a function of v = s^2, M has the second
  derivative (P Q(s) - P times the mean of Q up to s)/(4 s^2), which is at most |P| G/(8 s). So the same holds with the
  chord in v, of width D in v, and D^2/8 |P| G/(8 s), G at the right end and s at the left one. That is less where s |w|
  is small, and cells are as wide as it allows.
- *Between orders.* |d^2 M/du^2| = |E r^w (log r)^2| <= s^2 M_s(c): the same with the width of a cell in u.
- The logarithm of a function that is linear in s (or v) and in u lies below its tangents. So log|M| is below a function
  linear in s (or v) and convex in u; e^(V K) is below the chord of its bounds at both ends of a cell in u.
- *Below the first shift s_1.* Q(0) = I and |Q'| <= G = (|w-1| + bend) M_s(c) + 1, the last term for the jump of the
  score at 0. So |M_s - 1 - P I s^2/2| <= |P| s^3/6 G, and log|M| <= (|M|^2 - 1)/2.
- *From some u = U on*, and beyond the last. |M_s(w)| <= M_s(c) always. If u s > 2 the part of M that comes from nu2, a
  monotone density, is at most (2 max - min) cosh(a Re x)/u, less than its share of M_s(c). If u s <= 2,
  |M_s(w)|/M_s(c) <= exp(-E sin^2(u D/2)), D the difference of two independent losses, tilted by r^c: at most
  exp(-(sin 2)^2/8 u^2 Var), with Var >= s^2 I e^(-s/2)/((1+s)^2 cosh^2(s Re x)).

A moment errs by `MOMENT_ERROR`, which is added, and 1e-9 of J for all other rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from plrvo.noise.base import Array
from plrvo.noise.lomax import LARGEST_PHASE, MOMENT_ERROR, Lomax

_LINES = np.concatenate([[0.05, 0.1, 0.15, 0.2, 0.3], np.arange(0.4, 12.01, 0.2), 12 * 1.08 ** np.arange(1.0, 16.0)])
_LARGEST_LINE = 40.0  # c - 1 in units of 1/clip
LARGEST_CLIP = 20.0  # so that 40 + clip/2 is well below LARGEST_PHASE
_FIRST_SHIFT = 3e-4  # of the clip
_SHIFT_RATIO, _WIDEST_RATIO = 1.05, 1.15  # of neighbours among large shifts, and at most among small ones
_SMALL_CELL = 0.034  # sets the width of cells of small shifts
_FINE, _FINE_UNTIL, _GROWTH, _UNTIL = 0.07, 3.0, 1.06, 45.0  # cells in u, in units of 1/signal
_PIECES = 16  # of a cell in u, on which 1/|P| is bounded by its largest value
_MARGIN = 1e-9
_QUADRATIC = math.sin(2) ** 2 / 8


@dataclass(frozen=True)
class Contour:
    """K at both ends of every cell in u and beyond the last, for shifts up to some s_0, on lines Re w = c."""

    lines: Array
    left: Array
    right: Array
    beyond: Array
    left_weight: Array
    right_weight: Array
    end: float

    def log_bound(self, energy: Array) -> Array:
        """log J, one row for each energy, one column for each line."""
        rows = []
        for v in energy:
            top = v * np.maximum(np.maximum(self.left, self.right).max(axis=1), self.beyond)
            inside = self.left_weight * np.exp(v * self.left - top[:, None])
            inside += self.right_weight * np.exp(v * self.right - top[:, None])
            total = inside.sum(axis=1) + np.exp(v * self.beyond - top) / self.end
            rows.append(top + np.log(total / math.pi) + _MARGIN)
        return np.array(rows)


def contours(law: Lomax, clip: float, largest_shifts: tuple[float, ...]) -> list[Contour]:
    """Contours for shifts up to each of `largest_shifts` (increasing shares of the clip, the last of them 1)."""
    signal = clip * math.sqrt(law.information)
    lines = 1 + _LINES[_LINES * clip <= _LARGEST_LINE * signal] / signal
    u = _orders(signal, clip)
    shifts = _shifts(clip * (1 + 4 / signal), largest_shifts)
    cells = _Cells(law, lines, u)
    left, right, beyond = cells.first(clip * shifts[0])
    found = []
    for low, high in pairwise(shifts):
        found_here = cells.between(clip * low, clip * high, squared=high <= largest_shifts[0])
        for best, bound in zip((left, right, beyond), found_here, strict=True):
            np.maximum(best, bound, out=best)
        if high in largest_shifts:
            most = np.maximum(beyond, cells.slow(left[:, 0])[:, -1])
            found.append(Contour(lines, left.copy(), right.copy(), most, *cells.weights(), float(u[-1])))
    return found


def _shifts(growth: float, stops: tuple[float, ...]) -> list[float]:
    """Ends of cells, in shares of the clip: up to the first stop in cells for chords in s^2.

    `growth` is about G times the clip, at the orders that matter. Chords add the same share everywhere to log|M|.
    """
    shifts = [_FIRST_SHIFT]
    while shifts[-1] < stops[0]:
        width = _SMALL_CELL * math.sqrt(shifts[-1] / growth)
        shifts.append(shifts[-1] * min(_WIDEST_RATIO, 1 + width / shifts[-1]))
    # All of them closer, so that the last one is the stop.
    power = math.log(stops[0] / _FIRST_SHIFT) / math.log(shifts[-1] / _FIRST_SHIFT)
    shifts = [_FIRST_SHIFT * (s / _FIRST_SHIFT) ** power for s in shifts[:-1]] + [stops[0]]
    for start, stop in pairwise(stops):
        count = max(1, math.ceil(math.log(stop / start) / math.log(_SHIFT_RATIO)))
        shifts += [start * (stop / start) ** (i / count) for i in range(1, count)] + [stop]
    return shifts


def _orders(signal: float, clip: float) -> Array:
    # |w - 1/2| times the largest loss is at most LARGEST_PHASE.
    last = min(_UNTIL / signal, math.sqrt(LARGEST_PHASE**2 - (_LARGEST_LINE + clip / 2) ** 2) / clip)
    fine = np.arange(0.0, _FINE_UNTIL, _FINE)
    count = math.ceil(math.log(last * signal / fine[-1]) / math.log(_GROWTH))
    coarse = fine[-1] * (last * signal / fine[-1]) ** (np.arange(1.0, count + 1) / count)
    return np.concatenate([fine, coarse]) / signal


class _Cells:
    """Bounds on log|M_s(c + iu)|/s^2 over cells in s and u: at both ends of every cell in u, and beyond the last."""

    def __init__(self, law: Lomax, lines: Array, u: Array) -> None:
        self._law, self._lines, self._u = law, lines, u
        w = lines[:, None] + 1j * u
        self._product = np.abs(w * (w - 1))
        self._real = lines[:, None] * (lines[:, None] - 1) - u**2
        self._beside = np.abs(w - 1)
        self._width = np.diff(u)
        self._known: dict[float, tuple[Array, Array, Array]] = {}

    def weights(self) -> tuple[Array, Array]:
        """Integrals of (1-x)/|P| and x/|P| over the cells, x from 0 to 1, from above."""
        x = np.arange(_PIECES) / _PIECES
        w = self._lines[:, None, None] + 1j * (self._u[:-1, None] + self._width[:, None] * x)
        piece = self._width[:, None] / _PIECES / np.abs(w * (w - 1))
        middle = x + 0.5 / _PIECES
        return (piece * (1 - middle)).sum(axis=2), (piece * middle).sum(axis=2)

    def first(self, s: float) -> tuple[Array, Array, Array]:
        """For all shifts up to s."""
        information, v, c = self._law.information, s * s, self._lines[:, None]
        growth = self._growth(np.exp((c - 1) * s))
        small = self._product * information * v / 2
        rest = self._product**2 * information**2 * v / 8 + s * self._product * growth / (
            6 * (1 - np.minimum(small, 0.5))
        )
        rest = np.where(small < 0.5, rest, np.inf)
        # -u^2 is concave: above its chord by an eighth of the squared width.
        rest = rest[:, 1:] + information * self._width**2 / 8
        value = information / 2 * self._real
        left, right = value[:, :-1] + rest, value[:, 1:] + rest
        x = self._lines - 0.5
        least = float(self._law.inner_ends(np.asarray(s))[0])
        most_at_0 = float(self._law.inner_ends(np.zeros(()))[1])
        gain = least * (1 - s) - (2 * most_at_0 - least) * np.cosh(x * s) / 2
        beyond = left[:, 0] - np.maximum(gain, 0.0) / (s * np.exp((self._lines - 1) * s))
        return left, right, beyond

    def _growth(self, at_c: Array) -> Array:
        """G, where M_s(c) is at most `at_c`."""
        return np.asarray((self._beside + self._law.bend) * at_c + 1)

    def between(self, low: float, high: float, squared: bool) -> tuple[Array, Array, Array]:
        """For shifts from `low` to `high`, by chords in s, or in s^2."""
        at_low, at_high = self._moduli(low), self._moduli(high)
        top = at_high[1][:, None] * (1 + MOMENT_ERROR)
        ends = (low**2, high**2) if squared else (low, high)
        width, middle = ends[1] - ends[0], (ends[0] + ends[1]) / 2
        bend = (self._growth(top) / (8 * low) if squared else top) * self._product
        error = width**2 / 8 * bend[:, 1:] + top * MOMENT_ERROR
        in_u = [top * (s * self._width) ** 2 / 8 for s in (low if squared else high, high)]  # linear in s^2
        mean_low, mean_high = at_low[2] + error + in_u[0], at_high[2] + error + in_u[1]
        mean = (mean_low + mean_high) / 2
        plain = mean >= top
        slope = np.where(plain, 0.0, (mean_high - mean_low) / (width * mean))
        tilts = at_low[0] / mean_low, at_high[0] / mean_high
        level = np.log(np.where(plain, top, mean)) - slope * middle
        bounds = []
        for sign in (-1.0, 1.0):
            tilt = np.where(plain, 0.0, np.maximum(sign * tilts[0], sign * tilts[1]))
            bounds.append((_largest_sum if squared else _largest_ratio)(level + tilt, slope, *ends))
        x = self._lines - 0.5
        a = self._law.largest_loss(np.array([low, high]))
        least, most = self._law.inner_ends(np.array([low, high]))
        # What nu2 contributes at least, less what is left of it from some u on: one column for each.
        left_over = np.multiply.outer(
            (2 * most[0] - least[1]) * np.cosh(x * a[1]), np.minimum(1 / np.maximum(self._u, 1e-300), high / 2)
        )
        gain = (least[1] * np.sinh(x * a[0]) / x)[:, None] - left_over
        onwards = bounds[0][:, :1] + np.log1p(-np.clip(gain / top, 0.0, 1 - 1e-12)) / high**2
        slow = np.where(low * self._u < 2, self.slow(bounds[0][:, 0]), -np.inf)
        flat = np.maximum(onwards, slow)[:, :-1]
        better = flat < np.maximum(bounds[0], bounds[1])
        return np.where(better, flat, bounds[0]), np.where(better, flat, bounds[1]), onwards[:, -1]

    def slow(self, at_zero: Array) -> Array:
        """For u s <= 2 from each u on, where K at u = 0 is at most `at_zero`: one column for each u."""
        return np.asarray(at_zero[:, None] - self._fall)

    @cached_property
    def _fall(self) -> Array:
        s = 2 / np.maximum(self._u, 1e-2)
        fall = np.exp(-s / 2) * (self._u / (1 + s)) ** 2
        x = np.minimum(np.multiply.outer(self._lines - 0.5, s), 300.0)
        return np.asarray(_QUADRATIC * self._law.information * fall / np.cosh(x) ** 2)

    def _moduli(self, s: float) -> tuple[Array, Array, Array]:
        """Half the change of |M| over each cell in u, M at u = 0, and the mean of |M| at both ends of each cell."""
        if s not in self._known:
            if len(self._known) > 1:
                self._known.pop(min(self._known))
            size = np.abs(self._law.moments(s, self._lines, self._u))
            self._known[s] = np.diff(size, axis=1) / 2, size[:, 0], (size[:, 1:] + size[:, :-1]) / 2
        return self._known[s]


def _largest_sum(level: Array, slope: Array, low: float, high: float) -> Array:
    """The largest (level + slope v)/v for low <= v <= high."""
    return np.asarray(slope + np.maximum(level / low, level / high))


def _largest_ratio(level: Array, slope: Array, low: float, high: float) -> Array:
    """The largest (level + slope s)/s^2 for low <= s <= high."""
    best = np.maximum((level + slope * low) / low**2, (level + slope * high) / high**2)
    with np.errstate(divide="ignore", invalid="ignore"):
        at = -2 * level / slope
        inside = (level < 0) & (slope > 0) & (at > low) & (at < high)
        return np.where(inside, np.maximum(best, -(slope**2) / (4 * level)), best)
