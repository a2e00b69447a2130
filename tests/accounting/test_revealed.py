"""A shared scale that is shown: mixtures against other derivations, narrow seeds, and the bounds on either side."""

import math

import numpy as np
import pytest
from scipy import stats

from plrvo.accounting import Ledger, Workload
from plrvo.accounting.certified import moments_epsilon
from plrvo.accounting.domination import dominating_steps, excess, shared_steps
from plrvo.accounting.gaussian_curve import gaussian_delta
from plrvo.accounting.loss_distribution import composed_delta
from plrvo.accounting.profile import Profile
from plrvo.accounting.revealed import gaussian_curves, gaussian_pair, revealed_shifts
from plrvo.accounting.step_profile import profile_steps
from plrvo.noise import PLRV, GammaPLRV, GammaSeed, Laplace, Noise, SumSeed, TruncatedNormalSeed, UniformSeed

NOISES = [
    GammaPLRV(10.0, 0.1, shared=True),
    GammaPLRV(1e3, 1e-3, shared=True),
    PLRV(TruncatedNormalSeed(1.0, 0.2), shared=True),
    PLRV(SumSeed((0.5, 0.5), (GammaSeed(10.0, 0.1), UniformSeed(0.5, 1.5))), shared=True),
]


def shown(pair: Profile, y: float) -> float:
    """E (R - e^y)_+ for y >= 0."""
    return float(np.sum(pair.high * np.maximum(-np.expm1(y - pair.y), 0.0)) + pair.infinite)


def test_curves_are_those_of_gaussian_releases_from_above() -> None:
    signals, y = np.array([0.01, 0.5, 3.0, 20.0]), np.array([0.0, 0.1, 2.0, 30.0, 150.0])
    found = gaussian_curves(signals, y)
    exact = np.array([[gaussian_delta(float(m), float(at)) for at in y] for m in signals])
    assert np.all(found + 1e-300 >= exact * (1 - 1e-13))  # below a double: what is beyond the last scale is more
    near = exact > 1e-12
    assert found[near] == pytest.approx(exact[near], rel=1e-7)


@pytest.mark.parametrize("k", [3.0, 10.0, 1e3])
def test_a_mixture_of_gaussian_steps_has_the_mean_of_their_curves(k: float) -> None:
    """By Gauss's rule with the density of the seed: above it, by as much as rounding up and the levels cost."""
    found = gaussian_pair(GammaSeed(k, 1 / k), 1.2, math.inf, 0.0)
    assert found is not None
    law = stats.gamma(k, scale=1 / k)
    nodes, weights = np.polynomial.legendre.leggauss(1500)
    low, high = law.ppf(1e-13), law.isf(1e-18)
    u = low + (high - low) * (nodes + 1) / 2
    weights = (high - low) / 2 * weights * law.pdf(u)
    for y in (0.0, 0.3, 1.0, 2.5, 5.0):
        exact = float(sum(w * gaussian_delta(1.2 * float(one), y) for one, w in zip(u, weights, strict=True)))
        assert exact * (1 - 1e-9) <= shown(found[0], y) <= exact * 1.03 + 1e-12


@pytest.mark.parametrize("noise", NOISES, ids=repr)
@pytest.mark.parametrize("y", [0.0, 0.7])
def test_one_laplace_coordinate_of_a_shown_scale_is_below(noise: Noise, y: float) -> None:
    """E_u (1 - e^((y - u C)/2))_+ by 100,000 draws, less six standard errors: a gradient in one coordinate."""
    assert noise.seed is not None
    steps = profile_steps(noise, Workload(1.0, 1, 1.2, 50))
    assert steps is not None
    u = noise.seed.draw_many(100_000, np.random.default_rng(4))
    gain = np.maximum(-np.expm1((y - 1.2 * u) / 2), 0.0)
    attacked = gain.mean() - 6 * gain.std() / math.sqrt(len(u))
    assert attacked > 0
    assert attacked <= shown(steps.pair, y)


def test_steps_without_sampling_pay_their_excess_once() -> None:
    """A second derivation: the mean of Gaussian curves over the total energy, w = sum of (u C)^2 in 2,000 runs."""
    noise, work, epsilon = GammaPLRV(10.0, 0.1, shared=True), Workload(1.0, 12, 0.2, 1000), 2.0
    steps = dominating_steps([(noise, work)])
    assert steps is not None
    u = np.random.default_rng(5).gamma(10.0, 0.1, (2_000, 12))
    longest = shared_steps(noise, work)
    assert longest is not None
    energies = np.sum((0.2 * u) ** 2, axis=1) + excess(longest.longest)
    deltas = np.array([gaussian_delta(math.sqrt(w), epsilon) for w in energies])
    error = 6 * deltas.std() / math.sqrt(len(deltas))
    found = composed_delta(steps, epsilon)
    assert deltas.mean() - error <= found <= deltas.mean() * 1.03 + error


@pytest.mark.parametrize(("t", "q", "steps"), [(1.2, 0.01, 300), (0.5, 0.01, 5000), (0.1, 1.0, 50)])
def test_a_narrow_seed_is_certified_as_laplace_noise(t: float, q: float, steps: int) -> None:
    work = Workload(q, steps, t, 10**6)
    limit = Ledger().plus(Laplace(1.0), work).certified(1e-5)
    found = Ledger().plus(GammaPLRV(1e12, 1e-12, shared=True), work).certified(1e-5)
    assert found.method == limit.method
    assert found.value == pytest.approx(limit.value, rel=2e-3, abs=0.0)


@pytest.mark.parametrize("noise", NOISES, ids=repr)
def test_certified_lies_between_an_attack_and_the_moments(noise: Noise) -> None:
    ledger = Ledger().plus(noise, Workload(0.01, 300, 1.2, 20_000))
    bracket = ledger.epsilon(1e-5)
    assert bracket.lower <= bracket.certified < moments_epsilon(ledger.entries, 1e-5).value
    assert bracket.method == "profile"
    assert ledger.certified_delta(bracket.certified).value <= 1e-5 * (1 + 1e-4)


def test_scales_that_are_left_out_show_everything() -> None:
    shifts = revealed_shifts(GammaSeed(10.0, 0.1), 1.0)
    assert shifts is not None
    cut = shifts.up_to(2.0)
    assert cut.largest <= 2.0
    assert cut.beyond == pytest.approx(float(stats.gamma(10.0, scale=0.1).sf(2.0)), rel=0.05)
    assert cut.beyond + cut.masses.sum() >= 1 - 1e-12
    assert shifts.up_to(math.inf, 1e-6).beyond <= 1.1e-6
    found = gaussian_pair(GammaSeed(10.0, 0.1), 1.0, 2.0, 0.0)
    assert found is not None
    assert found[0].infinite >= cut.beyond
