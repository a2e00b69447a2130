"""Loss distributions of sampled Gaussian steps, and the exact curve, where doubles cancel: against mpmath."""

import math

import numpy as np
import pytest
from mpmath import mp, mpf

from plrvo.accounting import loss_distribution
from plrvo.accounting.gaussian_curve import gaussian_delta
from plrvo.accounting.loss_distribution import _delta, _parts, composed_delta
from plrvo.accounting.sampled_gaussian import Steps


def normal(x):
    return mp.erfc(-x / mp.sqrt(2)) / 2


@pytest.mark.parametrize("gap", [1e-4, 1e-12, 1e-15])
def test_a_rate_near_one_keeps_its_digits(gap):
    """Near the largest loss of an added example, -log(1-q), where e^L - (1-q) cancels: delta was 0.3 % too small."""
    for signal in (0.3, 1.0, 3.0):
        for back in (0.3, 1.0, 3.0):
            rate = 1 - gap
            with mp.workdps(60):
                m, q = mpf(signal), mpf(rate)
                epsilon = -float(mp.log(1 - q)) - back
                x = mp.log((mp.exp(-mpf(epsilon)) - (1 - q)) / q) / m + m / 2
                exact = normal(x) - mp.exp(epsilon) * ((1 - q) * normal(x) + q * normal(x - m))
                found = _delta([Steps(signal, rate, 1)], epsilon, added=True)
                assert exact <= found
                assert found <= exact * mpf(1.02) or exact < 1e-60


@pytest.mark.parametrize(("signal", "epsilon"), [(1.0, 30.0), (0.1, 3.0), (0.01, 0.3)])
def test_tails_of_masses_err_by_less_than_is_charged(signal, epsilon):
    """Without sampling a cell's mass, and the share of it at the upper end, are differences of normal tails."""
    ((part, _),) = _parts([Steps(signal, 1.0, 1)], epsilon, 1e-290, added=False).losses
    with mp.workdps(50):
        m, h = mpf(signal), mpf(part.interval)
        errors = []
        for at in (5, 15, 30, 36):
            j = int(np.searchsorted(part.losses, signal * (at + signal) - signal**2 / 2)) - 1
            below, gap = int(part.places[j]) * h, int(part.places[j + 1] - part.places[j]) * h
            low, high = below / m + m / 2, (below + gap) / m + m / 2
            inside, inside_without = normal(m - low) - normal(m - high), normal(-low) - normal(-high)
            exact = normal(m - high) + (inside - mp.exp(below) * inside_without) / -mp.expm1(-gap)
            found = mp.fsum(part.mass[j + 1 :].tolist())
            errors.append(abs(found / exact - 1))
        assert mpf(16) * mpf(2) ** -53 < max(errors) < part.mass_error


@pytest.mark.parametrize("signal", [1e3, 1e6, 1e8, 1e10])
def test_a_large_signal_rounds_delta_up(signal):
    """epsilon/m - m/2 cancels, by more than a few parts in a million of delta from m = 1e6 on."""
    for a in (-2.0, 0.3, 4.0, 30.0):
        epsilon = signal * (a + signal / 2)
        with mp.workdps(60):
            m, b = mpf(signal), mpf(epsilon) / mpf(signal) - mpf(signal) / 2
            # Mills' ratio lies between 1/(x + 1/x) and 1/x, so that delta is known to 1/m^2 of itself at least.
            most, least = (normal(-b) - mp.npdf(b) / (b + m + extra) for extra in (1 / (b + m), 0))
            found = gaussian_delta(signal, epsilon) * (1 + mpf(10) ** -12)
            assert least <= found
            assert found <= most * mp.exp(mpf(10) ** -11 + 2 * (abs(b) + 2) * signal * mpf(2) ** -50)


@pytest.mark.parametrize("rate", [1e-320, 1e-200])
def test_losses_that_round_to_zero_have_a_delta(rate: float) -> None:
    """A grid of one point had no cell to put them in."""
    assert 0 <= composed_delta([Steps(1e-8, rate, 1)], 1.0) < 1e-200


def test_a_direction_without_a_number_is_no_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """max(0.3, nan) is 0.3."""
    monkeypatch.setattr(loss_distribution, "_delta", lambda steps, epsilon, added: math.nan if added else 0.3)
    assert composed_delta([Steps(1.0, 0.1, 1)], 1.0) == 1.0
