"""The predictor: good enough to start from, and never trusted."""

import math

import numpy as np
import pytest

import plrvo
from plrvo import GammaPLRV, Ledger, Workload, calibrate
from plrvo.designer import ThetaPredictor
from plrvo.designer.predictor import FEATURES, Configuration, Ranges, configurations
from plrvo.validate import InvalidArgument


@pytest.fixture(scope="module")
def found() -> list[Configuration]:
    return configurations(700, np.random.default_rng(0))


@pytest.fixture(scope="module")
def trained(found) -> ThetaPredictor:
    return ThetaPredictor.fit(found, np.random.default_rng(1))


def test_configurations_lie_on_the_budget(found):
    """In high dimension 1/(C sqrt I) is the multiplier of the Gaussian with the same Renyi cost, whatever the k."""
    for row in found[:10]:
        work = Workload(row.sample_rate, row.steps, row.clip, 26_010)
        noise = GammaPLRV(row.k, row.theta)
        assert row.epsilon * (1 - 1e-3) < Ledger().plus(noise, work).quick(1e-5).value <= row.epsilon
        other = GammaPLRV(3.0, 1.0).scaled(
            math.sqrt(GammaPLRV(3.0, 1.0).fisher_information() / noise.fisher_information())
        )
        assert Ledger().plus(other, work).quick(1e-5).value == pytest.approx(row.epsilon, rel=3e-3)


def test_configurations_stay_in_their_ranges(found):
    ranges = Ranges()
    for name in FEATURES:
        values = [getattr(row, name) for row in found]
        low, high = getattr(ranges, name)
        assert low <= min(values) < 1.5 * low
        assert high / 1.5 < max(values) <= high


def test_beats_the_mean_tenfold_on_held_out_configurations(found, trained):
    held_out = trained.held_out
    assert held_out.gain >= 10
    assert len(held_out.truth) == 140
    # The report is true: computed again from the model and the configurations that training did not see.
    order = np.random.default_rng(1).permutation(len(found))
    unseen, seen = [found[i] for i in order[:140]], [found[i] for i in order[140:]]
    truth = np.log([row.theta for row in unseen])
    np.testing.assert_array_equal(truth, held_out.truth)
    error = np.sqrt(np.mean((trained.model.predict([row.features for row in unseen]) - truth) ** 2))
    naive = np.sqrt(np.mean((np.mean(np.log([row.theta for row in seen])) - truth) ** 2))
    assert held_out.gain == pytest.approx(naive / error)
    assert 1 < held_out.typical_factor < 1.3


def test_importances_name_the_inputs_and_sum_to_one(trained):
    assert tuple(trained.importances) == FEATURES
    assert sum(trained.importances.values()) == pytest.approx(1)
    assert max(trained.importances, key=lambda name: trained.importances[name]) == "k"


def test_training_repeats_with_its_generator(found, trained):
    again = ThetaPredictor.fit(found, np.random.default_rng(1))
    np.testing.assert_array_equal(again.held_out.predicted, trained.held_out.predicted)


WORK = Workload(sample_rate=0.02, steps=700, clip=0.3, dimension=26_010)


def test_a_prediction_is_a_start_for_the_solver(trained):
    start = trained.start(WORK, 2.0, k=500.0)
    exact = calibrate(GammaPLRV(500.0, 1.0), WORK, 2.0, 1e-5)
    assert abs(math.log(start.theta / exact.theta)) < 1
    plan = plrvo.design(WORK, 2.0, 1e-5, start=start)
    assert plan.bracket.certified <= 2
    assert plan.snr >= plrvo.design(WORK, 2.0, 1e-5).snr * (1 - 1e-6)


class _Liar:
    """A model that is off by a factor of a million, in the unsafe direction."""

    def predict(self, rows):
        return [math.log(1e6)] * len(rows)


def test_a_wrong_prediction_is_never_used_uncertified(trained):
    liar = ThetaPredictor(_Liar(), trained.held_out, trained.importances, 26_010, 1e-5, trained.accountant)
    for predictor in (trained, liar):
        noise = predictor.certified_noise(WORK, 2.0, k=500.0, delta=1e-5)
        assert 2 * (1 - 1e-3) < Ledger().plus(noise, WORK).certified(1e-5).value <= 2
    assert plrvo.design(WORK, 2.0, 1e-5, start=liar.start(WORK, 2.0, k=500.0)).bracket.certified <= 2


def test_too_few_configurations_are_refused(found):
    with pytest.raises(InvalidArgument, match="at least 20"):
        ThetaPredictor.fit(found[:19], np.random.default_rng(0))
    with pytest.raises(InvalidArgument, match="held_out_share=1"):
        ThetaPredictor.fit(found, np.random.default_rng(0), held_out_share=1)
    with pytest.raises(InvalidArgument, match="accountant"):
        configurations(1, np.random.default_rng(0), accountant="pld")


def test_published_configurations_meet_the_published_budget():
    ranges = Ranges(epsilon=(1.0, 4.0), steps=(100, 300))
    for row in configurations(3, np.random.default_rng(3), dimension=1000, accountant="published", ranges=ranges):
        bracket = plrvo.epsilon(
            GammaPLRV(row.k, row.theta), Workload(row.sample_rate, row.steps, row.clip, 1000), delta=1e-5
        )
        assert row.epsilon * 0.98 < bracket.published <= row.epsilon
