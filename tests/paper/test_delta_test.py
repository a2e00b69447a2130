"""delta by its definition, and what becomes of the factor of 100."""

import math

import mpmath
import numpy as np
import pytest

from plrvo.paper.delta_test import EQUAL, LEVEL, PRINTED_RATIO, epsilon_of_ratio, gaussian_delta, laplace_delta


def delta_by_definition(density, shift_sides, epsilon: float) -> float:
    """The integral of (p(z - 1) - e^epsilon p(z))^+, on pieces that end where the integrand does."""

    def excess(z):
        return max(mpmath.mpf(0), density(z - 1) - mpmath.exp(epsilon) * density(z))

    return float(mpmath.quad(excess, shift_sides))


@pytest.mark.parametrize("sigma", [0.3, 1.0, 10.0])
@pytest.mark.parametrize("share", [0.0, 0.2, 1.0])
def test_gaussian_delta_is_the_integral_of_its_definition(sigma, share):
    epsilon = share / sigma
    border = 0.5 + epsilon * sigma**2  # where the densities' ratio is e^epsilon
    ends = [border, border + sigma, border + 4 * sigma, border + 40 * sigma]
    expected = delta_by_definition(lambda z: mpmath.npdf(z, 0, sigma), ends, epsilon)
    assert gaussian_delta(sigma, epsilon) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("b", [0.3, 1.0, 10.0])
@pytest.mark.parametrize("share", [0.0, 0.2, 0.99, 1.0, 1.5])
def test_laplace_delta_is_the_integral_of_its_definition(b, share):
    epsilon = share / b
    border = (1 + epsilon * b) / 2  # at 1 or more the ratio never exceeds e^epsilon
    ends = [min(border, 1), 1, 1 + b, 1 + 5 * b, 1 + 60 * b]
    expected = delta_by_definition(lambda z: mpmath.exp(-abs(z) / b) / (2 * b), ends, epsilon)
    assert laplace_delta(b, epsilon) == pytest.approx(expected, rel=1e-10, abs=1e-18)


def test_in_the_limit_gaussian_noise_has_the_smaller_delta():
    """The deltas are about 1/(sigma sqrt(2 pi)) and 1/(2b): their ratio goes to sqrt(2/pi) b/sigma."""
    for factor in EQUAL.values():
        ratio = gaussian_delta(1e6) / laplace_delta(factor * 1e6)
        assert ratio == pytest.approx(math.sqrt(2 / math.pi) * factor, rel=1e-5)
        assert ratio < 1


def test_no_level_of_noise_comes_near_the_printed_ratio():
    levels = np.geomspace(0.01, 1000, 500)
    most = max(gaussian_delta(s) / laplace_delta(factor * s) for factor in EQUAL.values() for s in levels)
    assert 1.1 < most < 1.15


@pytest.mark.parametrize("factor", EQUAL.values())
def test_the_printed_ratio_is_crossed_once_and_only_near_the_end(factor):
    b = factor * LEVEL
    crossing = epsilon_of_ratio(LEVEL, b, PRINTED_RATIO)
    assert 0.99 < crossing * b < 1
    assert gaussian_delta(LEVEL, crossing) / laplace_delta(b, crossing) == pytest.approx(PRINTED_RATIO, rel=1e-6)
    before = np.linspace(0, crossing * (1 - 1e-6), 200)
    assert all(gaussian_delta(LEVEL, e) < PRINTED_RATIO * laplace_delta(b, e) for e in before)
