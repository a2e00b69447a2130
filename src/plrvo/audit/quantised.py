"""Many coordinates at once: the loss of m quantised coordinates is a sum on a lattice, whose law is known exactly.

An attacker may quantise each coordinate's output into intervals. An interval and its mirror image in half the shift
have losses +l and -l, and exchanging the two with a small probability lowers l: here to a multiple of the step h. Both
are post-processing. Each coordinate's loss is then h K with an integer K, with P(K)/Q(K) = e^(hK) exactly, and so is
the sum's. One Fourier transform gives the law of the sum of a million of them, from which whole steps are drawn, one
table look-up each. This code shares nothing with `plrvo.accounting.lower`, which it checks.
"""

from __future__ import annotations

import math
from copy import copy

import numpy as np
import numpy.typing as npt

from plrvo.audit.canary import Canary
from plrvo.audit.laws import Array, LossLaw, Transform
from plrvo.noise import Noise

_SIZE = 1 << 20  # lattice points of the Fourier transform
_BINS = 1 << 14  # of the table that is drawn from: it should stay in a core's cache
_LEVELS = 1024  # at most so many steps of the lattice to a typical loss
_ESCAPE = 1e-15  # probability that the window of the transform may miss


class QuantisedLoss(LossLaw):
    """The summed loss of all coordinates of a canary under independent noise."""

    def __init__(self, noise: Noise, canary: Canary) -> None:
        losses, without, with_it = _sum_law(noise, canary)
        self._values = losses
        self._tables = (_Alias(without), _Alias(with_it))

    def mapped(self, transform: Transform) -> LossLaw:
        law = copy(self)
        law._values = transform(self._values)
        return law

    def draw(self, present: bool, count: int, generator: np.random.Generator) -> Array:
        return self._values[self._tables[present].draw(count, generator)]

    @property
    def mean_without(self) -> float:
        """E[Lambda] without the canary: minus the divergence that the quantised attack sees."""
        return float(self._tables[0].masses @ self._values)


