"""The volumes by integration over slices, and the printed ratio in exact arithmetic."""

import math

import mpmath
import pytest

from plrvo.paper.volumes import CNN_DIMENSION, log_volume_l1, log_volume_l2, printed_log_ratio


@pytest.mark.parametrize("n", range(1, 8))
def test_volumes_are_those_of_stacked_slices(n):
    """V(n) = V(n-1) times the integral of (radius of the slice at x)^(n-1)."""
    l1 = l2 = mpmath.mpf(1)
    for m in range(1, n + 1):
        l1 *= 2 * mpmath.quad(lambda x, m=m: (1 - x) ** (m - 1), [0, 1])
        l2 *= 2 * mpmath.quad(lambda x, m=m: mpmath.sqrt(1 - x * x) ** (m - 1), [0, 1])
    assert math.exp(log_volume_l1(n)) == pytest.approx(float(l1), rel=1e-12)
    assert math.exp(log_volume_l2(n)) == pytest.approx(float(l2), rel=1e-8)


def test_known_balls():
    assert math.exp(log_volume_l1(3)) == pytest.approx(8 / 6)
    assert math.exp(log_volume_l2(2)) == pytest.approx(math.pi)
    assert math.exp(log_volume_l2(3)) == pytest.approx(4 * math.pi / 3)


@pytest.mark.parametrize("n", [1, 2, 3, 99, 100, CNN_DIMENSION, 10**6])
def test_the_printed_ratio_is_right(n):
    with mpmath.workdps(40):
        exact = n * mpmath.log(2 / mpmath.sqrt(mpmath.pi)) + mpmath.loggamma(mpmath.mpf(n) / 2 + 1)
        exact = float(exact - mpmath.loggamma(n + 1))
    assert printed_log_ratio(n) == pytest.approx(exact, rel=1e-11, abs=1e-12)
    assert log_volume_l1(n) - log_volume_l2(n) == pytest.approx(exact, rel=1e-11, abs=1e-12)


def test_the_ratio_falls_faster_than_exponentially():
    """By Stirling the n-th root of the ratio goes like sqrt(2 e/(pi n))."""
    for n in (10**4, 10**6):
        root = math.exp(printed_log_ratio(n) / n)
        assert root * math.sqrt(n) == pytest.approx(math.sqrt(2 * math.e / math.pi), rel=2 * math.log(n) / n)
