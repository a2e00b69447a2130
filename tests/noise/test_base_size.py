"""Expected size and variance: against quadrature, and infinite exactly where the integral diverges."""

import math
from itertools import pairwise

import numpy as np
import pytest
from mpmath import mp
from scipy import integrate
from tests.noise.catalogue import NOISES, SEEDS
from tests.reference import seed_expectation

from plrvo.noise import (
    PLRV,
    ExponentialSeed,
    GammaPLRV,
    GammaSeed,
    Gaussian,
    Laplace,
    Noise,
    Seed,
    SumSeed,
    TruncatedNormalSeed,
    UniformSeed,
    WeibullSeed,
)


def moment_of_size(noise: Noise, power: int) -> float:
    """E|z|^power by integrating the density, in y = log z."""

    def integrand(y: float) -> float:
        return 2 * float(np.exp((power + 1) * y + noise.log_density(np.exp(y))))

    marks = [-40.0, -8.0, -4.0, -2.0, 0.0, 2.0, 4.0, 8.0, 20.0, 80.0, 170.0]
    return sum(integrate.quad(integrand, a, b, epsabs=1e-14)[0] for a, b in pairwise(marks))


@pytest.mark.parametrize("name", NOISES)
def test_distortion_and_variance_agree_with_quadrature(name: str) -> None:
    noise = NOISES[name]
    if math.isfinite(noise.distortion):
        assert noise.distortion == pytest.approx(moment_of_size(noise, 1), rel=1e-9, abs=0.0)
    if math.isfinite(noise.variance):
        assert noise.variance == pytest.approx(moment_of_size(noise, 2), rel=1e-9, abs=0.0)


def test_closed_forms() -> None:
    assert Gaussian(2.0).distortion == pytest.approx(1.5957691216057308, rel=1e-15, abs=0.0)
    assert Gaussian(2.0).variance == 4.0
    assert Laplace(3.0).distortion == 3.0
    assert Laplace(3.0).variance == 18.0
    assert GammaPLRV(k=4.0, theta=0.5).distortion == pytest.approx(2 / 3, rel=1e-15, abs=0.0)
    assert GammaPLRV(k=4.0, theta=0.5).variance == pytest.approx(4 / 3, rel=1e-15, abs=0.0)
    # A uniform scale: E[1/u] = log(high/low)/(high - low), E[1/u^2] = 1/(low high).
    assert PLRV(UniformSeed(0.5, 2.0)).distortion == pytest.approx(math.log(4) / 1.5, rel=1e-15, abs=0.0)
    assert PLRV(UniformSeed(0.5, 2.0)).variance == pytest.approx(2.0, rel=1e-15, abs=0.0)


@pytest.mark.parametrize(
    ("noise", "distortion_diverges", "variance_diverges"),
    [
        (PLRV(ExponentialSeed(1.0)), True, True),
        (PLRV(UniformSeed(0.0, 1.0)), True, True),
        (PLRV(TruncatedNormalSeed(1.0, 0.1)), True, True),
        (PLRV(TruncatedNormalSeed(1.0, 0.1, low=0.01)), False, False),
        (GammaPLRV(1.0, 1.0), True, True),
        (GammaPLRV(1.01, 1.0), False, True),
        (GammaPLRV(2.0, 1.0), False, True),
        (GammaPLRV(2.01, 1.0), False, False),
        (GammaPLRV(1.5, 1.0, shared=True), False, True),
        (PLRV(WeibullSeed(1.0, 1.0)), True, True),
        (PLRV(WeibullSeed(1.5, 1.0)), False, True),
        (PLRV(WeibullSeed(2.5, 1.0)), False, False),
        # Near zero a sum has the product of its parts' small probabilities: orders add up.
        (PLRV(SumSeed((1.0, 1.0), (ExponentialSeed(1.0), ExponentialSeed(2.0)))), False, True),
        (PLRV(SumSeed((1.0, 1.0), (GammaSeed(0.5, 1.0), GammaSeed(0.5, 2.0)))), True, True),
    ],
    ids=repr,
)
def test_moments_are_infinite_exactly_where_they_diverge(
    noise: Noise, distortion_diverges: bool, variance_diverges: bool
) -> None:
    assert math.isinf(noise.distortion) == distortion_diverges
    assert math.isinf(noise.variance) == variance_diverges


@pytest.mark.parametrize("name", ["gamma", "chi-squared", "uniform", "truncated normal from 0.1", "Weibull 2"])
def test_inverse_moments_agree_with_integration_over_the_seed(name: str) -> None:
    seed = SEEDS[name]
    marks = tuple(seed.mean * c for c in (1e-6, 1e-4, 1e-2, 0.1, 0.5, 0.9, 1.0, 1.1, 2.0, 5.0, 20.0))
    for power in (1, 2, 3):
        value = seed.inverse_moment(power)
        if math.isfinite(value):
            with mp.workdps(20):
                expected = float(seed_expectation(seed, lambda u, power=power: u**-power, marks))
            assert value == pytest.approx(expected, rel=1e-10, abs=0.0)


def test_inverse_moment_of_a_sum_agrees_with_a_double_integral() -> None:
    """u = x + 2y, x uniform on [0.1, 1], y exponential: E[1/u] = E[log((1 + 2y)/(0.1 + 2y))]/0.9."""
    seed: Seed = SumSeed((1.0, 2.0), (UniformSeed(0.1, 1.0), ExponentialSeed(1.0)))
    expected, _ = integrate.quad(lambda y: math.exp(-y) * math.log((1 + 2 * y) / (0.1 + 2 * y)) / 0.9, 0, 60, limit=200)
    assert seed.inverse_moment(1) == pytest.approx(expected, rel=1e-8, abs=0.0)


def test_scaling_scales_sizes() -> None:
    for noise in NOISES.values():
        wider = noise.scaled(3.0)
        assert type(wider) is type(noise)
        assert wider.distortion == pytest.approx(3 * noise.distortion, rel=1e-9, abs=0.0)
        assert wider.variance == pytest.approx(9 * noise.variance, rel=1e-9, abs=0.0)
        assert float(wider.cdf(3.6)) == pytest.approx(float(noise.cdf(1.2)), rel=1e-12, abs=0.0)
