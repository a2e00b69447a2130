"""The indicator region, its closed bounds, and samples of what is feasible."""

import math

import mpmath
import numpy as np
import pytest

from plrvo import Gaussian, Ledger, Workload
from plrvo.designer import Accountant, Point, Problem, SearchSpace
from plrvo.designer.constraints import check
from plrvo.designer.search_space import (
    excluded_k,
    in_domain,
    indicator_distortion,
    indicator_moments,
    printed_bounds,
    sufficient_k,
)
from plrvo.validate import InvalidArgument

ORDERS = 12


def log_g(clip, k, theta, eta):
    """G of the paper's proof, in 30 digits."""
    with mpmath.workdps(30):
        up = (1 - (eta - 1) * mpmath.mpf(clip) * theta) ** -mpmath.mpf(k)
        down = (1 + eta * mpmath.mpf(clip) * theta) ** -mpmath.mpf(k)
        return float(mpmath.log((up + down) / 2 + (up - down) / (2 * (2 * eta - 1))))


def cases(count):
    rng = np.random.default_rng(0)
    for _ in range(count):
        clip = float(np.exp(rng.uniform(-3, 1)))
        theta = float(np.exp(rng.uniform(math.log(1e-4), math.log(0.99 / (ORDERS + 1))))) / clip
        yield rng, clip, theta


def test_indicators_agree_with_the_paper_in_high_precision():
    verdicts = []
    for rng, clip, theta in cases(60):
        k = 1 + float(np.exp(rng.uniform(-1, 3))) / (clip * theta)
        sigma = float(np.exp(rng.uniform(-1.5, 1)))
        moments = all(log_g(clip, k, theta, eta) <= eta * (eta - 1) / (2 * sigma**2) for eta in range(2, ORDERS + 2))
        distortion = 1 / ((k - 1) * theta) <= Gaussian(clip * sigma).distortion
        point = Point(k, theta, clip)
        assert indicator_moments(point, sigma, ORDERS) == moments
        assert indicator_distortion(point, sigma) == distortion
        verdicts.append((moments, distortion))
    assert len(set(verdicts)) >= 3  # the cases reach both sides of both indicators


def in_region_of_all_sigma(clip, k, theta):
    """G <= exp(eta (eta-1) C^2 (k-1)^2 theta^2 / pi) at every order: the paper's step before its corollary."""
    return all(
        log_g(clip, k, theta, eta) <= eta * (eta - 1) * (clip * (k - 1) * theta) ** 2 / math.pi
        for eta in range(2, ORDERS + 2)
    )


def test_closed_bounds_enclose_the_region():
    """sufficient => in the region => not excluded; and each bound is reached, to the factor 2 between M and G."""
    inside = outside = 0
    for rng, clip, theta in cases(60):
        enough, gaps = sufficient_k(clip, theta, ORDERS), excluded_k(clip, theta, ORDERS)
        assert in_region_of_all_sigma(clip, enough * (1 + 1e-9), theta)
        for k in 1 + (enough - 1) * np.exp(rng.uniform(-3, 1, 12)):
            holds = in_region_of_all_sigma(clip, float(k), theta)
            excluded = any(low < k < high for low, high in gaps)
            assert not (k >= enough and not holds)
            assert not (holds and excluded)
            inside, outside = inside + holds, outside + excluded
    assert min(inside, outside) > 50


@pytest.mark.parametrize(("clip", "theta", "eta"), [(1.0, 1e-2, 5), (1.0, 1e-3, 10), (0.1, 1e-3, 10), (1.0, 0.05, 3)])
def test_the_printed_bounds_enclose_what_they_should_exclude(clip, theta, eta):
    """As printed, k1 is the larger root, and between the roots the moments exceed the Gaussian's."""
    k1, k2 = printed_bounds(clip, theta, eta)
    square, log_term = (clip * theta) ** 2 * eta * (eta - 1), -math.log(1 - clip * theta * (eta - 1))
    for root in (k1, k2):
        assert square * root**2 / 4 - log_term * root + 11.09375 / 16 == pytest.approx(0, abs=1e-9 * log_term * root)
    assert k2 < k1
    middle = math.sqrt(k1 * k2)
    assert log_g(clip, middle, theta, eta) > eta * (eta - 1) * (clip * (middle - 1) * theta) ** 2 / math.pi
    assert log_g(clip, 3 * k1, theta, eta) < eta * (eta - 1) * (clip * (3 * k1 - 1) * theta) ** 2 / math.pi


