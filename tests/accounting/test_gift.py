"""Sampled Laplace steps as Gaussian steps and a gift: the swap lemma, its cost, and certificates against attacks."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import optimize, special
from tests.accounting.test_domination import GRADIENTS, affinity, gaussian_affinity

from plrvo.accounting import Ledger, Workload
from plrvo.accounting.certified import moments_epsilon
from plrvo.accounting.gift import SampledLaplace, costs_at_most, smallest_gift, with_gift
from plrvo.noise import GammaPLRV, Gaussian, GeneralisedGaussian, GridNoise, Laplace, Noise


def test_the_inequality_of_the_swap_lemma_is_a_polynomial_one() -> None:
    """cos x + (s/2) sin x / x - e^(-s/2) >= s^3 Q(s) > 0 for x^2 = 2s - s^2/4, by alternating series (Lemma 15)."""
    x2 = np.array([0, 2, Fraction(-1, 4)], dtype=object)
    power = [np.array([Fraction(1)]), x2, np.convolve(x2, x2), np.convolve(np.convolve(x2, x2), x2)]
    total = np.array([Fraction(0)] * 9, dtype=object)
    for i, one in enumerate(power):
        sign = (-1) ** i
        total[: len(one)] += one * Fraction(sign, math.factorial(2 * i))
        total[1 : len(one) + 1] += one * Fraction(sign, 2 * math.factorial(2 * i + 1))
    for i in range(5):
        total[i] -= Fraction((-1) ** i, 2**i * math.factorial(i))
    expected = [0, 0, 0, Fraction(1, 180), Fraction(-1, 1260), Fraction(1, 26880), Fraction(-1, 64512)]
    assert list(total[:8]) == [*expected, Fraction(1, 645120)]
    assert Fraction(1, 180) - Fraction(6, 5) / 1260 - Fraction(6, 5) ** 3 / 64512 > 0  # Q on (0, 1.2]
    with mpmath.workdps(40):
        for s in mpmath.linspace("0.001", "1.2", 60):
            x = mpmath.sqrt(2 * s - s**2 / 4)
            assert mpmath.cos(x) + s / 2 * mpmath.sin(x) / x > mpmath.exp(-s / 2)


def omega(y: np.ndarray, q: float, m: float, k: float) -> np.ndarray:
    z = 1 - q + q * np.exp(y)
    d = (np.log(z) - k) / m + m / 2
    return q**2 * np.exp(1.5 * y - d**2 / 2) / (z * m * math.sqrt(2 * math.pi))


@pytest.mark.parametrize(("t", "q", "m"), [(0.7, 0.01, 0.12), (0.5, 0.01, 0.033), (0.1, 0.1, 0.032), (0.3, 0.3, 0.2)])
def test_curvature_of_omega(t: float, q: float, m: float) -> None:
    """omega''/omega = (B - 2 (1-p))^2 - h(p), against differences at forty digits."""
    for y, k in ((1.0, 0.01), (2.0, 0.2), (-0.5, -0.01), (3.0, 0.1)):

        def log_omega(v: mpmath.mpf, k: float = k) -> mpmath.mpf:
            z = 1 - q + q * mpmath.exp(v)
            return 1.5 * v - mpmath.log(z) - ((mpmath.log(z) - k) / m + m / 2) ** 2 / 2

        with mpmath.workdps(40):
            slope, bend = mpmath.diff(log_omega, y), mpmath.diff(log_omega, y, 2)
        z = 1 - q + q * math.exp(y)
        p = q * math.exp(y) / z
        b = p * (math.log(z) - k) / m**2
        h = 1.75 * (1 - p) ** 2 + 1.5 * p * (1 - p) + p**2 / m**2
        assert float(slope**2 + bend) == pytest.approx((b - 2 * (1 - p)) ** 2 - h, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(("t", "q", "steps"), [(0.7, 0.01, 2000), (0.5, 0.01, 300), (0.25, 0.04, 1250)])
def test_no_gradient_exceeds_the_gaussian_step_by_more_than_the_cost(t: float, q: float, steps: int) -> None:
    """With a gift, at levels k where the lemma fails and where it does not: the difference is integral omega Delta."""
    bound = 3e-7 / steps
    m = smallest_gift((SampledLaplace(t, q, steps),), 3e-7)
    assert m is not None
    y = np.linspace(-14.0, 14.0, 28_001)
    gaussian = gaussian_affinity(t**2, np.abs(y))
    for name in ("one", "two", "ten", "half", "geometric", "two levels"):
        shifts = GRADIENTS[name](t)
        short = math.sqrt(sum(s * s for s in shifts)) <= t * (1 + 1e-9)
        delta = affinity(shifts, np.abs(y), cells=1 << 17) - gaussian
        for k in np.linspace(-0.1, 1.0, 45):
            value = float(np.sum(omega(y, q, m, k) * delta)) * (y[1] - y[0])
            assert short
            assert value >= -bound - 2e-9 * q  # what the transform of a law with atoms errs by


def test_cost_falls_with_the_gift_and_grows_with_the_shift() -> None:
    assert costs_at_most(1e-9, 0.5, 0.01, 0.05)
    assert not costs_at_most(1e-9, 0.5, 0.01, 0.02)
    assert not costs_at_most(1e-9, 0.6, 0.01, 0.05)
    assert not costs_at_most(1e-3, 0.99, 0.01, 0.5)  # beyond the lemma
    found = [smallest_gift((SampledLaplace(t, 0.01, 1000),), 1e-7) or math.inf for t in (0.1, 0.2, 0.4, 0.6, 0.9)]
    assert found == sorted(found)


@pytest.mark.parametrize(
    ("t", "q", "steps", "ratio"),
    [
        (0.7, 0.01, 2000, 1.062),
        (0.5, 0.01, 300, 1.064),
        (0.5, 0.01, 5000, 1.015),
        (0.25, 0.04, 1250, 1.012),
        (0.1, 0.1, 2000, 1.02),
    ],
)
def test_certified_is_close_to_what_an_attack_reaches(t: float, q: float, steps: int, ratio: float) -> None:
    ledger = Ledger().plus(Laplace(1.0), Workload(q, steps, t, 10**6))
    bracket = ledger.epsilon(1e-5)
    assert bracket.method == "gift"
    assert bracket.lower <= bracket.certified <= ratio * bracket.lower
    assert bracket.certified < moments_epsilon(ledger.entries, 1e-5).value
    delta = ledger.certified_delta(bracket.certified)
    assert delta.method == "gift"
    assert delta.value <= 1e-5 * (1 + 1e-9)
    assert delta.value > 0.85e-5  # another share of delta may do better at this epsilon: by 11 % of delta, here


@pytest.mark.parametrize("noise", [GammaPLRV(4e4, 1 / 4e4), GridNoise(Laplace(1.0), 1e-6)], ids=repr)
def test_noises_that_are_nearly_laplace_noise_get_nearly_its_epsilon(noise: Noise) -> None:
    work = Workload(0.01, 2000, 0.5, 10_000)
    limit = Ledger().plus(Laplace(1.0), work).certified(1e-5)
    found = Ledger().plus(noise, work).certified(1e-5)
    assert found.method == limit.method == "gift"
    assert found.value == pytest.approx(limit.value, rel=1e-2, abs=0.0)


def test_a_gift_is_given_once_for_all_kinds_of_step() -> None:
    works = [Workload(0.01, 1000, 0.3, 9), Workload(0.02, 500, 0.2, 9), Workload(1.0, 2, 0.1, 9)]
    entries = [(Laplace(1.0), works[0]), (Laplace(1.0), works[1]), (Gaussian(1.0), works[1]), (Laplace(1.0), works[2])]
    steps = with_gift(entries, 3e-7)
    assert steps is not None
    assert [part.count for part in steps] == [1, 500, 1, 1000, 500]
    assert with_gift([(Gaussian(1.0), works[0])], 3e-7) is None
    assert with_gift([(GeneralisedGaussian(1.5, 1.0), works[0])], 3e-7) is None


def test_the_lemma_is_needed() -> None:
    """Without a gift one Laplace coordinate exceeds the sampled Gaussian step: total variation, at level 1."""
    t = 0.5
    assert 1 - math.exp(-t / 2) > 2 * special.ndtr(t / 2) - 1
    root = optimize.brentq(lambda s: math.exp(-s / 2) - 2 * special.ndtr(-s / 2), 1.0, 1.4)
    assert root == pytest.approx(1.1948, abs=1e-4)
