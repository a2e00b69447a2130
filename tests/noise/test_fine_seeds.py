"""Seeds that are not log-concave: rare large parts make the law finer than its score bound says. Against mpmath.

The reference sums trapezoids in log t (and in the logit of the place between 0 and x/2), over forty decades: another
rule on another grid, at 20 digits.
"""

from collections.abc import Callable

import numpy as np
import pytest
from mpmath import mp, mpf

import plrvo
from plrvo.accounting.certified import pure_epsilon
from plrvo.noise import PLRV, ChiSquaredSeed, GammaSeed, Seed, SumSeed, TruncatedNormalSeed, UniformSeed, WeibullSeed
from plrvo.validate import InvalidArgument

Law = Callable[[mpf], tuple[mpf, mpf]]  # t to phi(t) and the score

# Shapes and scales of Gamma terms, the last of them near the limit of a hundred times the whole, or far above the rest.
SUMS = [
    ((0.5, 1.0), (0.5, 30.0)),
    ((1.0, 1.0), (1e-6, 180.0)),
    ((3.0, 0.5), (1e-3, 90.0)),
    ((1.0, 1.0), (1e-9, 1e9)),
    ((60.0, 0.01), (1e-6, 1e6)),
    ((0.3, 1.0), (0.01, 10.0), (1e-3, 40.0)),
]
WEIBULLS = [0.2, 0.3, 0.5, 0.9]


def of_sum(parts: tuple[tuple[float, float], ...]) -> tuple[PLRV, Law]:
    exact = [(mpf(k), mpf(theta)) for k, theta in parts]

    def law(t: mpf) -> tuple[mpf, mpf]:
        mean = mp.fsum(k * s / (1 + s * t) for k, s in exact)
        variance = mp.fsum(k * (s / (1 + s * t)) ** 2 for k, s in exact)
        return mp.fprod((1 + s * t) ** -k for k, s in exact) * mean / 2, mean + variance / mean

    return PLRV(SumSeed((1.0,) * len(parts), tuple(GammaSeed(*part) for part in parts))), law


def log_trapezoids(f: Callable[[mpf], mpf], low: mpf, high: mpf, h: mpf) -> mpf:
    places = [mp.exp(h * i) for i in range(int(mp.log(low) / h), int(mp.log(high) / h) + 1)]
    return h * mp.fsum(t * f(t) for t in places)


def information(law: Law, h: mpf) -> mpf:
    density, score = law(mpf(0))
    return log_trapezoids(lambda t: 2 * law(t)[0] * law(t)[1] ** 2, mpf(10) ** -16 / score, mpf(10) ** 9 / density, h)


def log_moment(law: Law, x: float, eta: float, h: mpf) -> mpf:
    shift, order = mpf(x), mpf(eta)
    density, score = law(mpf(0))

    def excess(t: mpf, moved: mpf) -> mpf:
        here = law(t)[0]
        y = mp.log(here / law(moved)[0])
        return here * mp.exp((order - 1) * y) * mp.expm1(-order * y) * mp.expm1(-(order - 1) * y)

    ends = mpf(10) ** -16 / score / order, mpf(10) ** 9 * max(1 / density, shift)
    outside = log_trapezoids(lambda t: excess(t, t + shift), *ends, h)
    inside = mpf(0)
    for i in range(int(-60 / h), int(40 / h)):
        share = 1 / (1 + mp.exp(-h * i))
        z = shift / 2 * share
        inside += h * excess(z, shift - z) * z * (1 - share)
    return mp.log1p(outside + inside)


def check(noise: PLRV, law: Law, h: mpf, pairs: list[tuple[float, float]]) -> None:
    """Everything well within the margin of 1e-11 that certificates add."""
    score = law(mpf(0))[1]
    assert noise._score_bound == pytest.approx(float(score), rel=1e-13, abs=0.0)
    assert noise.fisher_information() == pytest.approx(float(information(law, h)), rel=2e-12, abs=0.0)
    for units in (1e-9, 1e-5, 9.9e-4, 1.1e-3, 0.1, 1e3):
        clip = float(units / score)
        with mp.extradps(20):
            loss = mp.log(law(mpf(0))[0] / law(mpf(clip))[0])
        assert noise.pure_loss(clip, 1) == pytest.approx(float(loss), rel=2e-12, abs=0.0), units
        assert loss <= pure_epsilon([(noise, plrvo.Workload(1.0, 1, clip, 1))]) <= loss * (1 + 3e-11)
    for units, eta in pairs:
        x = float(units / score)
        expected = float(log_moment(law, x, eta, h))
        assert float(noise.log_moment(x, eta)) == pytest.approx(expected, rel=3e-12, abs=0.0), (units, eta)


@pytest.mark.parametrize("parts", SUMS, ids=repr)
def test_sums_with_a_rare_large_part(parts: tuple[tuple[float, float], ...]) -> None:
    with mp.workdps(20):
        noise, law = of_sum(parts)
        check(noise, law, mpf("0.2"), [(1e-5, 2.0), (3.0, 2048.0), (1e4, 2.0)])


