"""The paper's accountant: its golden values, and agreement with a plain loop over the coordinates."""

import math

import numpy as np
import pytest

from plrvo.accounting import Ledger, Workload, epsilon
from plrvo.accounting.published import published_epsilon, published_moment
from plrvo.noise import PLRV, ExponentialSeed, GammaPLRV, Gaussian, Laplace, Noise, UniformSeed, WeibullSeed


def cnn(clip: float, dimension: int = 26_010) -> Workload:
    return Workload(sample_rate=0.01, steps=300, clip=clip, dimension=dimension)


@pytest.mark.parametrize(
    ("clip", "theta", "k", "expected", "order"),
    [
        (0.1, 1e-5, 60_000, 0.063895, 182),
        (0.1, 5e-5, 30_000, 0.171797, 78),
        (0.3, 8e-5, 10_000, 0.284327, 50),
        (0.3, 8e-5, 20_000, 0.596402, 26),
        (0.3, 5e-5, 40_000, 0.757348, 21),
        (0.3, 6e-5, 40_000, 0.921032, 18),
        (0.5, 3e-5, 50_000, 0.962610, 17),
        (0.5, 3e-5, 60_000, 1.172813, 15),
        (0.5, 6e-5, 40_000, 1.606956, 11),
    ],
)
def test_golden_values(clip: float, theta: float, k: float, expected: float, order: int) -> None:
    """The theory page, section 8: what the paper's CNN tables mean."""
    result = published_epsilon([(GammaPLRV(k, theta), cnn(clip))], 1e-5)
    assert result is not None
    assert result[0] == pytest.approx(expected, abs=6e-7)
    assert result[1] == order


@pytest.mark.parametrize(
    ("clip", "theta", "k", "expected"),
    [
        (0.3, 8e-4, 20_000, 12.105),
        (0.3, 5e-4, 40_000, 20.669),
        (0.3, 6e-4, 40_000, 39.600),
        (0.5, 3e-4, 50_000, 48.439),
    ],
)
def test_rows_as_the_paper_prints_them(clip: float, theta: float, k: float, expected: float) -> None:
    """Four rows print theta ten times too large."""
    result = published_epsilon([(GammaPLRV(k, theta), cnn(clip))], 1e-5)
    assert result is not None
    assert result[0] == pytest.approx(expected, abs=6e-4)


@pytest.mark.parametrize(
    ("b", "expected"), [(16.67, 0.0639), (2.0, 0.6230), (1.0, 1.3150), (0.8, 1.6827), (0.5, 2.9010)]
)
def test_golden_values_for_laplace_noise(b: float, expected: float) -> None:
    result = published_epsilon([(Laplace(b), cnn(1.0))], 1e-5)
    assert result is not None
    assert result[0] == pytest.approx(expected, abs=1e-4)


def loop(noise: Noise, work: Workload, lambda_: int) -> float:
    """Algorithm 2 as it is written, coordinate by coordinate, in extended precision."""
    real = np.longdouble
    i = np.arange(1, work.dimension + 1, dtype=real)
    x = real(work.clip) * (np.sqrt(i) - np.sqrt(i - 1))
    q, order = real(work.sample_rate), lambda_ + 1
    total = np.zeros_like(x)
    for eta in range(order + 1):
        weight = math.comb(order, eta) * (1 - q) ** (order - eta) * q**eta
        if isinstance(noise, Laplace):
            up, down = np.exp((eta - 1) * x / real(noise.b)), np.exp(-eta * x / real(noise.b))
        else:
            assert isinstance(noise, GammaPLRV)
            theta, k = real(noise.theta), real(noise.k)
            up, down = (1 - (eta - 1) * x * theta) ** -k, (1 + eta * x * theta) ** -k
        total += weight * (eta * up + (eta - 1) * down) / (2 * eta - 1)
    return float(np.sum(np.log(total)))


@pytest.mark.parametrize(
    "noise", [Laplace(1.0), Laplace(0.5), GammaPLRV(60_000.0, 1e-5), GammaPLRV(30.0, 0.01)], ids=repr
)
@pytest.mark.parametrize(("dimension", "lambda_"), [(5000, 3), (5000, 14), (200_000, 7)])
def test_moment_agrees_with_a_loop_over_coordinates(noise: Noise, dimension: int, lambda_: int) -> None:
    work = cnn(1.0, dimension)
    ours, plain = published_moment(noise, work, lambda_), loop(noise, work, lambda_)
    assert ours == pytest.approx(plain, rel=1e-8, abs=0.0)
    assert ours >= plain * (1 - 1e-11)  # on the upper side


