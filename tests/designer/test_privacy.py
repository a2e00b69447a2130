"""c2: the estimate that the search runs on, and the largest theta of a budget."""

import itertools
import math

import numpy as np
import pytest
from tests.grids import one_in

from plrvo import GammaPLRV, Ledger, Workload
from plrvo.designer import Accountant, Point, Problem
from plrvo.designer.privacy import Privacy, descend, epsilon_of

DELTA = 1e-5


def problem(accountant="certified", dimension=26_010, epsilon=1.0, rate=0.01, steps=300, clip=0.1):
    return Problem(Workload(rate, steps, clip, dimension), 2 * clip, epsilon, DELTA, Accountant(accountant))


@pytest.mark.parametrize("accountant", ["certified", "published"])
@pytest.mark.parametrize("dimension", [3, 26_010])
@pytest.mark.parametrize("factor", [1.37, 2.0])
def test_epsilon_depends_on_clip_times_theta_only(accountant, dimension, factor):
    asked = problem(accountant, dimension)
    at = epsilon_of(asked, Point(40.0, 0.2, 0.1))
    assert epsilon_of(asked, Point(40.0, 0.2 / factor, 0.1 * factor)) == pytest.approx(at, rel=1e-9)


@pytest.mark.parametrize(
    ("accountant", "dimension", "error"),
    [("certified", 1, 1e-3), ("certified", 60, 0.03), ("published", 26_010, 1e-3), ("certified", 26_010, 0.0)],
)
@pytest.mark.parametrize("k", [3.0, 200.0, 1e6])
def test_estimate_is_close_to_the_epsilon_by_moments(accountant, dimension, error, k):
    asked = problem(accountant, dimension)
    privacy = Privacy(asked)
    for scale in (0.3, 1.0):
        theta = scale / (k * 0.1)
        if accountant == "published" and k == 3.0:
            theta /= 10  # nearer to the domain of the moments
        exact = by_moments = privacy.exact(k, theta)
        if accountant == "certified":
            by_moments = Ledger().plus(GammaPLRV(k, theta), asked.work).quick(asked.delta).value
        assert privacy.estimate(k, theta) == pytest.approx(by_moments, rel=error or 1e-15)
        assert exact <= by_moments


@pytest.mark.parametrize(
    ("accountant", "k", "hint", "epsilon"),
    one_in(5, itertools.product(["certified", "published"], [12.0, 1e5], [0.1, 10.0], [0.1, 1.0, 8.0])),
)
def test_largest_theta_meets_the_budget_and_is_largest(accountant, epsilon, k, hint):
    asked = problem(accountant, epsilon=epsilon)
    privacy = Privacy(asked)
    theta = privacy.largest_theta(privacy.exact, k, hint / k, 1e-6)
    assert epsilon * (1 - 2e-6) < epsilon_of(asked, Point(k, theta, 0.1)) <= epsilon
    assert epsilon_of(asked, Point(k, theta * (1 + 1e-5), 0.1)) > epsilon


def test_largest_theta_stops_below_the_jump_where_an_order_leaves_the_domain():
    asked = problem("published", epsilon=1.0)
    privacy = Privacy(asked)
    theta = privacy.largest_theta(privacy.exact, 3.0, 1.0, 1e-6)
    assert epsilon_of(asked, Point(3.0, theta, 0.1)) <= 1
    assert epsilon_of(asked, Point(3.0, theta * (1 + 1e-6), 0.1)) > 1


def test_largest_theta_is_zero_where_no_noise_is_wide_enough():
    """Orders end at 2^14, and there delta alone costs (log 1/delta - log order) / order = 1.1e-4."""
    privacy = Privacy(problem("published", dimension=1, epsilon=1e-5))
    assert privacy.largest_theta(privacy.estimate, 100.0, 0.1, 1e-5) == 0


@pytest.mark.parametrize("minimum", [1, 2, 17, 400, 1000])
@pytest.mark.parametrize("start", [1, 16, 900])
def test_descend_finds_the_minimum_of_a_unimodal_function(minimum, start):
    asked = []

    def objective(i):
        asked.append(i)
        return math.inf if i > 980 and minimum < 980 else abs(math.log(i / minimum))

    assert descend(objective, start, 1000) == (0.0, minimum)
    assert min(asked) >= 1
    assert max(asked) <= 1000


def test_miss_is_the_log_ratio_and_clipped():
    privacy = Privacy(problem(epsilon=2.0))
    assert privacy.miss(lambda k, theta: 3.0, 2.0, 1.0) == pytest.approx(np.log(1.5))
    assert privacy.miss(lambda k, theta: math.inf, 2.0, 1.0) == 50
    assert privacy.miss(lambda k, theta: 0.0, 2.0, 1.0) == -50
