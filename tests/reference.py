"""The mathematics again, in mpmath and from the raw definitions: what the library's own formulas are tested against.

Nothing here calls the library's formulas; parameters only are read from its objects. A seed is known by its density
f(u), its Laplace transform S(t) = E[e^(-ut)] = P(|z| > t), and phi(t) = -S'(t)/2, the density of the noise.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, singledispatch
from typing import Any

from mpmath import mp, mpf

from plrvo.noise import (
    PLRV,
    ChiSquaredSeed,
    ExponentialSeed,
    GammaPLRV,
    GammaSeed,
    Gaussian,
    GeneralisedGaussian,
    Laplace,
    SumSeed,
    TruncatedNormalSeed,
    UniformSeed,
    WeibullSeed,
)


def _gamma_parameters(seed: Any) -> tuple[mpf, mpf]:
    if isinstance(seed, GammaSeed | GammaPLRV):
        return mpf(seed.k), mpf(seed.theta)
    if isinstance(seed, ExponentialSeed):
        return mpf(1), mpf(seed.scale)
    return mpf(seed.degrees) / 2, 2 * mpf(seed.scale)


# --- seeds


@singledispatch
def seed_density(seed: Any, u: mpf) -> mpf:
    raise NotImplementedError(seed)


@seed_density.register(GammaSeed)
@seed_density.register(ExponentialSeed)
@seed_density.register(ChiSquaredSeed)
def _(seed: Any, u: mpf) -> mpf:
    k, theta = _gamma_parameters(seed)
    return u ** (k - 1) * mp.exp(-u / theta) / (mp.gamma(k) * theta**k)


@seed_density.register
def _(seed: UniformSeed, u: mpf) -> mpf:
    return 1 / (mpf(seed.high) - seed.low) if seed.low <= u <= seed.high else mpf(0)


@seed_density.register
def _(seed: TruncatedNormalSeed, u: mpf) -> mpf:
    if u < seed.low:
        return mpf(0)
    return _normal_constant(seed, mp.dps) * mp.exp(-(((u - seed.mean_before) / mpf(seed.std)) ** 2) / 2)


@lru_cache
def _normal_constant(seed: TruncatedNormalSeed, digits: int) -> mpf:
    with mp.workdps(digits):
        kept = mp.ncdf((mpf(seed.mean_before) - seed.low) / seed.std)
        return 1 / (kept * seed.std * mp.sqrt(2 * mp.pi))


@seed_density.register
def _(seed: WeibullSeed, u: mpf) -> mpf:
    a, scale = mpf(seed.shape), mpf(seed.scale)
    return a / scale * (u / scale) ** (a - 1) * mp.exp(-((u / scale) ** a))


def seed_expectation(seed: Any, of: Callable[[mpf], mpf], marks: tuple[float, ...] = ()) -> mpf:
    """E[of(u)] by integrating against the density; `marks` are where the integrand has its mass or its kinks."""
    if isinstance(seed, UniformSeed):
        low, high = mpf(seed.low), mpf(seed.high)
    else:
        low, high = mpf(getattr(seed, "low", 0)), mp.inf
    points = [low, *sorted(mpf(m) for m in marks if low < m < high), high]
    return mp.quad(lambda u: of(u) * seed_density(seed, u), points)


@singledispatch
def transform(seed: Any, t: mpf) -> tuple[mpf, mpf]:
    """(S(t), phi(t)) of a seed: E[e^(-ut)] and E[u e^(-ut)]/2."""
    raise NotImplementedError(seed)


@transform.register(GammaSeed)
@transform.register(ExponentialSeed)
@transform.register(ChiSquaredSeed)
def _(seed: Any, t: mpf) -> tuple[mpf, mpf]:
    k, theta = _gamma_parameters(seed)
    base = 1 + theta * t
    return base**-k, k * theta / 2 * base ** -(k + 1)


@transform.register
def _(seed: UniformSeed, t: mpf) -> tuple[mpf, mpf]:
    a, b = mpf(seed.low), mpf(seed.high)
    if t * b < 0.1:  # the mean of u^j e^(-ut), term by term
        terms = range(mp.dps + 5)
        power = [(b**j - a**j) / (j * (b - a)) for j in range(1, len(terms) + 3)]
        coefficients = [(-t) ** j / mp.factorial(j) for j in terms]
        return mp.fdot(coefficients, power), mp.fdot(coefficients, power[1:]) / 2
    with mp.extradps(40):
        at_a, at_b = mp.exp(-a * t), mp.exp(-b * t)
        survival = (at_a - at_b) / (t * (b - a))
        phi = ((1 + a * t) * at_a - (1 + b * t) * at_b) / (2 * t**2 * (b - a))
    return +survival, +phi


@transform.register
def _(seed: TruncatedNormalSeed, t: mpf) -> tuple[mpf, mpf]:
    mu, s, low = mpf(seed.mean_before), mpf(seed.std), mpf(seed.low)
    with mp.extradps(30 + int(3 * mp.log10(1 + t))):  # what cancels when t is large
        moved = mu - s**2 * t
        growth = mp.exp(-mu * t + s**2 * t**2 / 2) / mp.ncdf((mu - low) / s)
        kept = mp.ncdf((moved - low) / s)
        survival = growth * kept
        phi = growth * (moved * kept + s * mp.npdf((low - moved) / s)) / 2
    return +survival, +phi


@transform.register
def _(seed: WeibullSeed, t: mpf) -> tuple[mpf, mpf]:
    a, scale = mpf(seed.shape), mpf(seed.scale)
    if a == 2:
        with mp.extradps(30 + int(3 * mp.log10(1 + t))):
            v = t * scale / 2
            tail = mp.sqrt(mp.pi) * mp.exp(v**2) * mp.erfc(v)
            survival = 1 - v * tail  # and its derivative, by hand
            phi = scale / 4 * (tail + 2 * v**2 * tail - 2 * v)
        return +survival, +phi
    # u = scale v^(1/a), v unit exponential.
    scales = [mpf(0), *sorted({mpf(1) / (1 + t * scale) ** a, mpf(1), mpf(8)}), mp.inf]

    def mean(of: Callable[[mpf], mpf]) -> mpf:
        return mp.quad(lambda v: of(scale * v ** (1 / a)) * mp.exp(-v), scales)

    return mean(lambda u: mp.exp(-u * t)), mean(lambda u: u * mp.exp(-u * t)) / 2


@transform.register
def _(seed: SumSeed, t: mpf) -> tuple[mpf, mpf]:
    survival, phi = mpf(1), mpf(0)
    for weight, part in zip(seed.weights, seed.seeds, strict=True):
        s, f = transform(part, mpf(weight) * t)
        survival, phi = survival * s, phi * s + mpf(weight) * f * survival
    return survival, phi


# --- noises


def density(noise: Any) -> Callable[[mpf], mpf]:
    """p(z) for z >= 0."""
    if isinstance(noise, Gaussian):
        return lambda z: mp.npdf(z, 0, noise.sigma)
    if isinstance(noise, Laplace):
        return lambda z: mp.exp(-z / mpf(noise.b)) / (2 * mpf(noise.b))
    if isinstance(noise, GammaPLRV):
        k, theta = _gamma_parameters(noise)
        return lambda z: k * theta / 2 * (1 + theta * z) ** -(k + 1)
    if isinstance(noise, GeneralisedGaussian):
        a, p = mpf(noise.width), mpf(noise.shape)
        return lambda z: p / (2 * a * mp.gamma(1 / p)) * mp.exp(-((z / a) ** p))
    if isinstance(noise, PLRV):
        return lambda z: transform(noise.seed, z)[1]
    raise NotImplementedError(noise)


def moment(noise: Any, x: float, eta: float, unit: float) -> mpf:
    """F(x, eta) = integral of p(z-x)^eta p(z)^(1-eta), straight from its definition; `unit` is the size of z."""
    p, x, eta = density(noise), mpf(x), mpf(eta)
    marks = [mpf(0), *(mpf(unit) * c for c in (0.3, 3, 30, 300)), mp.inf]
    right = mp.quad(lambda t: p(t) ** eta * p(t + x) ** (1 - eta), marks)
    left = mp.quad(lambda t: p(t + x) ** eta * p(t) ** (1 - eta), marks)
    inside = mp.quad(lambda t: p(abs(t - x)) ** eta * p(t) ** (1 - eta), mp.linspace(0, x, 5))
    return left + inside + right


def lomax_moment(k: float, theta: float, x: float, eta: float) -> mpf:
    """F of Gamma-PLRV noise: Gauss's hypergeometric function outside [0, x], quadrature inside."""
    k, theta, x, eta = mpf(k), mpf(theta), mpf(x), mpf(eta)
    m, v = k + 1, theta * x
    outer = mp.hyp2f1(m * eta, k, k + 1, -v) / 2 + mp.hyp2f1(-m * (eta - 1), k, k + 1, -v) / 2
    steep = [v * c for c in (mpf("1e-6"), mpf("1e-3"), mpf("0.05"), mpf("0.5"))]
    marks = [mpf(0), *steep, *(v - s for s in steep[-2::-1]), v]
    inner = mp.quad(lambda w: (1 + v - w) ** (-m * eta) * (1 + w) ** (m * (eta - 1)), marks)
    return outer + k / 2 * inner


def laplace_moment(t: float, eta: float) -> mpf:
    """F of unit Laplace noise, integrated piece by piece over z < 0, (0, t), z > t."""
    t, eta = mpf(t), mpf(eta)
    left, right = mp.exp(-eta * t) / 2, mp.exp((eta - 1) * t) / 2
    slope = 2 * eta - 1
    inside = t * mp.exp(-t / 2) / 2 if slope == 0 else mp.exp(-eta * t) * (mp.exp(slope * t) - 1) / (2 * slope)
    return left + inside + right


# --- one step


def step_moment(q: float, order: int, product: Callable[[int], mpf]) -> mpf:
    """A(lambda) at lambda = order - 1: log of the binomial mixture of product(eta) = prod_i F(g_i, eta)."""
    q = mpf(q)
    return mp.log(mp.fsum(mp.binomial(order, j) * (1 - q) ** (order - j) * q**j * product(j) for j in range(order + 1)))
