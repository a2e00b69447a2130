"""Deltas down to 1e-300: one sampled Gaussian step against its closed form, where squares are 0."""

from itertools import pairwise

import pytest
from mpmath import mp, mpf

import plrvo
from plrvo.accounting import Ledger, Workload
from plrvo.accounting.loss_distribution import composed_delta
from plrvo.accounting.sampled_gaussian import Steps
from plrvo.noise import Gaussian


def exact_log_delta(signal, rate, epsilon):
    """Both directions of one step: the mixture against N(0, 1), and N(0, 1) against the mixture."""
    with mp.workdps(400):
        m, q, e = mpf(signal), mpf(rate), mpf(epsilon)

        def below(x):
            return mp.erfc(-x / mp.sqrt(2)) / 2

        x = mp.log((mp.exp(e) - 1 + q) / q) / m + m / 2
        delta = q * below(m - x) - (mp.exp(e) - 1 + q) * below(-x)
        if mp.exp(-e) > 1 - q:
            y = mp.log((mp.exp(-e) - 1 + q) / q) / m + m / 2
            delta = max(delta, below(y) - mp.exp(e) * ((1 - q) * below(y) + q * below(y - m)))
        return mp.log(delta)


def certified(sigma, rate, delta):
    return Ledger().plus(Gaussian(sigma), Workload(rate, 1, 1.0, 1)).certified(delta).value


FOUND = [
    (1 / 1.4595242481384278, 0.006893546540668497, 3.2069422530504506e-297),
    (6.870089432751631, 0.0014997902770389313, 1.2471289172752734e-184),
    (4.4329, 0.00013339489625687438, 7e-181),
]
GRID = [(s, q, 10.0**-d) for s in (0.6, 1.0, 4.4) for q in (0.3, 1e-2, 1e-4) for d in (100, 165, 220, 270, 295, 300)]


@pytest.mark.parametrize(("sigma", "rate", "delta"), FOUND + GRID)
def test_one_sampled_step_is_certified_from_above_at_the_smallest_deltas(sigma, rate, delta):
    """certified gave 38.9 where 49.5 is right: the rounding of the transform was charged as 0."""
    epsilon = certified(sigma, rate, delta)
    assert exact_log_delta(1 / sigma, rate, epsilon) <= mp.log(mpf(delta))
    if delta > 1e-290:
        assert exact_log_delta(1 / sigma, rate, epsilon * 0.7) > mp.log(mpf(delta))


@pytest.mark.parametrize(("sigma", "rate"), [(0.6, 0.3), (6.87, 0.0015), (4.4329, 1.3339489625687438e-4)])
def test_certified_grows_as_delta_falls_to_the_smallest(sigma, rate):
    values = [certified(sigma, rate, 10.0**-d) for d in range(140, 301, 5)]
    assert all(a <= b for a, b in pairwise(values))


@pytest.mark.parametrize("epsilon", [5.0, 15.0, 30.0, 45.0])
def test_the_delta_of_one_step_is_an_upper_bound_where_it_is_tiny(epsilon):
    for signal, rate in ((1.4595, 0.0069), (0.9, 0.3)):
        found = composed_delta([Steps(signal, rate, 1)], epsilon)
        assert mp.log(mpf(found)) >= exact_log_delta(signal, rate, epsilon)


def test_the_bracket_of_the_smallest_delta():
    sigma, rate, delta = FOUND[0]
    assert plrvo.epsilon(Gaussian(sigma), Workload(rate, 1, 1.0, 1), delta).certified > 49.4
