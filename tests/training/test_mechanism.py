"""What a step releases is the same, whether a plan says it or Opacus's arguments do."""

import pytest

import plrvo
from plrvo.training.mechanism import Mechanism
from plrvo.validate import InvalidArgument

WORK = plrvo.Workload(sample_rate=1 / 40, steps=100, clip=2.0, dimension=50)


@pytest.mark.parametrize("clipping", list(plrvo.Clipping))
def test_steps_that_are_counted_cost_what_planned_ones_cost(clipping):
    plan = plrvo.Plan.certify(plrvo.Laplace(3.0), WORK, 1e-5, clipping=clipping)
    step = plrvo.Workload(sample_rate=1 / 40, steps=1, clip=2.0, dimension=50)
    counted = Mechanism.counted(plrvo.Laplace(3.0), step, clipping)
    assert counted.after(100, 1e-5) == plan
    assert counted.ledger(100) == plan.ledger(100) == Mechanism.of(plan).ledger(100)
    assert counted.to_dict() == Mechanism.of(plan).to_dict()
    assert (counted.steps, counted.most_steps, counted.epoch) == (None, None, 40)
    assert Mechanism.of(plan).steps == 100


def test_a_budget_bounds_the_steps_and_a_given_noise_does_not():
    plan = plrvo.Plan.fitted(plrvo.Laplace(1.0), WORK, 1e-5, 2.0)
    assert Mechanism.of(plan).most_steps == 100
    assert Mechanism.of(plrvo.Plan.certify(plan.noise, WORK, 1e-5)).most_steps is None


def test_more_parameters_than_are_charged_for_are_refused():
    mechanism = Mechanism.of(plrvo.Plan.certify(plrvo.Laplace(3.0), WORK, 1e-5))
    mechanism.check_covers(50)
    with pytest.raises(InvalidArgument, match="at least 51"):
        mechanism.check_covers(51)
