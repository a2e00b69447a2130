"""The Weibull seed, whose cumulant function has no closed form."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plrvo import validate
from plrvo.noise.seeds import Array, Seed

_DROP = 42.0  # how far, in logarithms, the integrand has fallen where it is cut off
_BLOCK = 1 << 20  # numbers in one table of nodes
_BEYOND = 690.0  # e^v would leave the doubles
_SMALLEST_SHAPE = 0.2  # down to which tests compare everything with high precision


@dataclass(frozen=True)
class WeibullSeed(Seed):
    """Weibull: P(u > x) = exp(-(x/scale)^shape). K(t) for t > 0 is infinite when shape < 1.

    (u/scale)^shape is exponential with mean 1, and v its logarithm, so that

        E[e^(tu)] = integral of e^g(v) dv,   g(v) = v - e^v + t scale e^(v/shape).

    g' falls through zero once: g' = 0 says e^v - (t scale/shape) e^(v/shape) = 1, whose left side starts at 0 and
    rises, or first falls and then rises. So the integrand has one peak, wherever t moves it; the nodes lie around
    it, out to where e^g has fallen by e^-42 on the left, and u^2 e^g, which K'' averages, on the right. The trapezoidal
    rule converges geometrically.

    Shapes below 0.2 are refused: the smaller the shape, the more scales the law of u has.

    Args:
        shape: the power; at least 0.2.
        scale: the 63rd percentile.

    Raises:
        InvalidArgument: for a value that makes no distribution of it.
    """

    shape: float
    scale: float
    kind: ClassVar[str] = "weibull"

    def __post_init__(self) -> None:
        validate.positive(shape=self.shape, scale=self.scale)
        if self.shape < _SMALLEST_SHAPE:
            raise validate.InvalidArgument("shape", self.shape, f"at least {_SMALLEST_SHAPE}")
        validate.native(self)

    def cumulants(self, t: ArrayLike) -> tuple[Array, Array, Array]:
        t = np.asarray(t, dtype=float)
        flat = (t * self.scale).ravel()
        finite = (flat <= 0) | (self.shape > 1) | ((self.shape == 1) & (flat < 1))
        out = np.full((3, flat.size), np.inf)
        found = np.flatnonzero(finite & (flat > -np.inf))
        left, right = self._reach(flat[found])
        # A right flank like exp(-s e^(v/shape)) needs a step in proportion to a small shape.
        nodes = 1 + max(256, math.ceil(float(np.max(right - left, initial=0.0)) / (0.2 * min(1.0, self.shape))))
        room = np.isfinite(left) & np.isfinite(right)
        found, left, right = found[room], left[room], right[room]
        size = max(1, _BLOCK // nodes)
        for start in range(0, len(found), size):
            part = slice(start, start + size)
            out[:, found[part]] = self._integrals(flat[found[part]], left[part], right[part], nodes)
        value, mean, variance = (part.reshape(t.shape) for part in out)
        return np.where(t == 0, 0.0, value), self.scale * mean, self.scale * (self.scale * variance)

    def _integrals(self, t: Array, left: Array, right: Array, nodes: int) -> Array:
        v = np.linspace(left, right, nodes, axis=-1)
        exponent = self._exponent(v, t[:, None])
        top = exponent.max(axis=-1)
        mass = np.exp(exponent - top[:, None])
        total = mass.sum(axis=-1)
        value = np.log(total * (right - left) / (nodes - 1)) + top
        # Around the peak, so that a narrow seed keeps the digits of its variance: u = u_0 (1 + w).
        centre = v[np.arange(len(t)), exponent.argmax(axis=-1)]
        w = np.expm1((v - centre[:, None]) / self.shape)
        middle = (mass * w).sum(axis=-1) / total
        spread = (mass * (w - middle[:, None]) ** 2).sum(axis=-1) / total
        u0 = np.exp(centre / self.shape)
        # A tilt that hardly moves anything: log E[e^(tu)] as log1p of the sum of what each u adds.
        small = (np.abs(t) * self._largest < 0.1) | ((t < 0) & (value > -0.1))
        if np.any(small):
            v0, mass0 = self._untilted
            value[small] = np.log1p(np.expm1(t[small, None] * np.exp(v0 / self.shape)) @ mass0)
        return np.stack([value, u0 * (1 + middle), u0**2 * spread])

    @cached_property
    def _untilted(self) -> tuple[Array, Array]:
        """Nodes and masses of v without a tilt."""
        v = np.linspace(-_DROP - 1, math.log(_DROP) + 1, 1 + max(256, math.ceil(50 / (0.2 * min(1.0, self.shape)))))
        mass = np.exp(v - np.exp(v))
        return v, mass / mass.sum()

    @cached_property
    def _largest(self) -> float:
        """u/scale at the last node."""
        return float(np.exp(min(_BEYOND, self._untilted[0][-1] / self.shape)))

    def _exponent(self, v: Array, t: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            return v - np.exp(np.minimum(v, _BEYOND)) + t * np.exp(np.minimum(v / self.shape, _BEYOND))

    def _reach(self, t: Array) -> tuple[Array, Array]:
        """Where e^g on the left of its peak, and u^2 e^g on the right, have fallen far enough; NaN beyond the doubles.

        u^2 e^g has its own peak further right. What is e^-42 of its value at the peak of e^g is no more of its highest.
        """
        peak = self._peak(t)
        height = self._exponent(peak, t)
        sharpness = np.exp(peak) + np.abs(t) / self.shape**2 * np.exp(peak / self.shape)

        def is_high(side: float, way: Array) -> NDArray[np.bool_]:
            weight = 2 * way / self.shape if side > 0 else 0.0  # log of u^2
            return np.asarray(self._exponent(peak + side * way, t) + weight > height - _DROP)

        ends = []
        for side in (-1.0, 1.0):
            inside, outside = np.zeros_like(t), 1 / np.sqrt(sharpness)
            for _ in range(200):
                high = is_high(side, outside)
                if not np.any(high):
                    break
                inside, outside = np.where(high, outside, inside), np.where(high, 2 * outside, outside)
            for _ in range(6):
                middle = (inside + outside) / 2
                high = is_high(side, middle)
                inside, outside = np.where(high, middle, inside), np.where(high, outside, middle)
            ends.append(peak + side * outside)
        return ends[0], ends[1]

    def _peak(self, t: Array) -> Array:
        """The root of e^v - (t/shape) e^(v/shape) = 1, by bisection between bounds on it."""
        ratio = np.abs(t) / self.shape
        with np.errstate(divide="ignore", over="ignore"):
            # t < 0: each of two positive terms is at most 1, and one of them at least 1/2.
            most = np.minimum(0.0, -self.shape * np.log(ratio))
            least = most - max(1.0, self.shape) * math.log(2)
            if self.shape > 1:  # t > 0: e^(v (1 - 1/shape)) <= 1 + t/shape
                up = np.log1p(ratio) * self.shape / (self.shape - 1)
            else:  # shape = 1, t < 1
                up = -np.log1p(-np.minimum(t, 1 - 2.0**-53))
            low, high = np.where(t > 0, 0.0, least), np.where(t > 0, up, most)
            high = np.where(high > _BEYOND, np.nan, high)
            for _ in range(60):
                middle = (low + high) / 2
                above = np.exp(middle) - t / self.shape * np.exp(middle / self.shape) > 1
                low, high = np.where(above, low, middle), np.where(above, middle, high)
        return high

    def survival(self, u: ArrayLike) -> Array:
        return np.exp(-self._hazard(u))

    def cdf(self, u: ArrayLike) -> Array:
        return -np.expm1(-self._hazard(u))

    def _hazard(self, u: ArrayLike) -> Array:
        with np.errstate(over="ignore"):
            return (np.maximum(np.asarray(u, dtype=float), 0.0) / self.scale) ** self.shape

    def upper_quantile(self, p: ArrayLike) -> Array:
        with np.errstate(divide="ignore"):
            return self.scale * (-np.log(np.asarray(p, dtype=float))) ** (1 / self.shape)

    def lower_quantile(self, p: ArrayLike) -> Array:
        return np.asarray(self.scale * (-np.log1p(-np.asarray(p, dtype=float))) ** (1 / self.shape))

    def scaled(self, factor: float) -> WeibullSeed:
        return WeibullSeed(self.shape, self.scale * factor)

    @property
    def order_at_zero(self) -> float:
        return self.shape

    @property
    def log_concave(self) -> bool:
        return self.shape >= 1

    def inverse_moment(self, power: int) -> float:
        if self.shape <= power:
            return math.inf
        return math.gamma(1 - power / self.shape) * self.scale**-power
