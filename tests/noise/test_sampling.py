"""Draws have the distribution that the noise claims.

Seeds are fixed. Each Kolmogorov-Smirnov test raises a false alarm with probability 1e-6 for a new seed.
"""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from tests.noise.catalogue import NOISES

from plrvo.noise import PLRV, GammaPLRV, Gaussian, Laplace, Noise, UniformSeed

FALSE_ALARM = 1e-6
DRAWS = 40_000

generators = pytest.mark.parametrize(
    ("library", "dtype"),
    [("numpy", np.float64), ("numpy", np.float32), ("torch", torch.float64), ("torch", torch.float32)],
    ids=str,
)


def generator(library: str, seed: int) -> Any:
    return np.random.default_rng(seed) if library == "numpy" else torch.Generator().manual_seed(seed)


def draw(noise: Noise, shape: Any, library: str, dtype: Any, seed: int = 11) -> np.ndarray:
    values = noise.sample(shape, generator(library, seed), dtype)
    assert values.dtype == dtype
    return np.asarray(values, dtype=float)


# Each library and each type; arrays of singles are the roundings of these doubles (test_sampling_interface).
@pytest.mark.parametrize(("library", "dtype"), [("numpy", np.float64), ("torch", torch.float32)], ids=str)
@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_draws_follow_the_cdf(noise: Noise, library: str, dtype: Any) -> None:
    """All of them, and the upper tail on its own: sizes beyond the 99 % point, rescaled to a uniform variable."""
    z = draw(noise, DRAWS, library, dtype)
    below = noise.cdf(-np.abs(z))
    assert stats.kstest(np.where(z < 0, below, 1 - below), "uniform").pvalue > FALSE_ALARM
    upper = 2 * below
    assert stats.kstest(upper[upper < 0.01] / 0.01, "uniform").pvalue > FALSE_ALARM
    assert stats.binomtest(int(np.sum(upper < 0.01)), DRAWS, 0.01).pvalue > FALSE_ALARM


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_neighbouring_draws_are_independent(noise: Noise) -> None:
    """Ranks of a draw and the next: correlation within five standard errors, false alarm 6e-7. Signs too."""
    z = draw(noise, DRAWS, "numpy", np.float64)
    for values in (np.abs(z), np.sign(z)):
        correlation = stats.spearmanr(values[:-1], values[1:]).statistic
        assert abs(correlation) < 5 / np.sqrt(DRAWS)


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("noise", [Gaussian(2.0), Laplace(0.5), GammaPLRV(12.0, 0.1), PLRV(UniformSeed(1.0, 3.0))])
def test_mean_and_variance_of_draws(noise: Noise, library: str) -> None:
    """Six standard errors, the variance's from the sample itself: false alarm about 4e-9."""
    z = draw(noise, 400_000, library, np.float64 if library == "numpy" else torch.float64)
    assert abs(z.mean()) < 6 * np.sqrt(noise.variance / len(z))
    assert abs(np.mean(z**2) - noise.variance) < 6 * np.std(z**2) / np.sqrt(len(z))
    assert abs(np.mean(np.abs(z)) - noise.distortion) < 6 * np.std(z) / np.sqrt(len(z))


@generators
def test_theta_is_a_scale_and_not_a_rate(library: str, dtype: Any) -> None:
    """E|z| = 1/((k-1) theta) = 0.02 here; were theta a rate it would be theta/(k-1) = 1.25. Six standard errors."""
    k, theta = 5.0, 12.5
    sizes = np.abs(draw(GammaPLRV(k, theta), 100_000, library, dtype))
    assert abs(sizes.mean() - 0.02) < 6 * sizes.std() / np.sqrt(len(sizes))
    shared = np.concatenate(
        [np.abs(draw(GammaPLRV(k, theta, shared=True), 20, library, dtype, seed)) for seed in range(2000)]
    )
    assert 0.01 < shared.mean() < 0.04


def test_single_precision_keeps_the_tail() -> None:
    """24-bit uniforms would leave some 470 different values among the 500 largest of 2 million; false alarm 1e-12."""
    z = draw(Laplace(1.0), 2_000_000, "torch", torch.float32)
    assert len(np.unique(np.sort(np.abs(z))[-500:])) > 490
