"""Seeds with other shapes than Gamma's: uniform and truncated normal (`weibull` has one more)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from plrvo import validate
from plrvo.noise.functions import normal_excess, normal_hazard
from plrvo.noise.quadrature import legendre
from plrvo.noise.seeds import Array, Seed


class _FromLow(Seed):
    """A log-concave density that begins at `low`, where it is positive."""

    low: float

    @property
    def order_at_zero(self) -> float:
        return 1.0 if self.low == 0 else math.inf

    @property
    def log_concave(self) -> bool:
        return True


@dataclass(frozen=True)
class UniformSeed(_FromLow):
    """Uniform on [low, high], low >= 0; with low = 0 the noise has no finite expected size.

    Args:
        low: the lower end; 0 or above.
        high: the upper end.

    Raises:
        InvalidArgument: for a value that makes no distribution of it.
    """

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
            half * (half * np.where(small, bend_near, bend_far)),
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

    def inverse_moment(self, power: int) -> float:
        if self.low == 0:
            return math.inf
        if power == 1:
            return math.log1p((self.high - self.low) / self.low) / (self.high - self.low)
        # (low^(1-p) - high^(1-p)) / (high - low), divided on paper.
        return sum(self.low**-i * self.high ** (i - power) for i in range(1, power)) / (power - 1)


@dataclass(frozen=True)
class TruncatedNormalSeed(_FromLow):
    """A normal variable of the given mean and std, conditioned on being at least `low` >= 0.

    Args:
        mean_before: the mean before it is cut.
        std: the standard deviation before it is cut.
        low: where it is cut; 0 or above.

    Raises:
        InvalidArgument: for a value that makes no distribution of it.
    """

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
        if not math.isfinite(self._cut):
            raise validate.InvalidArgument("std", self.std, "a width in which low is a finite way from mean_before")

    @property
    def _cut(self) -> float:
        return (self.low - self.mean_before) / self.std

    def cumulants(self, t: ArrayLike) -> tuple[Array, Array, Array]:
        """K, K', K'' in forms that keep their digits however narrow the seed, or however far out its cut, is.

        Tilting moves the mean by std^2 t, the cut to c = cut - std t, so that K' = low + std excess(c). For small steps
        K is the integral of K', which is positive; a difference of two logarithms would be all rounding there.
        """
        t = np.asarray(t, dtype=float)
        c = self._cut - self.std * t
        step = self.std * t
        near = np.abs(step) <= 0.25 * max(1.0, abs(self._cut))
        nodes, weights = legendre(16)
        means = self.low + self.std * normal_excess(self._cut - step[near][:, None] * nodes)[0]
        value = np.empty(t.shape)
        with np.errstate(over="ignore", invalid="ignore"):  # to minus infinity, or in a form that is not taken
            value[near] = t[near] * (means @ weights)
            value[~near] = self._far_value(t[~near], c[~near])
        excess, spread = normal_excess(c)
        return value, self.low + self.std * excess, self.std * (self.std * spread)

    def _far_value(self, t: Array, c: Array) -> Array:
        scaled = self.low * t + _log_scaled_survival(c) - _log_scaled_survival(np.asarray(self._cut))
        if self._cut > 0:
            return scaled
        # P(Z > c) = e^(-c^2/2) S(c). Where neither cut needs the scaled form, the squares have cancelled on paper.
        tilted = self.mean_before + self.std * (self.std * t) / 2
        plain = t * tilted + special.log_ndtr(-c) - special.log_ndtr(-self._cut)
        return np.where(c <= 0, plain, scaled)

    def survival(self, u: ArrayLike) -> Array:
        return np.exp(self._log_survival(u))

    def _log_survival(self, u: ArrayLike) -> Array:
        above: Array = np.asarray(np.maximum(np.asarray(u, dtype=float), self.low))
        return self._log_above((above - self.low) / self.std, (above - self.mean_before) / self.std)

    def _log_above(self, w: Array, x: Array) -> Array:
        """log S(c + w) - log S(c), S = P(Z > .), c the cut and x = c + w: of full relative precision, wherever c is.

        For short w it is the integral of the hazard. Beyond, c > 0 has -(c w + w^2/2) and the logarithm of a ratio of
        scaled tails, which have one sign: the logarithms of the tails themselves are -c^2/2, and would cancel.
        """
        c = self._cut
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            near = w * max(1.0, abs(c)) <= 0.25
            nodes, weights = legendre(16)
            out = np.empty(w.shape)
            out[near] = -w[near] * (normal_hazard(c + w[near][:, None] * nodes) @ weights)
            w, x = w[~near], x[~near]
            if c > 0:
                ratio = special.erfcx((c + w) / math.sqrt(2)) / special.erfcx(c / math.sqrt(2))
                out[~near] = -w * (c + w / 2) + np.log(ratio)
            else:
                out[~near] = special.log_ndtr(-x) - special.log_ndtr(-c)
        return out

    def _beyond_far_cut(self, log_above: Array) -> Array:
        """w of `_log_above`, for c > 0, by Newton: -log S is convex, and at least c w + w^2/2 above its start."""
        c = self._cut
        fall = np.where(np.isfinite(log_above), -log_above, 0.0)
        w = fall / (c / 2 + np.hypot(c, np.sqrt(2 * fall)) / 2)
        for _ in range(6):
            w = np.maximum(w + (self._log_above(w, c + w) + fall) / normal_hazard(c + w), 0.0)
        return np.where(np.isfinite(log_above), w, np.inf)

    def upper_quantile(self, p: ArrayLike) -> Array:
        with np.errstate(divide="ignore"):
            log_p = np.log(np.asarray(p, dtype=float))
        if self._cut > 0:
            return self.low + self.std * self._beyond_far_cut(log_p)
        log_tail = special.log_ndtr(-self._cut) + log_p
        return np.maximum(self.low, self.mean_before - self.std * np.asarray(special.ndtri_exp(log_tail)))

    def lower_quantile(self, p: ArrayLike) -> Array:
        """low + std * w, where Phi(c + w) - Phi(c) = p Phi(-c) for the cut c.

        For c <= 0, with t = p Phi(-c)/phi(c), w = t + c t^2/2 + (2c^2 + 1) t^3/6 + ... while t and |c| t are small;
        beyond, the difference of c + w and c is large enough to be taken.
        """
        p, c = np.asarray(p, dtype=float), self._cut
        if c > 0:
            return self.low + self.std * self._beyond_far_cut(np.log1p(-p))
        log_p, log_above = np.log(p), float(special.log_ndtr(-c))
        with np.errstate(over="ignore"):
            t = np.exp(log_p + log_above + c * c / 2 + math.log(2 * math.pi) / 2)
            near = t * max(1.0, abs(c)) < 1e-5
        t = np.where(near, t, 0.0)
        w = t * (1 + t * (c / 2 + t * (2 * min(c * c, 1e300) + 1) / 6))
        log_below = np.logaddexp(float(special.log_ndtr(c)), log_p + log_above)
        far = self.mean_before + self.std * np.asarray(special.ndtri_exp(log_below))
        return np.where(near, self.low + self.std * w, np.maximum(far, self.low))

    def cdf(self, u: ArrayLike) -> Array:
        return -np.expm1(self._log_survival(u))

    def scaled(self, factor: float) -> TruncatedNormalSeed:
        return TruncatedNormalSeed(self.mean_before * factor, self.std * factor, self.low * factor)


def _log_scaled_survival(c: Array) -> Array:
    """log of e^(c^2/2) P(Z > c)."""
    above, below = np.maximum(c, 0.0), np.minimum(c, 0.0)
    with np.errstate(divide="ignore"):
        scaled = np.log(special.erfcx(above / math.sqrt(2)) / 2)
    return np.where(c > 0, scaled, special.log_ndtr(-below) + below**2 / 2)
