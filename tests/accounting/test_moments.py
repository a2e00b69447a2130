"""A(lambda), the log moment of a subsampled step, against sums of exact binomials and against dp-accounting."""

import math
from itertools import pairwise

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy import integrate
from tests.reference import laplace_moment, lomax_moment, moment, step_moment

from plrvo.accounting.moments import StepMoments, log_weights
from plrvo.noise import PLRV, GammaPLRV, Gaussian, Laplace, Noise, UniformSeed


@pytest.mark.parametrize("q", [0.3, 0.01, 1e-4, 1.0])
@pytest.mark.parametrize("order", [2, 3, 9, 40])
def test_laplace_moment_agrees_with_exact_binomials(q: float, order: int) -> None:
    b, clip, n = 0.7, 1.2, 5
    with mp.workdps(40):
        shift = mpf(clip) / mpf(b) / mp.sqrt(n)
        expected = float(step_moment(q, order, lambda eta: laplace_moment(shift, eta) ** n))
    assert StepMoments(Laplace(b), clip, n, q)(order - 1) == pytest.approx(expected, rel=1e-12, abs=0.0)


@pytest.mark.parametrize("q", [0.3, 0.01, 1.0])
@pytest.mark.parametrize("k", [0.3, 1.2, 3.0, 40_000.0])
def test_gamma_moment_agrees_with_exact_binomials_in_one_dimension(q: float, k: float) -> None:
    theta, clip, order = 1 / k, 1.5, 6
    with mp.workdps(30):
        expected = float(step_moment(q, order, lambda eta: lomax_moment(k, theta, clip, eta)))
    assert StepMoments(GammaPLRV(k, theta), clip, 1, q)(order - 1) == pytest.approx(expected, rel=1e-9, abs=0.0)


def test_mixture_moment_agrees_with_exact_binomials_in_one_dimension() -> None:
    noise = PLRV(UniformSeed(0.5, 2.0))
    with mp.workdps(20):
        expected = float(step_moment(0.2, 4, lambda eta: moment(noise, 0.8, eta, unit=1.0)))
    assert StepMoments(noise, 0.8, 1, 0.2)(3) == pytest.approx(expected, rel=1e-9, abs=0.0)


@pytest.mark.parametrize(("b", "q", "order"), [(3e3, 1e-3, 2), (3e3, 1e-3, 30), (2e4, 1e-2, 5), (1e3, 1.0, 2)])
def test_tiny_moments_keep_their_relative_precision(b: float, q: float, order: int) -> None:
    """Moments of 1e-12 and less, where log(1 + ...) in doubles would lose everything."""
    n = 774_000_000
    with mp.workdps(60):
        shift = 1 / (mpf(b) * mp.sqrt(n))
        expected = step_moment(q, order, lambda eta: laplace_moment(shift, eta) ** n)
    assert StepMoments(Laplace(b), 1.0, n, q)(order - 1) == pytest.approx(float(expected), rel=1e-9, abs=0.0)


@pytest.mark.parametrize("noise", [Laplace(0.8), GammaPLRV(2.5, 0.6), GammaPLRV(0.3, 3.0)], ids=repr)
@pytest.mark.parametrize("order", [2, 5])
def test_moment_is_that_of_the_densities(noise: Noise, order: int) -> None:
    """E under mu0 of ((1-q) + q mu1/mu0)^order, one coordinate, integrated over the output itself."""
    q, clip = 0.2, 1.3

    def integrand(y: float, side: int) -> float:  # z = x/2 +- e^y
        z = clip / 2 + side * math.exp(y)
        without, present = float(noise.log_density(z)), float(noise.log_density(z - clip))
        return math.exp(y + without) * (1 - q + q * math.exp(present - without)) ** order

    marks = np.concatenate([np.linspace(-30.0, 4.0, 18), [math.log(clip / 2), 8.0, 20.0, 80.0]])
    marks.sort()
    total = sum(integrate.quad(integrand, a, b, (side,))[0] for side in (-1, 1) for a, b in pairwise(marks))
    assert StepMoments(noise, clip, 1, q)(order - 1) == pytest.approx(math.log(total), rel=1e-7, abs=0.0)