def _sum_law(noise: Noise, canary: Canary) -> tuple[Array, Array, Array]:
    """Losses of the bins, and their probabilities without and with the canary."""
    cells = [_cells(noise, x) for x in canary.magnitudes]
    window = _window(cells, canary.counts)
    step = _step(cells, canary.counts, window)
    spectrum = np.ones(_SIZE // 2 + 1, dtype=complex)
    for (loss, mass), count in zip(cells, canary.counts, strict=True):
        k = np.floor(loss / step).astype(np.int64)
        share = 1 / (1 + np.exp(-step * k))  # of the mass at +-k that lies at +k with the canary
        row = np.bincount(k, mass * share, minlength=_SIZE) + np.bincount(-k % _SIZE, mass * (1 - share), _SIZE)
        spectrum *= np.fft.rfft(row) ** count
    total = np.maximum(np.fft.irfft(spectrum, _SIZE), 0.0)
    half = min(_SIZE // 2 - 1, math.ceil(window / step))  # beyond the window there is nothing but rounding errors
    k = np.arange(-half, half + 1)
    # With the canary the sum leans to the right, where its masses are known to a relative precision; the left half
    # follows from P(-K) = e^(-hK) P(K), and the law without the canary is the mirror image.
    positive = total[: half + 1]
    with_it = np.concatenate([(positive[1:] * np.exp(-step * k[half + 1 :]))[::-1], positive])
    return _binned(step * k.astype(np.float64), with_it / with_it.sum())


def _cells(noise: Noise, x: float) -> tuple[Array, Array]:
    """Losses and two-sided masses of intervals to the right of x/2; the left side is the mirror image."""
    size = 1 / math.sqrt(noise.fisher_information())
    inside = np.linspace(0.0, x / 2, 129)[:-1]
    beyond = np.concatenate([np.linspace(0.0, 12.0, 601), np.geomspace(12.0, 1e8, 301)[1:], [np.inf]])
    t = np.concatenate([inside, x / 2 + size * beyond])  # distance from x/2
    high, low = _masses(noise, t - x / 2), _masses(noise, t + x / 2)
    mass = high + low
    keep = (low > 0) & (high >= low)
    # What cannot be told apart at this precision (no mass on one side) is put where it says nothing.
    loss = np.append(np.log(high[keep] / low[keep]), 0.0)
    return loss, np.append(mass[keep], max(0.0, 1.0 - float(mass[keep].sum())))


def _masses(noise: Noise, edges: Array) -> Array:
    lower, upper = noise.cdf(edges), noise.cdf(-edges)
    return np.maximum(np.where(edges[1:] <= 0, np.diff(lower), -np.diff(upper)), 0.0)


def _window(cells: list[tuple[Array, Array]], counts: tuple[int, ...]) -> float:
    """A loss that the sum exceeds in absolute value with probability below _ESCAPE (Chernoff)."""
    largest = sum(count * float(loss.max()) for (loss, _), count in zip(cells, counts, strict=True))
    tilts = np.geomspace(1e-4, 1e4, 161)
    log_moment = np.zeros_like(tilts)
    for (loss, mass), count in zip(cells, counts, strict=True):
        share = 1 / (1 + np.exp(-loss))
        with np.errstate(over="ignore"):
            up = np.exp(tilts[:, None] * loss) @ (mass * share)
            down = np.exp(-tilts[:, None] * loss) @ (mass * (1 - share))
            log_moment += count * np.log(up + down)
    return min(largest, float(np.min((log_moment - math.log(_ESCAPE)) / tilts))) + 1e-12


def _step(cells: list[tuple[Array, Array]], counts: tuple[int, ...], window: float) -> float:
    """The lattice step, about as fine as the window allows, on which the most of the losses is left.

    A candidate puts one loss of the group that matters most on the lattice. Laplace noise has nearly all its mass on
    one loss, and a lattice that just misses it would lose a whole step everywhere.
    """
    weights = [count * float(mass @ loss**2) for (loss, mass), count in zip(cells, counts, strict=True)]
    loss, mass = cells[int(np.argmax(weights))]
    order = np.argsort(loss)
    below = np.cumsum(mass[order]) / mass.sum()
    typical = loss[order][np.searchsorted(below, [0.02, 0.1, 0.25, 0.5, 0.9]).clip(max=len(loss) - 1)] * (1 - 1e-9)
    finest = 2.05 * window / _SIZE
    levels = np.minimum(_LEVELS, np.floor(typical / finest))
    steps = np.append(typical[levels > 0] / levels[levels > 0], finest)
    left = [float(mass @ (np.floor(loss / step) * step) ** 2) for step in steps]
    return float(steps[int(np.argmax(left))])


def _binned(loss: Array, with_it: Array) -> tuple[Array, Array, Array]:
    """At most _BINS bins. A bin's loss is the log ratio of its two masses: merging outcomes is post-processing too."""
    cell = np.arange(len(loss)) // math.ceil(len(loss) / _BINS)
    without = with_it[::-1]
    p, q = np.bincount(cell, with_it), np.bincount(cell, without)
    middle = np.bincount(cell, loss) / np.bincount(cell)
    # Each ratio from the side on which the masses are larger, and therefore known better.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        down, up = np.bincount(cell, with_it * np.exp(-loss)), np.bincount(cell, without * np.exp(loss))
        ratio = np.where(middle > 0, np.log(p / down), np.log(up / q))
    return np.where(np.isfinite(ratio), ratio, middle), q / q.sum(), p / p.sum()


class _Alias:
    """Walker's table: a draw from a discrete law by one uniform and two look-ups."""

    def __init__(self, masses: Array) -> None:
        self.masses = masses / masses.sum()
        count = len(masses)
        self._cut = self.masses * count
        self._other = np.arange(count)
        small = [i for i in range(count) if self._cut[i] < 1]
        large = [i for i in range(count) if self._cut[i] >= 1]
        while small and large:
            i, j = small.pop(), large[-1]
            self._other[i] = j
            self._cut[j] -= 1 - self._cut[i]
            if self._cut[j] < 1:
                small.append(large.pop())
        for i in small + large:
            self._cut[i] = 1.0

    def draw(self, count: int, generator: np.random.Generator) -> npt.NDArray[np.intp]:
        where = generator.random(count)
        where *= len(self.masses)
        index = where.astype(np.intp)
        where -= index
        return np.where(where < self._cut[index], index, self._other[index])
