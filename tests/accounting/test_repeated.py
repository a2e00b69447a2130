"""Units of many steps: above what the steps show, and hardly above, however long the run."""

import math
import time

import numpy as np
import pytest
from scipy import stats

from plrvo import Gaussian, Laplace, Workload, epsilon
from plrvo.accounting import loss_distribution, repeated
from plrvo.accounting.loss_distribution import composed_delta, composed_epsilon
from plrvo.accounting.profile import Profile
from plrvo.accounting.repeated import Repeated, in_units
from plrvo.accounting.sampled_gaussian import Steps
from plrvo.accounting.sampled_profile import ProfileSteps


def coin(gap, count):
    """Randomised response: a pair with the losses gap and -gap."""
    share = 1 / (1 + math.exp(gap))
    pair = Profile(np.array([0.0, gap]), np.array([0.0, share]), np.array([0.0, 1 - share]), 0.0)
    return ProfileSteps(pair, 1.0, count)


@pytest.mark.parametrize("count", [20_001, 123_457, 10**6, 2 * 10**9])
def test_coin_tosses_have_a_binomial_law(count):
    gap = 1.5 / math.sqrt(count)
    high = 1 / (1 + math.exp(-gap))
    for target in (1.0, 4.0):
        # P(loss > e) - e^e Q(loss > e), the loss being gap (2 heads - count).
        least = np.floor((target / gap + count) / 2)
        exact = stats.binom.sf(least, count, high) - math.exp(target) * stats.binom.sf(least, count, 1 - high)
        found = composed_delta([coin(gap, count)], target)
        assert exact * (1 - 1e-6) <= found <= exact * 1.01


@pytest.mark.parametrize("steps", [Steps(0.5, 0.01, 9_000), Steps(2.0, 0.001, 5_000), Steps(0.05, 0.3, 3_000)])
def test_units_cost_what_their_steps_cost(steps, monkeypatch):
    """But for a second grid, whose cells are too wide for rare large losses: up to .15 % where delta is large."""

    def found(at_once, delta):
        monkeypatch.setattr(repeated, "_AT_ONCE", at_once)
        loss_distribution._in_both_directions.cache_clear()
        return composed_epsilon([steps], delta, 50.0)

    for delta in (1e-2, 1e-5, 1e-12):
        direct = found(10**9, delta)
        assert direct * (1 - 5e-4) <= found(200, delta) <= direct * (1 + (2e-3 if delta > 1e-3 else 5e-4))
    loss_distribution._in_both_directions.cache_clear()


def test_no_step_is_forgotten():
    for count in (20_001, 99_991, 10**6 + 3, 10**12 + 39):
        units, steps = in_units(Steps(0.1, 0.1, count), 1.0), 1
        while isinstance(units, Repeated):
            steps, units = steps * units.times * (units.count if steps == 1 else 1), units.step
        assert count <= steps <= count * (1 + 1e-3)
    few = Steps(0.1, 0.1, 20_000)
    assert in_units(few, 1.0) is few


@pytest.mark.parametrize("noise", [Gaussian(1.0), Laplace(1.0)], ids=repr)
def test_the_bracket_of_a_long_run_is_narrow_and_takes_no_seconds(noise):
    """With noise that grows with the root of T the epsilon has a limit, that of one Gaussian release of signal 1/2."""
    widths = []
    for count in (10**5, 10**6, 10**9):
        wide = noise.scaled(math.sqrt(count) * 0.02)
        started = time.process_time()
        bracket = epsilon(wide, Workload(0.01, count, 1.0, 26_010), 1e-5)
        assert time.process_time() - started < 5.0  # a tenth of a second each, on an idle machine
        widths.append(bracket.certified / bracket.lower)
        assert 1.9 < bracket.lower < bracket.certified < 2.05
    assert max(widths) < 1.03
    assert widths[0] < 1.004
