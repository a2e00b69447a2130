import itertools
import math

import numpy as np
import pytest
from scipy import stats

import plrvo
from plrvo.accounting.group import _log_factor, group_epsilon
from plrvo.validate import InvalidArgument

WORK = plrvo.Workload(sample_rate=0.05, steps=1, clip=1.0, dimension=1)


def exact_delta(sigma: float, rate: float, size: int, epsilon: float) -> float:
    """One step with Gaussian noise, `size` examples that move the sum by 1 each: by quadrature, the worse direction."""
    x = np.linspace(-12 * sigma, size + 12 * sigma, 400_001)
    without = stats.norm.pdf(x, 0, sigma)
    with_them = sum(stats.binom.pmf(count, size, rate) * stats.norm.pdf(x, count, sigma) for count in range(size + 1))
    gaps = (with_them - math.exp(epsilon) * without, without - math.exp(epsilon) * with_them)
    return max(float(np.trapezoid(np.maximum(gap, 0), x)) for gap in gaps)


@pytest.mark.parametrize(("sigma", "size"), list(itertools.product((0.7, 2.0), (2, 5))))
def test_a_group_never_gets_more_than_is_certified(sigma, size):
    ledger = plrvo.Ledger().plus(plrvo.Gaussian(sigma), WORK)
    for delta in (1e-3, 1e-6):
        epsilon = group_epsilon(ledger, size, delta)
        assert exact_delta(sigma, WORK.sample_rate, size, epsilon) <= delta * (1 + 1e-6)


def test_a_group_of_one_is_an_example():
    ledger = plrvo.Ledger().plus(plrvo.Laplace(2.0), plrvo.Workload(0.01, 100, 1.0, 50))
    assert group_epsilon(ledger, 1, 1e-5) == ledger.certified(1e-5).value


@pytest.mark.parametrize("noise", [plrvo.Gaussian(2.0), plrvo.Laplace(2.0), plrvo.GammaPLRV(k=1000, theta=5e-4)])
def test_larger_groups_get_weaker_guarantees(noise):
    ledger = plrvo.Ledger().plus(noise, plrvo.Workload(0.01, 100, 1.0, 1000))
    epsilons = [group_epsilon(ledger, size, 1e-5) for size in (1, 2, 7)]
    assert epsilons == sorted(epsilons)
    assert epsilons[1] > 1.9 * epsilons[0]


def test_a_group_spends_all_of_delta_and_no_more():
    ledger = plrvo.Ledger().plus(plrvo.Laplace(2.0), plrvo.Workload(0.01, 100, 1.0, 1000))
    epsilon = group_epsilon(ledger, 3, 1e-5) / 3
    one = ledger.certified_delta(epsilon).value
    assert math.log(one) + _log_factor(epsilon, 3) == pytest.approx(math.log(1e-5), abs=0.2)


@pytest.mark.parametrize(("one", "size"), [(0.0, 3), (1e-12, 4), (0.5, 2), (3.0, 7)])
def test_the_factor_is_a_geometric_sum(one, size):
    exact = math.log(sum(math.exp(i * one) for i in range(size)))
    assert _log_factor(one, size) == pytest.approx(exact, abs=1e-9)
    assert _log_factor(one, size) >= exact - 1e-12


def test_a_group_that_is_too_large_has_no_guarantee():
    ledger = plrvo.Ledger().plus(plrvo.GammaPLRV(k=1000, theta=1.6e-3), plrvo.Workload(0.003, 60, 1.0, 10_000))
    assert group_epsilon(ledger, 46, 1e-5) == math.inf


@pytest.mark.parametrize("size", [0, -1, 2.0, True])
def test_bad_sizes_are_refused(size):
    with pytest.raises(InvalidArgument, match="size"):
        group_epsilon(plrvo.Ledger(), size, 1e-5)
