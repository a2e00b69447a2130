"""Ledgers: what has been released, in any mixture, and what it costs together."""

import json
import math
from dataclasses import replace

import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from tests.noise.catalogue import NOISES

from plrvo.accounting import Ledger, Workload, calibrate, epsilon
from plrvo.accounting.certified import RDP_MARGIN, moments_epsilon, quick_epsilon
from plrvo.accounting.moments import StepMoments
from plrvo.noise import GammaPLRV, Gaussian, Laplace
from plrvo.training.accountant import CertifiedAccountant
from plrvo.validate import InvalidArgument

WORK = Workload(sample_rate=0.02, steps=50, clip=1.0, dimension=30)


def test_equal_kinds_of_step_are_counted_together() -> None:
    ledger = Ledger().plus(Laplace(1.0), WORK).plus(Laplace(1.0), replace(WORK, steps=7))
    assert ledger.entries == ((Laplace(1.0), replace(WORK, steps=57)),)
    assert ledger.steps == 57
    assert ledger == Ledger().plus(Laplace(1.0), replace(WORK, steps=57))


@pytest.mark.parametrize(
    "work",
    [replace(WORK, sample_rate=0.03), replace(WORK, clip=2.0), replace(WORK, dimension=31)],
    ids=str,
)
def test_different_kinds_of_step_are_kept_apart(work: Workload) -> None:
    ledger = Ledger().plus(Laplace(1.0), WORK).plus(Laplace(1.0), work)
    assert len(ledger.entries) == 2
    assert len(ledger.plus(Laplace(1.1), WORK).entries) == 3
    assert len(Ledger().plus(GammaPLRV(3.0, 1.0), WORK).plus(GammaPLRV(3.0, 1.0, shared=True), WORK).entries) == 2


def test_merging_finds_an_entry_behind_another() -> None:
    ledger = Ledger().plus(Laplace(1.0), WORK).plus(Gaussian(1.0), WORK).plus(Laplace(1.0), WORK)
    assert [work.steps for _, work in ledger.entries] == [100, 50]


def test_ledgers_are_values() -> None:
    before = Ledger().plus(Laplace(1.0), WORK)
    before.plus(Laplace(1.0), WORK)
    assert before.steps == 50
    with pytest.raises(AttributeError):
        before.entries = ()  # type: ignore[misc]


@pytest.mark.parametrize("noise", [Laplace(1.0), GammaPLRV(2.0, 0.5)], ids=repr)
def test_one_step_at_a_time_costs_what_all_steps_cost(noise: Laplace | GammaPLRV) -> None:
    ledger = Ledger()
    for _ in range(50):
        ledger = ledger.plus(noise, replace(WORK, steps=1))
    assert ledger.certified(1e-5) == Ledger().plus(noise, WORK).certified(1e-5)


def test_splitting_an_entry_does_not_change_its_cost() -> None:
    """Moments add: T steps cost T times one step's moment at every order, however they are written down."""
    halves = [(Laplace(1.0), replace(WORK, steps=25)), (Laplace(1.0), replace(WORK, steps=25))]
    whole = quick_epsilon([(Laplace(1.0), WORK)], 1e-5)
    assert quick_epsilon(halves, 1e-5).value == pytest.approx(whole.value, rel=1e-12, abs=0.0)
    assert Ledger(tuple(halves)).certified(1e-5) == Ledger().plus(Laplace(1.0), WORK).certified(1e-5)


def test_heterogeneous_entries_add_their_moments() -> None:
    entries = [
        (Laplace(0.9), Workload(0.02, 50, 1.0, 30)),
        (Gaussian(1.4), Workload(0.1, 12, 1.0, 5)),
        (GammaPLRV(2.0, 0.3), Workload(0.05, 3, 0.5, 1000)),
    ]
    ledger = Ledger()
    for noise, work in entries:
        ledger = ledger.plus(noise, work)
    certificate = moments_epsilon(ledger.entries, 1e-6)
    assert ledger.certified(1e-6).value <= certificate.value
    moments = [(w.steps, StepMoments(n, w.clip, w.dimension, w.sample_rate)) for n, w in entries]

    def by_hand(lambda_: int) -> float:
        total = sum(steps * moment(lambda_) for steps, moment in moments)
        return (total - math.log(1e-6 * (lambda_ + 1))) / lambda_ + math.log(lambda_ / (lambda_ + 1))

    assert certificate.method == "rdp"
    assert certificate.value == pytest.approx(min(by_hand(lambda_) for lambda_ in range(1, 200)), rel=1e-9, abs=0.0)
    by_its_order = by_hand(certificate.order or 0)
    assert by_its_order < certificate.value < by_its_order * (1 + 2 * RDP_MARGIN)


