"""The elementary functions that must not cancel, and the quadrature rules."""

import math

import numpy as np
import pytest
from mpmath import mp, mpf

from plrvo.noise.functions import expm1_minus, log_expm1
from plrvo.noise.quadrature import half_line


@pytest.mark.parametrize("y", [1e-300, 1e-12, 1e-4, 0.1, 0.2999, 0.3, 0.7, 0.71, 5.0, 400.0])
def test_expm1_minus_keeps_its_relative_precision(y: float) -> None:
    with mp.workdps(650):
        for v in (y, -y):
            assert float(expm1_minus(v)) == pytest.approx(float(mp.expm1(mpf(v)) - mpf(v)), rel=2e-15, abs=0.0)


@pytest.mark.parametrize("y", [1e-300, 1e-12, 1e-4, 0.1, 0.6999, 0.7001, 5.0, 800.0])
def test_log_expm1_keeps_its_precision(y: float) -> None:
    with mp.workdps(400):
        assert float(log_expm1(y)) == pytest.approx(float(mp.log(mp.expm1(mpf(y)))), rel=1e-14, abs=0.0)


def test_log_expm1_at_the_ends() -> None:
    assert log_expm1([0.0, math.inf]).tolist() == [-math.inf, math.inf]


@pytest.mark.parametrize("power", [1.1, 2.0, 5.0])
def test_half_line_integrates_heavy_tails(power: float) -> None:
    nodes, weights = half_line(1e-3, 1e6)
    exact = (1 - (1 + 1e6) ** (1 - power)) / (power - 1)
    assert np.sum(weights * (1 + nodes) ** -power) == pytest.approx(exact, rel=1e-12, abs=0.0)


def test_half_line_integrates_a_narrow_feature_near_zero() -> None:
    nodes, weights = half_line(1e-9, 1.0)
    assert np.sum(weights * np.exp(-nodes / 1e-8) / 1e-8) == pytest.approx(1.0, rel=1e-12, abs=0.0)
    assert np.all(nodes > 0)
    assert np.all(weights > 0)