@pytest.mark.parametrize("dimension", [1, 2, 12, 13, 999, 1000, 1001])
def test_every_small_dimension_agrees_with_the_loop(dimension: int) -> None:
    work = cnn(0.5, dimension)
    assert published_moment(Laplace(1.0), work, 5) == pytest.approx(loop(Laplace(1.0), work, 5), rel=1e-8, abs=0.0)


@pytest.mark.parametrize("noise", [Laplace(2.0), GammaPLRV(60_000.0, 1e-5), PLRV(UniformSeed(0.3, 0.7))], ids=repr)
def test_a_billion_coordinates_take_no_loop(noise: Noise) -> None:
    values = [published_epsilon([(noise, cnn(1.0, n))], 1e-5) for n in (10**7, 774_000_000, 10**9)]
    assert all(value is not None and math.isfinite(value[0]) for value in values)
    epsilons = [value[0] for value in values if value is not None]
    assert epsilons == sorted(epsilons)
    assert epsilons[-1] < 1.2 * epsilons[0]


def test_growth_with_the_dimension_is_logarithmic() -> None:
    """||x||_2^2 = C^2 (ln(n)/4 + .998), so many more coordinates add the same again and again."""
    wide = Laplace(1000.0)
    values = [published_moment(wide, Workload(1.0, 1, 1.0, 10**p), 1) for p in (5, 6, 7, 8)]
    increments = np.diff(values)
    assert increments == pytest.approx(increments[0], rel=1e-3, abs=0.0)
    assert values[0] == pytest.approx(1e-6 * (math.log(10**5) / 4 + 0.998), rel=1e-3, abs=0.0)


def test_full_sampling_in_one_dimension_is_exact() -> None:
    """q = 1, n = 1: the formula is A(lambda) itself."""
    assert published_moment(Laplace(0.7), Workload(1.0, 1, 1.0, 1), 6) == pytest.approx(
        float(Laplace(0.7).log_moment(1.0, 7.0)), rel=1e-12, abs=0.0
    )


def test_order_beyond_the_moment_generating_function_is_infinite() -> None:
    assert published_moment(GammaPLRV(3.0, 0.5), cnn(1.0), 1) < math.inf
    assert published_moment(GammaPLRV(3.0, 0.5), cnn(1.0), 2) == math.inf
    for noise in (PLRV(ExponentialSeed(1.0)), PLRV(WeibullSeed(0.7, 1.0))):
        result = published_epsilon([(noise, cnn(1.0))], 1e-5)
        assert result is not None
        assert result[0] == math.inf


def test_formula_does_not_cover_gaussian_noise() -> None:
    assert published_epsilon([(Gaussian(1.0), cnn(1.0))], 1e-5) is None
    assert epsilon(Gaussian(1.0), Workload(0.01, 3, 1.0, 5), 1e-5).published is None


def test_heterogeneous_steps_add_up() -> None:
    parts = [(Laplace(1.0), Workload(0.01, 100, 1.0, 300)), (GammaPLRV(50.0, 0.02), Workload(0.02, 7, 0.5, 40))]
    result = published_epsilon(parts, 1e-5)
    assert result is not None
    value, order = result
    total = sum(work.steps * loop(noise, work, order) for noise, work in parts)
    expected = (total - math.log(1e-5) - math.log(order + 1)) / order + math.log(order / (order + 1))
    assert value == pytest.approx(expected, rel=1e-8, abs=0.0)


@pytest.mark.parametrize("b", [0.8, 0.5])
def test_published_is_refuted_at_low_noise(b: float) -> None:
    """An attack provably exceeds the formula's value inside the paper's own range of settings (theory, section 7)."""
    bracket = epsilon(Laplace(b), cnn(1.0), 1e-5)
    assert bracket.published is not None
    assert bracket.published < bracket.lower <= bracket.certified
    assert bracket.published_is_refuted


def test_published_is_not_refuted_at_high_noise() -> None:
    bracket = Ledger().plus(Laplace(2.0), cnn(1.0)).epsilon(1e-5)
    assert bracket.published is not None
    assert not bracket.published_is_refuted
    assert bracket.certified < bracket.published