@pytest.mark.parametrize("q", [1.0, 0.5, 0.01])
def test_gaussian_moments_are_those_of_dp_accounting(q: float) -> None:
    sigma, clip = 1.3, 0.9
    orders = [2, 3, 5, 16, 64]
    accountant = RdpAccountant(orders)
    accountant.compose(dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(sigma / clip)))
    moments = StepMoments(Gaussian(sigma), clip, 1000, q)
    ours = [moments(order - 1) / (order - 1) for order in orders]
    assert ours == pytest.approx(list(accountant._rdp), rel=1e-9, abs=0.0)


def test_finite_dimension_saves_much_where_it_is_small() -> None:
    """Laplace, n = 8, C/b = 2, q = .02, lambda = 8: 6.48 against 108.8 in the limit (theory, section 4)."""
    assert StepMoments(Laplace(0.5), 1.0, 8, 0.02)(8) == pytest.approx(6.48, abs=0.005)
    assert StepMoments(Laplace(0.5), 1.0, 10**12, 0.02)(8) == pytest.approx(108.8, abs=0.05)


@given(
    q=st.floats(1e-4, 1.0),
    first=st.integers(1, 60),
    noise=st.sampled_from([Laplace(1.0), Gaussian(1.0), GammaPLRV(2.0, 0.5)]),
)
def test_moment_is_convex_in_the_order(q: float, first: int, noise: Noise) -> None:
    """Interpolation between orders, and the unimodal search over them, rest on this."""
    moments = StepMoments(noise, 1.0, 20_000, q)
    low, middle, high = (moments(first + i) for i in range(3))
    assert 2 * middle <= (low + high) * (1 + 1e-10)


@given(order=st.integers(2, 3000), q=st.floats(1e-9, 0.999))
def test_weights_are_a_binomial_distribution(order: int, q: float) -> None:
    weights = np.exp(log_weights(order, q))
    assert weights.sum() == pytest.approx(1.0, rel=1e-9, abs=0.0)
    assert weights @ np.arange(order + 1.0) == pytest.approx(order * q, rel=1e-9, abs=0.0)


def test_orders_may_be_asked_for_in_any_sequence() -> None:
    one, other = StepMoments(Laplace(1.0), 1.0, 50, 0.1), StepMoments(Laplace(1.0), 1.0, 50, 0.1)
    upwards = [one(order) for order in (1, 2, 40, 700)]
    downwards = [other(order) for order in (700, 40, 2, 1)]
    assert upwards == downwards[::-1]


def test_infinite_moment_is_infinite_and_vanishing_one_hardly_more_than_zero() -> None:
    assert StepMoments(GammaPLRV(3.0, 0.5, shared=True), 1.0, 10, 0.1)(2) == math.inf
    assert StepMoments(Gaussian(1e200), 1.0, 10, 0.1)(2) == 1e-300
    assert StepMoments(Laplace(1e200), 1.0, 10, 1.0)(2) == 1e-300


class Erring(Gaussian):
    """Gaussian noise whose moments are too small by almost as much as they may be."""

    moment_margin = 1e-11

    def log_joint_moment(self, clip: float, dimension: int, eta: np.ndarray, tail: float = 0.0) -> np.ndarray:
        return super().log_joint_moment(clip, dimension, eta, tail) * (1 - 0.999e-11)


@pytest.mark.parametrize(("sigma", "q", "order"), [(0.6, 1e-3, 5), (1.0, 1e-6, 27), (0.3, 1e-9, 8)])
def test_what_a_moment_errs_by_is_charged_before_sampling_amplifies_it(sigma: float, q: float, order: int) -> None:
    """A relative 1e-11 of H is up to 1e-9 of A here, more than the margin of 1e-10 on A would cover."""
    with mp.workdps(50):
        exact = step_moment(q, order, lambda eta: mp.exp(mpf(eta) * (eta - 1) / (2 * mpf(sigma) ** 2)))
        plain = StepMoments(Gaussian(sigma), 1.0, 1, q)(order - 1)
        assert exact * (1 - mpf(10) ** -12) <= plain <= exact * (1 + mpf(10) ** -11)
        assert exact * (1 - mpf(10) ** -12) <= StepMoments(Erring(sigma), 1.0, 1, q)(order - 1)
