"""Gaussian noise, the reference that everything is compared with."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from plrvo import validate
from plrvo.noise.base import Array, Noise
from plrvo.noise.keystream import Keystream
from plrvo.noise.normals import NormalKernel
from plrvo.noise.parameter import Parameter
from plrvo.noise.rounding import GaussianReals
from plrvo.noise.spans import MakeKernel


@dataclass(frozen=True)
class Gaussian(Noise):
    """Independent normal noise of standard deviation `sigma` at sum scale (noise multiplier times clip).

    Args:
        sigma: the standard deviation, in the unit of the gradients: noise multiplier times clip.

    Raises:
        InvalidArgument: for a value that makes no noise of it.
    """

    sigma: float
    kind: ClassVar[str] = "gaussian"
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter(
            "noise_multiplier", "standard deviation divided by the clip.", field="sigma", is_width=True, in_clips=True
        ),
    )

    def __post_init__(self) -> None:
        validate.positive(sigma=self.sigma)
        validate.native(self)

    def kernels(self, keystream: Keystream) -> MakeKernel:
        return partial(NormalKernel, self.sigma)

    @property
    def gaussian_sigma(self) -> float:
        return self.sigma

    def in_units(self) -> tuple[Noise, float]:
        return Gaussian(1.0), self.sigma

    def exact_sampler(self, cell: float) -> GaussianReals:
        return GaussianReals(self.sigma, cell)

    def log_density(self, z: ArrayLike) -> Array:
        return -0.5 * (np.asarray(z) / self.sigma) ** 2 - math.log(self.sigma * math.sqrt(2 * math.pi))

    def cdf(self, z: ArrayLike) -> Array:
        return np.asarray(special.ndtr(np.asarray(z) / self.sigma))

    def score(self, z: Any) -> Any:
        return z / self.sigma**2

    @property
    def distortion(self) -> float:
        return self.sigma * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> float:
        return self.sigma**2

    def fisher_information(self, dimension: int = 1) -> float:
        return 1 / self.sigma / self.sigma  # infinite, not an error, for no noise to speak of

    def log_moment(self, x: ArrayLike, eta: ArrayLike) -> Array:
        """h = eta (eta-1) x^2 / (2 sigma^2)."""
        eta = np.asarray(eta, dtype=float)
        return eta * (eta - 1) * (np.asarray(x, dtype=float) / self.sigma) ** 2 / 2

    def log_joint_moment(self, clip: float, dimension: int, eta: Array, tail: float = 0.0) -> Array:
        return self.log_moment(clip, eta)

    def pure_loss(self, clip: float, dimension: int) -> float:
        return math.inf

    def scaled(self, factor: float) -> Self:
        return replace(self, sigma=self.sigma * factor)
