"""Generalised Gaussian noise: density proportional to exp(-(|z|/a)^p), 1 <= p <= 2, between Laplace and Gaussian noise.

In units of the width a, with U(z) = |z|^p and F(x) = c integral e^(-eta U(y) + (eta-1) U(y+x)) dy, order eta >= 2:

*log F is convex in the shift*: F averages e^((eta-1) U(y+x)) over y, and these are log-convex in x. It is even, so it
grows with x >= 0. Hence the concave hull of `envelope` bounds the worst gradient, once log F/x^2 is bounded near 0:

*Lemma.*  log F(x) <= (eta (eta-1)/2) I e^(eta x_0 (1 + p x_0^(p-1))) (1 - (p-1) eta x_0)^-(2p-1)/p x^2, 0 < x <= x_0.
*Proof.* Differentiate one factor, move the variable, differentiate the other:
F''(x) = eta (eta-1) c integral U'(z) U'(z-x) e^((eta-1) U(z) - eta U(z-x)) dz.
The product of scores is at most the mean of their squares. With d = U(z) - U(z-x) the exponent is -U(z) + eta d, which
goes with U'(z)^2, and -U(z-x) + (eta-1) d, which goes with U'(z-x)^2. In both, with y that variable,
|d| <= p x (|y| + x)^(p-1) <= p x (|y|^(p-1) + x^(p-1)), since p-1 <= 1, and p |y|^(p-1) <= (p-1) |y|^p + 1 (Young). So

    F''(x) <= eta (eta-1) e^(eta x + eta p x^p) c integral U'(y)^2 e^-((1 - (p-1) eta x) |y|^p) dy,

where the integral, |y|^(2p-2) against e^(-l |y|^p), is I l^-(2p-1)/p. This grows with x; F(0) = 1, F'(0) = 0, and
log F <= F - 1 = integral_0^x (x-t) F''(t) dt. QED

At p = 1 (Theorem 1) and p = 2 h = log F is concave in x^2, and the envelope is h itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from plrvo import validate
from plrvo.noise import sampling
from plrvo.noise.base import Array, Noise
from plrvo.noise.envelope import spread_bound
from plrvo.noise.exponentials import SignedKernel
from plrvo.noise.keystream import Keystream
from plrvo.noise.mixture import log1p_integral
from plrvo.noise.parameter import Parameter
from plrvo.noise.quadrature import legendre
from plrvo.noise.spans import MakeKernel

_ROUNDING = 1e-10  # relative, added to certified moments: ten thousand times what the quadrature errs by
_NODES = 12
_BLOCK = 256  # pairs of a shift and an order at a time, a few megabytes
_AROUND_THE_PEAK = 2.0 ** np.arange(13)  # in standard deviations


@dataclass(frozen=True)
class GeneralisedGaussian(Noise):
    """Independent noise of density c exp(-(|z|/width)^shape); shape 1 is Laplace noise, shape 2 Gaussian noise.

    >>> noise = GeneralisedGaussian(shape=1.5, width=2.0)
    >>> round(noise.distortion, 6), round(noise.fisher_information(), 6)
    (1.31891, 0.370943)

    Args:
        shape: the power of |z| in the exponent, from 1 to 2.
        width: where the exponent is one, in the unit of the gradients.

    Raises:
        InvalidArgument: for a value that makes no noise of it.
    """

    shape: float
    width: float
    kind: ClassVar[str] = "generalised-gaussian"
    parameters: ClassVar[tuple[Parameter, ...]] = (
        Parameter("shape", "power of |z| in the exponent, from 1 (laplace) to 2 (gaussian)."),
        Parameter("width", "|z| at which the density has fallen by e.", is_width=True),
    )

    def __post_init__(self) -> None:
        validate.number("a number from 1 to 2", shape=self.shape)
        if not 1 <= self.shape <= 2:
            raise validate.InvalidArgument("shape", self.shape, "a number from 1 to 2")
        validate.positive(width=self.width)
        validate.native(self)

    @property
    def largest_order(self) -> int:
        return 1 << 11

    def in_units(self) -> tuple[Noise, float]:
        return GeneralisedGaussian(self.shape, 1.0), self.width

    def kernels(self, keystream: Keystream) -> MakeKernel:
        return partial(SignedKernel, _Size(self.shape, self.width))

    def log_density(self, z: ArrayLike) -> Array:
        return _log_constant(self.shape) - math.log(self.width) - self._power(z)

    def _power(self, z: ArrayLike) -> Array:
        return (np.abs(np.asarray(z, dtype=float)) / self.width) ** self.shape

    def cdf(self, z: ArrayLike) -> Array:
        half = special.gammaincc(1 / self.shape, self._power(z)) / 2
        return np.where(np.asarray(z) < 0, half, 1 - half)

    def score(self, z: Any) -> Any:
        xp = sampling.namespace(z)
        return self.shape / self.width * xp.sign(z) * (xp.abs(z) / self.width) ** (self.shape - 1)

    @property
    def distortion(self) -> float:
        return self.width * math.gamma(2 / self.shape) / math.gamma(1 / self.shape)

    @property
    def variance(self) -> float:
        return self.width**2 * math.gamma(3 / self.shape) / math.gamma(1 / self.shape)

    def fisher_information(self, dimension: int = 1) -> float:
        return (self.shape / self.width) ** 2 * math.gamma(2 - 1 / self.shape) / math.gamma(1 / self.shape)

    def log_moment(self, x: ArrayLike, eta: ArrayLike) -> Array:
        x, eta = np.broadcast_arrays(np.asarray(x, dtype=float) / self.width, np.asarray(eta, dtype=float))
        out = np.zeros(x.shape)
        order = np.maximum(eta, 1 - eta)
        for some in (order > 1, order < 1):  # F > 1 and F < 1, which are not summed in the same way
            some = np.flatnonzero(some & (x > 0))
            for block in np.array_split(some, 1 + len(some) // _BLOCK) if len(some) else ():
                out.flat[block] = _log_moment(self.shape, x.flat[block], order.flat[block])
        return out

    def log_joint_moment(self, clip: float, dimension: int, eta: Array, tail: float = 0.0) -> Array:
        """n hhat(C^2/n), hhat above h and concave (see above)."""
        eta = np.asarray(eta, dtype=float)
        unit, clip = GeneralisedGaussian(self.shape, 1.0), clip / self.width
        out, active = np.zeros(eta.shape), eta >= 2
        if self.shape in (1, 2):
            out[active] = dimension * unit.log_moment(clip / math.sqrt(dimension), eta[active])
        elif np.any(active):
            out[active] = spread_bound(unit, clip, dimension, eta[active], unit._initial_slope, True, log_convex=True)
        return out * (1 + _ROUNDING)

    def _initial_slope(self, x0: float, eta: Array) -> Array:
        """The Lemma's bound on log F/x^2 on (0, x0], at width 1."""
        p = self.shape
        left = np.maximum(1 - (p - 1) * eta * x0, 0.0)
        with np.errstate(divide="ignore"):
            growth = np.exp(eta * x0 * (1 + p * x0 ** (p - 1))) * left ** (1 / p - 2)
        return eta * (eta - 1) / 2 * self.fisher_information() * growth

    def pure_loss(self, clip: float, dimension: int) -> float:
        if self.shape > 1:
            return math.inf
        return math.sqrt(dimension) * math.nextafter(clip / self.width, math.inf)  # never 0

    def scaled(self, factor: float) -> Self:
        return replace(self, width=self.width * factor)


