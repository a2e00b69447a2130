"""The score -p'/p and the information it carries about a shift."""

from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate
from tests.noise.catalogue import NOISES

from plrvo.noise import PLRV, GammaPLRV, Gaussian, Laplace, Noise, UniformSeed
from plrvo.validate import InvalidArgument

each_noise = pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)


def numerical_score(noise: Noise, z: float) -> float:
    """-(log p)', by a central difference of eighth order."""
    h = 0.02 * abs(z)
    steps = h * np.arange(1, 5)
    weights = np.array([4 / 5, -1 / 5, 4 / 105, -1 / 280]) / h
    return float(-np.sum(weights * (noise.log_density(z + steps) - noise.log_density(z - steps))))


@each_noise
def test_score_is_minus_the_derivative_of_the_log_density(noise: Noise) -> None:
    for z in (-20.0, -1.0, -0.05, 0.05, 0.4, 3.0, 30.0):
        assert float(noise.score(np.array(z))) == pytest.approx(numerical_score(noise, z), rel=3e-9, abs=0.0)


@each_noise
def test_score_is_odd_and_works_elementwise(noise: Noise) -> None:
    z = np.array([[-2.0, -0.1, 0.0], [0.1, 2.0, 9.0]])
    value = noise.score(z)
    assert value.shape == z.shape
    assert np.array_equal(value, -noise.score(-z))
    assert value[0, 2] == 0


@each_noise
def test_fisher_information_is_the_mean_square_of_the_score(noise: Noise) -> None:
    def integrand(y: float) -> float:
        z = np.exp(y)
        return 2 * float(np.exp(noise.log_density(z)) * z) * numerical_score(noise, z) ** 2

    marks = [-20.0, -6.0, -3.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 8.0, 40.0]
    total = sum(integrate.quad(integrand, a, b)[0] for a, b in pairwise(marks))
    assert noise.fisher_information() == pytest.approx(total, rel=1e-7, abs=0.0)


def test_fisher_information_of_a_shared_scale_agrees_with_the_joint_density() -> None:
    """One scale for two coordinates: p(z) ~ (1 + theta |z|_1)^-(k+2); (d log p/dz_1)^2 over the plane."""
    k, theta = 3.0, 0.5
    scale = k * (k + 1) * theta**2 / 4  # the joint density at 0: E[(u/2)^2]
    joint, _ = integrate.dblquad(
        lambda b, a: 4 * scale * (1 + theta * (a + b)) ** -(k + 2) * ((k + 2) * theta / (1 + theta * (a + b))) ** 2,
        0,
        np.inf,
        0,
        np.inf,
        epsabs=1e-12,
    )
    assert GammaPLRV(k, theta, shared=True).fisher_information(dimension=2) == pytest.approx(joint, rel=1e-8, abs=0.0)


def test_information_of_independent_coordinates_does_not_depend_on_the_dimension() -> None:
    for noise in (Gaussian(2.0), Laplace(2.0), GammaPLRV(3.0, 1.0), PLRV(UniformSeed(1.0, 2.0))):
        assert noise.fisher_information(dimension=50) == noise.fisher_information()


def test_shared_scale_without_a_joint_form_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="dimension=50"):
        PLRV(UniformSeed(1.0, 2.0), shared=True).fisher_information(dimension=50)


@each_noise
def test_information_is_the_curvature_of_the_moment_at_no_shift(noise: Noise) -> None:
    """log F ~ eta (eta-1) I x^2/2 as the shift x vanishes: the link between score and privacy."""
    x = 1e-5 / noise.fisher_information() ** 0.5
    for eta in (2.0, 5.0):
        expected = eta * (eta - 1) * noise.fisher_information() * x**2 / 2
        assert float(noise.log_moment(x, eta)) == pytest.approx(expected, rel=2e-4, abs=0.0)
