"""Gaussian, Laplace and Gamma-PLRV noise at the same certified budget, and which of them to use (theory, 9 and 10).

In high dimension a gradient can be spread so thin that privacy depends on a noise's Fisher information I alone. At a
given I no shape has a smaller variance than Gaussian noise (Cramer-Rao), and none has E|z| below sqrt(0.6266/I), where
Gaussian noise has sqrt(0.6366/I): there is at most 0.8 % to gain. A shape can win only where few coordinates can move:
a small dimension, or gradients that are guaranteed to be sparse.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from plrvo.accounting import Ledger, Workload, calibrate
from plrvo.accounting.calibration import calibrate_quickly
from plrvo.noise import GammaPLRV, Gaussian, Laplace, Noise
from plrvo.noise.base import Array
from plrvo.validate import InvalidArgument

# The least I E[|z|]^2 of any density. Minimising I at a given E|z| makes sqrt(p) the ground state of -y'' + |z| y, the
# Airy function from its first extremum a = 1.018792972 on; its energy a splits 1 : 2 (virial theorem), so that
# I = 4 a/3 and E|z| = 2 a/3 there.
LEAST_SHAPE = 16 * 1.0187929716474710**3 / 27

_SPREAD = 10**15  # a dimension at which nothing is left to be saved
_NEGLIGIBLE = 0.01  # share of Laplace noise that the dimension saves, below which it counts as high
# Relative differences below a thousandth are not worth a less usual noise.
_HANDICAP = {"gaussian": 1.0, "laplace": 1.001, "gamma": 1.002}


@dataclass(frozen=True)
class Alternative:
    """One noise at one workload, in the units in which noises can be compared.

    Attributes:
        snr: C/E|z|, the objective of Algorithm 1.
        power_raw: C^2/Var z, the signal's power over the noise's, as released.
        power_score: C^2 I, the same after the noise's score has been applied to the release (free; small signals).
        shape: I E[|z|]^2, what decides between shapes in high dimension; at least `LEAST_SHAPE`.
        epsilon_spread: the certified epsilon if the dimension were without bound; the dimension saves the rest.
    """

    noise: Noise
    epsilon_certified: float
    method: str
    distortion: float
    std: float
    fisher_information: float
    snr: float
    power_raw: float
    power_score: float
    shape: float
    epsilon_spread: float

    @property
    def name(self) -> str:
        return self.noise.kind

    @property
    def excess(self) -> float:
        """How far E|z| lies above the least that any shape of the same information has, as a share of it."""
        return math.sqrt(self.shape / LEAST_SHAPE) - 1

    def to_dict(self) -> dict[str, Any]:
        return {
            "noise": self.noise.to_dict(),
            "epsilon_certified": self.epsilon_certified,
            "method": self.method,
            "distortion": self.distortion,
            "std": self.std,
            "fisher_information": self.fisher_information,
            "snr": self.snr,
            "power_raw": self.power_raw,
            "power_score": self.power_score,
            "shape": self.shape,
            "excess_over_limit": self.excess,
            "epsilon_spread": self.epsilon_spread,
        }


def measure(noise: Noise, work: Workload, delta: float) -> Alternative:
    """What the noise gives and costs at this workload."""
    certificate = Ledger().plus(noise, work).certified(delta)
    spread = Ledger().plus(noise, replace(work, dimension=_SPREAD)).certified(delta)
    information, clip = noise.fisher_information(), work.clip
    return Alternative(
        noise,
        certificate.value,
        certificate.method,
        noise.distortion,
        math.sqrt(noise.variance),
        information,
        clip / noise.distortion,
        clip**2 / noise.variance,
        clip**2 * information,
        information * noise.distortion**2,
        spread.value,
    )


@dataclass(frozen=True)
class Comparison:
    """The noises at the same certified budget, and what follows.

    Attributes:
        alternatives: by name: gaussian, laplace, gamma.
        recommended: the name of the one with the least E|z|, as released.
        after_score: the name of the one with the most signal power once its score is applied.
        case: "low dimension" (a shape wins), "high dimension" (the limit applies) or "between".
        dimension_saves: the share of Laplace noise that the finite dimension saves.
        crossover: the largest dimension at which Laplace noise has less E|z| than Gaussian noise; 0 if there is none.
        reason: two or three sentences for the reader.
    """

    work: Workload
    epsilon: float
    delta: float
    alternatives: dict[str, Alternative]
    recommended: str
    after_score: str
    case: str
    dimension_saves: float
    crossover: int
    reason: str

    def recommendation(self) -> dict[str, Any]:
        """What `plrvo design --json` prints under `recommended`."""
        return {
            "noise": self.recommended,
            "after_score": self.after_score,
            "case": self.case,
            "dimension_saves": self.dimension_saves,
            "crossover_dimension": self.crossover,
            "reason": self.reason,
        }


def compare(work: Workload, epsilon: float, delta: float, gamma: GammaPLRV | None = None, k: float = 1e6) -> Comparison:
    """Gaussian, Laplace and Gamma-PLRV noise, each as narrow as the budget allows.

    `gamma` is a noise that already is; without it one of shape `k` is fitted.

    >>> work = Workload(sample_rate=0.01, steps=300, clip=1.0, dimension=26_010)
    >>> compare(work, epsilon=1.0, delta=1e-5).recommended
    'gaussian'
    >>> compare(Workload(sample_rate=1.0, steps=1, clip=1.0, dimension=1), epsilon=1.0, delta=1e-5).recommended
    'laplace'
    """
    gaussian = calibrate(Gaussian(work.clip), work, epsilon, delta)
    laplace = calibrate(Laplace(work.clip), work, epsilon, delta)
    if gamma is None:
        gamma = calibrate(_like(laplace, k), work, epsilon, delta)
    rows = {noise.kind: measure(noise, work, delta) for noise in (gaussian, laplace, gamma)}
    recommended = min(rows, key=lambda name: rows[name].distortion * _HANDICAP[name])
    after_score = max(rows, key=lambda name: rows[name].power_score / _HANDICAP[name])
    widest = laplace
    if rows["laplace"].epsilon_spread > epsilon:
        widest = calibrate(laplace, replace(work, dimension=_SPREAD), epsilon, delta)
    saves = 1 - laplace.distortion / widest.distortion
    case = "high dimension" if saves < _NEGLIGIBLE else "between"
    case = case if recommended == "gaussian" else "low dimension"
    crossover = crossover_dimension(work, epsilon, delta, gaussian.distortion)
    reason = _reason(rows, recommended, after_score, case, saves, crossover, work.dimension)
    return Comparison(work, epsilon, delta, rows, recommended, after_score, case, saves, crossover, reason)


def _like(laplace: Noise, k: float) -> GammaPLRV:
    """Gamma-PLRV noise with about the width of Laplace noise, to start a search from."""
    return GammaPLRV(k, 1 / (k * laplace.distortion))


def crossover_dimension(work: Workload, epsilon: float, delta: float, gaussian_distortion: float) -> int:
    """The largest dimension at which Laplace noise has no more E|z| than that; 0 if even one coordinate is too many.

    Laplace noise of the Gaussian's E|z| gets more expensive with every coordinate that a gradient may be spread over,
    so one epsilon per dimension decides, and bisection finds the last one that is within the budget.
    """
    noise = Laplace(gaussian_distortion)

    def wins(dimension: int) -> bool:
        ledger = Ledger().plus(noise, replace(work, dimension=dimension))
        return ledger.quick(delta).value <= epsilon or ledger.certified(delta).value <= epsilon

    if not wins(1):
        return 0
    low, high = 1, 2
    while wins(high):
        low, high = high, 2 * high
        if high > _SPREAD:
            return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if wins(middle) else (low, middle)
    return low


_TITLES = {"gaussian": "Gaussian", "laplace": "Laplace", "gamma": "Gamma-PLRV"}


def _reason(
    rows: dict[str, Alternative],
    recommended: str,
    after_score: str,
    case: str,
    saves: float,
    crossover: int,
    dimension: int,
) -> str:
    best, gaussian = rows[recommended], rows["gaussian"]
    rivals = [row for name, row in rows.items() if name != "gaussian"] if recommended == "gaussian" else [gaussian]
    rival = min(rivals, key=lambda row: row.distortion)
    first = (
        f"{_TITLES[recommended]} noise has the least error at this budget: E|z| is {best.distortion:.3g}, and "
        f"{rival.distortion / best.distortion:.3g} times that with {_TITLES[rival.name]} noise."
    )
    if case == "low dimension":
        why = (
            f"An example can move only {dimension} coordinate{'s' if dimension > 1 else ''}, so its gradient cannot be "
            f"spread thin, and a peaked shape hides it with less noise (for Laplace noise up to dimension {crossover})."
        )
    elif case == "high dimension":
        why = (
            f"In dimension {dimension} a gradient can be spread so thin that only a noise's Fisher information counts, "
            "and there no shape beats Gaussian noise by more than 0.8 % in E|z|, or at all in variance."
        )
    else:
        why = f"The dimension, {dimension}, saves Laplace noise {saves:.0%}, which is not enough."
    if case != "low dimension":
        why += (
            f" Laplace noise would win if an example could move at most {crossover} coordinates."
            if crossover
            else " Laplace noise would not win even with a single coordinate."
        )
    gain = rows[after_score].power_score / gaussian.power_score
    last = (
        f"After the score (free, for small signals) {_TITLES[after_score]} noise has {gain:.3g} times the signal power "
        "of Gaussian noise."
        if after_score != "gaussian"
        else "The score, which is free, lifts the others towards Gaussian noise but not past it."
    )
    return f"{first} {why} {last}"


@dataclass(frozen=True)
class WinningMap:
    """E|z| over the clip for each noise, by epsilon and dimension; Gaussian noise does not depend on the dimension.

    `gain` is the Gaussian's E|z| over that of the best other noise: above 1 a shape wins.
    """

    epsilons: tuple[float, ...]
    dimensions: tuple[int, ...]
    gaussian: Array
    laplace: Array
    gamma: Array | None

    @property
    def gain(self) -> Array:
        best = self.laplace if self.gamma is None else np.minimum(self.laplace, self.gamma)
        return self.gaussian[:, None] / best


def winning_map(
    work: Workload,
    delta: float,
    epsilons: Sequence[float],
    dimensions: Sequence[int],
    shapes: Sequence[float] = (),
    quick: bool = False,
) -> WinningMap:
    """Where non-Gaussian noise wins at this sampling rate and number of steps.

    Laplace noise is always tried; Gamma-PLRV noise for every k in `shapes`, which takes seconds per point. A `quick`
    map is by moments, in a tenth of the time: the same where few coordinates can move, worse for a shape elsewhere.
    """
    fit = calibrate_quickly if quick else calibrate
    if not epsilons or not dimensions:
        raise InvalidArgument("epsilons", list(epsilons), "at least one epsilon and one dimension")
    gaussian = [calibrate(Gaussian(work.clip), work, epsilon, delta).distortion for epsilon in epsilons]
    laplace, gamma = np.empty((2, len(epsilons), len(dimensions)))
    for i, epsilon in enumerate(epsilons):
        for j, dimension in enumerate(dimensions):
            here = replace(work, dimension=dimension)
            peaked = fit(Laplace(gaussian[i]), here, epsilon, delta)
            laplace[i, j] = peaked.distortion
            heavy = [fit(_like(peaked, k), here, epsilon, delta).distortion for k in shapes]
            gamma[i, j] = min(heavy, default=math.inf)
    clip = work.clip
    return WinningMap(
        tuple(epsilons),
        tuple(dimensions),
        np.array(gaussian) / clip,
        laplace / clip,
        gamma / clip if shapes else None,
    )
