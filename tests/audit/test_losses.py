"""The law of a step's loss: drawn coordinate by coordinate, or at once, it is the same law."""

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, stats

from plrvo.accounting import Workload
from plrvo.audit.canary import MAX_SPREAD, Canary
from plrvo.audit.losses import CoordinateLoss, NormalLoss, SignLoss, loss_law
from plrvo.audit.quantised import QuantisedLoss
from plrvo.noise import PLRV, GammaPLRV, GammaSeed, Gaussian, Laplace, SumSeed, UniformSeed
from plrvo.validate import InvalidArgument

NOISES = [Laplace(1.0), GammaPLRV(k=3.0, theta=0.5), GammaPLRV(k=40_000.0, theta=2.5e-5), PLRV(UniformSeed(0.5, 1.5))]


def work(clip: float, dimension: int) -> Workload:
    return Workload(sample_rate=0.1, steps=10, clip=clip, dimension=dimension)


def divergence(noise, x: float) -> float:
    """KL of one coordinate from its shifted copy, by quadrature."""
    marks = [-50.0, -5.0, 0.0, x, x + 5.0, x + 50.0]

    def integrand(z: float) -> float:
        log_p, log_q = float(noise.log_density(z)), float(noise.log_density(z - x))
        return math.exp(log_p) * (log_p - log_q)

    edges = [-4000.0, *marks, 4000.0]
    return sum(integrate.quad(integrand, a, b, limit=400)[0] for a, b in itertools.pairwise(edges))


@pytest.mark.parametrize("noise", NOISES, ids=lambda noise: noise.kind)
@pytest.mark.parametrize("count", [6, 40])
def test_the_quantised_sum_has_the_law_of_summed_coordinates(noise, count):
    """Means and deviations of many draws each way: false alarm below 1e-4 per comparison (four deviations)."""
    canary = Canary.spread(work(1.5, count))
    generator, size = np.random.default_rng(0), 400_000 // count
    at_once, one_by_one = QuantisedLoss(noise, canary), CoordinateLoss(noise, np.repeat(canary.magnitudes, count))
    for present in (False, True):
        a, b = at_once.draw(present, size, generator), one_by_one.draw(present, size, generator)
        assert abs(a.mean() - b.mean()) < 4 * math.sqrt(2 / size) * b.std() + 2e-3 * b.std()
        assert a.std() == pytest.approx(b.std(), rel=4 * math.sqrt(2 / size) + 2e-3)


@pytest.mark.parametrize("noise", NOISES, ids=lambda noise: noise.kind)
def test_quantising_loses_little_and_never_gains(noise):
    for clip, count in ((1.5, 6), (1.0, 5000), (0.3, 300)):
        canary = Canary.spread(work(clip, count))
        exact = count * divergence(noise, canary.magnitudes[0])
        seen = -QuantisedLoss(noise, canary).mean_without
        assert 0.99 * exact < seen < exact * (1 + 1e-6)


def test_a_quantised_loss_is_a_likelihood_ratio():
    """e^loss turns the law without the canary into the law with it, bin by bin."""
    law = QuantisedLoss(GammaPLRV(k=5.0, theta=0.3), Canary.spread(work(2.0, 1000)))
    without, with_it = (table.masses for table in law._tables)
    sure = (without > 1e-12) & (with_it > 1e-12)
    assert np.allclose(np.log(with_it[sure] / without[sure]), law._values[sure], atol=1e-3)
    assert float(without @ np.exp(law._values)) == pytest.approx(1.0, abs=1e-8)


def test_a_million_coordinates_are_the_gaussian_limit():
    law = QuantisedLoss(Laplace(1.0), Canary.spread(work(1.0, 10**6)))
    assert -law.mean_without == pytest.approx(0.5, rel=2e-3)


def test_unequal_coordinates_are_summed_too():
    """Against coordinates drawn one by one; false alarm below 1e-4 per comparison."""
    noise, generator, size = GammaPLRV(k=4.0, theta=0.3), np.random.default_rng(1), 100_000
    gradient = np.array([0.9, 0.9, -0.5, 0.2, 0.2, 0.2, 0.05, 0.0])
    canary = Canary.from_array(gradient, work(2.0, 8))
    assert canary.coordinates == 7
    a = loss_law(noise, canary).draw(True, size, generator)
    b = CoordinateLoss(noise, np.abs(gradient[:-1])).draw(True, size, generator)
    assert abs(a.mean() - b.mean()) < 4 * math.sqrt(2 / size) * b.std() + 2e-3 * b.std()
    assert a.std() == pytest.approx(b.std(), rel=0.02)


