"""Certified delta, the inverse of certified epsilon, by every method."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import plrvo
from plrvo.accounting import Ledger, Workload
from plrvo.accounting.certified import PURE_MARGIN
from plrvo.accounting.lower import lower_loss
from plrvo.noise import GammaPLRV, Gaussian, Laplace, Noise

WORK = Workload(sample_rate=0.05, steps=20, clip=1.0, dimension=30)


@pytest.mark.parametrize(
    ("noise", "method"),
    [
        (Laplace(1.0), "profile"),
        (GammaPLRV(2.0, 0.5), "profile"),
        (GammaPLRV(0.3, 2.0), "profile"),
        (Gaussian(1.0), "pld"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_epsilon_at_the_certified_delta_is_the_epsilon(noise: Noise, method: str, epsilon: float) -> None:
    ledger = Ledger().plus(noise, WORK)
    delta = ledger.certified_delta(epsilon)
    assert 0 < delta.value < 1
    # In 30 dimensions the moments know more about the far tail.
    assert delta.method == ("rdp" if epsilon == 4.0 and method != "pld" else method)
    assert ledger.certified(delta.value).value == pytest.approx(epsilon, rel=2e-3, abs=0.0)


def test_epsilon_at_the_certified_delta_is_the_epsilon_for_a_shared_scale() -> None:
    ledger = Ledger().plus(GammaPLRV(300.0, 1 / 300, shared=True), WORK)
    delta = ledger.certified_delta(1.0)
    assert ledger.certified(delta.value).value == pytest.approx(1.0, rel=1e-6, abs=0.0)


@settings(max_examples=12)
@given(width=st.floats(0.5, 5.0), log_delta=st.floats(-20.0, -2.0), q=st.sampled_from([1.0, 0.1, 0.01]))
def test_delta_at_the_certified_epsilon_is_the_delta(width: float, log_delta: float, q: float) -> None:
    ledger = Ledger().plus(Laplace(width), Workload(q, 20, 1.0, 30))
    epsilon = ledger.certified(math.exp(log_delta)).value
    if epsilon > 0:
        assert ledger.certified_delta(epsilon).value <= math.exp(log_delta) * (1 + 1e-5)  # on grids of their own


def test_delta_vanishes_beyond_the_pure_epsilon() -> None:
    """Three steps of one Laplace coordinate at b = C: never more than 3, with no delta at all."""
    ledger = Ledger().plus(Laplace(1.0), Workload(1.0, 3, 1.0, 1))
    above = 3.0 * (1 + 3 * PURE_MARGIN)  # the certified pure epsilon is rounded up by less than this
    assert ledger.certified_delta(above).value == 0.0
    assert ledger.certified_delta(above).method == "pure"
    assert 0 < ledger.certified_delta(2.9).value < 1


def test_delta_decreases_with_epsilon() -> None:
    for noise in (Laplace(1.0), Gaussian(1.0), GammaPLRV(2.0, 0.5)):
        values = [Ledger().plus(noise, WORK).certified_delta(epsilon).value for epsilon in (0.0, 0.1, 0.5, 2.0, 6.0)]
        assert values == sorted(values, reverse=True)
        assert values[0] <= 1


@pytest.mark.parametrize("noise", [Laplace(1.0), Gaussian(1.0), GammaPLRV(2.0, 0.5)], ids=repr)
def test_certified_delta_never_below_what_an_attacker_shows(noise: Noise) -> None:
    for epsilon in (0.0, 0.3, 1.0, 2.0):
        shown = lower_loss([(noise, WORK)], 1e-5).delta(epsilon)
        assert shown <= Ledger().plus(noise, WORK).certified_delta(epsilon).value


def test_function_is_the_ledger() -> None:
    assert plrvo.delta(Laplace(1.0), WORK, 1.0) == Ledger().plus(Laplace(1.0), WORK).certified_delta(1.0).value