def _log_constant(p: float) -> float:
    return math.log(p / 2) - math.lgamma(1 / p)


def _log_moment(p: float, x: Array, eta: Array) -> Array:
    """log F at width 1 for pairs (x, eta), by the integral of `mixture`: nothing in it is negative or cancels.

    Outside [0, x] the integrand is log-concave in t. Where it counts, its peak is at t = r s, s = x/(1-r) and
    r = ((eta-1)/eta)^(1/(p-1)), with second derivative -p (p-1) (eta-1) s^(p-2) (1/r - 1) of the logarithm. Panels are
    graded towards 0, where |t|^p has its kink, and towards the peak.
    """
    above = np.maximum(eta - 1, 0.0)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        log_r = np.log(above / eta) / (p - 1) if p > 1 else np.full(x.shape, -np.inf)
        s = x / -np.expm1(log_r)
        peak = np.exp(log_r) * s
        around = (p * (p - 1) * above * s ** (p - 2) * np.expm1(-log_r)) ** -0.5
    around = np.where(np.isfinite(around), around, 0.0)
    smallest = 1e-4 * np.minimum(np.minimum(1.0, x), 1 / (eta * x ** (p - 1)))
    end = 4 * (800 ** (1 / p) + s)  # e^-800 is nothing
    near = peak[:, None] + around[:, None] * np.concatenate([-_AROUND_THE_PEAK, [0.0], _AROUND_THE_PEAK])
    t, outer = _panels(np.concatenate([_doubling(smallest, end), near], axis=1), end)
    v, inner = _panels(_doubling(smallest, x / 2), x / 2)
    shift = x[:, None]
    t, moved = np.concatenate([t, v], axis=1), np.concatenate([np.broadcast_to(shift, t.shape), shift - 2 * v], axis=1)
    power = t**p
    y = _rise(p, t, power, moved)
    with np.errstate(divide="ignore"):
        log_weight = np.log(np.concatenate([outer, inner], axis=1)) - power + _log_constant(p)
    return _below_one(log_weight, y, eta[:, None]) if eta[0] < 1 else log1p_integral(log_weight, y, eta[:, None])


