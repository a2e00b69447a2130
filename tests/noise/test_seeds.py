"""Cumulant functions of the seeds, their tails and quantiles, against integrals of the densities."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from mpmath import mp, mpf
from tests.noise.catalogue import SEEDS, SUM
from tests.reference import seed_expectation

from plrvo.noise import (
    ChiSquaredSeed,
    ExponentialSeed,
    GammaSeed,
    Seed,
    SumSeed,
    TruncatedNormalSeed,
    UniformSeed,
    WeibullSeed,
)

# Where E[e^(tu)] stops being finite.
EDGES = {"gamma": 2.0, "exponential": 1 / 1.3, "chi-squared": 2.5, "Weibull 0.7": 0.0}


def expected_cumulants(seed: Seed, t: float) -> list[float]:
    """K, K', K'' from moments of e^(tu), with the integral cut where the tilted density may have its mass."""
    low = float(getattr(seed, "low", 0.0))
    marks = [seed.mean * c for c in (0.01, 0.1, 0.3, 0.6, 0.9, 1.0, 1.1, 1.5, 2.0, 4.0, 10.0, 30.0)]
    if t:
        marks += [low + c / abs(t) for c in (0.1, 0.4, 1.0, 2.0, 4.0, 7.0, 11.0, 16.0, 24.0, 36.0, 60.0, 100.0)]
    if isinstance(seed, UniformSeed) and t > 0:
        marks += [seed.high - c / t for c in (1.0, 10.0)]
    if isinstance(seed, TruncatedNormalSeed):
        marks += [seed.mean_before + seed.std**2 * t + c * seed.std for c in (-6, -2, 0, 2, 6)]
    with mp.workdps(20):

        def tilted(of: Callable[[mpf], mpf]) -> mpf:
            return seed_expectation(seed, lambda u: of(u) * mp.exp(mpf(t) * u), tuple(marks))

        total = tilted(lambda u: mpf(1))
        mean = tilted(lambda u: u) / total
        return [float(mp.log(total)), float(mean), float(tilted(lambda u: (u - mean) ** 2) / total)]


@pytest.mark.parametrize("name", SEEDS)
def test_cumulants_are_those_of_the_density(name: str) -> None:
    for t in (-1e4, -300.0, -30.0, -1.0, -1e-3, 0.3, 2.0, 4.0):
        if t >= EDGES.get(name, math.inf):
            assert [float(v) for v in SEEDS[name].cumulants(t)] == [math.inf] * 3
            continue
        expected = expected_cumulants(SEEDS[name], t)
        assert [float(v) for v in SEEDS[name].cumulants(t)] == pytest.approx(expected, rel=3e-9, abs=0.0)


@pytest.mark.parametrize("name", SEEDS)
def test_cumulants_start_at_zero(name: str) -> None:
    value, mean, variance = (float(v) for v in SEEDS[name].cumulants(0.0))
    assert value == 0.0
    assert [mean, variance] == pytest.approx(expected_cumulants(SEEDS[name], 0.0)[1:], rel=1e-10, abs=0.0)
    assert SEEDS[name].mean == mean
    assert SEEDS[name].second_moment == pytest.approx(variance + mean**2)


@pytest.mark.parametrize("t", [-1e12, -1e-9, 1e-9])
def test_gamma_cumulants_keep_their_relative_precision(t: float) -> None:
    with mp.workdps(40):
        expected = float(-60_000 * mp.log1p(-mpf("1e-5") * mpf(t)))
    assert float(GammaSeed(60_000.0, 1e-5).cumulants(t)[0]) == pytest.approx(expected, rel=1e-14, abs=0.0)


@pytest.mark.parametrize(
    ("seed", "edge"),
    [
        (GammaSeed(3.0, 0.5), 2.0),
        (ExponentialSeed(4.0), 0.25),
        (ChiSquaredSeed(6.0), 0.5),
        (SumSeed((1.0, 4.0), (GammaSeed(3.0, 0.5), ExponentialSeed(1.0))), 0.25),
        (WeibullSeed(1.0, 1.0), 1.0),
    ],
    ids=repr,
)
def test_cumulants_are_infinite_at_and_beyond_the_edge(seed: Seed, edge: float) -> None:
    assert all(math.isfinite(v) for v in seed.cumulants(0.9 * edge))
    for t in (edge, 1.5 * edge, 1e9):
        assert [float(v) for v in seed.cumulants(t)] == [math.inf] * 3


