"""Laws of losses: moments against a plain sum, and few points that say nearly the same."""

import math

import numpy as np
import pytest
from scipy import stats

from plrvo.accounting.law import Law


def test_moments_are_those_of_a_binomial_law():
    count, p = 40, 0.3
    law = Law(np.arange(count + 1.0), stats.binom.pmf(np.arange(count + 1), count, p))
    for theta in (-2.0, 0.0, 0.7, 30.0):
        tilted = p * math.exp(theta) / (1 - p + p * math.exp(theta))
        value, mean, variance = law.moments(theta)
        assert value == pytest.approx(count * math.log(1 - p + p * math.exp(theta)), rel=1e-12)
        assert mean == pytest.approx(count * tilted, rel=1e-9)
        assert variance == pytest.approx(count * tilted * (1 - tilted), rel=1e-7)


def test_few_points_say_nearly_the_same():
    x = np.linspace(-9.0, 9.0, 200_001)
    law = Law(0.1 * x, stats.norm.pdf(x) * (x[1] - x[0]))
    few = law.binned
    assert len(few.losses) < 2500
    assert few.mass.sum() == pytest.approx(law.mass.sum(), rel=1e-12)
    assert few.moments(0.0)[1] == pytest.approx(law.moments(0.0)[1], abs=1e-12)
    for theta in (5.0, 30.0):
        exact, about = law.moments(theta)[0], few.moments(theta)[0]
        assert about <= exact + 1e-12  # a mean lies below (Jensen)
        assert about == pytest.approx(exact, rel=2e-4)
