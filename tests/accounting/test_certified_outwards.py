"""Certified numbers are upper bounds at the extremes too: against closed forms, mpmath and dp-accounting."""

import math
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

from plrvo.accounting import Certificate, Ledger, Workload
from plrvo.accounting.by_loss import _few_kinds
from plrvo.accounting.certified import checked, pure_epsilon
from plrvo.accounting.gaussian_curve import gaussian_delta, gaussian_epsilon
from plrvo.accounting.group import group_epsilon
from plrvo.accounting.loss_distribution import composed_delta, composed_epsilon
from plrvo.accounting.lower import lower_loss
from plrvo.accounting.sampled_gaussian import Steps
from plrvo.noise import PLRV, GammaPLRV, Gaussian, Laplace, TruncatedNormalSeed, UniformSeed


def exact_delta(signal, epsilon):
    with mp.workdps(60 + int(signal**2)):
        m, e = mpf(signal), mpf(epsilon)
        return mp.ncdf(m / 2 - e / m) - mp.exp(e) * mp.ncdf(-m / 2 - e / m)


@pytest.mark.parametrize("signal", [1e-9, 1e-4, 0.3, 1.0, 1.01, 6.0, 25.0])
def test_the_gaussian_curve_is_rounded_up_by_a_hair(signal):
    for delta in (0.5, 1e-2, 1e-5, 1e-12, 1e-30, 1e-200):
        epsilon = gaussian_epsilon(signal, delta)
        assert exact_delta(signal, epsilon) <= delta
        assert epsilon == 0 or exact_delta(signal, epsilon * (1 - 1e-9)) > delta * (1 - 1e-10)
        if epsilon > 0:
            assert gaussian_delta(signal, epsilon) == pytest.approx(
                float(exact_delta(signal, epsilon)), rel=1e-11, abs=0.0
            )


def test_gaussian_steps_without_sampling_have_a_closed_form():
    """dp-accounting gives 337.689 where 339.833 is exact (issue 15, D)."""
    signal = 18.0
    sigma = math.sqrt(1e5) / signal
    certificate = Ledger().plus(Gaussian(sigma), Workload(1.0, 100_000, 1.0, 9)).certified(1e-12)
    assert certificate.method == "exact"
    assert certificate.value == pytest.approx(gaussian_epsilon(signal, 1e-12), rel=1e-9)
    assert exact_delta(signal, certificate.value) <= 1e-12
    two = Ledger().plus(Gaussian(3.0), Workload(1.0, 5, 1.0, 9)).plus(Gaussian(2.0), Workload(1.0, 2, 0.5, 4))
    assert two.certified(1e-5).value == pytest.approx(gaussian_epsilon(math.sqrt(5 / 9 + 2 / 16), 1e-5), rel=1e-12)
    assert 0 < two.certified_delta(40.0).value < 1e-200


@pytest.mark.parametrize(
    ("steps", "delta", "guess", "fine"),
    [
        ([Steps(2.0, 0.01, 300)], 1e-5, 11.73, 7e-4),
        ([Steps(1.0, 0.01, 10_000)], 1e-5, 7.0, 4e-4),
        ([Steps(0.5, 0.1, 50), Steps(1.0, 0.02, 20)], 1e-5, 3.0, 2e-4),
        ([Steps(0.1, 0.01, 3000)], 1e-5, 0.2, 1e-5),
        ([Steps(1.0, 0.001, 1000)], 1e-6, 0.3, 5e-5),
    ],
)
def test_sampled_steps_agree_with_dp_accounting_where_its_rounding_is_small(steps, delta, guess, fine):
    """Below its estimate on a grid of epsilon/2000, and above that on a finer grid."""

    def reference(interval):
        total = None
        for part in steps:
            one = pld.from_gaussian_mechanism(
                1 / part.signal, sampling_prob=part.rate, value_discretization_interval=interval
            ).self_compose(part.count)
            total = one if total is None else total.compose(one)
        return total.get_epsilon_for_delta(delta)

    ours = composed_epsilon(steps, delta, guess)
    assert reference(fine) * (1 - 3e-8) <= ours <= reference(min(1e-2, guess / 2000)) * (1 + 3e-8)
    assert composed_delta(steps, ours) == pytest.approx(delta, rel=0.05)