def test_gaussian_losses_see_the_norm_only():
    canary = Canary.from_array([0.6, 0.8], work(1.0, 2))
    law = loss_law(Gaussian(0.5), canary)
    assert isinstance(law, NormalLoss)
    values = law.draw(True, 100_000, np.random.default_rng(2))
    assert values.mean() == pytest.approx(2.0, abs=4 * 2 / math.sqrt(100_000))


def test_signs_under_a_shared_scale_have_their_law():
    """Counts of outputs beyond half the shift, drawn from the mechanism itself: chi-squared at level 1e-5."""
    noise, m, x, size = GammaPLRV(k=3.0, theta=0.5, shared=True), 6, 0.7, 5_000
    law, generator = loss_law(noise, Canary((x,), (m,))), np.random.default_rng(3)
    assert isinstance(law, SignLoss)
    played = np.array([np.sum(noise.sample(m, generator) + x > x / 2) for _ in range(size)])
    drawn = np.round(np.searchsorted(law._table, law.draw(True, size, generator) - 1e-9)).astype(int)
    table = np.stack([np.bincount(played, minlength=m + 1), np.bincount(drawn, minlength=m + 1)])
    assert stats.chi2_contingency(table[:, table.sum(axis=0) > 20]).pvalue > 1e-5


def test_sign_losses_are_likelihood_ratios():
    """E[e^loss] = 1 without the canary: false alarm below 1e-4 (four deviations)."""
    total = SumSeed((1.0, 0.5), (GammaSeed(4.0, 0.1), UniformSeed(0.5, 1.5)))
    for seed in (GammaSeed(4.0, 0.25), UniformSeed(0.5, 1.5), total):
        law = SignLoss(seed, 0.1, 200)
        ratios = np.exp(law.draw(False, 200_000, np.random.default_rng(4)))
        assert abs(ratios.mean() - 1) < 4 * ratios.std() / math.sqrt(len(ratios)) + 1e-3


def test_one_coordinate_of_a_shared_scale_is_its_marginal():
    shared, alone = GammaPLRV(3.0, 0.5, shared=True), GammaPLRV(3.0, 0.5)
    canary = Canary.one_hot(work(1.0, 5))
    draws = [loss_law(noise, canary).draw(True, 1000, np.random.default_rng(5)) for noise in (shared, alone)]
    assert np.array_equal(*draws)


def test_almost_no_noise_is_seen_in_one_coordinate():
    law = loss_law(GammaPLRV(k=100.0, theta=1e6), Canary.spread(work(1.0, 1000)))
    assert law.draw(True, 100, np.random.default_rng(6)).min() > 100


def test_a_given_gradient_is_never_made_larger():
    gradient = np.random.default_rng(7).standard_normal(30_000)
    gradient /= np.linalg.norm(gradient)
    canary = Canary.from_array(gradient, work(1.0, 30_000))
    assert 0.97 < canary.norm <= 1.0
    assert len(canary.magnitudes) <= 512


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: Canary.spread(work(1.0, 10), 11), "coordinates=11: expected at most the dimension, 10"),
        (lambda: Canary.spread(work(1.0, 10**9), MAX_SPREAD + 1), "gains nothing"),
        (lambda: Canary.from_array([2.0], work(1.0, 10)), "norm at most the clip"),
        (lambda: Canary.from_array([0.0], work(1.0, 10)), "not all of them zero"),
        (lambda: Canary.from_array([math.nan], work(1.0, 10)), "finite"),
        (lambda: Canary.from_array(np.ones(11) / 9, work(1.0, 10)), "1 to 10 finite numbers"),
        (lambda: loss_law(GammaPLRV(2.0, 1.0, True), Canary((0.1, 0.2), (3, 3))), "where the scale is shared"),
    ],
)
def test_canaries_that_cannot_be_are_refused(call, named):
    with pytest.raises(InvalidArgument, match=named):
        call()
