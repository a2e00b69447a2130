"""log F(x, eta) of Gaussian and Laplace noise against 40-digit integrals of the densities."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf
from tests.reference import laplace_moment, moment

from plrvo.noise import Gaussian, Laplace
from plrvo.noise.laplace import laplace_log_moment

ORDERS = [2.0, 3.0, 17.0, 500.0, 2.5, 1.001, 0.9, 0.5, 0.3, -0.7, -6.0]


@pytest.mark.parametrize("noise", [Gaussian(1.7), Laplace(0.6)], ids=repr)
def test_log_moment_is_the_integral_that_defines_it(noise: Gaussian | Laplace) -> None:
    for x, eta in ((0.01, 2.0), (1.0, 3.0), (2.0, 2.5), (1.5, 0.5), (1.0, -0.7), (4.0, 6.0)):
        with mp.workdps(30):
            expected = float(mp.log(moment(noise, x, eta, unit=1.0)))
        assert float(noise.log_moment(x, eta)) == pytest.approx(expected, rel=1e-12, abs=0.0)


@pytest.mark.parametrize("x", [1e-9, 1e-4, 0.03, 0.7, 5.0, 300.0])
def test_laplace_moment_keeps_its_relative_precision(x: float) -> None:
    """Tiny shifts included: at n = 774 million coordinates a naive form would lose seven digits."""
    for eta in ORDERS:
        with mp.workdps(50):
            expected = float(mp.log(laplace_moment(x, eta)))
        tolerance = 1e-12 if eta != 0.5 else max(1e-12, 1e-15 / x**2)  # at 1/2 the precision is absolute
        assert float(laplace_log_moment(x, eta)) == pytest.approx(expected, rel=tolerance, abs=0.0)


def test_laplace_moment_is_continuous_through_one_half() -> None:
    with mp.workdps(40):
        for nudge in (1e-3, 1e-5, 1e-6, 1e-8, 0.0):
            expected = float(mp.log(laplace_moment(2.0, mpf(0.5) + mpf(nudge))))
            assert float(laplace_log_moment(2.0, 0.5 + nudge)) == pytest.approx(expected, rel=1e-9, abs=0.0)


def test_laplace_moment_at_one_half_is_the_affinity() -> None:
    assert float(Laplace(2.0).log_moment(3.0, 0.5)) == pytest.approx(np.log(np.exp(-0.75) * 1.75), rel=1e-14, abs=0.0)


@pytest.mark.parametrize("noise", [Gaussian(1.7), Laplace(0.6)], ids=repr)
def test_moment_is_one_at_orders_zero_and_one_and_at_no_shift(noise: Gaussian | Laplace) -> None:
    assert noise.log_moment([0.0, 0.1, 1.0, 50.0], 0.0).tolist() == [0.0] * 4
    assert noise.log_moment([0.0, 0.1, 1.0, 50.0], 1.0).tolist() == [0.0] * 4
    assert noise.log_moment(0.0, [2.0, 0.5, 9.0]).tolist() == [0.0] * 3


@given(x=st.floats(1e-6, 50.0), eta=st.floats(0.5, 60.0))
def test_moment_is_symmetric_in_the_order_around_one_half(x: float, eta: float) -> None:
    for noise in (Gaussian(1.7), Laplace(0.6)):
        reflected = float(noise.log_moment(x, 1 - eta))
        assert float(noise.log_moment(x, eta)) == pytest.approx(reflected, rel=1e-9, abs=1e-15)


@given(t=st.floats(1e-3, 20.0), eta=st.floats(1.01, 40.0))
def test_laplace_log_moment_is_concave_in_the_squared_shift(t: float, eta: float) -> None:
    """Theorem 1, on which the worst gradient rests: h(s) = log F(sqrt s) has decreasing slopes."""
    s = t**2 * np.array([0.9, 1.0, 1.1])
    h = laplace_log_moment(np.sqrt(s), eta)
    assert h[2] - h[1] <= (h[1] - h[0]) * (1 + 1e-9) + 1e-13 * abs(h[1])


def test_orders_and_shifts_broadcast() -> None:
    shape = Laplace(1.0).log_moment(np.ones((3, 1)), np.arange(2.0, 7.0)).shape
    assert shape == (3, 5) == Gaussian(1.0).log_moment(np.ones((3, 1)), np.arange(2.0, 7.0)).shape