def test_weibull_moment_generating_function_ends_at_zero_below_shape_one() -> None:
    assert [float(v) for v in WeibullSeed(0.99, 1.0).cumulants(1e-9)] == [math.inf] * 3
    assert float(WeibullSeed(1.5, 1.0).cumulants(1.0)[0]) < math.inf


def test_cumulants_of_a_sum_are_sums_over_scaled_parts() -> None:
    t = np.array([-40.0, -1.0, 0.5])
    parts = [GammaSeed(3.0, 0.5).cumulants(t), UniformSeed(0.0, 0.5).cumulants(t)]
    for i in range(3):
        assert SUM.cumulants(t)[i] == pytest.approx(parts[0][i] + parts[1][i], rel=1e-14, abs=0.0)


def test_cumulants_of_a_mixed_array_mark_only_what_is_outside() -> None:
    value, _, _ = GammaSeed(3.0, 0.5).cumulants(np.array([[1.0, 2.0], [3.0, -1.0]]))
    assert np.isinf(value).tolist() == [[False, True], [True, False]]


@pytest.mark.parametrize("name", SEEDS)
def test_tails_are_integrals_of_the_density(name: str) -> None:
    seed = SEEDS[name]
    for u in (0.7, 1.0, 1.6):
        with mp.workdps(15):
            marks = (0.01, 0.1, 0.4, u, 1.2, 3.0, 8.0, 20.0)
            below = float(seed_expectation(seed, lambda v, u=u: mpf(v <= u), marks))
        assert float(seed.cdf(u)) == pytest.approx(below, rel=1e-9, abs=0.0)
        assert float(seed.survival(u)) == pytest.approx(1 - below, rel=1e-9, abs=0.0)


@pytest.mark.parametrize("name", SEEDS)
def test_upper_quantile_inverts_the_survival_function(name: str) -> None:
    p = np.array([1e-12, 1e-6, 0.01, 0.4, 0.9])
    assert SEEDS[name].survival(SEEDS[name].upper_quantile(p)) == pytest.approx(p, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize(
    "seed", [SUM, SumSeed((1.0, 1.0), (WeibullSeed(0.2, 1.0), WeibullSeed(0.2, 1.0)))], ids=["light", "heavy"]
)
def test_upper_quantile_of_a_sum_is_exceeded_at_most_that_often(seed: SumSeed) -> None:
    """Heavy tails included, where quantiles do not add up. 200,000 draws, six standard errors, false alarm 1e-9."""
    u = seed.draw(np.random.default_rng(3).random((200_000, seed.draws)))
    assert np.mean(u > float(seed.upper_quantile(0.1))) < 0.104


@pytest.mark.parametrize("name", [*SEEDS, "sum"])
def test_scaling_a_seed_scales_its_variable(name: str) -> None:
    seed = SEEDS.get(name, SUM)
    t = np.array([-5.0, -0.1])
    for wide, plain, power in zip(seed.scaled(3.0).cumulants(t), seed.cumulants(3 * t), (0, 1, 2), strict=True):
        assert wide == pytest.approx(3**power * plain, rel=1e-12, abs=0.0)


@pytest.mark.parametrize("name", [*SEEDS, "sum"])
def test_draws_have_the_seed_as_their_mean(name: str) -> None:
    """100,000 draws: six standard errors of the mean, false alarm about 2e-9 each."""
    seed = SEEDS.get(name, SUM)
    u = seed.draw(np.random.default_rng(5).random((100_000, seed.draws)))
    error = math.sqrt((seed.second_moment - seed.mean**2) / len(u))
    assert u.shape == (100_000,)
    assert np.all(u >= 0)
    assert abs(u.mean() - seed.mean) < 6 * error
