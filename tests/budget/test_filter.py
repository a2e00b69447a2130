"""The filter against the best adversary that there is, in a world small enough to compute all of it."""

import math
from functools import cache

import numpy as np
import pytest

from plrvo import Gaussian, Laplace, Workload
from plrvo.accounting.certified import moments_epsilon
from plrvo.accounting.gaussian_curve import gaussian_epsilon
from plrvo.accounting.moments import StepMoments
from plrvo.budget.filter import Filter
from plrvo.validate import InvalidArgument

# Pairs of distributions over two outcomes: a coin, and an event that is rare and tells much.
COIN = ((0.57, 0.43), (0.43, 0.57))
RARE = ((0.03, 0.97), (0.001, 0.999))
FINE = ((0.52, 0.48), (0.48, 0.52))
PAIRS = (COIN, RARE, FINE)
MOST = (14, 4, 5)


def moments_of(pair, orders):
    def one(p, q, order):
        return math.log(sum(x * (x / y) ** order for x, y in zip(p, q, strict=True)))

    p, q = pair
    return np.array([max(one(p, q, order), one(q, p, order)) for order in orders])


def best_adversary(admits, epsilon, moments):
    """The largest P(E) - e^epsilon Q(E), choosing every mechanism after having seen what came before."""

    @cache
    def admitted(counts):
        return admits(sum(n * m for n, m in zip(counts, moments, strict=True)))

    @cache
    def value(counts, hits):
        """(P - e^epsilon Q)+ of the best end from here on, per path, with both probabilities of the path in it."""
        p, q = probabilities(counts, hits)
        best = max(0.0, p - math.exp(epsilon) * q)
        for i in range(len(PAIRS)):
            more = tuple(n + (j == i) for j, n in enumerate(counts))
            if counts[i] < MOST[i] and admitted(more):
                ends = [value(more, tuple(h + (j == i and hit) for j, h in enumerate(hits))) for hit in (1, 0)]
                best = max(best, sum(ends))
        return best

    def probabilities(counts, hits):
        p = q = 1.0
        for (one, other), n, h in zip(PAIRS, counts, hits, strict=True):
            p *= one[0] ** h * one[1] ** (n - h)
            q *= other[0] ** h * other[1] ** (n - h)
        return p, q

    return value((0, 0, 0), (0, 0, 0))


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.02), (2.0, 0.005)])
def test_no_adaptive_choice_exceeds_delta(epsilon, delta):
    budget = Filter.of(epsilon, delta)
    moments = [moments_of(pair, budget.orders) for pair in PAIRS]
    reached = best_adversary(budget.admits, epsilon, moments)
    assert reached <= delta
    assert reached > delta / 20  # the adversary has something to choose


def test_the_adversary_finds_a_filter_that_admits_too_much():
    budget = Filter.of(2.0, 0.02)
    moments = [moments_of(pair, budget.orders) for pair in PAIRS]
    assert best_adversary(budget.admits, 1.0, moments) > 0.02


def largest_gaussian(budget):
    low, high = 0.0, 1e6
    for _ in range(80):
        middle = (low + high) / 2
        admitted = budget.admits(np.array([order * (order + 1) * middle / 2 for order in budget.orders]))
        low, high = (middle, high) if admitted else (low, middle)
    return math.sqrt(low)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-5), (1.0, 1e-5), (3.0, 1e-6), (8.0, 1e-6), (50.0, 1e-3)])
def test_gaussian_noise_that_is_admitted_keeps_the_budget_and_uses_most_of_it(epsilon, delta):
    exact = gaussian_epsilon(largest_gaussian(Filter.of(epsilon, delta)), delta)
    assert 0.8 * epsilon < exact <= epsilon


@pytest.mark.parametrize("noise", [Gaussian(1.0), Laplace(1.0), Gaussian(5.0)])
def test_spent_is_above_the_best_order_in_hindsight_and_close_to_it(noise):
    work = Workload(0.01, 1000, 1.0, 1000)
    hindsight = moments_epsilon([(noise, work)], 1e-5).value
    budget = Filter.of(hindsight, 1e-5)
    step = StepMoments(noise, work.clip, work.dimension, work.sample_rate)
    spent = budget.spent(work.steps * np.array([step(order) for order in budget.orders]))
    assert hindsight < spent < 1.15 * hindsight


def test_spent_is_where_admission_begins():
    budget = Filter.of(2.0, 1e-5)
    moments = np.array([order * (order + 1) / 50 for order in budget.orders])
    spent = budget.spent(moments)
    again = {**budget.to_dict(), "epsilon": spent}
    assert Filter.from_dict(again).admits(moments)
    assert not Filter.from_dict({**again, "epsilon": spent * (1 - 1e-6)}).admits(moments)


def test_nothing_costs_nothing_and_what_has_no_moment_is_never_admitted():
    budget = Filter.of(3.0, 1e-5)
    assert budget.spent(np.zeros(len(budget.orders))) == 0
    none = np.full(len(budget.orders), np.inf)
    assert not budget.admits(none)
    assert budget.spent(none) == math.inf
    some = np.where(np.array(budget.orders) > 3, np.inf, 0.01)
    assert budget.spent(some) > budget.spent(np.full(len(budget.orders), 0.01))


@pytest.mark.parametrize("wrong", [math.nan, -1.0])
def test_moments_that_are_none_give_no_answer(wrong):
    budget = Filter.of(3.0, 1e-5)
    with pytest.raises(ArithmeticError, match="impossible"):
        budget.admits(np.full(len(budget.orders), wrong))


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": 0.0},
        {"epsilon": 1e9},
        {"delta": 1.0},
        {"orders": [0, 1]},
        {"weights": [0.9, 0.9]},
        {"weights": [1.0]},
        {"weights": [-0.1, 0.5]},
        {"orders": []},
    ],
)
def test_a_filter_that_is_none_is_refused(change):
    known = {"epsilon": 1.0, "delta": 1e-5, "orders": [1, 2], "weights": [0.5, 0.5]}
    assert Filter.from_dict(known).orders == (1, 2)
    with pytest.raises(InvalidArgument):
        Filter.from_dict(known | change)
