"""The edge is where the budget is met, and the corollary is judged by the paper's own formula."""

import math

import mpmath
import pytest

from plrvo import GammaPLRV, Ledger
from plrvo.accounting.published import published_epsilon
from plrvo.designer import Accountant
from plrvo.paper import search_space_edge, search_space_region
from plrvo.paper.mnli import CLIP, DELTA, DIMENSION, MAX_ORDER, edge, work_of


def test_the_setting():
    work = work_of()
    assert (work.steps, work.dimension) == (1151, DIMENSION)
    assert work.sample_rate == pytest.approx(1024 / 392_702)
    assert pytest.approx(1 / 785_404) == DELTA


@pytest.mark.parametrize("accountant", Accountant)
@pytest.mark.parametrize("k", [10.0, 1000.0])
def test_the_edge_meets_the_budget_and_the_next_theta_does_not(accountant, k):
    def epsilon(theta: float) -> float:
        noise = GammaPLRV(k, theta)
        if accountant is Accountant.certified:
            return Ledger().plus(noise, work_of()).certified(DELTA).value
        return published_epsilon([(noise, work_of())], DELTA)[0]

    theta = edge(accountant, 1.0, k)
    assert epsilon(theta) <= 1.0 < epsilon(1.001 * theta)


def gap(k: float, theta: float, eta: int) -> float:
    """Log of the Gaussian's bound over G, as the corollary's proof writes both, in 40 digits."""
    with mpmath.workdps(40):
        k, r = mpmath.mpf(k), mpmath.mpf(theta) * mpmath.mpf(CLIP)
        up, down = (1 - (eta - 1) * r) ** -k, (1 + eta * r) ** -k
        g = (up + down) / 2 + (up - down) / (2 * (2 * eta - 1))
        return float(mpmath.mpf(eta * eta - eta) / mpmath.pi * r**2 * (k - 1) ** 2 - mpmath.log(g))


@pytest.mark.parametrize("theta", [1e-6, 1e-3, 0.1])
def test_between_the_printed_bounds_the_moments_are_worse(theta):
    found = search_space_region.roots(theta)
    assert len(found) >= MAX_ORDER - 2
    for eta, (low, high) in found.items():
        for k in (math.sqrt(max(low, 1.0) * high), 10 * high):
            assert search_space_region.moment_holds(k, theta, eta) == (gap(k, theta, eta) >= 0)
        assert gap(math.sqrt(max(low, 1.0) * high), theta, eta) < 0 < gap(10 * high, theta, eta)


def test_the_printed_bounds_are_roots_of_the_inequality_with_its_roundings():
    """k L - 0.6934 = eta (eta-1) r^2 k^2/4, with L = -log(1 - (eta-1) r)."""
    theta, eta = 0.01, 20
    r = CLIP * theta
    for k in search_space_region.roots(theta)[eta]:
        left = -k * math.log1p(-(eta - 1) * r) - 11.09375 / 16
        assert left == pytest.approx(eta * (eta - 1) * r**2 * k**2 / 4, rel=1e-9)


def test_the_printed_interval_of_all_orders_is_empty():
    start, end = search_space_region.printed_interval(1e-3)
    assert start > end


def test_tau_grows_with_a_power_of_epsilon():
    rows = [{"parameters": {"epsilon": e}, "measured": {"tau": 3 * e**0.4}} for e in (0.1, 1.0, 10.0)]
    assert search_space_edge.power(rows, "tau") == pytest.approx(0.4)
