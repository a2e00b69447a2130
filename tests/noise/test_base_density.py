"""The density: it integrates to one, its integral is the cdf, and it is the Laplace mixture that it claims to be."""

from itertools import pairwise

import numpy as np
import pytest
from mpmath import mp, mpf
from scipy import integrate
from tests.noise.catalogue import NOISES, SEEDS
from tests.reference import density, seed_expectation, transform

from plrvo.noise import GammaPLRV, Noise

each_noise = pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)


def mass(noise: Noise, low: float, high: float) -> float:
    """The density integrated over (low, high), 0 <= low, in log z, where heavy tails are exponential."""

    def integrand(y: float) -> float:
        return float(np.exp(noise.log_density(np.exp(y)) + y))

    marks = np.unique(np.clip([-60.0, -8.0, -4.0, -2.0, 0.0, 2.0, 4.0, 8.0, 20.0, 150.0], np.log(low), np.log(high)))
    return sum(integrate.quad(integrand, a, b, epsabs=1e-13)[0] for a, b in pairwise(marks))


@each_noise
def test_log_density_integrates_to_one(noise: Noise) -> None:
    assert 2 * mass(noise, 1e-26, 1e65) == pytest.approx(1.0, abs=1e-11)


@each_noise
def test_log_density_is_symmetric_and_falls_away_from_zero(noise: Noise) -> None:
    z = np.array([0.0, 1e-3, 0.2, 1.0, 7.0, 40.0])
    assert np.array_equal(noise.log_density(z), noise.log_density(-z))
    assert np.all(np.diff(noise.log_density(z)) < 0)


@each_noise
def test_cdf_is_the_integral_of_the_density(noise: Noise) -> None:
    for z in (1e-3, 0.4, 2.0, 11.0):
        inside = mass(noise, 1e-26, z)
        assert float(noise.cdf(z)) == pytest.approx(0.5 + inside, abs=1e-11)
        assert float(noise.cdf(-z)) == pytest.approx(0.5 - inside, abs=1e-11)


@each_noise
def test_cdf_runs_from_zero_to_one(noise: Noise) -> None:
    assert noise.cdf([-np.inf, 0.0, np.inf]).tolist() == [0.0, 0.5, 1.0]


# Weibull 0.7 has no closed form; the integral over its scale, below, covers it.
@pytest.mark.parametrize("name", [name for name in NOISES if name != "PLRV Weibull 0.7"])
def test_log_density_agrees_with_high_precision(name: str) -> None:
    noise = NOISES[name]
    p = density(noise)
    for z in (0.0, 1e-4, 0.3, 5.0, 60.0):
        with mp.workdps(30):
            expected = float(mp.log(p(mpf(z))))
        assert float(noise.log_density(z)) == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("name", SEEDS)
def test_density_is_the_laplace_density_averaged_over_the_seed(name: str) -> None:
    noise, seed = NOISES[f"PLRV {name}"], SEEDS[name]
    for z in (0.05, 1.0, 6.0):
        with mp.workdps(15):
            average = seed_expectation(seed, lambda u, z=z: u / 2 * mp.exp(-u * z), (0.01, 0.1, 0.3, 0.6, 1, 3, 9))
        assert float(np.exp(noise.log_density(z))) == pytest.approx(float(average), rel=1e-9, abs=0.0)


@pytest.mark.parametrize("name", [name for name in SEEDS if name != "Weibull 0.7"])
def test_reference_transform_agrees_with_integration_over_the_seed(name: str) -> None:
    """The reference formulas that other tests use are themselves checked against the definition."""
    t = mpf("0.7")
    with mp.workdps(20):
        marks = (0.05, 0.3, 0.8, 1, 1.2, 3, 9)
        survival = seed_expectation(SEEDS[name], lambda u: mp.exp(-u * t), marks)
        phi = seed_expectation(SEEDS[name], lambda u: u * mp.exp(-u * t) / 2, marks)
        assert [float(v) for v in transform(SEEDS[name], t)] == pytest.approx(
            [float(survival), float(phi)], rel=1e-13, abs=0.0
        )


def test_theta_is_a_scale_and_not_a_rate() -> None:
    """Doubling theta doubles the mean k theta of u and so halves the noise; were theta a rate it would double it."""
    narrow, wide = GammaPLRV(k=3.0, theta=2.0), GammaPLRV(k=3.0, theta=1.0)
    assert float(narrow.log_density(0.0)) == pytest.approx(np.log(3.0 * 2.0 / 2))
    assert float(narrow.cdf(0.5)) == pytest.approx(float(wide.cdf(1.0)), rel=1e-14, abs=0.0)
    assert float(narrow.cdf(1.0)) == pytest.approx(1 - 0.5 * (1 + 2.0) ** -3, rel=1e-14, abs=0.0)
