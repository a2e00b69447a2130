"""One scale for all coordinates: the certificate averages over it and charges its upper tail to delta."""

import math

import numpy as np
import pytest
from scipy import stats

from plrvo.accounting import Ledger, Workload
from plrvo.accounting.moments import StepMoments
from plrvo.noise import PLRV, ExponentialSeed, GammaPLRV, Laplace, Noise, SumSeed, UniformSeed


def certified(noise: Noise, work: Workload, delta: float = 1e-5) -> float:
    """By moments; `test_revealed` has the curves."""
    return Ledger().plus(noise, work).quick(delta).value


def laplace_step(u: np.ndarray, clip: float, n: int, q: float, order: int) -> np.ndarray:
    """The moment of a subsampled Laplace step with b = 1/u, typed out: an average over the coin of F^n."""
    t = u * clip / math.sqrt(n)
    total = np.zeros_like(u)
    for eta in range(order + 1):
        f = (eta * np.exp((eta - 1) * t) + (eta - 1) * np.exp(-eta * t)) / (2 * eta - 1)
        total += math.comb(order, eta) * (1 - q) ** (order - eta) * q**eta * f**n
    return total


@pytest.mark.parametrize(("k", "n", "q", "order"), [(50.0, 10, 0.1, 3), (5.0, 4, 0.3, 2), (1000.0, 200, 0.01, 6)])
def test_moment_agrees_with_simulated_scales(k: float, n: int, q: float, order: int) -> None:
    """A million draws of u below the cut: the bound is above the mean, less six standard errors, and close to it."""
    tail, clip = 1e-6, 0.5
    u = np.random.default_rng(41).gamma(k, 1 / k, 1_000_000)
    values = np.where(u <= stats.gamma(k, scale=1 / k).isf(tail), laplace_step(u, clip, n, q, order), 0.0)
    mean, error = values.mean(), values.std() / 1000
    bound = math.exp(StepMoments(GammaPLRV(k, 1 / k, shared=True), clip, n, q, tail)(order - 1))
    assert mean - 6 * error <= bound <= 1 + (mean - 1) * 1.02 + 6 * error + 2 * tail


@pytest.mark.parametrize(("n", "q", "steps", "epsilon"), [(1, 1.0, 1, 0.5), (16, 1.0, 1, 2.0), (16, 0.2, 5, 0.5)])
def test_certified_delta_covers_a_simulated_attack_on_all_coordinates(
    n: int, q: float, steps: int, epsilon: float
) -> None:
    """The exact loss of the spread gradient, from the joint density ~ (1 + theta |y|_1)^-(k+n), in 200,000 runs."""
    k, theta, draws = 3.0, 1 / 3, 200_000
    rng = np.random.default_rng(42)
    g = np.full(n, 1 / math.sqrt(n))
    loss = np.zeros(draws)
    for _ in range(steps):
        u = rng.gamma(k, theta, (draws, 1))
        y = rng.laplace(size=(draws, n)) / u + g * (rng.random((draws, 1)) < q)
        ratio = (1 + theta * np.abs(y).sum(axis=1)) / (1 + theta * np.abs(y - g).sum(axis=1))
        loss += np.log1p(q * (ratio ** (k + n) - 1))
    gain = np.maximum(-np.expm1(epsilon - loss), 0.0)
    shown = gain.mean() - 6 * gain.std() / math.sqrt(draws)
    assert shown > 0
    noise = GammaPLRV(k, theta, shared=True)
    assert shown <= Ledger().plus(noise, Workload(q, steps, 1.0, n)).certified_delta(epsilon).value


def test_shared_scale_is_certified_and_costs_more_than_independent_scales() -> None:
    """At large k there is hardly a difference, and the bound for independent scales is itself a percent loose."""
    work = Workload(0.01, 300, 1.0, 500)
    for k, at_least, at_most in ((40_000.0, 0.99, 1.01), (1000.0, 1.01, 1.15), (20.0, 1.3, 50.0)):
        apart, together = (certified(GammaPLRV(k, 1 / k, shared), work) for shared in (False, True))
        assert at_least * apart <= together <= at_most * apart


