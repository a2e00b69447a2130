"""Steps with any noise as events of dp-accounting."""

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant

from plrvo.accounting import Ledger, Workload
from plrvo.accounting.events import NoisyStepsEvent, PlrvoRdpAccountant, renyi_divergence
from plrvo.accounting.moments import StepMoments
from plrvo.noise import GammaPLRV, Gaussian, Laplace, Noise

WORK = Workload(sample_rate=0.02, steps=50, clip=1.0, dimension=30)
ORDERS = [2, 3, 5, 8, 16, 32, 64]


def gaussian_steps(sigma: float, q: float, steps: int) -> dp_accounting.DpEvent:
    step = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(sigma))
    return dp_accounting.SelfComposedDpEvent(step, steps)


@pytest.mark.parametrize("q", [1.0, 0.02])
def test_gaussian_steps_agree_with_dp_accounting(q: float) -> None:
    ours, theirs = PlrvoRdpAccountant(ORDERS), RdpAccountant(ORDERS)
    ours.compose(NoisyStepsEvent(Gaussian(2.0), Workload(q, 50, 0.5, 30)))
    theirs.compose(gaussian_steps(4.0, q, 50))
    assert ours._rdp == pytest.approx(theirs._rdp, rel=1e-9, abs=0.0)
    assert ours.get_epsilon(1e-5) == pytest.approx(theirs.get_epsilon(1e-5), rel=1e-9, abs=0.0)


def test_own_and_foreign_events_compose() -> None:
    accountant, reference = PlrvoRdpAccountant(ORDERS), RdpAccountant(ORDERS)
    accountant.compose(NoisyStepsEvent(Gaussian(2.0), WORK))
    accountant.compose(dp_accounting.GaussianDpEvent(noise_multiplier=4.0))
    reference.compose(gaussian_steps(2.0, 0.02, 50))
    reference.compose(dp_accounting.GaussianDpEvent(noise_multiplier=4.0))
    assert accountant.get_epsilon(1e-5) == pytest.approx(reference.get_epsilon(1e-5), rel=1e-9, abs=0.0)


@pytest.mark.parametrize("noise", [Laplace(1.0), GammaPLRV(2.0, 0.5)], ids=repr)
def test_event_costs_what_the_ledger_says_by_moments(noise: Noise) -> None:
    accountant = PlrvoRdpAccountant(list(range(2, 300)))
    accountant.compose(NoisyStepsEvent(noise, WORK))
    assert accountant.get_epsilon(1e-5) == pytest.approx(
        Ledger().plus(noise, WORK).quick(1e-5).value, rel=1e-9, abs=0.0
    )


def test_counts_multiply() -> None:
    once, often, nested = (PlrvoRdpAccountant(ORDERS) for _ in range(3))
    event = NoisyStepsEvent(Laplace(1.0), WORK)
    once.compose(event)
    often.compose(event, 7)
    nested.compose(dp_accounting.SelfComposedDpEvent(event, 7))
    assert often._rdp == pytest.approx(7 * np.asarray(once._rdp), rel=1e-14, abs=0.0)
    assert nested._rdp == pytest.approx(often._rdp, rel=1e-14, abs=0.0)


def test_events_compose_inside_other_events() -> None:
    event = NoisyStepsEvent(Laplace(1.0), WORK)
    whole, parts = PlrvoRdpAccountant(ORDERS), PlrvoRdpAccountant(ORDERS)
    whole.compose(dp_accounting.ComposedDpEvent([event, dp_accounting.GaussianDpEvent(3.0)]))
    parts.compose(event).compose(dp_accounting.GaussianDpEvent(3.0))
    assert whole._rdp == pytest.approx(parts._rdp, rel=1e-14, abs=0.0)


def test_orders_between_integers_lie_on_the_chord() -> None:
    """A(lambda) is convex with A(0) = 0, so that its chord is above it."""
    moments = StepMoments(Laplace(1.0), 1.0, 30, 0.02)
    a1, a2 = moments(1), moments(2)
    assert renyi_divergence(moments, 2.0) == a1
    assert renyi_divergence(moments, 1.5) == pytest.approx(0.5 * a1 / 0.5)
    assert renyi_divergence(moments, 2.25) == pytest.approx((0.75 * a1 + 0.25 * a2) / 1.25)


def test_fractional_orders_cover_the_gaussian_divergence() -> None:
    """q = 1: the Gaussian divergence alpha/(2 sigma^2) is known at every real order."""
    orders = [1.1, 1.5, 2.5, 7.3]
    accountant = PlrvoRdpAccountant(orders)
    accountant.compose(NoisyStepsEvent(Gaussian(2.0), Workload(1.0, 1, 1.0, 3)))
    assert all(value >= order / 8 for value, order in zip(accountant._rdp, orders, strict=True))
    assert accountant._rdp[3] == pytest.approx(7.3 / 8, rel=0.01, abs=0.0)


def test_default_orders_work() -> None:
    accountant = PlrvoRdpAccountant()
    accountant.compose(NoisyStepsEvent(Laplace(1.0), WORK))
    certified = Ledger().plus(Laplace(1.0), WORK).certified(1e-5).value
    assert certified * (1 - 1e-9) <= accountant.get_epsilon(1e-5) <= 1.1 * certified


def test_shared_scale_is_refused() -> None:
    event = NoisyStepsEvent(GammaPLRV(2.0, 0.5, shared=True), WORK)
    assert not PlrvoRdpAccountant(ORDERS).supports(event)
    assert PlrvoRdpAccountant(ORDERS).supports(NoisyStepsEvent(GammaPLRV(2.0, 0.5), WORK))
    with pytest.raises(dp_accounting.UnsupportedEventError, match="shared scale"):
        PlrvoRdpAccountant(ORDERS).compose(event)


def test_other_adjacency_is_refused() -> None:
    accountant = PlrvoRdpAccountant(ORDERS, dp_accounting.NeighboringRelation.REPLACE_ONE)
    with pytest.raises(dp_accounting.UnsupportedEventError, match="adding or removing"):
        accountant.compose(NoisyStepsEvent(Laplace(1.0), WORK))


def test_refused_event_leaves_the_accountant_unchanged() -> None:
    accountant = PlrvoRdpAccountant(ORDERS)
    accountant.compose(NoisyStepsEvent(Laplace(1.0), WORK))
    before = list(accountant._rdp)
    with pytest.raises(dp_accounting.UnsupportedEventError):
        accountant.compose(NoisyStepsEvent(GammaPLRV(2.0, 0.5, shared=True), WORK))
    assert list(accountant._rdp) == before
    assert math.isfinite(accountant.get_epsilon(1e-5))
