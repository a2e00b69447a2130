"""Calibration never misses the budget, and leaves none of it unused."""

import math

import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plrvo.accounting import Ledger, Workload, calibrate
from plrvo.accounting.calibration import calibrate_quickly
from plrvo.accounting.certified import Certificate
from plrvo.noise import PLRV, ExponentialSeed, GammaPLRV, Gaussian, Laplace, Noise, TruncatedNormalSeed, UniformSeed
from plrvo.validate import InvalidArgument

KINDS: list[Noise] = [
    Laplace(1.0),
    GammaPLRV(0.4, 1.0),
    GammaPLRV(3.0, 0.5),
    GammaPLRV(60_000.0, 1e-5),
    PLRV(UniformSeed(0.5, 2.0)),
    PLRV(ExponentialSeed(1.0)),
    PLRV(TruncatedNormalSeed(1.0, 0.3)),
    GammaPLRV(500.0, 0.002, shared=True),
]


def certified(noise: Noise, work: Workload, delta: float) -> float:
    return Ledger().plus(noise, work).certified(delta).value


@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(
    noise=st.sampled_from(KINDS),
    work=st.builds(
        Workload,
        sample_rate=st.sampled_from([0.2, 0.01]),
        steps=st.sampled_from([30, 1000]),
        clip=st.sampled_from([0.1, 1.0]),
        dimension=st.sampled_from([1, 100, 10**6]),
    ),
    log_epsilon=st.floats(-0.7, 2.5),
    delta=st.sampled_from([1e-3, 1e-6]),
)
def test_calibration_never_misses_and_wastes_nothing(
    noise: Noise, work: Workload, log_epsilon: float, delta: float
) -> None:
    budget = math.exp(log_epsilon)
    fitted = calibrate(noise, work, budget, delta)
    assert type(fitted) is type(noise)
    assert budget * (1 - 4e-4) <= certified(fitted, work, delta) <= budget


@pytest.mark.parametrize("noise", KINDS, ids=repr)
def test_calibration_of_a_single_release_never_misses(noise: Noise) -> None:
    work = Workload(1.0, 1, 1.0, 20)
    assert 2.0 * (1 - 4e-4) <= certified(calibrate(noise, work, 2.0, 1e-5), work, 1e-5) <= 2.0


@pytest.mark.parametrize("noise", [Laplace(3.0), GammaPLRV(3.0, 0.5), Gaussian(1.0)], ids=repr)
def test_the_quick_bound_alone_is_kept_just_so_and_never_with_less_noise(noise: Noise) -> None:
    work = Workload(0.01, 300, 1.0, 26_010)
    quickly, best = calibrate_quickly(noise, work, 1.0, 1e-5), calibrate(noise, work, 1.0, 1e-5)
    assert 1 - 1e-5 < Ledger().plus(quickly, work).quick(1e-5).value <= 1
    assert best.variance <= quickly.variance * (1 + 1e-9)
    assert (best.variance < 0.9 * quickly.variance) == (noise.gaussian_sigma is None)


def test_a_budget_far_below_delta_is_met_by_delta_alone_after_few_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where any two outcomes are within delta epsilon is 0, and just before it is above the budget: nothing between."""
    looks, quick = list[float](), Ledger.quick

    def counted(ledger: Ledger, delta: float) -> Certificate:
        looks.append(delta)
        return quick(ledger, delta)

    monkeypatch.setattr(Ledger, "quick", counted)
    work = Workload(0.5, 4, 1.0, 10)
    fitted = calibrate(Gaussian(1.0), work, 1e-9, 1e-3)
    assert certified(fitted, work, 1e-3) == 0
    assert certified(fitted.scaled(1 - 3e-3), work, 1e-3) > 1e-9
    assert len(looks) < 50


@pytest.mark.parametrize("budget", [0.2, 1.0, 8.0])
def test_calibrated_gaussian_agrees_with_dp_accounting(budget: float) -> None:
    """The loss distribution of dp-accounting, on a grid of its own, gives the budget back at the fitted width."""
    fitted = calibrate(Gaussian(1.0), Workload(0.02, 100, 0.5, 10), budget, 1e-5)
    assert isinstance(fitted, Gaussian)
    reference = (
        pld.from_gaussian_mechanism(fitted.sigma / 0.5, sampling_prob=0.02, value_discretization_interval=1e-3)
        .self_compose(100)
        .get_epsilon_for_delta(1e-5)
    )
    assert reference == pytest.approx(budget, rel=0.02, abs=0.0)
    assert budget * (1 - 1e-4) <= certified(fitted, Workload(0.02, 100, 0.5, 10), 1e-5) <= budget


@pytest.mark.parametrize("start", [1e-6, 50.0])
def test_starting_width_does_not_matter(start: float) -> None:
    work = Workload(0.02, 100, 1.0, 50)
    fitted = calibrate(Laplace(start), work, 1.0, 1e-5)
    assert isinstance(fitted, Laplace)
    assert fitted.b == pytest.approx(calibrate(Laplace(2.0), work, 1.0, 1e-5).b, rel=4e-4, abs=0.0)


def test_shape_is_kept() -> None:
    fitted = calibrate(GammaPLRV(7.0, 0.3, shared=True), Workload(0.02, 10, 1.0, 5), 2.0, 1e-5)
    assert isinstance(fitted, GammaPLRV)
    assert (fitted.k, fitted.shared) == (7.0, True)
    seed = calibrate(PLRV(UniformSeed(1.0, 4.0)), Workload(0.02, 10, 1.0, 5), 2.0, 1e-5)
    assert isinstance(seed, PLRV)
    assert isinstance(seed.seed, UniformSeed)
    assert seed.seed.high == pytest.approx(4 * seed.seed.low)


def test_larger_budget_needs_less_noise() -> None:
    work = Workload(0.02, 100, 1.0, 50)
    widths = [calibrate(Laplace(1.0), work, budget, 1e-5).distortion for budget in (0.1, 1.0, 20.0)]
    assert widths == sorted(widths, reverse=True)


@pytest.mark.parametrize("budget", [0.0, -1.0, math.nan, math.inf, True, "1"], ids=repr)
def test_senseless_budget_is_refused(budget: float) -> None:
    with pytest.raises(InvalidArgument, match=r"^epsilon="):
        calibrate(Laplace(1.0), Workload(0.02, 100, 1.0, 50), budget, 1e-5)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0, math.nan, True, "1"], ids=repr)
def test_senseless_delta_is_refused(delta: float) -> None:
    with pytest.raises(InvalidArgument, match=r"^delta="):
        calibrate(Laplace(1.0), Workload(0.02, 100, 1.0, 50), 1.0, delta)