def _below_one(log_weight: Array, y: Array, eta: Array) -> Array:
    """log F for orders below 1: from F - 1 where F is near 1, and from F where it is far below."""
    terms = np.logaddexp((eta - 1) * y, -eta * y)
    fall = np.sum(np.exp(log_weight) * np.expm1((eta - 1) * y) * -np.expm1(-eta * y), axis=1)
    return np.where(fall > -0.5, np.log1p(np.maximum(fall, -0.5)), special.logsumexp(log_weight + terms, axis=1))


def _doubling(first: Array, end: Array) -> Array:
    return first[:, None] * 2.0 ** np.arange(math.ceil(np.log2((end / first).max())) + 1)


def _panels(edges: Array, end: Array) -> tuple[Array, Array]:
    """Gauss's nodes and weights on panels between 0, the edges and the end; those beyond it have no width."""
    nodes, weights = legendre(_NODES)
    inside = np.clip(edges, 0.0, end[:, None])
    edges = np.sort(np.concatenate([np.zeros((len(end), 1)), inside, end[:, None]], axis=1), axis=1)
    widths = np.diff(edges)[:, :, None]
    rows = len(end)
    return (edges[:, :-1, None] + widths * nodes).reshape(rows, -1), (widths * weights).reshape(rows, -1)


def _rise(p: float, t: Array, power: Array, s: Array) -> Array:
    """(t+s)^p - t^p without cancellation; `power` is t^p."""
    rise, near = (t + s) ** p - power, s < t
    rise[near] = power[near] * np.expm1(p * np.log1p(s[near] / t[near]))
    return rise


class _Size:
    """a q(e^-E)^(1/p), q the upper quantile of a Gamma variable of shape 1/p: that is what |z/a|^p is.

    From whichever tail is nearer, so that values near 0 have all their digits; beyond e^-708 there are no doubles left.
    """

    def __init__(self, shape: float, width: float) -> None:
        self._shape, self._width = shape, width
        self.log_largest = math.log(width) + math.log(1024.0) / shape

    def write(self, logs: Array, out: NDArray[Any]) -> None:
        far = logs < -math.log(2)
        powers = np.empty(logs.shape)
        powers[~far] = special.gammaincinv(1 / self._shape, -np.expm1(logs[~far]))
        beyond = np.maximum(np.exp(logs[far]), np.finfo(np.float64).tiny)
        powers[far] = special.gammainccinv(1 / self._shape, beyond)
        np.multiply(powers ** (1 / self._shape), self._width, out=out, casting="same_kind")
