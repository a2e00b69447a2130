"""One scale for all coordinates of a call: what the draws look like, and the bound on the joint moment."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from tests.noise.catalogue import SEEDS, SUM

from plrvo.noise import PLRV, ExponentialSeed, GammaPLRV, Laplace, Noise, Seed, SumSeed, UniformSeed
from plrvo.noise.shared_scale import rounded_up

FALSE_ALARM = 1e-6
CALLS, COORDINATES = 3000, 8


def share_of_the_first(noise: Noise, library: str = "numpy") -> np.ndarray:
    """|z_1| / sum |z_i| of many calls. Given u all |z_i| are exponential, so it is Beta(1, n-1) whatever u is."""
    rng = np.random.default_rng(21) if library == "numpy" else torch.Generator().manual_seed(21)
    sizes = np.array([np.abs(np.asarray(noise.sample(COORDINATES, rng), dtype=float)) for _ in range(CALLS)])
    return sizes[:, 0] / sizes.sum(axis=1)


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize(
    "noise",
    [GammaPLRV(1.1, 1.0, shared=True), PLRV(ExponentialSeed(1.0), shared=True), PLRV(SUM, shared=True)],
    ids=repr,
)
def test_coordinates_of_a_call_share_their_scale(noise: Noise, library: str) -> None:
    """False alarm 1e-6."""
    assert stats.kstest(share_of_the_first(noise, library), stats.beta(1, COORDINATES - 1).cdf).pvalue > FALSE_ALARM


def test_independent_scales_would_be_seen() -> None:
    """The power of the test above: with a scale per coordinate the shares are no longer Beta."""
    for noise in (GammaPLRV(1.1, 1.0), PLRV(ExponentialSeed(1.0))):
        assert stats.kstest(share_of_the_first(noise), stats.beta(1, COORDINATES - 1).cdf).pvalue < FALSE_ALARM


@pytest.mark.parametrize("seed", [*SEEDS.values(), SUM], ids=[*SEEDS, "sum"])
def test_one_coordinate_over_many_calls_follows_the_cdf(seed: Seed) -> None:
    """A fresh scale for every call. False alarm 1e-6."""
    noise, rng = PLRV(seed, shared=True), np.random.default_rng(22)
    first = np.array([noise.sample(2, rng)[0] for _ in range(CALLS)])
    assert stats.kstest(first, noise.cdf).pvalue > FALSE_ALARM


def test_all_axes_of_a_call_share_their_scale() -> None:
    """Rows of one call have the same mean size to 8 standard errors (1e-12 over all calls), however it varies."""
    rng = np.random.default_rng(23)
    noise = PLRV(ExponentialSeed(1.0), shared=True)
    for _ in range(200):
        rows = np.abs(noise.sample((4, 5000), rng)).mean(axis=1)
        assert rows.max() / rows.min() < 1.25


@pytest.mark.parametrize("name", ["gamma", "uniform", "truncated normal", "Weibull 2"])
@pytest.mark.parametrize(("eta", "dimension"), [(2, 1), (3, 16), (6, 4)])
def test_joint_moment_is_the_expectation_over_the_scale(name: str, eta: int, dimension: int) -> None:
    """E[F(uC/sqrt n)^n; u <= cut] by quadrature over quantiles of the seed: from above, and within half a percent."""
    seed, clip, tail = SEEDS[name], 0.4, 1e-6
    noise = PLRV(seed, shared=True)

    def integrand(y: float) -> float:  # over y = log of the upper probability
        u = float(seed.upper_quantile(math.exp(y)))
        return math.exp(y + dimension * float(Laplace(1.0).log_moment(u * clip / math.sqrt(dimension), eta)))

    marks = np.linspace(math.log(tail), 0.0, 9)
    exact = sum(integrate.quad(integrand, a, b)[0] for a, b in pairwise(marks))
    bound = float(noise.log_joint_moment(clip, dimension, np.array([float(eta)]), tail)[0])
    assert math.log(exact) <= bound + 1e-9
    assert bound == pytest.approx(math.log(exact), rel=5e-3, abs=1e-6)


def test_unbounded_scale_needs_a_tail() -> None:
    eta = np.array([2.0, 5.0])
    assert PLRV(SEEDS["gamma"], shared=True).log_joint_moment(1.0, 4, eta).tolist() == [math.inf] * 2
    assert np.all(np.isfinite(PLRV(SEEDS["uniform"], shared=True).log_joint_moment(1.0, 4, eta)))


@pytest.mark.parametrize("seed", [*SEEDS.values(), SUM], ids=[*SEEDS, "sum"])
def test_rounded_scale_dominates_the_scale(seed: Seed) -> None:
    """Its points carry all but `tail` of the mass, and P(rounded > u) >= P(u' > u) - tail for every u."""
    tail = 1e-4
    points, mass = rounded_up(seed, tail)
    assert 1 - tail - 1e-9 <= mass.sum() <= 1 + 1e-9
    levels = points[[100, 500, 900, 1500]] * (1 - 1e-9)
    if isinstance(seed, SumSeed):
        u = seed.draw(np.random.default_rng(2).random((200_000, seed.draws)))
        beyond = np.array([np.mean(u > level) for level in levels]) - 0.006  # 5 standard errors, false alarm 3e-7
    else:
        beyond = seed.survival(levels)
    kept = np.array([mass[points > level].sum() for level in levels])
    assert np.all(kept >= beyond - tail - 1e-9)


def test_sharing_costs_more_than_independent_scales() -> None:
    """Both bounds, for a widely varying scale: the expectation stands outside the product when it is shared."""
    eta = np.array([2.0, 4.0, 8.0])
    seed = UniformSeed(0.0, 2.0)
    apart, together = PLRV(seed), PLRV(seed, shared=True)
    assert np.all(together.log_joint_moment(1.0, 50, eta) > apart.log_joint_moment(1.0, 50, eta))


def test_shared_pure_loss_is_that_of_the_joint_density() -> None:
    """The joint density falls like (1 + theta |z|_1)^-(k+n); a bounded scale costs u_max sqrt(n) C."""
    k, theta, n, clip = 2.0, 0.7, 9, 1.5
    shift = math.sqrt(n) * clip  # the largest l1 norm of a clipped gradient
    assert GammaPLRV(k, theta, shared=True).pure_loss(clip, n) == pytest.approx((k + n) * math.log(1 + theta * shift))
    assert PLRV(UniformSeed(0.5, 2.0), shared=True).pure_loss(clip, n) == pytest.approx(2.0 * shift)
    assert PLRV(ExponentialSeed(1.0), shared=True).pure_loss(clip, n) == math.inf
