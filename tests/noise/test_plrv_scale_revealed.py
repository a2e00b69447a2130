"""log G(x, eta), the moment when the random scale is shown: the formula of the paper's accountant."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf
from tests.noise.catalogue import NOISES, SEEDS
from tests.reference import laplace_moment, seed_expectation

from plrvo.noise import PLRV, ExponentialSeed, GammaPLRV, Gaussian, Laplace, Noise, SumSeed, UniformSeed, WeibullSeed

BOUNDED = ["uniform", "uniform from 0", "truncated normal", "truncated normal from 0.1", "Weibull 2"]
MIXTURES = [name for name, noise in NOISES.items() if isinstance(noise, PLRV | GammaPLRV)]


def log_g(noise: Noise, x: object, eta: object) -> np.ndarray:
    value = noise.log_moment_scale_revealed(x, eta)
    assert value is not None
    return np.asarray(value)


@pytest.mark.parametrize("name", [*BOUNDED, "gamma", "chi-squared"])
@pytest.mark.parametrize(("x", "eta"), [(0.2, 2), (0.2, 5), (0.6, 3)])
def test_scale_revealed_moment_is_the_laplace_moment_averaged_over_the_scale(name: str, x: float, eta: int) -> None:
    """Given u, and with u shown, the coordinate is Laplace noise with b = 1/u: G = E[F_Laplace(u x, eta)]."""
    marks = (0.05, 0.2, 0.5, 1, 1.5, 2, 3, 5, 10, 20, 40)
    with mp.workdps(20):
        average = seed_expectation(SEEDS[name], lambda u: laplace_moment(u * mpf(x), eta), marks)
        expected = float(mp.log(average))
    assert float(log_g(PLRV(SEEDS[name]), x, eta)) == pytest.approx(expected, rel=1e-9, abs=0.0)


@pytest.mark.parametrize(("k", "theta"), [(3.0, 0.5), (60_000.0, 1e-5)])
def test_gamma_scale_revealed_moment_agrees_with_high_precision(k: float, theta: float) -> None:
    for eta in (2, 3, 20, 183):
        for x in (1e-7, 1e-4, 0.005):
            with mp.workdps(50):
                m, v = mpf(eta), mpf(theta) * mpf(x)
                g = (m * (1 - (m - 1) * v) ** -mpf(k) + (m - 1) * (1 + m * v) ** -mpf(k)) / (2 * m - 1)
                expected = float(mp.log(g))
            assert float(log_g(GammaPLRV(k, theta), x, eta)) == pytest.approx(expected, rel=1e-8, abs=0.0)


@pytest.mark.parametrize("name", MIXTURES)
def test_showing_the_scale_never_helps_privacy(name: str) -> None:
    """G >= F: forgetting u is post-processing. Both are zero at orders 0 and 1."""
    x, eta = np.geomspace(1e-3, 3.0, 12)[:, None], np.array([2.0, 3.0, 7.0])
    revealed, hidden = log_g(NOISES[name], x, eta), NOISES[name].log_moment(x, eta)
    assert np.all(revealed >= hidden * (1 - 1e-9))
    assert log_g(NOISES[name], [0.0, 0.3, 2.0], 0.0).tolist() == [0.0] * 3
    assert log_g(NOISES[name], [0.0, 0.3, 2.0], 1.0).tolist() == [0.0] * 3


@given(k=st.floats(0.2, 100.0), x=st.floats(1e-4, 1.0), eta=st.integers(2, 40))
def test_showing_the_scale_never_helps_privacy_for_any_gamma_noise(k: float, x: float, eta: int) -> None:
    noise = GammaPLRV(k, 1 / k)
    assert float(log_g(noise, x, eta)) >= float(noise.log_moment(x, eta)) * (1 - 1e-9)


@pytest.mark.parametrize(
    ("noise", "x", "last_finite"),
    [
        (GammaPLRV(3.0, 0.5), 0.5, 4),  # (eta-1) x theta < 1
        (GammaPLRV(3.0, 0.5), 1.0, 2),
        (PLRV(ExponentialSeed(1.0)), 0.25, 4),
        (PLRV(SumSeed((1.0, 4.0), (UniformSeed(0.0, 1.0), ExponentialSeed(1.0)))), 0.125, 2),
    ],
    ids=repr,
)
def test_scale_revealed_moment_is_infinite_from_the_boundary_on(noise: Noise, x: float, last_finite: int) -> None:
    assert math.isfinite(log_g(noise, x, last_finite))
    assert log_g(noise, x, [last_finite + 1.0, last_finite + 2.0]).tolist() == [math.inf, math.inf]


def test_heavy_seed_has_no_finite_scale_revealed_moment() -> None:
    assert log_g(PLRV(WeibullSeed(0.7, 1.0)), 1e-6, 2.0) == math.inf


def test_fixed_scale_has_nothing_to_reveal() -> None:
    assert log_g(Laplace(2.0), 1.0, 3.0) == pytest.approx(Laplace(2.0).log_moment(1.0, 3.0))
    assert Gaussian(2.0).log_moment_scale_revealed(1.0, 3.0) is None