@pytest.mark.parametrize("theta", [1e-2, 1e-4])
def test_the_printed_bounds_leave_nothing_at_the_second_order(theta):
    assert all(math.isnan(bound) for bound in printed_bounds(1.0, theta, 2))


def test_outside_the_domain_bounds_are_refused():
    assert not in_domain(1.0, 1 / 13, 12)
    assert in_domain(1.0, 0.99 / 13, 12)
    with pytest.raises(InvalidArgument, match="theta"):
        sufficient_k(1.0, 1 / 13, 12)


def space(accountant="certified", dimension=26_010, epsilon=1.0, rate=0.04, steps=1250, clip=0.1):
    return SearchSpace(Problem(Workload(rate, steps, clip, dimension), 2 * clip, epsilon, 1e-5, Accountant(accountant)))


def test_sigma_is_that_of_the_gaussian_on_the_budget():
    here = space()
    cost = Ledger().plus(Gaussian(here.sigma * 0.1), here.problem.work).certified(1e-5).value
    assert 0.999 < cost <= 1


@pytest.mark.parametrize(("accountant", "dimension"), [("certified", 26_010), ("published", 26_010)])
def test_samples_satisfy_every_constraint_and_reach_all_over(accountant, dimension):
    here = space(accountant, dimension)
    points = here.sample(30, np.random.default_rng(1))
    assert len(points) == 30
    for point in points:
        assert all(row.satisfied for row in check(here.problem, point) if row.required)
        assert here.contains(point)
    assert min(p.k for p in points) < 100 < 10_000 < max(p.k for p in points)
    assert min(p.clip for p in points) < 0.12 < 0.18 < max(p.clip for p in points)
    assert points == here.sample(30, np.random.default_rng(1))
    assert points != here.sample(30, np.random.default_rng(2))


def test_a_wrong_outline_cannot_let_an_infeasible_point_through():
    here = space()
    log_k, low, high = here.outline
    here.__dict__["outline"] = (log_k, low - 1.0, high + 1.0)  # proposals on all sides of the space
    assert all(here.contains(point) for point in here.sample(20, np.random.default_rng(5)))


@pytest.mark.parametrize("k", [7.0, 1e4])
def test_theta_bounds_are_the_edges_of_the_space(k):
    here = space()
    low, high = here.theta_bounds(k)
    assert here.contains(Point(k, low, 0.1))
    assert here.contains(Point(k, high, 0.1))
    assert not here.contains(Point(k, low * (1 - 1e-3), 0.1))
    assert not here.contains(Point(k, high * (1 + 1e-3), 0.1))
    assert not here.contains(Point(k, high * 0.8, 0.3))  # a clip outside c0, whatever its noise


def test_in_one_coordinate_samples_can_beat_gaussian_noise():
    here = space(dimension=1, rate=1.0, steps=1, epsilon=6.0)
    for point in here.sample(4, np.random.default_rng(0), beats_gaussian=True):
        assert indicator_moments(point, here.sigma, here.max_order)
        assert 1 / ((point.k - 1) * point.theta) <= Gaussian(here.sigma * point.clip).distortion


def test_indicator_bounds_are_the_edges_of_the_indicator_region():
    here = space(rate=0.01, steps=300, epsilon=4.0)
    low, high = here.indicator_bounds(3000.0)
    assert low < high
    for theta, inside in ((low * 1.001, True), (high, True), (low * 0.999, False), (high * 1.001, False)):
        assert here.beats_gaussian(Point(3000.0, theta, 0.1)) == inside


def test_an_empty_space_is_said_to_be():
    with pytest.raises(InvalidArgument, match="empty or too thin"):
        space(epsilon=0.01).sample(3, np.random.default_rng(0))
    with pytest.raises(InvalidArgument, match="indicator region is empty"):
        space().sample(3, np.random.default_rng(0), beats_gaussian=True)
