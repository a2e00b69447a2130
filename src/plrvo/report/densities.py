"""The noise of a run beside Gaussian noise that certifies the same epsilon, in units of the clip."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from plrvo.accounting import Clipping, Plan, calibrate
from plrvo.noise import Gaussian, Noise

_POINTS = 121
_SHOWN = 0.99  # the share of one side of the wider noise that the picture shows


@dataclass(frozen=True)
class Densities:
    """Curves of (value over clip, probability per clip), and the mean size of each noise in clips.

    `gaussian` is None where the run's own noise is Gaussian: the two are one.
    """

    noise: list[tuple[float, float]]
    gaussian: list[tuple[float, float]] | None
    size: float
    gaussian_size: float


def densities(plan: Plan) -> Densities | None:
    """Both noises of one coordinate, fitted to what the plan certifies; None where that is nothing, or nothing finite.

    >>> from plrvo import Laplace, Workload
    >>> work = Workload(sample_rate=0.01, steps=300, clip=0.1, dimension=26_010)
    >>> found = densities(Plan.certify(Laplace(0.1), work, delta=1e-5))
    >>> print(f"{found.size:.3f} {found.gaussian_size:.3f}")
    1.000 0.788
    """
    noise, clip, certified = plan.noise.before_rounding, plan.workload.clip, plan.bracket.certified
    if plan.clipping is Clipping.l1:
        return None  # gradients of this l1 norm are shorter than those that Gaussian noise would be fitted to
    if plan.stages:
        return None  # several noises
    if not 0 < certified < np.inf or not np.isfinite(noise.distortion):
        return None
    if noise.gaussian_sigma is not None:
        return Densities(_curve(noise, clip, _width(noise)), None, noise.distortion / clip, noise.distortion / clip)
    same = calibrate(Gaussian(clip), plan.workload, certified, plan.delta, plan.correlation)
    width = max(_width(noise), _width(same))
    return Densities(
        _curve(noise, clip, width), _curve(same, clip, width), noise.distortion / clip, same.distortion / clip
    )


def _width(noise: Noise) -> float:
    width = noise.distortion
    while float(noise.cdf(width)) < _SHOWN:
        width *= 1.2
    return width


def _curve(noise: Noise, clip: float, width: float) -> list[tuple[float, float]]:
    z = np.linspace(-width, width, _POINTS)
    density = np.exp(noise.log_density(z)) * clip
    return [(float(x), float(y)) for x, y in zip(z / clip, density, strict=True) if np.isfinite(y)]
