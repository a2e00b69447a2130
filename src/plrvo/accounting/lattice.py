"""Composition of pairs (P, Q) through the distribution of the loss log(P/Q) under P, erring on the lower side only.

The hockey-stick divergence of composed pairs is E_P[(1 - e^(epsilon - sum of losses))_+], increasing in every loss. So
each of these keeps it a lower bound: merging atoms (a post-processing of the outputs), rounding a loss down, dropping
P-mass, and a sum that leaves the window of the Fourier transform at the top and comes back at the bottom. A sum that
leaves at the bottom would err upwards; the probability of that has a Chernoff bound, which is charged to delta.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from plrvo.noise.base import Array

SIZE = 1 << 16  # points of the lattice
_FFT_NOISE = 1e-15  # above what rounding leaves in a point of a distribution of this size


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
    bottom, top, escape = _window(parts, 1e-4 * delta)
    step = (top - bottom) / (SIZE - 2)
    spectrum = np.ones(SIZE // 2 + 1, dtype=complex)
    offset = 0
    for atoms, times in parts:
        first, mass = to_lattice(atoms, step)
        # The mean is brought to zero, so that a window around it holds the sum.
        centre = round(float(np.sum(mass * np.arange(len(mass))) / np.sum(mass)))
        offset += times * (first + centre)
        wrapped = np.bincount((np.arange(len(mass)) - centre) % SIZE, mass, minlength=SIZE)
        spectrum *= np.fft.rfft(wrapped) ** times
    total = np.maximum(np.fft.irfft(spectrum, SIZE) - _FFT_NOISE, 0.0)
    # Point j of the transform is loss (offset + j) * step up to multiples of the window, which starts at `bottom`.
    start = math.floor(bottom / step)
    return ComposedLoss(step, start, np.roll(total, offset - start), escape)


@dataclass(frozen=True)
class ComposedLoss:
    """P-masses at losses (first + j) * step, and what must be subtracted from delta for sums lost at the bottom."""

    step: float
    first: int
    p: Array
    escape: float

    @property
    def losses(self) -> Array:
        return self.step * (self.first + np.arange(len(self.p), dtype=float))

    def epsilon(self, delta: float) -> float:
        """The largest epsilon that a threshold test on the loss shows at this delta."""
        with np.errstate(over="ignore"):
            above_q = np.cumsum((self.p * np.exp(-self.losses))[::-1])
        gain = np.cumsum(self.p[::-1]) - delta - self.escape
        usable = (gain > 0) & (above_q > 0) & np.isfinite(above_q)
        return max(0.0, float(np.max(np.log(gain[usable] / above_q[usable])))) if np.any(usable) else 0.0

    def delta(self, epsilon: float) -> float:
        gain = np.maximum(-np.expm1(np.minimum(epsilon - self.losses, 0.0)), 0.0)
        return max(0.0, float(np.sum(self.p * gain)) - self.escape)


def _window(parts: Sequence[tuple[Atoms, int]], tolerance: float) -> tuple[float, float, float]:
    """Bounds on the total loss: below the first with probability at most the third value, above the second rarely."""
    tilts = np.geomspace(1e-3, 1e4, 57)
    up, down = np.zeros_like(tilts), np.zeros_like(tilts)
    smallest = 0.0
    for atoms, times in parts:
        losses = atoms.losses
        smallest += times * float(losses.min())
        with np.errstate(over="ignore"):
            up += times * np.log(np.exp(tilts[:, None] * losses) @ atoms.p)
            down += times * np.log(np.exp(-tilts[:, None] * losses) @ atoms.p)
    level = -math.log(tolerance)
    top = float(np.min((up + level) / tilts))
    bottom = -float(np.min((down + level) / tilts))
    if bottom <= smallest:
        return smallest, max(top, smallest + 1e-9), 0.0
    return bottom, top, tolerance


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
