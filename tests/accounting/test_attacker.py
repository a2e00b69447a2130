"""What proved pairs leave to an attacker, against an attacker whose every move is known."""

import math

import numpy as np
import pytest
from scipy.stats import norm
from tests.noise.catalogue import NOISES

import plrvo
from plrvo.accounting.attacker import QuickMoments, most_found, most_gained, most_often_right


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


@pytest.mark.parametrize("name", ["Gaussian", "Laplace", "Gamma k=3"])
def test_pairs_by_moments_are_proved(name):
    """In few dimensions too, where the moments of many are used: none lies below what an attacker reaches there."""
    noise, work = NOISES[name], plrvo.Workload(sample_rate=0.5, steps=4, clip=0.5, dimension=3)
    ledger, pairs = plrvo.Ledger().plus(noise, work), QuickMoments([(noise, work)]).pairs(1e-5)
    for epsilon, delta in (pairs[15], pairs[-1]):
        assert epsilon >= ledger.lower(delta)
    assert 0.5 <= most_often_right(pairs) <= 1


def test_guesses_on_gaussian_noise_are_bounded_far_below_what_one_pair_says():
    """Ten steps without sampling: the best guess is right in Phi(sqrt(10)/(2 sigma)) of cases."""
    work = plrvo.Workload(sample_rate=1.0, steps=10, clip=1.0, dimension=1)
    entries = [(plrvo.Gaussian(6.0), work)]
    pairs = QuickMoments(entries).pairs()
    one = most_often_right([(plrvo.Ledger(tuple(entries)).certified(1e-5).value, 1e-5)])
    assert norm.cdf(math.sqrt(10) / 12) <= most_often_right(pairs) < one - 0.1
    again = QuickMoments([(plrvo.Gaussian(6.0), plrvo.Workload(sample_rate=1.0, steps=1, clip=1.0, dimension=1))])
    assert again.epsilon(1e-5, times=10) == pytest.approx(QuickMoments(entries).epsilon(1e-5))


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.0), (0.5, 0.1), (3.0, 1e-5)])
def test_most_often_right_is_reached_by_the_worst_mechanism(epsilon, delta):
    """Randomised response that gives the answer away with probability delta, and its best guesser, by brute force."""
    p = math.exp(epsilon) / (1 + math.exp(epsilon))
    given_in = np.array([delta, 0.0, (1 - delta) * p, (1 - delta) * (1 - p)])
    given_out = given_in[[1, 0, 3, 2]]
    excess = np.maximum(given_in - math.exp(epsilon) * given_out, 0).sum()
    assert excess == pytest.approx(delta)  # it is private by the definition
    assert 0.5 * np.maximum(given_in, given_out).sum() == pytest.approx(most_often_right([(epsilon, delta)]))


def test_only_ledgers_that_are_quick_fit():
    work = plrvo.Workload(sample_rate=0.5, steps=4, clip=0.5, dimension=3)
    for name in ("Gaussian", "Laplace", "Gamma k=3"):
        assert QuickMoments.fit(plrvo.Ledger().plus(NOISES[name], work))
    assert not QuickMoments.fit(plrvo.Ledger().plus(NOISES["PLRV uniform"], work))
    assert not QuickMoments.fit(plrvo.Ledger())
    assert not QuickMoments.fit(plrvo.Ledger(tuple((plrvo.Laplace(1.0 + i), work) for i in range(9))))