@pytest.mark.parametrize("entries", [1, 2])
def test_tail_is_charged_for_every_step_of_every_noise(entries: int) -> None:
    """delta = delta' + sum of T P(u > cut): some split of delta, by hand, gives no more than what is certified."""
    delta, work = 1e-3, Workload(0.05, 40, 1.0, 30)
    parts = [(GammaPLRV(20.0 + 5 * i, 0.05, shared=True), work) for i in range(entries)]
    ledger = Ledger()
    for noise, work in parts:
        ledger = ledger.plus(noise, work)

    def by_hand(share: float) -> float:
        tail = share * delta / (entries * work.steps)
        moments = [StepMoments(noise, work.clip, work.dimension, work.sample_rate, tail) for noise, work in parts]
        return min(
            (sum(work.steps * moment(order) for moment in moments) - math.log((1 - share) * delta * (order + 1)))
            / order
            + math.log(order / (order + 1))
            for order in range(1, 40)
        )

    assert min(by_hand(share) for share in (1e-4, 1e-3, 0.01, 0.1, 0.3, 0.5, 0.9)) <= ledger.quick(delta).value * (
        1 + 1e-9
    )


def test_averaging_is_better_than_the_worst_scale() -> None:
    """Laplace at b = 1/u_max is valid too, but at k = 1000 it costs much more (theory, section 5)."""
    work, k = Workload(0.01, 300, 1.0, 500), 1000.0
    largest = float(stats.gamma(k, scale=1 / k).isf(0.5e-5 / 300))
    assert certified(GammaPLRV(k, 1 / k, shared=True), work) < 0.9 * certified(Laplace(1 / largest), work, 0.5e-5)


def test_almost_fixed_scale_is_laplace() -> None:
    work = Workload(0.05, 40, 1.0, 30)
    fixed = certified(Laplace(1.0), work)
    for noise in (GammaPLRV(1e8, 1e-8, shared=True), PLRV(UniformSeed(0.99999, 1.00001), shared=True)):
        assert certified(noise, work) == pytest.approx(fixed, rel=2e-3, abs=0.0)


def test_bounded_scale_is_covered_by_its_largest_value() -> None:
    work = Workload(0.05, 40, 1.0, 30)
    together = certified(PLRV(UniformSeed(0.2, 1.5), shared=True), work)
    assert certified(Laplace(1 / 0.85), work) < together <= certified(Laplace(1 / 1.5), work) * 1.001


def test_heavy_scale_is_certified_by_its_pure_cap_or_not_at_all() -> None:
    work = Workload(0.5, 3, 1.0, 10**6)
    assert certified(GammaPLRV(3.0, 0.5, shared=True), work) < math.inf
    assert certified(PLRV(ExponentialSeed(1.0), shared=True), work) > 100


def test_several_shared_noises_split_the_tail() -> None:
    """Two ledgers of the same steps, written as one noise or as two nearly equal ones, cost about the same."""
    one = Ledger().plus(GammaPLRV(500.0, 0.002, shared=True), Workload(0.05, 40, 1.0, 30))
    two = Ledger()
    for k in (500.0, 500.001):
        two = two.plus(GammaPLRV(k, 0.002, shared=True), Workload(0.05, 20, 1.0, 30))
    assert len(two.entries) == 2
    assert two.certified(1e-5).value == pytest.approx(one.certified(1e-5).value, rel=0.01, abs=0.0)


def test_shared_beside_independent_noise() -> None:
    shared, apart = GammaPLRV(500.0, 0.002, shared=True), Laplace(1.0)
    work = Workload(0.05, 20, 1.0, 30)
    both = Ledger().plus(shared, work).plus(apart, work).certified(1e-5).value
    parts = [Ledger().plus(noise, work).certified(1e-5).value for noise in (shared, apart)]
    assert max(parts) < both < sum(parts)


def test_sum_of_seeds_may_be_shared() -> None:
    seed = SumSeed((0.5, 0.5), (UniformSeed(0.5, 1.5), UniformSeed(0.9, 1.1)))
    work = Workload(0.05, 40, 1.0, 30)
    value = certified(PLRV(seed, shared=True), work)
    assert certified(PLRV(seed), work) < value < certified(Laplace(1 / 1.3), work) * 1.001
