"""The law of the noise with enough draws to see small flaws: centre, flanks, tails, moments, pairs.

Keys are fixed. Each test raises a false alarm with probability 1e-6 for a new key.
"""

import itertools
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.grids import one_in

from plrvo.noise import GammaPLRV, Gaussian, GeneralisedGaussian, Keystream, Laplace, Noise
from plrvo.noise.spans import SPAN

FALSE_ALARM = 1e-6
DRAWS = 4_000_000

types = pytest.mark.parametrize("dtype", [np.float32, np.float64])


NOISES = [Gaussian(1.0), Laplace(1.0), GammaPLRV(3.0, 0.5), GammaPLRV(100.0, 0.01), GeneralisedGaussian(1.5, 1.2)]


@pytest.mark.parametrize(("noise", "dtype"), one_in(3, itertools.product(NOISES, [np.float32, np.float64])))
def test_every_region_has_its_share_and_its_shape(noise: Noise, dtype: Any) -> None:
    """The number of values in a region is binomial, and given that they are in it they follow the cdf."""
    z = noise.sample(DRAWS, Keystream.from_seed(1, "law"), dtype).astype(float)
    for low, high in ((-1e-3, 1e-3), (-0.05, 0.0), (0.0, 1.0), (1.0, 3.0), (3.0, 5.0), (4.0, 40.0), (-40.0, -4.0)):
        inside = z[(z > low) & (z < high)]
        start, end = (float(noise.cdf(edge)) for edge in (low, high))
        assert stats.binomtest(inside.size, DRAWS, end - start).pvalue > FALSE_ALARM
        if inside.size > 20:
            shares = (noise.cdf(inside) - start) / (end - start)
            assert stats.kstest(shares, "uniform").pvalue > FALSE_ALARM


@types
def test_moments_of_normal_noise(dtype: Any) -> None:
    """Five standard errors of the first eight moments: false alarm 5e-6 in all."""
    z = Gaussian(1.0).sample(DRAWS, Keystream.from_seed(2, "law"), dtype).astype(float)
    double_factorials = [1, 0, 1, 0, 3, 0, 15, 0, 105]
    for n, expected in list(enumerate(double_factorials))[1:]:
        spread = np.std(z**n) / np.sqrt(DRAWS)
        assert abs(np.mean(z**n) - expected) < 5 * spread


@cache
def pairs(dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """The two values that share their words stand half a block apart."""
    z = Gaussian(1.0).sample(32 * SPAN, Keystream.from_seed(3, "law"), dtype).astype(float)
    blocks = z.reshape(-1, 2, SPAN // 2)
    return blocks[:, 0].ravel(), blocks[:, 1].ravel()


@types
def test_pairs_are_independent(dtype: Any) -> None:
    """256 cells of equal probability, 1,048,576 pairs."""
    one, other = (np.minimum((stats.norm.cdf(z) * 16).astype(int), 15) for z in pairs(dtype))
    counts = np.bincount(16 * one + other, minlength=256)
    assert stats.chisquare(counts).pvalue > FALSE_ALARM


@types
def test_small_values_of_a_pair_are_independent_of_its_partner(dtype: Any) -> None:
    one, other = pairs(dtype)
    for near, far in ((one, other), (other, one)):
        partners = far[np.abs(near) < 0.01]
        assert partners.size > 5000
        assert stats.kstest(partners, "norm").pvalue > FALSE_ALARM


@types
def test_lengths_and_angles_of_pairs(dtype: Any) -> None:
    one, other = pairs(dtype)
    assert stats.kstest((one**2 + other**2) / 2, "expon").pvalue > FALSE_ALARM
    assert stats.kstest(np.arctan2(other, one) / (2 * np.pi) + 0.5, "uniform").pvalue > FALSE_ALARM


@pytest.mark.parametrize("noise", [Gaussian(1.0), Laplace(1.0), GammaPLRV(3.0, 0.5)], ids=repr)
def test_values_at_a_distance_are_uncorrelated_in_sign_size_and_value(noise: Noise) -> None:
    """Neighbours, pairs, blocks and spans; five standard errors each, 15 of them: false alarm 9e-6."""
    z = noise.sample(8 * SPAN, Keystream.from_seed(4, "law"))
    probabilities = noise.cdf(z) - 0.5
    for lag in (1, 2, SPAN // 2, SPAN, 2 * SPAN):
        for values in (probabilities, np.abs(probabilities) - 0.25, np.sign(z)):
            products = values[lag:] * values[:-lag]
            assert abs(products.mean()) < 5 * products.std() / np.sqrt(products.size)
