"""log F(x, eta) of Gamma-PLRV noise against hypergeometric functions at 40 digits."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp
from tests.reference import lomax_moment, moment

from plrvo.noise import PLRV, ExponentialSeed, GammaPLRV, GammaSeed, Laplace


def expected_log_moment(noise: GammaPLRV, x: float, eta: float) -> float:
    with mp.workdps(40):
        return float(mp.log(lomax_moment(noise.k, noise.theta, x, eta)))


@pytest.mark.parametrize(
    ("k", "theta", "x"),
    [
        (1.2, 1.0, 1000.0),  # where the obvious quadrature is 17 % low
        (1.2, 1.0, 1.0),
        (1.2, 1.0, 1e-6),
        (0.3, 1.0, 1000.0),
        (0.3, 1.0, 0.5),
        (0.3, 1.0, 1e-5),
        (3.0, 0.5, 4.0),
        (40_000.0, 1e-5, 1.0),
        (40_000.0, 1e-5, 1e-6),
        (40_000.0, 1e-5, 1e-9),  # one of 774 million coordinates
    ],
)
def test_log_moment_agrees_with_hypergeometric_functions(k: float, theta: float, x: float) -> None:
    for eta in (2.0, 3.0, 64.0, 2.5, 1.3, 0.5, -0.5):
        noise = GammaPLRV(k, theta)
        assert float(noise.log_moment(x, eta)) == pytest.approx(expected_log_moment(noise, x, eta), rel=1e-12, abs=0.0)


def test_hypergeometric_reference_agrees_with_the_definition() -> None:
    with mp.workdps(25):
        for k, theta, x, eta in ((3.0, 0.5, 4.0, 3.0), (1.2, 1.0, 2.0, 2.5), (20.0, 0.05, 1.0, 5.0)):
            straight = moment(GammaPLRV(k, theta), x, eta, unit=1 / theta)
            assert float(lomax_moment(k, theta, x, eta) / straight - 1) == pytest.approx(0.0, abs=1e-15)


def test_many_shifts_and_orders_at_once_agree_with_one_at_a_time() -> None:
    noise = GammaPLRV(2.5, 0.7)
    x, eta = np.geomspace(1e-7, 1e3, 9)[:, None], np.array([2.0, 3.5, 11.0, 300.0])
    together = noise.log_moment(x, eta)
    apart = [[float(noise.log_moment(a, b)) for b in eta] for a in x[:, 0]]
    assert together == pytest.approx(np.array(apart), rel=1e-12, abs=0.0)


def test_large_order_agrees_with_hypergeometric_functions() -> None:
    noise = GammaPLRV(1.5, 1.0)
    for x, eta in ((0.2, 3000.0), (1e-3, 20_000.0)):
        assert float(noise.log_moment(x, eta)) == pytest.approx(expected_log_moment(noise, x, eta), rel=1e-11, abs=0.0)


@pytest.mark.parametrize("k", [0.1, 0.3, 1.0, 7.0, 40_000.0])
def test_moment_is_one_at_orders_zero_and_one_and_at_no_shift(k: float) -> None:
    noise = GammaPLRV(k, 1.0)
    assert noise.log_moment([0.0, 0.1, 1.0, 50.0], 0.0).tolist() == [0.0] * 4
    assert noise.log_moment([0.0, 0.1, 1.0, 50.0], 1.0).tolist() == [0.0] * 4
    assert noise.log_moment(0.0, [2.0, 0.5, 9.0]).tolist() == [0.0] * 3


@given(k=st.floats(0.1, 50.0), x=st.floats(1e-4, 50.0), eta=st.floats(0.5, 40.0))
def test_moment_is_symmetric_in_the_order_around_one_half(k: float, x: float, eta: float) -> None:
    noise = GammaPLRV(k, 1 / k)
    assert float(noise.log_moment(x, eta)) == pytest.approx(float(noise.log_moment(x, 1 - eta)), rel=1e-9, abs=1e-15)


@given(k=st.floats(0.1, 50.0), x=st.floats(1e-4, 1e3), eta=st.floats(1.01, 100.0))
def test_moment_is_at_most_the_largest_likelihood_ratio(k: float, x: float, eta: float) -> None:
    """E[r^eta] <= sup(r)^(eta-1) E[r] = (1 + theta x)^((k+1)(eta-1)), so that every order is finite."""
    noise = GammaPLRV(k, 1 / k)
    largest = (k + 1) * math.log1p(x / k)
    assert 0 <= float(noise.log_moment(x, eta)) <= (eta - 1) * largest * (1 + 1e-12)


@given(k=st.floats(1.0, 1000.0), x=st.floats(1e-4, 1e3), eta=st.floats(1.0, 100.0))
def test_moment_is_at_most_the_gaussian_one_for_k_of_at_least_one(k: float, x: float, eta: float) -> None:
    """Theorem 2': log F <= eta (eta-1) I x^2/2, with I typed out from the table."""
    information = k * (k + 1) ** 2 / (k + 2)
    bound = eta * (eta - 1) * information * x**2 / 2
    assert float(GammaPLRV(k, 1.0).log_moment(x, eta)) <= bound * (1 + 1e-10)


def test_large_k_is_laplace() -> None:
    x = np.array([1e-3, 0.1, 1.0, 3.0])
    gamma = GammaPLRV(k=1e9, theta=1e-9).log_moment(x, 4.0)
    assert gamma == pytest.approx(Laplace(1.0).log_moment(x, 4.0), rel=1e-7, abs=0.0)


def test_gamma_seed_in_the_general_class_gives_the_same_noise() -> None:
    x, eta = np.array([1e-4, 0.3, 2.0, 80.0]), np.array([[2.0], [7.0]])
    for general, special in (
        (PLRV(GammaSeed(3.0, 0.5)), GammaPLRV(3.0, 0.5)),
        (PLRV(ExponentialSeed(0.5)), GammaPLRV(1.0, 0.5)),
    ):
        assert general.log_moment(x, eta) == pytest.approx(special.log_moment(x, eta), rel=1e-10, abs=0.0)
        assert general.fisher_information() == pytest.approx(special.fisher_information(), rel=1e-10, abs=0.0)
        assert general.pure_loss(2.0, 3) == pytest.approx(special.pure_loss(2.0, 3), rel=1e-12, abs=0.0)
