"""Bounds against the golden values of the protocol, against other formulas for the same thing, and for coverage."""

import math

import numpy as np
import pytest
from scipy import stats

from plrvo.audit.statistics import (
    Counts,
    check_canaries,
    choose_threshold,
    clopper_pearson_upper,
    count_errors,
    epsilon_bound,
    epsilon_opt,
    gaussian_dp_bound,
    gaussian_dp_epsilon,
    one_run_bound,
    trials_needed,
)
from plrvo.audit.verdict import judge
from plrvo.noise import GammaPLRV, Gaussian, Laplace
from plrvo.validate import InvalidArgument


@pytest.mark.parametrize(("trials", "value"), [(10, 0.359), (20, 1.193), (100, 2.911), (500, 4.542), (1000, 5.238)])
def test_epsilon_opt_has_its_golden_values(trials, value):
    assert epsilon_opt(trials, 0.01) == pytest.approx(value, abs=5e-4)
    assert epsilon_opt(trials, 0.01) == pytest.approx(epsilon_bound(Counts(0, trials, 0, trials), 0.0, 0.01), rel=1e-12)


@pytest.mark.parametrize(
    ("m", "r", "v", "alpha", "value"),
    [
        (1000, 1000, 600, 0.05, 0.297),
        (1000, 1000, 600, 0.01, 0.253),
        (1000, 100, 95, 0.05, 2.165),
        (1000, 100, 95, 0.01, 1.917),
    ],
)
def test_one_run_bound_has_its_golden_values(m, r, v, alpha, value):
    assert one_run_bound(m, r, v, 1e-5, alpha) == pytest.approx(value, abs=5e-4)


def test_one_run_bound_without_delta_is_a_binomial_test():
    for r, v in ((50, 40), (200, 150), (30, 30)):
        epsilon = one_run_bound(500, r, v, 0.0, 0.05)
        p0 = 1 / (1 + math.exp(-epsilon))
        assert stats.binom.sf(v - 1, r, p0) == pytest.approx(0.05, rel=1e-6)


def test_one_run_bound_is_zero_for_chance_and_falls_with_delta():
    assert one_run_bound(1000, 1000, 510, 1e-5, 0.05) == 0
    assert one_run_bound(10, 10, 0, 0.0, 0.05) == 0
    values = [one_run_bound(1000, 100, 95, delta, 0.05) for delta in (0.0, 1e-6, 1e-5, 1e-4)]
    assert values == sorted(values, reverse=True)


@pytest.mark.parametrize(("errors", "trials", "alpha"), [(0, 20, 0.005), (3, 50, 0.05), (49, 50, 0.01), (50, 50, 0.01)])
def test_clopper_pearson_inverts_the_binomial_tail(errors, trials, alpha):
    limit = float(clopper_pearson_upper(errors, trials, alpha))
    if errors == trials:
        assert limit == 1
    else:
        assert stats.binom.cdf(errors, trials, limit) == pytest.approx(alpha, rel=1e-9)


def test_bound_takes_the_better_of_its_two_forms():
    few_false_alarms = Counts(0, 1000, 500, 1000)
    few_misses = Counts(500, 1000, 0, 1000)
    assert epsilon_bound(few_false_alarms, 1e-5, 0.01) == epsilon_bound(few_misses, 1e-5, 0.01) > 4
    assert epsilon_bound(Counts(500, 1000, 500, 1000), 1e-5, 0.01) == 0


def test_trials_needed_is_the_first_number_that_certifies_anything():
    for alpha, delta in ((0.01, 0.0), (0.05, 1e-5), (0.01, 0.3)):
        needed = trials_needed(alpha, delta)
        assert epsilon_opt(needed, alpha, delta) > 0 == epsilon_opt(needed - 1, alpha, delta)


def test_coverage_of_the_bound_is_at_least_its_confidence():
    """Randomised response with epsilon 1 is exactly on the bound. False alarm: below 4e-5 (four deviations)."""
    generator, alpha, audits, n, epsilon = np.random.default_rng(0), 0.1, 4000, 200, 1.0
    wrong = 1 / (1 + math.exp(epsilon))
    errors = generator.binomial(n, wrong, size=(audits, 2))
    beyond = np.mean([epsilon_bound(Counts(int(a), n, int(b), n), 0.0, alpha) > epsilon for a, b in errors])
    assert beyond < alpha + 4 * math.sqrt(alpha * (1 - alpha) / audits)
    assert beyond > 0.005  # the bound is not so loose that the test says nothing


