"""Composition of pairs (P, Q) through the distribution of the loss log(P/Q) under P, erring on the lower side only.

The hockey-stick divergence of composed pairs is E_P[(1 - e^(epsilon - sum of losses))_+], increasing in every loss. So
each of these keeps it a lower bound: merging atoms (a post-processing of the outputs), rounding a loss down, dropping
P-mass, and a sum that leaves the window of the Fourier transform at the top and comes back at the bottom. A sum that
leaves at the bottom would err upwards; the probability of that has a Chernoff bound, which is charged to delta.

Rounding is charged in the same ways. From every point the bound of the transform is subtracted (`transform`); masses
and losses are made in a dozen operations, so each step costs 2^-48 of the mass, and of the largest loss plus one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from plrvo.accounting.transform import law_of_sum
from plrvo.noise.base import Array

SIZE = 1 << 16  # points of the lattice


@dataclass(frozen=True)
class Atoms:
    """A pair of discrete measures: masses under P and under Q of the same events."""

    p: Array
    q: Array

    @property
    def losses(self) -> Array:
        return np.log(self.p / self.q)


def compose(parts: Sequence[tuple[Atoms, int]], delta: float) -> ComposedLoss:
    """The given pairs, each so many times, all independent."""
    bottom, step = _window([(_Binned.of(atoms.losses, atoms.p), times) for atoms, times in parts], _share(delta))
    first = math.floor(bottom / step)
    offset = 0
    rounded, wrapped = [], []
    for atoms, times in parts:
        start, mass = to_lattice(atoms, step)
        rounded.append((_Binned.of(step * (start + np.arange(len(mass), dtype=float)), mass), times))
        # The mean is brought to zero, so that a window around it holds the sum.
        centre = round(float(np.sum(mass * np.arange(len(mass))) / np.sum(mass)))
        offset += times * (start + centre)
        places = (np.arange(len(mass)) - centre) % SIZE
        wrapped.append((np.bincount(places, mass, minlength=SIZE).astype(float), times))
    total = law_of_sum(wrapped, SIZE)
    hair = 2.0**-48 * sum(times for _, times in parts)
    mass = np.maximum(total.law - total.error, 0.0) * math.exp(-hair)
    largest = max(float(np.abs(atoms.losses).max()) for atoms, _ in parts)
    # Point j of the transform is loss (offset + j) * step up to multiples of the window, which starts at `first`.
    escape = _chance_below(rounded, step * first)
    return ComposedLoss(step, first, np.roll(mass, offset - first), escape, hair * (1 + largest))


@dataclass(frozen=True)
class ComposedLoss:
    """P-masses at losses (first + j) * step - lowered, and what delta loses to sums below the window."""

    step: float
    first: int
    p: Array
    escape: float
    lowered: float

    @property
    def losses(self) -> Array:
        return self.step * (self.first + np.arange(len(self.p), dtype=float)) - self.lowered

    def epsilon(self, delta: float) -> float:
        """The largest epsilon that a threshold test on the loss shows at this delta."""
        gain = np.cumsum(self.p[::-1]) - delta - self.escape
        usable = gain > 0
        if not np.any(usable):
            return 0.0
        with np.errstate(divide="ignore"):
            log_above_q = np.logaddexp.accumulate((np.log(self.p) - self.losses)[::-1])
        return max(0.0, float(np.max(np.log(gain[usable]) - log_above_q[usable])))

    def delta(self, epsilon: float) -> float:
        gain = np.maximum(-np.expm1(np.minimum(epsilon - self.losses, 0.0)), 0.0)
        return max(0.0, float(np.sum(self.p * gain)) - self.escape)


@dataclass(frozen=True)
class _Binned:
    """A distribution of the loss in few points, each rounded down: what its left tail says is no understatement."""

    losses: Array
    p: Array

    @staticmethod
    def of(losses: Array, p: Array) -> _Binned:
        # Bins grow geometrically away from the mean: most of the mass sits in a small part of the range.
        mean = float(np.sum(p * losses) / np.sum(p))
        unit, width = 1e-7 * float(losses.max() - losses.min()) or 1.0, 0.015
        bins = np.floor(np.arcsinh((losses - mean) / unit) / width).astype(np.int64)
        first = int(bins.min())
        mass = np.bincount(bins - first, p).astype(float)
        filled = np.flatnonzero(mass > 0)
        return _Binned(mean + unit * np.sinh(width * (first + filled)), mass[filled])

    def log_mgf(self, tilts: Array) -> Array:
        exponent = tilts[:, None] * self.losses
        top = exponent.max(axis=1, keepdims=True)
        return np.log(np.exp(exponent - top) @ self.p) + top[:, 0]


_TILTS = np.geomspace(1e-3, 1e5, 65)


def _share(delta: float) -> float:
    """What may leave the window; never 0, which has no logarithm. Whatever leaves is charged."""
    return max(1e-4 * delta, 5e-324)


def _window(parts: Sequence[tuple[_Binned, int]], tolerance: float) -> tuple[float, float]:
    """Start and step of a window that holds the total loss, rounded down, up to about `tolerance`."""
    up = np.sum([times * part.log_mgf(_TILTS) for part, times in parts], axis=0)
    down = np.sum([times * part.log_mgf(-_TILTS) for part, times in parts], axis=0)
    # The bins lie up to 1.5 % of the distance from the mean too low, which the top makes up for.
    mean = sum(times * float(np.sum(part.p * part.losses)) for part, times in parts)
    top = mean + 1.02 * (float(np.min((up - math.log(tolerance)) / _TILTS)) - mean)
    bottom = -float(np.min((down - math.log(tolerance)) / _TILTS))
    bottom = max(bottom, sum(times * float(part.losses[0]) for part, times in parts))
    # Rounding down moves a step by at most two points; room for all of that, or for an eighth of the window.
    room = min(2 * sum(times for _, times in parts) + 4, SIZE // 8)
    widest = max(float(part.losses[-1] - part.losses[0]) for part, _ in parts)
    step = max(top - bottom, 1e-3 * widest, 1e-9) / (SIZE - room - 2)
    return bottom - room * step, step


def _chance_below(parts: Sequence[tuple[_Binned, int]], bottom: float) -> float:
    """Chernoff's bound on the probability that the total loss is below the window, where it would come back on top."""
    if sum(times * float(part.losses[0]) for part, times in parts) >= bottom:
        return 0.0
    exponents = np.sum([times * part.log_mgf(-_TILTS) for part, times in parts], axis=0) + _TILTS * bottom
    return math.exp(min(0.0, float(np.min(exponents))))