@pytest.mark.parametrize(
    ("sigma", "rate", "count", "delta", "interval", "slack"),
    [(5.0, 0.02, 100_000, 1e-5, 5e-5, 1e-3), (0.8, 1e-4, 1_000_000, 1e-7, 2.5e-5, 6e-3)],
)
def test_many_steps_are_as_tight_as_dp_accounting(sigma, rate, count, delta, interval, slack):
    """A grid of epsilon/2000 gave 6.18 instead of 5.83, and 1.41 instead of 0.914."""
    optimistic, pessimistic = (
        pld.from_gaussian_mechanism(
            sigma, sampling_prob=rate, value_discretization_interval=interval, pessimistic_estimate=estimate
        )
        .self_compose(count)
        .get_epsilon_for_delta(delta)
        for estimate in (False, True)
    )
    found = Ledger().plus(Gaussian(sigma), Workload(rate, count, 1.0, 1)).certified(delta)
    assert found.method == "pld"
    assert optimistic <= found.value <= pessimistic * (1 + slack)


@pytest.mark.parametrize("delta", [1e-3, 1e-9, 1e-30, 1e-100])
@pytest.mark.parametrize(("signal", "count"), [(1.0, 1), (0.3, 30), (0.05, 400)])
def test_a_loss_distribution_in_a_tail_far_below_its_rounding(signal, count, delta):
    """Without sampling the exact curve is known; a transform alone is blind below 1e-15."""
    exact = gaussian_epsilon(signal * math.sqrt(count), delta)
    bound = composed_epsilon([Steps(signal, 1.0, count)], delta, exact * 1.2)
    assert exact * (1 - 1e-11) <= bound <= exact * 1.01
    assert float(exact_delta(signal * math.sqrt(count), bound)) <= composed_delta([Steps(signal, 1.0, count)], bound)


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 2.0, 6.0])
@pytest.mark.parametrize(("signal", "rate"), [(1.0, 0.1), (0.5, 0.9), (2.0, 0.001)])
def test_one_sampled_step_against_its_integral(signal, rate, epsilon):
    """Both directions of one step, with thresholds in closed form; delta is an upper bound, and close."""
    with mp.workdps(40):
        m, q, e = mpf(signal), mpf(rate), mpf(epsilon)
        x = mp.log((mp.exp(e) - 1 + q) / q) / m + m / 2
        removed = (1 - q) * mp.ncdf(-x) + q * mp.ncdf(m - x) - mp.exp(e) * mp.ncdf(-x)
        added = mpf(0)
        if mp.exp(-e) > 1 - q:
            y = mp.log((mp.exp(-e) - 1 + q) / q) / m + m / 2
            added = mp.ncdf(y) - mp.exp(e) * ((1 - q) * mp.ncdf(y) + q * mp.ncdf(y - m))
        exact = float(max(removed, added))
    assert exact <= composed_delta([Steps(signal, rate, 1)], epsilon) <= exact * 1.001


def test_many_kinds_are_rounded_up_to_a_few():
    kinds = [Steps(1 + 1e-5 * i, 0.01 + 1e-7 * i, 2) for i in range(500)] + [Steps(0.1, 1.0, 9), Steps(0.2, 1.0, 1)]
    few = _few_kinds(kinds)
    assert len(few) <= 33
    assert sum(part.count for part in few) == 1001
    assert few[0].signal == pytest.approx(math.sqrt(0.13), rel=1e-12)
    value = composed_epsilon(few, 1e-5, 3.0)
    assert composed_epsilon([Steps(1.0, 0.01, 1000)], 1e-5, 3.0) < value
    assert value < 1.1 * composed_epsilon([Steps(1.005, 0.01005, 1000), few[0]], 1e-5, 3.0)


@pytest.mark.parametrize("certificate", [(0.0, "pure"), (-1e-15, "pld"), (math.nan, "rdp")])
def test_what_cannot_be_a_bound_is_not_returned(certificate):
    value, method = certificate
    with pytest.raises(ArithmeticError, match="no bound"):
        checked(Certificate(value, None, method))


def test_a_largest_loss_of_zero_is_impossible(monkeypatch):
    monkeypatch.setattr(Laplace, "pure_loss", lambda self, clip, dimension: 0.0)
    with pytest.raises(ArithmeticError, match="impossible"):
        pure_epsilon([(Laplace(1.0), Workload(0.1, 1, 1.0, 1))])


