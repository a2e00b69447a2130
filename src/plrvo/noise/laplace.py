"""Laplace noise with l2 clipping, the limit of Gamma-PLRV noise for large k."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from plrvo import validate
from plrvo.noise import sampling
from plrvo.noise.base import Array, Noise
from plrvo.noise.exponentials import LaplaceSize, SignedKernel
from plrvo.noise.functions import expm1_minus
from plrvo.noise.keystream import Keystream
from plrvo.noise.lomax import Lomax
from plrvo.noise.parameter import Parameter
from plrvo.noise.rounding import LaplaceReals
from plrvo.noise.spans import MakeKernel


def laplace_log_moment(t: ArrayLike, eta: ArrayLike) -> Array:
    """log F for unit Laplace noise shifted by t >= 0; F = [eta e^((eta-1)t) + (eta-1) e^(-eta t)] / (2 eta - 1).

    F - 1 keeps its relative precision for tiny t: the linear terms cancel exactly, so each exponential gives its
    e^y - 1 - y only, and both are positive. F(t, eta) = F(t, 1 - eta).
    """
    given = np.asarray(eta, dtype=float)
    t, eta = np.broadcast_arrays(np.asarray(t, dtype=float), np.maximum(given, 1 - given))
    up = (eta - 1) * t
    half = np.abs(eta - 0.5) < 1e-7
    safe = np.where(half, 1.0, eta)
    far = np.abs(up) > 1
    with np.errstate(over="ignore"):
        near_up, near_down = np.where(far, 0.0, up), np.where(far, 0.0, -eta * t)
        excess = (safe * expm1_minus(near_up) + (safe - 1) * expm1_minus(near_down)) / (2 * safe - 1)
        beyond = up + np.log(safe / (2 * safe - 1)) + np.log1p((safe - 1) / safe * np.exp(-(2 * safe - 1) * t))
    at_half = np.log1p(t / 2) - t / 2
    # eta < 1 (after the reflection) makes F < 1 and up < 0: the excess form covers it unless t is large.
    return np.where(half, at_half, np.where(far, beyond, np.log1p(np.maximum(excess, -1.0))))


@dataclass(frozen=True)
class Laplace(Noise):
    """Independent Laplace noise of scale `b`: density exp(-|z|/b) / 2b.

    Args:
        b: the scale, which is also E|z|, in the unit of the gradients.

    Raises:
        InvalidArgument: for a value that makes no noise of it.
    """

    b: float
    kind: ClassVar[str] = "laplace"
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("scale", "scale b of the noise on the sum of clipped gradients.", field="b", is_width=True),
    )
    worst_in_l1_is_one_hot: ClassVar[bool] = True  # at every level (theory, section 14)

    def __post_init__(self) -> None:
        validate.positive(b=self.b)
        validate.native(self)

    def kernels(self, keystream: Keystream) -> MakeKernel:
        return partial(SignedKernel, LaplaceSize(self.b))

    @property
    def lomax(self) -> tuple[Lomax, float]:
        return Lomax(math.inf), self.b

    @property
    def laplace_scale(self) -> float:
        return self.b

    def in_units(self) -> tuple[Noise, float]:
        return Laplace(1.0), self.b

    def exact_sampler(self, cell: float) -> LaplaceReals:
        return LaplaceReals(self.b, cell)

    def log_density(self, z: ArrayLike) -> Array:
        return -np.abs(np.asarray(z, dtype=float)) / self.b - math.log(2 * self.b)

    def cdf(self, z: ArrayLike) -> Array:
        z = np.asarray(z, dtype=float)
        half = np.exp(-np.abs(z) / self.b) / 2
        return np.where(z < 0, half, 1 - half)

    def score(self, z: Any) -> Any:
        return sampling.namespace(z).sign(z) / self.b

    @property
    def distortion(self) -> float:
        return self.b

    @property
    def variance(self) -> float:
        return 2 * self.b**2

    def fisher_information(self, dimension: int = 1) -> float:
        return 1 / self.b / self.b  # infinite, not an error, for no noise to speak of

    def log_moment(self, x: ArrayLike, eta: ArrayLike) -> Array:
        return laplace_log_moment(np.asarray(x, dtype=float) / self.b, eta)

    def log_moment_scale_revealed(self, x: ArrayLike, eta: ArrayLike) -> Array:
        return self.log_moment(x, eta)

    def log_joint_moment(self, clip: float, dimension: int, eta: Array, tail: float = 0.0) -> Array:
        """n h(C^2/n): h is concave in the squared shift, so the worst gradient spreads equally (theory, Theorem 1)."""
        return dimension * self.log_moment(clip / math.sqrt(dimension), eta)

    def pure_loss(self, clip: float, dimension: int) -> float:
        return math.sqrt(dimension) * math.nextafter(clip / self.b, math.inf)  # never 0

    def scaled(self, factor: float) -> Self:
        return replace(self, b=self.b * factor)
