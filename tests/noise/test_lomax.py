"""Complex moments and exact cells of a shifted two-sided Lomax (or Laplace) coordinate."""

import math

import numpy as np
import pytest
from mpmath import mp, mpc, mpf

from plrvo.noise import GammaPLRV, Laplace
from plrvo.noise.lomax import LARGEST_PHASE, MOMENT_ERROR, Lomax, power_rule

SHAPES = [0.3, 1.0, 10.0, 4e4, math.inf]


def noise_of(k):
    return Laplace(1.0) if k == math.inf else GammaPLRV(k, 1 / (k + 1))


def exact_moment(k, s, w):
    """By the substitution r = P(|z| > t) outside [0, s], and directly inside: not the library's forms."""
    with mp.workdps(20):
        m = mpf(k) + 1 if k < math.inf else None
        if m is None:
            log_p = lambda z: -abs(z) - mp.log(2)  # noqa: E731
            outside = [(mp.exp(-w * s), 1), (mp.exp((w - 1) * s), 1)]
            total = sum(value * weight for value, weight in outside) / 2
        else:
            log_p = lambda z: mp.log(k / (2 * m)) - m * mp.log(1 + abs(z) / m)  # noqa: E731
            place = lambda r: r ** (1 / mpf(k))  # noqa: E731
            ratio = lambda r: mp.log(1 + s * place(r) / m)  # noqa: E731
            cuts = [0, 0.001, 0.1, 0.5, 0.9, 1]
            total = mp.quad(lambda r: mp.exp(-m * w * ratio(r)) + mp.exp(m * (w - 1) * ratio(r)), cuts) / 2
        cuts = [s * mpf(i) / 12 for i in range(13)]
        return total + mp.quad(lambda z: mp.exp(w * log_p(z - s) + (1 - w) * log_p(z)), cuts)


@pytest.mark.parametrize("k", SHAPES)
@pytest.mark.parametrize(("s", "c", "u"), [(1.2, 5.0, 20.0), (0.3, 100.0, 170.0), (3.0, 1.5, 19.0)])
def test_complex_moments_agree_with_mpmath(k, s, c, u):
    assert abs(complex(c - 0.5, u)) * s < LARGEST_PHASE
    found = Lomax(k).moments(s, np.array([c]), np.array([u, 0.0]))[0]
    for at, value in zip((u, 0.0), found, strict=True):
        exact = exact_moment(k, mpf(s), mpc(c, at))
        assert abs(mpc(complex(value)) - exact) < MOMENT_ERROR * abs(found[1])


@pytest.mark.parametrize("k", SHAPES)
def test_real_orders_are_the_moments_of_the_noise(k):
    s, eta = 0.7, np.array([1.5, 2.0, 9.0])
    found = np.log(Lomax(k).moments(s, eta, np.zeros(1))[:, 0].real)
    assert found == pytest.approx(noise_of(k).log_moment(s, eta), rel=1e-11)


def test_a_large_k_is_laplace_noise():
    c, u = np.array([1.5, 7.0]), np.linspace(0, 20, 5)
    limit, near = Lomax(math.inf).moments(1.3, c, u), Lomax(1e12).moments(1.3, c, u)
    assert np.max(np.abs(near / limit - 1)) < 1e-9
    losses = 0.03 * np.arange(50)
    for found, wanted in zip(Lomax(1e12).cells(1.3, losses), Lomax(math.inf).cells(1.3, losses), strict=True):
        assert found == pytest.approx(wanted, abs=1e-10)


@pytest.mark.parametrize("k", SHAPES)
@pytest.mark.parametrize("s", [0.1, 1.2, 5.0])
def test_cells_are_those_of_the_distribution_function(k, s):
    law, noise = Lomax(k), noise_of(k)
    a = float(law.largest_loss(np.asarray(s)))
    losses = np.linspace(0, a * 1.05, 12)
    p, q = law.cells(s, losses)
    z = np.concatenate([np.linspace(s / 2, s, 4001), s + np.geomspace(1e-6, 1e40, 60001)])
    middle = (z[:-1] + z[1:]) / 2
    loss = noise.log_density(middle - s) - noise.log_density(middle)
    cell = np.clip(np.searchsorted(losses, np.minimum(loss, a) * (1 - 1e-12)) - 1, 0, len(p) - 1)
    for found, shift in ((p, s), (q, 0.0)):
        mass = np.diff(noise.cdf(z - shift))
        assert found == pytest.approx(np.bincount(cell, mass, len(p)), abs=3e-4)
    assert float(p.sum() + q.sum()) == pytest.approx(1, abs=1e-12)  # what z < s/2 has is its mirror image
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(p / q)[p > 1e-9]
    assert np.all(ratio >= losses[:-1][p > 1e-9] - 1e-6)
    assert np.all(ratio <= losses[1:][p > 1e-9] + 1e-6)


@pytest.mark.parametrize("k", [0.3, 1.0, 1000.0, 1e12])
def test_the_rule_integrates_powers(k):
    places, weights = power_rule(k)
    for power in (0, 1, 2, 40):
        assert float(weights @ places**power) == pytest.approx(k / (k + power), rel=1e-12)
