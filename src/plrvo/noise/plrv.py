"""PLRV noise: Laplace noise whose inverse scale u is itself random, drawn from a seed.

With K the seed's cumulant function (`seeds`), one coordinate has

    P(|z| > t) = E[e^(-ut)] = e^K(-t),   phi(t) = p(+-t) = K'(-t) e^K(-t) / 2,   score = (K'' + K'^2)/K' at -|z|.

`shared=False` draws a fresh u for every coordinate; `shared=True` one u per call of `sample`, for all coordinates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from plrvo import validate
from plrvo.noise import sampling
from plrvo.noise.base import Array, Noise
from plrvo.noise.envelope import spread_bound
from plrvo.noise.exponentials import LaplaceSize, LomaxSize, SignedKernel
from plrvo.noise.functions import expm1_minus, times_log1p
from plrvo.noise.keystream import Keystream
from plrvo.noise.lomax import Lomax
from plrvo.noise.mixture import mixture_log_moment
from plrvo.noise.mixtures import MixtureKernel, scale_for_all
from plrvo.noise.parameter import Parameter
from plrvo.noise.quadrature import half_line, legendre
from plrvo.noise.rounding import LomaxReals
from plrvo.noise.seeds import GammaSeed, Seed
from plrvo.noise.shared_scale import shared_log_joint_moment, shared_log_stream_moment
from plrvo.noise.spans import MakeKernel

# From this dimension on the finite-dimension saving of a heavy-tailed noise is below a percent in any usable setting,
# and Theorem 2' alone is used: microseconds instead of milliseconds. The switch is on the dimension only, so that the
# certified epsilon stays monotone in everything.
_LARGE_DIMENSION = 10_000
_LARGE_ORDER = 2048

_SMALLEST_SCORE = 1e-150
_NEARLY_LAPLACE = 1e15  # k, beyond which profiles are those of Laplace noise
_SHORT = 1e-3  # shifts, in units of the noise, below which a loss is integrated and not subtracted
_SPREAD = 100.0  # how much finer than the noise's unit its law may be, if the seed is not log-concave


class _Mixture(Noise):
    """What all PLRV noises share; a subclass says what its seed is."""

    seed: Seed

    @cached_property
    def _score_bound(self) -> float:
        """sup of the score, at 0+: E[u^2]/E[u]."""
        return float(self._size_of_score(np.zeros(())))

    def _check_size(self, argument: str, value: object) -> None:
        """Refuse noise whose squared score is no double: a variance that underflows would halve a loss."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            moderate = _SMALLEST_SCORE <= self._score_bound <= 1 / _SMALLEST_SCORE
        if not moderate:
            raise validate.InvalidArgument(
                argument, value, "an E[u^2]/E[u] between 1e-150 and 1e150: clip and noise in other units"
            )

    def _check_detail(self) -> None:
        """Refuse a law that is finer than what the quadratures resolve.

        The inverse of the score has the slope E[u^3] E[u]/E[u^2]^2 - 1 under the tilted law. A log-concave seed, and so
        a sum of them, has a slope of 1 at most (`envelope`): its law changes over no less than the unit. Another may
        have a part that is rare and any number of times larger than the rest: the law is as fine as that is large.
        """
        if self.seed.log_concave:
            return
        largest = max(term.second_moment / term.mean for term in self.seed.terms) / self._score_bound
        t = 10.0 ** -np.arange(1.0, 9.0)  # in units
        rise = np.max((self._score_bound / self._size_of_score(t / self._score_bound) - 1) / t)
        if not max(largest, rise) <= _SPREAD:
            raise validate.InvalidArgument(
                "seed", self.seed, "log-concave terms, or none with an E[u^2]/E[u] over 100 times that of their sum"
            )

    @cached_property
    def _scales(self) -> tuple[float, float]:
        """The finest and the coarsest scale of the law in t: one over the largest and the smallest usual u.

        Parts of a mean below 1e-6 of the seed's have no more than that share in the density, and less in a moment.
        """
        unit = 1 / self._score_bound
        return (unit, unit) if self.seed.log_concave else (unit / _SPREAD, 1 / self.seed.mean)

    @property
    def lomax(self) -> tuple[Lomax, float] | None:
        """Laplace noise of the largest score, or the noise itself where its seed is Gamma's; None if shared."""
        scale, k = self.laplace_scale, self.seed.gamma_shape
        # At such a k the two are the same.
        return None if scale is None else (Lomax(k if k < _NEARLY_LAPLACE else math.inf), scale)

    @property
    def laplace_scale(self) -> float | None:
        """1/(sup of the score), rounded down, whatever the seed (theory, Lemma 16)."""
        return None if self.shared else (1 - self._score_margin) / self._score_bound

    @property
    def _score_margin(self) -> float:
        return 1e-11  # of cumulants, which tests compare with mpmath

    @property
    def largest_order(self) -> int:
        return 1 << 11

    def kernels(self, keystream: Keystream) -> MakeKernel:
        if not self.shared:
            return partial(MixtureKernel, self.seed)
        (stream,) = keystream.streams(1)
        return partial(SignedKernel, LaplaceSize(scale_for_all(self.seed, stream)))

    def log_density(self, z: ArrayLike) -> Array:
        return self._log_phi(np.abs(np.asarray(z, dtype=float)))

    def _log_phi(self, t: Array) -> Array:
        value, slope, _ = self.seed.cumulants(-t)
        return value + np.log(slope / 2)

    def _log_ratio(self, t: Array, s: Array) -> Array:
        """log phi(t)/phi(t+s), s >= 0: a difference, or for small s, where it would cancel, the integral of the score.

        A log-concave seed has a score that changes by a factor e over no less than its inverse, so that three nodes are
        enough. Another's may change a hundred times as fast (`_check_detail`), for which five are.
        """
        t, s = np.broadcast_arrays(t, s)
        small = s * self._score_bound < _SHORT
        out = np.empty(t.shape)
        if not np.all(small):
            value, slope, _ = self.seed.cumulants(-t[~small])
            further, lower_slope, _ = self.seed.cumulants(-(t[~small] + s[~small]))
            # One logarithm of a ratio: two logarithms would err by the size of log phi, which the unit of u decides.
            out[~small] = value - further + np.log(slope / lower_slope)
        if np.any(small):
            nodes, weights = legendre(3 if self.seed.log_concave else 5)
            scores = self._size_of_score(t[small, None] + s[small, None] * nodes)
            out[small] = s[small] * (scores @ weights)
        return np.maximum(out, 0.0)

    def _size_of_score(self, t: Array) -> Array:
        _, slope, bend = self.seed.cumulants(-t)
        return slope + bend / slope

    def cdf(self, z: ArrayLike) -> Array:
        z = np.asarray(z, dtype=float)
        finite = np.isfinite(z)
        half = np.where(finite, np.exp(self.seed.cumulants(-np.where(finite, np.abs(z), 0.0))[0]) / 2, 0.0)
        return np.where(z < 0, half, 1 - half)

    def score(self, z: Any) -> Any:
        xp = sampling.namespace(z)
        if xp is not np:
            return xp.from_numpy(np.asarray(self.score(z.detach().cpu().numpy()))).to(z)
        z = np.asarray(z, dtype=float)
        return np.sign(z) * self._size_of_score(np.abs(z))

    @property
    def distortion(self) -> float:
        return self.seed.inverse_moment(1)

    @property
    def variance(self) -> float:
        return 2 * self.seed.inverse_moment(2)

    def fisher_information(self, dimension: int = 1) -> float:
        validate.positive_integer(dimension=dimension)
        if self.shared and dimension > 1:
            raise validate.InvalidArgument("dimension", dimension, "1: only a Gamma seed has a joint form when shared")
        return self._marginal_information

    @cached_property
    def _marginal_information(self) -> float:
        finest, coarsest = self._scales
        t, weights = half_line(1e-4 * finest, 1e8 * coarsest)
        return float(2 * np.sum(weights * np.exp(self._log_phi(t)) * self._size_of_score(t) ** 2))

    def log_moment(self, x: ArrayLike, eta: ArrayLike) -> Array:
        return mixture_log_moment(self._log_phi, self._log_ratio, self._scales, x, eta)

    def log_moment_scale_revealed(self, x: ArrayLike, eta: ArrayLike) -> Array:
        """log G, G = [eta M((eta-1)x) + (eta-1) M(-eta x)]/(2 eta - 1); +inf where M is.  Integer eta >= 0."""
        x, eta = np.broadcast_arrays(np.asarray(x, dtype=float), np.asarray(eta, dtype=float))
        up, down = self.seed.cumulants((eta - 1) * x)[0], self.seed.cumulants(-eta * x)[0]
        small = up < 1
        near_up, near_down = np.where(small, up, 0.0), np.where(small, down, 0.0)
        curved = eta * expm1_minus(near_up) + (eta - 1) * expm1_minus(near_down)
        excess = (curved + eta * near_up + (eta - 1) * near_down) / (2 * eta - 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            direct = np.logaddexp(
                np.log(eta / (2 * eta - 1)) + up,
                np.where(eta > 1, np.log(np.maximum(eta - 1, 1e-300) / np.abs(2 * eta - 1)), -np.inf) + down,
            )
        value = np.where(small, np.log1p(np.maximum(excess, 0.0)), direct)
        return np.where((eta == 0) | (eta == 1), 0.0, value)

    def _initial_slope(self, x0: float, eta: Array) -> Array:
        """eta (eta-1) I e^((eta-1) c x0) / 2, above log F/x^2 on (0, x0]."""
        return eta * (eta - 1) / 2 * self._marginal_information * np.exp((eta - 1) * self._score_bound * x0)

    @property
    def _convex_moments(self) -> bool:
        return self.seed.log_concave

    def log_joint_moment(self, clip: float, dimension: int, eta: Array, tail: float = 0.0) -> Array:
        eta = np.asarray(eta, dtype=float)
        out = np.zeros(eta.shape)
        active = eta >= 2
        if not np.any(active):
            return out
        if self.shared:
            out[active] = shared_log_joint_moment(self.seed, clip, dimension, eta[active], tail)
        else:
            out[active] = self._worst_product(clip, dimension, eta[active])
        return out

    @property
    def moment_margin(self) -> float:
        return 1e-11  # of quadratures, which tests compare with mpmath

    def log_stream_moment(self, clip: float, dimension: int, eta: Array, tail: float = 0.0) -> Array:
        if not self.shared:
            return super().log_stream_moment(clip, dimension, eta, tail)
        return shared_log_stream_moment(self.seed, clip, np.asarray(eta, dtype=float), tail)

    def _worst_product(self, clip: float, dimension: int, eta: Array) -> Array:
        unit = self._unit
        in_units = clip * self._score_bound
        return spread_bound(unit, in_units, dimension, eta, unit._initial_slope, unit._convex_moments)

    @cached_property
    def _unit(self) -> _Mixture:
        """This shape of noise at the width at which its score is bounded by 1."""
        return self.scaled(self._score_bound)

    def pure_loss(self, clip: float, dimension: int) -> float:
        """n log phi(0)/phi(C/sqrt n): phi is log-convex, so the loss is concave in the shift and spreading is worst.

        With a shared scale the joint density falls by at most the factor that the largest u gives.
        """
        if self.shared:
            largest = float(self.seed.upper_quantile(0.0))
            return largest * math.sqrt(dimension) * clip
        zero, shift = np.zeros(1), np.full(1, clip / math.sqrt(dimension))
        return dimension * float(self._log_ratio(zero, shift)[0])

    @property
    def pure_loss_margin(self) -> float:
        """1e-11: a loss of 1e-3 or more (`_SHORT`) is a difference of cumulants that are good to 1e-14.

        With a shared scale it is a product, of a largest u that may be a sum of a few hundred terms: 2^-44.
        """
        return 2.0**-44 if self.shared else 1e-11


@dataclass(frozen=True)
class PLRV(_Mixture):
    """PLRV noise with any seed. For a Gamma seed use `GammaPLRV`, which is exact and faster.

    Args:
        seed: the law of the inverse scale.
        shared: one inverse scale for all coordinates of a step, in the place of one for each.

    Raises:
        InvalidArgument: for a value that makes no noise of it.
    """

    seed: Seed = field()
    shared: bool = False
    kind: ClassVar[str] = "plrv"

    def __post_init__(self) -> None:
        if not isinstance(self.seed, Seed):
            raise validate.InvalidArgument("seed", self.seed, "a Seed, for example GammaSeed(k=60_000, theta=1e-5)")
        validate.truth_value(shared=self.shared)
        validate.native(self)
        self._check_size("seed", self.seed)
        self._check_detail()

    def scaled(self, factor: float) -> Self:
        return replace(self, seed=self.seed.scaled(1 / factor))

    def to_dict(self) -> dict[str, Any]:
        return {"noise": self.kind, "seed": self.seed.to_dict(), "shared": self.shared}


@dataclass(frozen=True)
class GammaPLRV(_Mixture):
    """Gamma-PLRV(k, theta): inverse scale u ~ Gamma with shape k and **scale** theta, mean k theta.

    Per coordinate this is two-sided Lomax noise, p(z) = (k theta/2) (1 + theta |z|)^-(k+1).

    >>> noise = GammaPLRV(k=60_000, theta=1e-5)
    >>> round(noise.distortion, 6)
    1.666694

    Args:
        k: the shape of the inverse scale; E|z| is finite above 1.
        theta: its scale; E|z| = 1/((k - 1) theta).
        shared: one inverse scale for all coordinates of a step, in the place of one for each.

    Raises:
        InvalidArgument: for a value that makes no noise of it.
    """

    k: float
    theta: float
    shared: bool = False
    kind: ClassVar[str] = "gamma"
    parameters: ClassVar[tuple[Parameter, ...]] = (
        # By default within 0.3 % of the Laplace limit, which is the best that Gamma noise can do on raw error.
        Parameter("k", "shape of the inverse scale.", usual=1000.0),
        Parameter("theta", "scale (not rate) of the inverse scale.", is_width=True),
        Parameter("shared", "one random scale per step for all coordinates.", is_flag=True),
    )

    def __post_init__(self) -> None:
        validate.positive(k=self.k, theta=self.theta)
        validate.truth_value(shared=self.shared)
        validate.native(self)
        self._check_size("theta", self.theta)

    @cached_property
    def seed(self) -> GammaSeed:  # type: ignore[override]
        return GammaSeed(self.k, self.theta)

    @property
    def _score_bound(self) -> float:
        return (self.k + 1) * self.theta

    @property
    def _score_margin(self) -> float:
        return 2.0**-50  # of a product

    @property
    def _scales(self) -> tuple[float, float]:
        unit = 1 / self._score_bound
        return unit, unit  # 1/theta is k + 1 of them

    @property
    def largest_order(self) -> int:
        return super().largest_order if self.shared or self.k < 1 else 1 << 17

    def kernels(self, keystream: Keystream) -> MakeKernel:
        return super().kernels(keystream) if self.shared else partial(SignedKernel, LomaxSize(self.k, self.theta))

    def exact_sampler(self, cell: float) -> LomaxReals | None:
        if self.shared:
            return None
        if self.k < 1:
            raise validate.InvalidArgument("k", self.k, "at least 1 for exact noise")
        return LomaxReals(self.k, self.theta, cell)

    def _log_phi(self, t: Array) -> Array:
        return math.log(self.k * self.theta / 2) - (self.k + 1) * np.log1p(self.theta * t)

    def _log_ratio(self, t: Array, s: Array) -> Array:
        return times_log1p(self.k + 1, self.theta, s / (1 + self.theta * t))

    def score(self, z: Any) -> Any:
        xp = sampling.namespace(z)
        return (self.k + 1) * self.theta * xp.sign(z) / (1 + self.theta * xp.abs(z))

    def fisher_information(self, dimension: int = 1) -> float:
        validate.positive_integer(dimension=dimension)
        n = dimension if self.shared else 1
        return (self.k + n) / (self.k + n + 1) * (self.k * self.theta) * ((self.k + 1) * self.theta)

    @property
    def _marginal_information(self) -> float:
        return self.k / (self.k + 2) * ((self.k + 1) * self.theta) ** 2

    @cached_property
    def _unit(self) -> GammaPLRV:
        return GammaPLRV(self.k, 1 / (self.k + 1))  # the same object for every theta, so that its values are shared

    @property
    def _convex_moments(self) -> bool:
        return True  # p^(1-eta) is a power of at least one of 1 + theta |z|

    def _initial_slope(self, x0: float, eta: Array) -> Array:
        if self.k < 1:
            return super()._initial_slope(x0, eta)
        return eta * (eta - 1) / 2 * self._marginal_information

    def _worst_product(self, clip: float, dimension: int, eta: Array) -> Array:
        """Theorem 2' (k >= 1) caps what the grid gives, and replaces it where the dimension or the order is large."""
        if self.k < 1:
            return super()._worst_product(clip, dimension, eta)
        capped = eta * (eta - 1) / 2 * self._marginal_information * clip**2
        if dimension < _LARGE_DIMENSION:
            grid = eta <= _LARGE_ORDER
            capped[grid] = np.minimum(capped[grid], super()._worst_product(clip, dimension, eta[grid]))
        return capped

    def pure_loss(self, clip: float, dimension: int) -> float:
        if not self.shared:
            return super().pure_loss(clip, dimension)
        return float(times_log1p(self.k + dimension, self.theta, math.sqrt(dimension) * clip))

    @property
    def pure_loss_margin(self) -> float:
        return 2.0**-49  # both are closed forms

    def scaled(self, factor: float) -> Self:
        return replace(self, theta=self.theta / factor)
