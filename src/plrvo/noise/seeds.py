"""Seeds: the distributions of the random inverse scale u of a PLRV noise.

A seed is known through its cumulant generating function K(t) = log E[e^(tu)] and two derivatives, since everything
that the noise needs follows from them: P(|z| > t) = e^K(-t), the density (1/2) K'(-t) e^K(-t), and so on (see `plrv`).
K is +inf from the edge of its domain on, the edge included. Sums of scaled seeds add their K's.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from plrvo import validate
from plrvo.noise.functions import times_log1p
from plrvo.noise.quadrature import half_line

Array = NDArray[np.float64]


class Seed(ABC):
    """A non-negative random variable u with a cumulant generating function on the negative half line at least."""

    kind: ClassVar[str]
    draws: int = 1  # uniforms that one draw of u takes

    @abstractmethod
    def cumulants(self, t: ArrayLike) -> tuple[Array, Array, Array]:
        """K(t), K'(t), K''(t): log moment generating function, mean and variance of u tilted by e^(tu)."""

    @abstractmethod
    def survival(self, u: ArrayLike) -> Array:
        """P(seed > u), with its relative precision kept in the upper tail."""

    @abstractmethod
    def cdf(self, u: ArrayLike) -> Array:
        """P(seed <= u), with its relative precision kept in the lower tail."""

    @abstractmethod
    def upper_quantile(self, p: ArrayLike) -> Array:
        """A value that u exceeds with probability p (at most p, for a sum of seeds)."""

    @abstractmethod
    def lower_quantile(self, p: ArrayLike) -> Array:
        """The value that u stays below with probability p, with its relative precision kept as p goes to 0."""

    def draw(self, uniforms: Array) -> Array:
        """u from uniforms on [0, 1) whose last axis has length `draws`: for integrals, since doubles have few tails."""
        return self.upper_quantile(1 - uniforms[..., 0])

    def draw_many(self, count: int, generator: np.random.Generator) -> Array:
        """So many independent u, for simulations."""
        return self.draw(generator.random((count, self.draws)))

    def draw_from_tails(self, laplace: Array) -> Array:
        """u from standard Laplace variables whose last axis has length `draws`: the quantile at their probability.

        That is e^-|x|/2 from below or, where x > 0, from above. It has all its digits however far out x is, so both
        tails of u are those of the seed: noise of u near 0 is large, noise of large u small.
        """
        x = laplace[..., 0]
        p = np.maximum(np.exp(-np.abs(x)) / 2, np.finfo(np.float64).tiny)
        u, below = np.empty(x.shape), x < 0
        u[below], u[~below] = self.lower_quantile(p[below]), self.upper_quantile(p[~below])
        return u

    @abstractmethod
    def scaled(self, factor: float) -> Seed:
        """The seed of factor * u."""

    @property
    @abstractmethod
    def order_at_zero(self) -> float:
        """a where the density behaves like u^(a-1) near 0 (inf if it vanishes there): E[u^-p] is finite iff p < a."""

    @property
    @abstractmethod
    def log_concave(self) -> bool:
        """Whether the density of u is log-concave, which makes moments convex in the shift (see `envelope`)."""

    @property
    def terms(self) -> tuple[Seed, ...]:
        """The independent summands, with their weights taken in."""
        return (self,)

    @property
    def gamma_shape(self) -> float:
        """k of a Gamma law; `inf` for another, which is known by its largest score only."""
        return math.inf

    @property
    def mean(self) -> float:
        """E u."""
        return float(self.cumulants(0.0)[1])

    @property
    def second_moment(self) -> float:
        """E u^2."""
        _, mean, variance = self.cumulants(0.0)
        return float(variance + mean**2)

    def inverse_moment(self, power: int) -> float:
        """E[u^-power] = integral_0^inf s^(power-1) M(-s) ds / (power-1)!, `inf` where it diverges."""
        if self.order_at_zero <= power:
            return math.inf
        end = 1e8 / self.mean
        s, weights = half_line(1e-4 / self.mean, end)
        integral = float(np.sum(weights * s ** (power - 1) * np.exp(self.cumulants(-s)[0])))
        if math.isfinite(self.order_at_zero):  # M(-s) falls like s^-a beyond the last node
            tail = float(np.exp(self.cumulants(-end)[0])) * end**power
            integral += tail / (self.order_at_zero - power)
        return integral / math.factorial(power - 1)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, which `seed_from_dict` reads."""
        return {"seed": self.kind, **asdict(self)}  # type: ignore[call-overload]


class _GammaFamily(Seed):
    """u = scale * Gamma(shape), whatever the parameters are called."""

    @property
    @abstractmethod
    def _shape(self) -> float: ...

    @property
    @abstractmethod
    def _scale(self) -> float: ...

    def cumulants(self, t: ArrayLike) -> tuple[Array, Array, Array]:
        k, theta = self._shape, self._scale
        room = 1 - theta * np.asarray(t, dtype=float)
        inside = room > 0
        safe = np.where(inside, room, 1.0)
        outside = np.where(inside, 0.0, np.inf)
        return (
            times_log1p(-k, -theta, np.where(inside, t, 0.0)) + outside,
            k * theta / safe + outside,
            theta / safe * (k * theta / safe) + outside,
        )

    def draw_many(self, count: int, generator: np.random.Generator) -> Array:
        return generator.gamma(self._shape, self._scale, count)  # fifty times faster than quantiles

    def survival(self, u: ArrayLike) -> Array:
        return np.asarray(special.gammaincc(self._shape, np.maximum(np.asarray(u, dtype=float), 0) / self._scale))

    def upper_quantile(self, p: ArrayLike) -> Array:
        return np.asarray(self._scale * special.gammainccinv(self._shape, np.asarray(p, dtype=float)), dtype=float)

    def lower_quantile(self, p: ArrayLike) -> Array:
        return np.asarray(self._scale * special.gammaincinv(self._shape, np.asarray(p, dtype=float)), dtype=float)

    def cdf(self, u: ArrayLike) -> Array:
        return np.asarray(special.gammainc(self._shape, np.maximum(np.asarray(u, dtype=float), 0) / self._scale))

    @property
    def gamma_shape(self) -> float:
        return self._shape

    @property
    def order_at_zero(self) -> float:
        return self._shape

    @property
    def log_concave(self) -> bool:
        return self._shape >= 1

    def inverse_moment(self, power: int) -> float:
        if self._shape <= power:
            return math.inf
        return 1 / math.prod((self._shape - i) * self._scale for i in range(1, power + 1))


@dataclass(frozen=True)
class GammaSeed(_GammaFamily):
    """Gamma with shape k and **scale** theta: mean k theta, variance k theta^2.

    Args:
        k: the shape.
        theta: the scale.

    Raises:
        InvalidArgument: for a value that makes no distribution of it.
    """

    k: float
    theta: float
    kind: ClassVar[str] = "gamma"

    def __post_init__(self) -> None:
        validate.positive(k=self.k, theta=self.theta)
        validate.native(self)

    @property
    def _shape(self) -> float:
        return self.k

    @property
    def _scale(self) -> float:
        return self.theta

    def scaled(self, factor: float) -> GammaSeed:
        return GammaSeed(self.k, self.theta * factor)


@dataclass(frozen=True)
class ExponentialSeed(_GammaFamily):
    """Exponential with mean `scale`; the noise it makes has no finite expected size (E[1/u] diverges).

    Args:
        scale: the mean.

    Raises:
        InvalidArgument: for a value that makes no distribution of it.
    """

    scale: float
    kind: ClassVar[str] = "exponential"

    def __post_init__(self) -> None:
        validate.positive(scale=self.scale)
        validate.native(self)

    @property
    def _shape(self) -> float:
        return 1.0

    @property
    def _scale(self) -> float:
        return self.scale

    def scaled(self, factor: float) -> ExponentialSeed:
        return ExponentialSeed(self.scale * factor)


@dataclass(frozen=True)
class ChiSquaredSeed(_GammaFamily):
    """`scale` times a chi-squared variable with `degrees` degrees of freedom.

    Args:
        degrees: the degrees of freedom.
        scale: a factor.

    Raises:
        InvalidArgument: for a value that makes no distribution of it.
    """

    degrees: float
    scale: float = 1.0
    kind: ClassVar[str] = "chi-squared"

    def __post_init__(self) -> None:
        validate.positive(degrees=self.degrees, scale=self.scale)
        validate.native(self)

    @property
    def _shape(self) -> float:
        return self.degrees / 2

    @property
    def _scale(self) -> float:
        return 2 * self.scale

    def scaled(self, factor: float) -> ChiSquaredSeed:
        return ChiSquaredSeed(self.degrees, self.scale * factor)


@dataclass(frozen=True)
class SumSeed(Seed):
    """u = a_1 x_1 + a_2 x_2 + ..., a_j > 0, with independent seeds x_j.

    Args:
        weights: a_1, a_2, ..., all positive.
        seeds: x_1, x_2, ..., as many.

    Raises:
        InvalidArgument: for a value that makes no distribution of it.
    """

    weights: tuple[float, ...]
    seeds: tuple[Seed, ...]
    kind: ClassVar[str] = "sum"

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", tuple(self.weights))
        object.__setattr__(self, "seeds", tuple(self.seeds))
        if not self.seeds or len(self.weights) != len(self.seeds):
            raise validate.InvalidArgument("weights", self.weights, f"one weight for each of {len(self.seeds)} seeds")
        for weight in self.weights:
            validate.positive(weights=weight)
        validate.native(self)

    @property
    def draws(self) -> int:  # type: ignore[override]
        return sum(seed.draws for seed in self.seeds)

    @property
    def terms(self) -> tuple[Seed, ...]:
        scaled = (seed.scaled(weight) for weight, seed in zip(self.weights, self.seeds, strict=True))
        return tuple(term for seed in scaled for term in seed.terms)

    def cumulants(self, t: ArrayLike) -> tuple[Array, Array, Array]:
        parts = [term.cumulants(t) for term in self.terms]
        value, mean, variance = (np.sum([part[i] for part in parts], axis=0) for i in range(3))
        return value, mean, variance

    def draw(self, uniforms: Array) -> Array:
        parts = np.split(uniforms, uniforms.shape[-1], axis=-1)
        return np.asarray(sum(term.draw(part) for term, part in zip(self.terms, parts, strict=True)))

    def draw_from_tails(self, laplace: Array) -> Array:
        parts = np.split(laplace, laplace.shape[-1], axis=-1)
        return np.asarray(sum(term.draw_from_tails(part) for term, part in zip(self.terms, parts, strict=True)))

    def survival(self, u: ArrayLike) -> Array:
        raise validate.InvalidArgument("seed", self, "a single seed: a sum has no closed distribution function")

    def cdf(self, u: ArrayLike) -> Array:
        return self.survival(u)

    def upper_quantile(self, p: ArrayLike) -> Array:
        each = np.asarray(p, dtype=float) / len(self.terms)
        return np.asarray(np.sum([term.upper_quantile(each) for term in self.terms], axis=0))

    def lower_quantile(self, p: ArrayLike) -> Array:
        raise validate.InvalidArgument("seed", self, "a single seed: a sum has no closed distribution function")

    def scaled(self, factor: float) -> SumSeed:
        return SumSeed(tuple(weight * factor for weight in self.weights), self.seeds)

    @property
    def order_at_zero(self) -> float:
        return sum(seed.order_at_zero for seed in self.seeds)

    @property
    def log_concave(self) -> bool:
        return all(seed.log_concave for seed in self.seeds)

    def to_dict(self) -> dict[str, Any]:
        return {"seed": self.kind, "weights": list(self.weights), "seeds": [s.to_dict() for s in self.seeds]}
