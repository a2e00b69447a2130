"""Certified epsilon: golden values, the pure cap, and the methods that it chooses from."""

import math

import dp_accounting
import pytest
from dp_accounting.rdp import RdpAccountant

from plrvo.accounting import Ledger, Workload, epsilon, sigma_effective
from plrvo.accounting.certified import PURE_MARGIN, moments_epsilon, pure_epsilon
from plrvo.accounting.domination import dominating_steps
from plrvo.accounting.loss_distribution import composed_epsilon
from plrvo.noise import PLRV, GammaPLRV, Gaussian, Laplace, Noise, UniformSeed

LIMIT = 10**9


def certified(noise: Noise, work: Workload, delta: float = 1e-5) -> float:
    return Ledger().plus(noise, work).certified(delta).value


def by_moments(noise: Noise, work: Workload, delta: float = 1e-5) -> float:
    return moments_epsilon([(noise, work)], delta).value


@pytest.mark.parametrize(
    ("clip", "theta", "k", "expected"),
    [
        (0.1, 1e-5, 60_000, 0.03239),
        (0.1, 5e-5, 30_000, 0.08940),
        (0.3, 8e-5, 10_000, 0.15196),
        (0.3, 8e-5, 20_000, 0.35125),
        (0.3, 5e-5, 40_000, 0.49638),
        (0.3, 6e-5, 40_000, 0.69492),
        (0.5, 3e-5, 50_000, 0.75795),
        (0.5, 3e-5, 60_000, 1.14667),
        (0.5, 6e-5, 40_000, 2.38151),
    ],
)
def test_golden_values_for_gamma_noise(clip: float, theta: float, k: float, expected: float) -> None:
    """The theory page, section 8, last column: many coordinates, T = 300, q = .01, delta = 1e-5."""
    work = Workload(sample_rate=0.01, steps=300, clip=clip, dimension=LIMIT)
    assert by_moments(GammaPLRV(k, theta), work) == pytest.approx(expected, abs=6e-6)
    assert certified(GammaPLRV(k, theta), work) <= by_moments(GammaPLRV(k, theta), work)


@pytest.mark.parametrize(
    ("b", "expected"), [(16.67, 0.0324), (2.0, 0.3721), (1.0, 1.4823), (0.8, 2.6945), (0.5, 11.7303)]
)
def test_golden_values_for_laplace_noise(b: float, expected: float) -> None:
    """The theory page, section 7, third column, rounded up. At 1e9 coordinates the fourth digit still moves."""
    work = Workload(sample_rate=0.01, steps=300, clip=1.0, dimension=10**14)
    assert math.ceil(1e4 * by_moments(Laplace(b), work)) / 1e4 == expected


@pytest.mark.parametrize(("b", "expected"), [(1.0, 1.1876), (0.8, 2.2046), (0.5, 8.9879)])
def test_golden_values_for_laplace_noise_by_gaussian_steps(b: float, expected: float) -> None:
    """In any dimension: the moments above lose a quarter to a third of the epsilon."""
    work = Workload(sample_rate=0.01, steps=300, clip=1.0, dimension=10**14)
    steps = dominating_steps([(Laplace(b), work)])
    assert composed_epsilon(steps, 1e-5, 2 * expected) == pytest.approx(expected, abs=2e-3)
    assert certified(Laplace(b), work) <= expected + 1e-4


def test_gamma_golden_values_are_those_of_the_effective_gaussian_by_moments() -> None:
    """Many coordinates: Gamma noise is certified as dp-accounting's Gaussian of std 1/sqrt(I) at integer orders."""
    noise, work = GammaPLRV(40_000, 6e-5), Workload(0.01, 300, 0.5, LIMIT)
    accountant = RdpAccountant(list(range(2, 200)))
    event = dp_accounting.GaussianDpEvent(sigma_effective(noise, work))
    accountant.compose(dp_accounting.PoissonSampledDpEvent(0.01, event), 300)
    assert by_moments(noise, work) == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-6, abs=0.0)


def test_one_laplace_coordinate_reaches_its_pure_epsilon() -> None:
    """n = 1, q = 1, T = 1, b = C is 1-DP, and at delta = 1e-5 the exact value is 1 + 2 log(1 - delta)."""
    value = certified(Laplace(1.0), Workload(1.0, 1, 1.0, 1))
    assert 1 + 2 * math.log1p(-1e-5) <= value <= 1.0