def to_lattice(atoms: Atoms, step: float) -> tuple[int, Array]:
    """First index and P-masses of a pair on the lattice that is less distinguishable than `atoms`.

    The atoms of a cell are merged. Of two neighbouring cells the masses that balance around the point between them,
    P - e^l Q > 0 above it and as much below zero under it, are merged onto that point, where their ratio is exactly
    e^l. What is left over on one side is rounded down. In a smooth distribution that is a small part, so the error is
    of second order in the step.
    """
    keep = (atoms.p > 0) & (atoms.q > 0)
    p, q = atoms.p[keep], atoms.q[keep]
    cell = np.floor(np.log(p / q) / step).astype(np.int64)
    first = int(cell.min()) // 2 * 2
    count = (int(cell.max()) - first) // 2 * 2 + 2
    in_p = np.bincount(cell - first, p, minlength=count).reshape(-1, 2)
    in_q = np.bincount(cell - first, q, minlength=count).reshape(-1, 2)
    middle = step * (first + 1 + 2 * np.arange(len(in_p)))
    # In units of e^middle: the right cell's surplus of P over the point between, the left cell's shortfall.
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        scaled_p = in_p * np.exp(-middle)[:, None]
        surplus = np.maximum(scaled_p[:, 1] - in_q[:, 1], 0.0)
        shortfall = np.maximum(in_q[:, 0] - scaled_p[:, 0], 0.0)
        lifted = np.where(shortfall > surplus, surplus / shortfall, 1.0)
    lifted = np.where((shortfall > 0) & np.isfinite(lifted), lifted, 0.0)
    left = in_p[:, 0] * (1 - lifted)
    return first, np.stack([left, in_p[:, 1] + in_p[:, 0] - left], axis=1).ravel()
