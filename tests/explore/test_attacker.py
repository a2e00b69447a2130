"""What proved pairs leave to an attacker, against an attacker whose every move is known."""

import math

import pytest
from scipy.stats import norm

import plrvo
from plrvo.explore.attacker import most_found, most_gained


def test_a_bound_is_the_definition_of_epsilon_and_delta():
    epsilon, delta, alarms = 1.3, 1e-3, 0.02
    assert most_found([(epsilon, delta)], alarms) == pytest.approx(math.exp(epsilon) * alarms + delta)
    found = most_found([(epsilon, delta)], 0.6)
    assert pytest.approx(math.exp(epsilon) * (1 - found) + delta) == 1 - 0.6  # what is left out, in both worlds
    assert most_found([], alarms) == most_found([(math.inf, 0.5)], alarms) == 1
    assert most_found([(0.0, 0.0)], alarms) == pytest.approx(alarms)


def test_the_gain_is_the_largest_distance_to_guessing():
    pairs = [(0.7, 1e-3)]
    distances = [most_found(pairs, i / 5000) - i / 5000 for i in range(5001)]
    assert max(distances) <= most_gained(pairs) <= max(distances) + 1e-3


def test_the_best_attack_on_gaussian_noise_is_allowed_and_nearly_reached():
    """One step without sampling: the likelihood ratio test finds Phi(Phi^-1(f) + 1/sigma), and no attack more."""
    work = plrvo.Workload(sample_rate=1.0, steps=1, clip=1.0, dimension=1)
    ledger = plrvo.Ledger().plus(plrvo.Gaussian(2.0), work)
    pairs = [(ledger.certified(delta).value, delta) for delta in (10.0 ** (-i / 8) for i in range(4, 60))]
    for alarms in (1e-4, 1e-3, 1e-2, 0.1, 0.5, 0.9):
        best = norm.cdf(norm.ppf(alarms) + 0.5)
        assert best <= most_found(pairs, alarms) <= 1.02 * best
    assert 2 * norm.cdf(0.25) - 1 <= most_gained(pairs) <= 1.02 * (2 * norm.cdf(0.25) - 1)