def test_coverage_of_a_whole_audit_with_a_chosen_threshold():
    """Normal scores at distance 2, whose epsilon at delta is known. False alarm: below 4e-5 (four deviations)."""
    generator, alpha, audits, delta = np.random.default_rng(1), 0.2, 600, 0.05
    truth = gaussian_dp_epsilon(2.0, delta)
    bounds = []
    for _ in range(audits):
        scores = generator.standard_normal((2, 400)) + np.array([[0.0], [2.0]])
        bounds.append(judge(scores, truth, delta, 1 - alpha).epsilon_audited)
    assert np.mean(np.array(bounds) > truth) < alpha + 4 * math.sqrt(alpha * (1 - alpha) / audits)
    assert max(bounds) > 0.5 * truth


def test_coverage_of_the_one_run_bound():
    """Independent coins guessed right with probability e/(1+e): epsilon is 1. False alarm: below 4e-5."""
    generator, alpha, audits, m = np.random.default_rng(2), 0.1, 2000, 300
    right = generator.binomial(m, math.e / (1 + math.e), size=audits)
    known = {int(v): one_run_bound(m, m, int(v), 0.0, alpha) for v in np.unique(right)}
    beyond = np.mean([known[int(v)] > 1 for v in right])
    assert 0.01 < beyond < alpha + 4 * math.sqrt(alpha * (1 - alpha) / audits)


def test_threshold_is_found_at_either_end_of_the_curve():
    generator = np.random.default_rng(3)
    quiet, loud = generator.standard_normal(2000), generator.standard_normal(2000)
    loud[:200] += 50  # a rare event that only happens with the example: the top end
    top = choose_threshold(quiet, loud, 1e-5, 0.01)
    assert epsilon_bound(count_errors(quiet, loud, top), 1e-5, 0.01) > 3
    bottom = choose_threshold(-loud, -quiet, 1e-5, 0.01)  # the rare event without it: the bottom end
    assert epsilon_bound(count_errors(-loud, -quiet, bottom), 1e-5, 0.01) > 3


def test_equal_scores_certify_nothing():
    scores = np.zeros((2, 100))
    assert judge(scores, 0.0, 1e-5, 0.99).verdict == "consistent"


def test_gaussian_fit_is_tighter_and_still_below_the_truth():
    """mu = 1, 20000 runs of each world: the fit exceeds the truth with probability at most 0.01."""
    generator, mu, delta = np.random.default_rng(4), 1.0, 1e-5
    scores = generator.standard_normal((2, 20_000)) + np.array([[0.0], [mu]])
    counts = count_errors(scores[0], scores[1], mu / 2)
    fit = gaussian_dp_bound(counts, delta, 0.01, Gaussian(1.0), 1.0)
    assert epsilon_bound(counts, delta, 0.01) < fit < gaussian_dp_epsilon(mu, delta)
    assert fit > 0.9 * gaussian_dp_epsilon(mu, delta)


def test_gaussian_epsilon_solves_its_equation():
    for mu, delta in ((0.5, 1e-5), (3.0, 1e-7), (20.0, 1e-3)):
        epsilon = gaussian_dp_epsilon(mu, delta)
        lower = math.exp(epsilon + float(stats.norm.logcdf(-mu / 2 - epsilon / mu)))
        assert float(stats.norm.cdf(mu / 2 - epsilon / mu)) - lower == pytest.approx(delta, rel=1e-6)
    assert gaussian_dp_epsilon(1e-9, 1e-5) == 0


@pytest.mark.parametrize("noise", [Laplace(1.0), GammaPLRV(k=60_000.0, theta=1e-5)])
def test_gaussian_fit_is_refused_for_other_noises_with_the_reason(noise):
    with pytest.raises(InvalidArgument, match="no other noise has a Gaussian trade-off curve"):
        gaussian_dp_bound(Counts(1, 100, 1, 100), 1e-5, 0.01, noise, 1.0)
    with pytest.raises(InvalidArgument, match="subsampled"):
        gaussian_dp_bound(Counts(1, 100, 1, 100), 1e-5, 0.01, Gaussian(1.0), 0.1)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: Counts(5, 4, 0, 4), "false_positives"),
        (lambda: Counts(0, 0, 0, 4), "negatives"),
        (lambda: one_run_bound(10, 11, 5, 0.0, 0.05), "at most one for each of the 10 canaries"),
        (lambda: one_run_bound(10, 10, 11, 0.0, 0.05), "correct"),
        (lambda: epsilon_opt(0, 0.01), "trials"),
        (lambda: epsilon_opt(10, 1.5), "alpha"),
        (lambda: check_canaries(101, 100), "at most the 100 examples"),
        (lambda: check_canaries(0, 100), "canaries"),
    ],
)
def test_bad_input_is_refused_by_name(call, named):
    with pytest.raises(InvalidArgument, match=named):
        call()