def test_4000_entries_are_one_kind():
    work = Workload(0.01, 1, 1.0, 100)
    many = Ledger(tuple((Laplace(1.0), work) for _ in range(4000)))
    assert many.entries == ((Laplace(1.0), Workload(0.01, 4000, 1.0, 100)),)
    assert Ledger.from_list(many.to_list() * 3).steps == 12_000
    assert len(Ledger.from_list(many.to_list() * 3).entries) == 1


def test_a_lower_bound_of_many_kinds_is_close_to_that_of_their_mean_and_below():
    work = Workload(0.1, 1, 1.0, 4)
    mixed = [(Laplace(1.0 + 1e-6 * i), work) for i in range(100)]
    one = [(Laplace(1.0), Workload(0.1, 100, 1.0, 4))]
    value, limit = (lower_loss(entries, 1e-5).epsilon(1e-5) for entries in (mixed, one))
    assert 0.99 * limit < value <= limit * (1 + 1e-9)


scales = st.floats(-20.0, 20.0).map(lambda x: 10.0**x)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    scale=scales,
    ratio=st.floats(-12.0, 2.5).map(lambda x: 10.0**x),
    kind=st.sampled_from(["gaussian", "laplace", "gamma", "huge k", "uniform", "narrow"]),
    q=st.sampled_from([1.0, 0.5, 1e-3, 1e-9]),
    steps=st.sampled_from([1, 100, 10**6]),
    n=st.sampled_from([1, 30, 10**9]),
    delta=st.sampled_from([0.5, 1e-5, 1e-30]),
)
def test_certified_is_never_below_what_is_known_at_extremes(scale, ratio, kind, q, steps, n, delta):
    """`ratio` is the clip in units of the noise. Lower bounds: the attack, and the exact curve of one coordinate."""
    noise = {
        "gaussian": Gaussian(scale),
        "laplace": Laplace(scale),
        "gamma": GammaPLRV(3.0, 1 / (4 * scale)),
        "huge k": GammaPLRV(1e12, 1e-12 / scale),
        "uniform": PLRV(UniformSeed(0.5 / scale, 1.5 / scale)),
        "narrow": PLRV(TruncatedNormalSeed(1 / scale, 1e-9 / scale)),
    }[kind]
    clip = ratio * scale
    ledger = Ledger().plus(noise, Workload(q, steps, clip, n))
    value = ledger.certified(delta).value
    assert value >= 0
    with np.errstate(over="ignore"):
        assert lower_loss(ledger.entries, delta).epsilon(delta) <= value
    if kind == "gaussian" and q == 1:
        signal = ratio * math.sqrt(steps)
        assert value >= gaussian_epsilon(signal * (1 - 1e-12), delta) * (1 - 1e-11)
    if kind in ("laplace", "huge k", "narrow") and q == 1 and steps == 1:
        # One coordinate that moves by the whole clip: delta = 1 - e^((epsilon - r)/2) for epsilon <= r.
        assert value >= (ratio + 2 * math.log1p(-delta)) * (1 - 1e-8)


@pytest.mark.parametrize("count", [1, 300, 20_000])
def test_many_small_losses_beside_a_large_one_are_all_counted(count):
    """Each is below the last bit of the sum, which lost them one by one. Against sixty digits."""
    entries = [(Laplace(1.0), Workload(1.0, 10**6, 1.0, 1))]
    entries += [(Laplace(1.0 + i * 1e-9), Workload(1.0, 1, 1.6e-10, 1)) for i in range(1, count + 1)]
    with mp.workdps(60):
        exact = sum(mpf(work.steps) * mpf(work.clip) / mpf(noise.b) for noise, work in entries)
        assert exact <= mpf(pure_epsilon(entries)) <= exact * (1 + mpf(10) ** -13)


@pytest.mark.parametrize("size", [2, 3, 7])
def test_group_epsilons_are_rounded_up(size):
    """Pure losses add up exactly: g examples cost g times the loss of one, which no rounding may reduce."""
    for b in np.random.default_rng(5).uniform(0.5, 50.0, 12):
        ledger = Ledger().plus(Laplace(float(b)), Workload(1.0, 3, 0.1, 1))
        one = Fraction(3) * Fraction(0.1) / Fraction(float(b))
        assert Fraction(group_epsilon(ledger, size, 1e-200)) >= size * one
