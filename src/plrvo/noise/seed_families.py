"""Seeds with other shapes than Gamma's: uniform, truncated normal, Weibull."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from plrvo import validate
from plrvo.noise.seeds import Array, Seed


@dataclass(frozen=True)
class UniformSeed(Seed):
    """Uniform on [low, high], low >= 0; with low = 0 the noise has no finite expected size."""

    low: float
    high: float
    kind: ClassVar[str] = "uniform"

    def __post_init__(self) -> None:
        validate.non_negative(low=self.low)
        validate.positive(high=self.high)
        if self.high <= self.low:
            raise validate.InvalidArgument("high", self.high, f"a number above low={self.low}")
        validate.native(self)

    def cumulants(self, t: ArrayLike) -> tuple[Array, Array, Array]:
        # u = middle + half * v with v uniform on [-1, 1]: K_v(y) = log(sinh(y)/y), by its series near 0.
        half, middle = (self.high - self.low) / 2, (self.high + self.low) / 2
        t = np.asarray(t, dtype=float)
        y = half * t
        small = np.abs(y) < 0.1
        near = np.where(small, y, 0.0)
        w = near**2
        a = np.where(small, 1.0, np.abs(y))
        # middle * t + |y| is low * t or high * t, whichever t favours: written so, nothing cancels.
        edge = np.where(t < 0, self.low, self.high)
        value_near = middle * t + w / 6 - w**2 / 180 + w**3 / 2835 - w**4 / 37800 + w**5 / 467775
        slope_near = middle + half * near * (1 / 3 - w / 45 + 2 * w**2 / 945 - w**3 / 4725 + 2 * w**4 / 93555)
        bend_near = 1 / 3 - w / 15 + 2 * w**2 / 189 - w**3 / 675 + 2 * w**4 / 10395
        with np.errstate(divide="ignore"):  # at t = -inf, where the value is -inf
            value_far = np.where(edge > 0, edge, 1e-300) * t + np.log(-np.expm1(-2 * a) / (2 * a))
        toward = half * (1 / np.tanh(a) - 1 - 1 / a)  # coth(a) - 1 is what the edge has not got
        slope_far = edge + np.where(t < 0, -toward, toward)
        bend_far = 1 / a**2 - 1 / np.sinh(np.minimum(a, 350.0)) ** 2
        return (
            np.where(small, value_near, value_far),
            np.where(small, slope_near, slope_far),
            half**2 * np.where(small, bend_near, bend_far),
        )

    def survival(self, u: ArrayLike) -> Array:
        return np.clip((self.high - np.asarray(u, dtype=float)) / (self.high - self.low), 0.0, 1.0)

    def upper_quantile(self, p: ArrayLike) -> Array:
        return self.high - (self.high - self.low) * np.asarray(p, dtype=float)

    def lower_quantile(self, p: ArrayLike) -> Array:
        return self.low + (self.high - self.low) * np.asarray(p, dtype=float)

    def cdf(self, u: ArrayLike) -> Array:
        return np.clip((np.asarray(u, dtype=float) - self.low) / (self.high - self.low), 0.0, 1.0)

    def scaled(self, factor: float) -> UniformSeed:
        return UniformSeed(self.low * factor, self.high * factor)

    @property
    def order_at_zero(self) -> float:
        return 1.0 if self.low == 0 else math.inf

    @property
    def log_concave(self) -> bool:
        return True

    def inverse_moment(self, power: int) -> float:
        if self.low == 0:
            return math.inf
        if power == 1:
            return math.log(self.high / self.low) / (self.high - self.low)
        return (self.low ** (1 - power) - self.high ** (1 - power)) / ((power - 1) * (self.high - self.low))


@dataclass(frozen=True)
class TruncatedNormalSeed(Seed):
    """A normal variable of the given mean and std, conditioned on being at least `low` >= 0."""

    mean_before: float
    std: float
    low: float = 0.0
    kind: ClassVar[str] = "truncated-normal"

    def __post_init__(self) -> None:
        validate.number(mean_before=self.mean_before)
        if not math.isfinite(self.mean_before):
            raise validate.InvalidArgument("mean_before", self.mean_before, "a finite number")
        validate.positive(std=self.std)
        validate.non_negative(low=self.low)
        validate.native(self)

    @property
    def _cut(self) -> float:
        return (self.low - self.mean_before) / self.std

    def cumulants(self, t: ArrayLike) -> tuple[Array, Array, Array]:
        # Tilting moves the mean by std^2 t, the cut to c = cut - std t. P(Z > c) = e^(-c^2/2) erfcx(c/sqrt 2)/2.
        t = np.asarray(t, dtype=float)
        c = self._cut - self.std * t
        log_upper = special.log_ndtr(-c)
        high = c > 0
        safe = np.where(high, c, 0.0)
        log_upper_scaled = np.where(high, np.log(special.erfcx(safe / math.sqrt(2)) / 2), log_upper + c**2 / 2)
        start = float(special.log_ndtr(-self._cut)) + self._cut**2 / 2
        if self._cut > 0:
            start = math.log(float(special.erfcx(self._cut / math.sqrt(2))) / 2)
        value = self.low * t + log_upper_scaled - start
        hazard = np.exp(-0.5 * math.log(2 * math.pi) - log_upper_scaled)
        # Tilted u = low + std * (X - c | X > c). The excess cancels for large c, where Mills' ratio has a series.
        i2 = 1 / np.where(c > 30, c, 30.0) ** 2
        excess = np.where(c > 30, (1 - 2 * i2 + 10 * i2**2 - 74 * i2**3) / np.maximum(c, 30.0), hazard - c)
        spread = np.where(c > 30, i2 * (1 - 6 * i2 + 50 * i2**2), 1 - hazard * (hazard - c))
        return value, self.low + self.std * excess, self.std**2 * spread

    def survival(self, u: ArrayLike) -> Array:
        return np.exp(self._log_survival(u))

    def _log_survival(self, u: ArrayLike) -> Array:
        c = (np.maximum(np.asarray(u, dtype=float), self.low) - self.mean_before) / self.std
        return np.asarray(special.log_ndtr(-c) - special.log_ndtr(-self._cut))

    def upper_quantile(self, p: ArrayLike) -> Array:
        # In logarithms, so that a far cut keeps its digits.
        with np.errstate(divide="ignore"):
            log_tail = special.log_ndtr(-self._cut) + np.log(np.asarray(p, dtype=float))
        return np.maximum(self.low, self.mean_before - self.std * np.asarray(special.ndtri_exp(log_tail)))

    def lower_quantile(self, p: ArrayLike) -> Array:
        """low + std * w, where Phi(c + w) - Phi(c) = p Phi(-c) for the cut c.

        With t = p Phi(-c)/phi(c), w = t + c t^2/2 + (2c^2 + 1) t^3/6 + ... while t and |c| t are small; beyond, the
        difference of c + w and c is large enough to be taken.
        """
        p, c = np.asarray(p, dtype=float), self._cut
        log_p, log_above = np.log(p), float(special.log_ndtr(-c))
        with np.errstate(over="ignore"):
            t = np.exp(log_p + log_above + c**2 / 2 + math.log(2 * math.pi) / 2)
        near = t * max(1.0, abs(c)) < 1e-5
        t = np.where(near, t, 0.0)
        w = t * (1 + t * (c / 2 + t * (2 * c**2 + 1) / 6))
        if c > 0:
            far = self.mean_before - self.std * np.asarray(special.ndtri_exp(log_above + np.log1p(-p)))
        else:
            log_below = np.logaddexp(float(special.log_ndtr(c)), log_p + log_above)
            far = self.mean_before + self.std * np.asarray(special.ndtri_exp(log_below))
        return np.where(near, self.low + self.std * w, np.maximum(far, self.low))

    def cdf(self, u: ArrayLike) -> Array:
        return -np.expm1(self._log_survival(u))

    def scaled(self, factor: float) -> TruncatedNormalSeed:
        return TruncatedNormalSeed(self.mean_before * factor, self.std * factor, self.low * factor)

    @property
    def order_at_zero(self) -> float:
        return 1.0 if self.low == 0 else math.inf

    @property
    def log_concave(self) -> bool:
        return True


@dataclass(frozen=True)
class WeibullSeed(Seed):
    """Weibull: P(u > x) = exp(-(x/scale)^shape). K(t) for t > 0 is infinite when shape < 1.

    K has no closed form. In y = log u the integrand decays doubly exponentially on the right and exponentially on the
    left, so the trapezoidal rule converges geometrically.
    """

    shape: float
    scale: float
    kind: ClassVar[str] = "weibull"

    def __post_init__(self) -> None:
        validate.positive(shape=self.shape, scale=self.scale)
        validate.native(self)

    def cumulants(self, t: ArrayLike) -> tuple[Array, Array, Array]:
        t = np.asarray(t, dtype=float) * self.scale
        # A tilt e^(-s u) moves the mass to u ~ 1/s, so the grid reaches that much further to the left.
        left = -45 / self.shape - np.log1p(np.maximum(-t, 0.0).max(initial=0.0))
        right = np.log(750.0) / self.shape + 1
        steepest = float(np.maximum(t, 0.0).max(initial=0.0))
        if self.shape > 1 and 0 < steepest < math.inf:
            right = max(right, 1 + np.log(2 * steepest) / (self.shape - 1), np.log(1500.0) / self.shape)
        step = 0.2 / max(1.0, self.shape)
        y = np.arange(left, right, step)
        u = np.exp(y)
        log_weight = math.log(self.shape * step) + self.shape * y - np.exp(np.minimum(self.shape * y, 700.0))
        finite = (t <= 0) | (self.shape > 1) | ((self.shape == 1) & (t < 1))
        exponent = log_weight + np.where(finite, t, 0.0)[..., None] * u
        top = exponent.max(axis=-1, keepdims=True)
        mass = np.exp(exponent - top)
        total = mass.sum(axis=-1)
        mean = (mass * u).sum(axis=-1) / total
        variance = (mass * (u - mean[..., None]) ** 2).sum(axis=-1) / total
        outside = np.where(finite, 0.0, np.inf)
        value = np.where(t == 0, 0.0, np.log(total) + top[..., 0])
        return value + outside, self.scale * mean + outside, self.scale**2 * variance + outside

    def survival(self, u: ArrayLike) -> Array:
        return np.exp(-self._hazard(u))

    def cdf(self, u: ArrayLike) -> Array:
        return -np.expm1(-self._hazard(u))

    def _hazard(self, u: ArrayLike) -> Array:
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
