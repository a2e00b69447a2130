"""Certificates by losses, attacked: no gradient reaches more than is certified, and one that is too small is caught."""

import math
from dataclasses import replace

import pytest
from checks.attacks import SHAPES, TOLERANCE, Setting, attacked, certified, outcome, settings

from plrvo.accounting import Ledger, Workload
from plrvo.accounting.gaussian_curve import gaussian_delta
from plrvo.accounting.loss_distribution import composed_delta
from plrvo.accounting.step_profile import profile_steps
from plrvo.noise import PLRV, GammaPLRV, Laplace, Noise, UniformSeed

CNN = Setting(math.inf, 1.2, 0.01, 300, 10**6, 1e-5, "equal", 0)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dimension", [1, 16, 10**6])
def test_no_gradient_reaches_more_than_is_certified(shape: str, dimension: int) -> None:
    setting = replace(CNN, shape=shape, dimension=dimension)
    assert attacked(setting, certified(setting)) <= setting.delta * (1 + TOLERANCE)
    many = replace(setting, clip=0.5, steps=3000)
    assert attacked(many, certified(many)) <= many.delta * (1 + TOLERANCE)


@pytest.mark.parametrize("shape", ["one", "equal", "random", "adaptive"])
@pytest.mark.parametrize("shared", [False, True])
def test_no_gradient_reaches_more_with_a_random_scale(shape: str, shared: bool) -> None:
    setting = replace(CNN, shape=shape, dimension=100, spread=0.3, shared=shared)
    assert attacked(setting, certified(setting)) <= setting.delta * (1 + TOLERANCE)


@pytest.mark.slow
def test_no_gradient_reaches_more_at_length() -> None:
    for setting in settings(2000):
        assert outcome(setting)["share"] <= 1 + TOLERANCE, setting


@pytest.mark.parametrize("shared", [False, True])
def test_a_certificate_for_a_random_scale_that_is_too_small_is_caught(shared: bool) -> None:
    """By a tenth: the attack knows the scale only to a sixteenth of its range."""
    setting = replace(CNN, dimension=10**4, spread=0.1, shared=shared)
    assert attacked(setting, 0.9 * certified(setting)) > setting.delta * (1 + TOLERANCE)


def test_attacks_on_a_narrow_seed_are_those_on_laplace_noise() -> None:
    narrow = replace(CNN, dimension=100, spread=1e-5)
    limit = attacked(replace(narrow, spread=0.0), 1.5)
    for shared in (False, True):
        assert attacked(replace(narrow, shared=shared), 1.5) == pytest.approx(limit, rel=2e-3, abs=0.0)


@pytest.mark.parametrize(("clip", "steps"), [(1.2, 300), (0.5, 3000)])
def test_a_certificate_that_is_a_little_too_small_is_caught(clip: float, steps: int) -> None:
    setting = replace(CNN, clip=clip, steps=steps)
    found = attacked(setting, 0.95 * certified(setting), deviations=6)  # as in a campaign
    assert found > setting.delta * (1 + TOLERANCE)


def test_attacks_on_many_small_shifts_become_the_gaussian_curve() -> None:
    """A second derivation of the attack itself: without sampling, a million coordinates are one Gaussian release."""
    setting = Setting(math.inf, 1.0, 1.0, 4, 10**6, 1e-5, "equal", 0)
    assert attacked(setting, 5.0) == pytest.approx(gaussian_delta(2.0, 5.0), rel=2e-3, abs=0.0)


def test_one_laplace_coordinate_is_attacked_exactly() -> None:
    """delta = 1 - e^((epsilon - s)/2)."""
    setting = Setting(math.inf, 2.0, 1.0, 1, 1, 1e-5, "one", 0)
    assert attacked(setting, 1.0) == pytest.approx(1 - math.exp(-0.5), rel=1e-3, abs=0.0)


@pytest.mark.parametrize(("clip", "rate", "steps"), [(1.2, 0.01, 300), (0.5, 0.01, 5000), (0.1, 1.0, 50)])
@pytest.mark.parametrize("noise", [GammaPLRV(1e12, 1e-12), PLRV(UniformSeed(1 - 1e-7, 1 + 1e-7))], ids=repr)
def test_narrow_seeds_are_certified_as_laplace_noise(noise: Noise, clip: float, rate: float, steps: int) -> None:
    work = Workload(rate, steps, clip, 10**6)
    limit = Ledger().plus(Laplace(1.0), work).certified(1e-5)
    found = Ledger().plus(noise, work).certified(1e-5)
    assert found.method == limit.method != "rdp"
    assert found.value == pytest.approx(limit.value, rel=2e-3, abs=0.0)  # tables and gifts go in steps


SHARED = PLRV(UniformSeed(0.9, 1.1), shared=True)


def test_an_added_example_may_show_more_and_nothing_beyond_its_highest_loss() -> None:
    """At a large delta the other direction decides; above its highest loss its delta is 0, which has no logarithm."""
    run = Ledger().plus(SHARED, Workload(0.16815481873337476, 3, 1.312872401899359, 1000))
    assert run.lower(0.2) <= run.certified(0.2).value < 0.6


def test_more_steps_than_points_of_a_grid_have_a_delta() -> None:
    """Every loss within one cell of a grid that is wider and wider, without an end: T cells are too many points."""
    steps = profile_steps(SHARED, Workload(1.0, 10**7, 3.1, 1000))
    assert steps is not None
    assert composed_delta([steps], 18.0) == 1.0


def test_steps_beyond_memory_leave_the_other_bounds() -> None:
    """The epsilon of a shared scale may be small where that of moments is not; other steps may be as large as that."""
    run = Ledger().plus(SHARED, Workload(1e-5, 10**10, 9.0, 1)).plus(Laplace(1.0), Workload(0.5, 1, 1e6, 1))
    assert run.certified(1e-5) == run.quick(1e-5)