def test_different_gaussians_are_composed_by_their_loss_distributions() -> None:
    parts = [(1.0, 0.02, 100), (2.0, 0.1, 30)]
    ledger, reference = Ledger(), None
    for sigma, q, steps in parts:
        ledger = ledger.plus(Gaussian(sigma), Workload(q, steps, 1.0, 7))
        part = pld.from_gaussian_mechanism(sigma, sampling_prob=q, value_discretization_interval=1e-3).self_compose(
            steps
        )
        reference = part if reference is None else reference.compose(part)
    assert reference is not None
    certificate = ledger.certified(1e-5)
    assert certificate.method == "pld"
    assert certificate.value == pytest.approx(reference.get_epsilon_for_delta(1e-5), rel=5e-3, abs=0.0)


def test_order_of_entries_does_not_matter() -> None:
    one = Ledger().plus(Laplace(1.0), WORK).plus(GammaPLRV(2.0, 0.5), WORK)
    other = Ledger().plus(GammaPLRV(2.0, 0.5), WORK).plus(Laplace(1.0), WORK)
    assert one.certified(1e-5).value == pytest.approx(other.certified(1e-5).value, rel=1e-12, abs=0.0)
    assert one.epsilon(1e-5).lower == pytest.approx(other.epsilon(1e-5).lower, rel=1e-6, abs=0.0)


def test_empty_ledger_has_spent_nothing() -> None:
    bracket = Ledger().epsilon(1e-5)
    assert (bracket.certified, bracket.lower, bracket.published) == (0.0, 0.0, 0.0)
    assert Ledger().certified_delta(1.0).value == 0.0
    assert Ledger().steps == 0
    assert Ledger().to_list() == []


def test_ledger_survives_json() -> None:
    ledger = Ledger()
    for i, noise in enumerate(NOISES.values()):
        ledger = ledger.plus(noise, Workload(0.01, 3 + i, 1.0, 26_010))
    again = Ledger.from_list(json.loads(json.dumps(ledger.to_list())))
    assert again == ledger
    assert again.to_list() == ledger.to_list()


def test_ledger_with_an_unknown_noise_is_refused() -> None:
    items = [{"noise": {"noise": "cauchy", "b": 1.0}, "workload": WORK.to_dict()}]
    with pytest.raises(InvalidArgument, match="cauchy"):
        Ledger.from_list(items)


def test_bracket_of_one_entry_is_that_of_the_function() -> None:
    assert Ledger().plus(Laplace(1.0), WORK).epsilon(1e-5) == epsilon(Laplace(1.0), WORK, 1e-5)


class _Understated(Laplace):
    """Laplace noise that claims half of its largest loss."""

    def pure_loss(self, clip: float, dimension: int) -> float:
        return super().pure_loss(clip, dimension) / 2

    def scaled(self, factor: float) -> Laplace:
        return _Understated(self.b * factor)


def test_a_number_that_an_attack_refutes_leaves_neither_bracket_calibration_nor_training() -> None:
    work = Workload(sample_rate=1.0, steps=1, clip=1.0, dimension=1)
    ledger = Ledger().plus(_Understated(1.0), work)
    accountant = CertifiedAccountant()
    accountant.ledger = ledger
    for attempt in (
        lambda: ledger.epsilon(1e-5),
        lambda: ledger.checked(1e-5),
        lambda: accountant.get_epsilon(1e-5),
        lambda: calibrate(_Understated(1.0), work, 0.7, 1e-5),
    ):
        with pytest.raises(ArithmeticError, match="exceeds certified"):
            attempt()
    assert Ledger().plus(Laplace(1.0), work).checked(1e-5) == Ledger().plus(Laplace(1.0), work).certified(1e-5)
