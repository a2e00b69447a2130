"""log F(x, eta) of PLRV noise with other seeds than Gamma, against integrals at 25 digits."""

from collections.abc import Callable

import numpy as np
import pytest
from mpmath import mp
from numpy.polynomial.legendre import leggauss
from tests.noise.catalogue import NOISES, SEEDS
from tests.reference import moment

from plrvo.noise import PLRV, GammaPLRV, TruncatedNormalSeed, WeibullSeed

MIXTURES = [name for name in NOISES if name.startswith("PLRV") and name != "PLRV Weibull 0.7"]


@pytest.mark.parametrize("name", MIXTURES)
def test_log_moment_is_the_integral_that_defines_it(name: str) -> None:
    for x, eta, tolerance in ((4.0, 2.5, 1e-12), (1e-6, 2.0, 1e-8)):
        with mp.workdps(25):
            expected = float(mp.log(moment(NOISES[name], x, eta, unit=1.0)))
        assert float(NOISES[name].log_moment(x, eta)) == pytest.approx(expected, rel=tolerance, abs=0.0)


def test_log_moment_below_order_one() -> None:
    with mp.workdps(25):
        for name in ("PLRV uniform", "PLRV sum"):
            expected = float(mp.log(moment(NOISES[name], 1.5, 0.5, unit=1.0)))
            assert float(NOISES[name].log_moment(1.5, 0.5)) == pytest.approx(expected, rel=1e-12, abs=0.0)


def test_log_moment_with_most_of_the_normal_cut_away() -> None:
    noise = PLRV(TruncatedNormalSeed(mean_before=-1.0, std=0.5))
    with mp.workdps(25):
        expected = float(mp.log(moment(noise, 4.0, 5.0, unit=5.0)))
    assert float(noise.log_moment(4.0, 5.0)) == pytest.approx(expected, rel=1e-10, abs=0.0)


def panels(edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    nodes, weights = leggauss(40)
    half = np.diff(edges)[:, None] / 2
    return (edges[:-1, None] + half * (nodes + 1)).ravel(), (half * weights).ravel()


def weibull_density(shape: float, scale: float) -> Callable[[np.ndarray], np.ndarray]:
    """phi(t) = E[u e^(-ut)]/2 with u = scale v^(1/shape), v unit exponential: Gauss-Legendre panels in v^(1/4)."""
    w, weights = panels(np.concatenate([[0.0], np.geomspace(1e-4, 2.6, 40)]))
    v, density = w**4, 4 * w**3 * weights * np.exp(-(w**4))
    u = scale * v ** (1 / shape)
    return lambda t: np.exp(-u * np.asarray(t)[:, None]) @ (u * density) / 2


@pytest.mark.parametrize("seed", [SEEDS["Weibull 0.7"], WeibullSeed(0.5, 2.0), WeibullSeed(1.4, 0.8)], ids=repr)
def test_log_moment_of_a_weibull_seed_agrees_with_another_quadrature(seed: WeibullSeed) -> None:
    for x, eta in ((0.5, 2.0), (4.0, 3.0), (0.3, 2.5)):
        phi = weibull_density(seed.shape, seed.scale)
        y, weights = panels(np.linspace(-40.0, 50.0, 60))
        t = np.exp(y)
        near, far = phi(t), phi(t + x)
        # What p loses and gains outside [0, x], less the densities: so that the far tail need not be resolved.
        outside = near**eta * far ** (1 - eta) + far**eta * near ** (1 - eta) - near - far
        z, inner_weights = panels(np.concatenate([[0.0], x * np.geomspace(1e-9, 0.5, 30)]))
        low, high = phi(z), phi(x - z)
        inside = low**eta * high ** (1 - eta) + high**eta * low ** (1 - eta) - low - high
        total = np.sum(weights * t * outside) + np.sum(inner_weights * inside)
        assert float(PLRV(seed).log_moment(x, eta)) == pytest.approx(np.log1p(total), rel=1e-8, abs=0.0)


@pytest.mark.parametrize("name", [name for name in NOISES if name.startswith("PLRV")])
def test_moment_is_one_at_orders_zero_and_one_and_symmetric_around_one_half(name: str) -> None:
    noise = NOISES[name]
    assert noise.log_moment([0.0, 0.1, 9.0], 0.0).tolist() == [0.0] * 3
    assert noise.log_moment([0.0, 0.1, 9.0], 1.0).tolist() == [0.0] * 3
    for eta in (0.7, 2.0, 3.5):
        assert float(noise.log_moment(1.3, eta)) == pytest.approx(
            float(noise.log_moment(1.3, 1 - eta)), rel=1e-12, abs=0.0
        )


@pytest.mark.parametrize("name", [name for name in NOISES if name.startswith("PLRV")])
def test_moment_increases_with_shift_and_order(name: str) -> None:
    h = NOISES[name].log_moment(np.geomspace(1e-4, 30, 40)[:, None], np.array([2.0, 3.0, 8.0, 20.0]))
    assert np.all(np.diff(h, axis=0) > 0)
    assert np.all(np.diff(h, axis=1) > 0)


def test_chi_squared_is_gamma() -> None:
    """Chi-squared with d degrees is Gamma with shape d/2 and scale 2; the general quadrature meets the closed form."""
    x = np.array([1e-3, 0.5, 10.0])
    chi = PLRV(SEEDS["chi-squared"]).log_moment(x, 3.0)
    assert chi == pytest.approx(GammaPLRV(k=3.0, theta=0.4).log_moment(x, 3.0), rel=1e-10, abs=0.0)