@pytest.mark.parametrize(
    ("noise", "exponent"),
    [
        (Laplace(0.5), 2 * 3.0 / 0.5),
        (GammaPLRV(2.0, 0.7), 4 * 3.0 * math.log1p(0.7 * 3.0 / 2)),
        (GammaPLRV(2.0, 0.7, shared=True), 6.0 * math.log1p(0.7 * 2 * 3.0)),
        (PLRV(UniformSeed(0.5, 2.0), shared=True), 2.0 * 2 * 3.0),
        (Gaussian(1.0), math.inf),
    ],
    ids=repr,
)
def test_pure_cap(noise: Noise, exponent: float) -> None:
    """T log1p(q expm1(r)), r the largest loss of a step with n = 4 coordinates and C = 3."""
    work = Workload(0.1, 5, 3.0, 4)
    expected = math.inf if math.isinf(exponent) else 5 * math.log1p(0.1 * math.expm1(exponent))
    assert pure_epsilon([(noise, work)]) == pytest.approx(expected, rel=1e-12, abs=0.0)
    raised = math.inf if math.isinf(exponent) else math.expm1(exponent * (1 + 2 * noise.pure_loss_margin))
    assert certified(noise, work) <= 5 * math.log1p(0.1 * raised) * (1 + 2 * PURE_MARGIN)


def test_pure_cap_of_a_huge_loss_is_finite() -> None:
    """e^r beyond the range of doubles: log1p(q expm1(r)) = r + log(q) to all digits."""
    assert pure_epsilon([(Laplace(1e-3), Workload(0.5, 2, 1.0, 1))]) == pytest.approx(2 * (1000 + math.log(0.5)))


def test_pure_cap_is_used_where_it_is_best() -> None:
    certificate = Ledger().plus(Laplace(1.0), Workload(1.0, 3, 1.0, 1)).certified(1e-40)
    assert certificate.value <= 3.0 * (1 + 3 * PURE_MARGIN)  # the loss of a step is rounded up by itself
    assert certificate.value == pytest.approx(3.0, rel=1e-3, abs=0.0)


def test_gaussian_noise_is_certified_by_its_loss_distribution() -> None:
    """8.70 by the loss distribution, 11.73 by moments, at sigma = .5 (theory, section 10)."""
    bracket = epsilon(Gaussian(0.5), Workload(0.01, 300, 1.0, 100), 1e-5)
    assert bracket.method == "pld"
    assert bracket.order is None
    assert bracket.certified == pytest.approx(8.70, abs=0.01)


def test_other_noise_is_never_certified_by_a_loss_distribution_of_its_effective_gaussian() -> None:
    """Its profile is that of a pair that dominates every gradient, and lies above the effective Gaussian's."""
    bracket = epsilon(Laplace(0.5), Workload(0.01, 300, 1.0, LIMIT), 1e-5)
    assert bracket.method in ("gdp", "gift", "profile")
    assert bracket.order is None
    assert bracket.certified > epsilon(Gaussian(0.5), Workload(0.01, 300, 1.0, 100), 1e-5).certified


def test_effective_sigma() -> None:
    work = Workload(0.01, 300, 0.5, 50)
    assert sigma_effective(Laplace(2.0), work) == pytest.approx(4.0)
    assert sigma_effective(Gaussian(2.0), work) == pytest.approx(4.0)
    k, theta = 3.0, 0.5
    expected = 1 / (0.5 * theta * (k + 1) * math.sqrt(k / (k + 2)))
    assert sigma_effective(GammaPLRV(k, theta), work) == pytest.approx(expected)


def test_smaller_dimension_certifies_a_smaller_epsilon() -> None:
    values = [certified(Laplace(0.5), Workload(0.02, 100, 1.0, n)) for n in (1, 8, 64, 4096)]
    assert values == sorted(values)
    assert values[0] < 0.5 * values[-1]


@pytest.mark.parametrize(
    "noise", [Gaussian(1e12), Laplace(1e12), GammaPLRV(3.0, 1e-12), PLRV(UniformSeed(1e-12, 2e-12))], ids=repr
)
def test_overwhelming_noise_certifies_almost_nothing(noise: Noise) -> None:
    assert 0 <= certified(noise, Workload(0.01, 300, 1.0, 100)) < 1e-3


@pytest.mark.parametrize("noise", [Laplace(1e-3), GammaPLRV(3.0, 1e3), PLRV(UniformSeed(1e3, 2e3))], ids=repr)
def test_hardly_any_noise_certifies_a_large_epsilon_without_overflow(noise: Noise) -> None:
    assert 100 < certified(noise, Workload(0.5, 10, 1.0, 100)) < 1e8