def long_weibull(shape: float, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """phi and score at every t, with u = v^(1/shape), by trapezoids in log v, in long doubles."""
    h = np.longdouble(min(1.0, 4 * shape)) / 30
    logs = h * np.arange(int(-50 / h), int(5 / h))
    u, mass = np.exp(logs / np.longdouble(shape)), h * np.exp(logs - np.exp(logs))
    weighted = mass * u * np.exp(-np.asarray(t, dtype=np.longdouble)[:, None] * u)
    first = weighted.sum(axis=1)
    return first / 2, weighted @ u / first


@pytest.mark.parametrize("shape", WEIBULLS)
def test_weibull_seeds_down_to_the_smallest_shape(shape: float) -> None:
    noise = PLRV(WeibullSeed(shape, 1.0))
    (density,), (score,) = long_weibull(shape, np.zeros(1))
    h = np.longdouble(0.2)
    t = np.exp(h * np.arange(int(-(37 + np.log(score)) / h), int((21 - np.log(density)) / h)))
    at, slope = long_weibull(shape, t)
    assert noise._score_bound == pytest.approx(float(score), rel=1e-13, abs=0.0)
    expected = float(h * np.sum(t * 2 * at * slope**2))
    assert noise.fisher_information() == pytest.approx(expected, rel=2e-12, abs=0.0)
    for units in (1e-9, 1e-5, 9.9e-4, 1.1e-3, 0.1, 1e3):
        clip = float(units / score)
        if units > 1e-4:
            loss = float(np.log(density / long_weibull(shape, np.array([clip]))[0][0]))
        else:  # where the logarithm would cancel: s (1 - (r - 1) s0 s/2), r = E[u^3] E[u]/E[u^2]^2
            with mp.workdps(30):
                r = mp.gamma(1 + 3 / mpf(shape)) * mp.gamma(1 + 1 / mpf(shape)) / mp.gamma(1 + 2 / mpf(shape)) ** 2
            loss = units * (1 - float(r - 1) * units / 2)
        near = 5e-12 if units != 1e-5 else 1e-6
        assert noise.pure_loss(clip, 1) == pytest.approx(loss, rel=near, abs=0.0), units
    for units, eta in ((1e-2, 2.0), (1.0, 8.0)):
        x = np.longdouble(float(units / score))
        share = 1 / (1 + np.exp(-h * np.arange(-150, 150)))
        z = x / 2 * share
        total = np.longdouble(0)
        for weights, here, moved in ((h * t, t, t + x), (h * z * (1 - share), z, x - z)):
            phi = long_weibull(shape, here)[0]
            y = np.log(phi / long_weibull(shape, moved)[0])
            total += np.sum(weights * phi * np.exp((eta - 1) * y) * np.expm1(-eta * y) * np.expm1(-(eta - 1) * y))
        assert float(noise.log_moment(float(x), eta)) == pytest.approx(float(np.log1p(total)), rel=3e-12, abs=0.0)


@pytest.mark.parametrize("shape", [0.2, 0.25, 0.3, 0.5, 0.7, 1.0, 2.0, 30.0])
def test_mean_and_variance_of_a_weibull_seed_are_those_of_the_gamma_function(shape: float) -> None:
    with mp.workdps(30):
        first, second = (mp.gamma(1 + j / mpf(shape)) for j in (1, 2))
        _, mean, variance = WeibullSeed(shape, 3.0).cumulants(0.0)
        assert float(mean) == pytest.approx(float(3 * first), rel=1e-14, abs=0.0)
        assert float(variance) == pytest.approx(float(9 * (second - first**2)), rel=1e-13, abs=0.0)


REFUSED: dict[str, Callable[[], object]] = {
    "a part 1e16 times as large, of probability 1e-23": lambda: of_sum(((1.0, 1.0), (1e-23, 1e16))),
    "one of 1e12": lambda: of_sum(((1.0, 1.0), (1e-18, 1e12))),
    "one of 1e3": lambda: of_sum(((1.0, 1.0), (1e-9, 1e3))),
    "a rare chi-squared part": lambda: PLRV(SumSeed((1.0, 1e6), (UniformSeed(0.0, 1.0), ChiSquaredSeed(1e-16)))),
    "a seed of one's own with two values": lambda: PLRV(TwoValues()),
}


class TwoValues(GammaSeed):
    """u is 1, or with probability 1e-12 a million: not log-concave, and no sum."""

    def __init__(self) -> None:
        super().__init__(0.5, 1.0)

    def cumulants(self, t: object) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        u, p = np.array([1.0, 1e6]), np.array([1.0, 1e-11])
        weights = p * np.exp(np.asarray(t)[..., None] * u)
        total = weights.sum(axis=-1)
        mean = weights @ u / total
        return np.log(total), mean, weights @ u**2 / total - mean**2


@pytest.mark.parametrize("name", REFUSED)
def test_finer_laws_are_refused_with_the_reason(name: str) -> None:
    with pytest.raises(InvalidArgument, match=r"seed=.*100 times that of their sum"):
        REFUSED[name]()


def test_smaller_shapes_are_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"shape=0\.19.*at least 0\.2"):
        WeibullSeed(0.19, 1.0)


@pytest.mark.parametrize(
    "seed",
    [
        GammaSeed(0.3, 2.0),
        GammaSeed(1e-5, 1.0),
        ChiSquaredSeed(1.0),
        UniformSeed(0.0, 1.0),
        TruncatedNormalSeed(-1.0, 0.5),
        SumSeed((1.0, 1e3), (GammaSeed(3.0, 0.5), UniformSeed(0.0, 1.0))),
        SumSeed((1.0, 0.1), (ChiSquaredSeed(1.0), WeibullSeed(0.5, 1.0))),
        SumSeed((1.0, 1e-20), (GammaSeed(0.5, 1.0), GammaSeed(0.5, 1.0))),
    ],
    ids=repr,
)
def test_ordinary_seeds_are_taken(seed: Seed) -> None:
    assert PLRV(seed).fisher_information() > 0
