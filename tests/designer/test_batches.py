"""Batches and steps for a time limit, against the accountant and against what each number is said to be."""

import math

import pytest

from plrvo import Gaussian, Ledger, Workload
from plrvo.designer.batches import ENOUGH_STEPS, batches, proposed
from plrvo.validate import InvalidArgument

EXAMPLES, DIMENSION, EPSILON, DELTA, PASSES = 1000, 650, 2.0, 1e-5, 4000.0


@pytest.fixture(scope="module")
def found():
    return batches(EXAMPLES, DIMENSION, EPSILON, DELTA, PASSES)


def test_every_alternative_keeps_the_budget_and_the_time(found):
    for each in found:
        work = Workload(each.sample_rate, each.steps, 1.0, DIMENSION)
        certified = Ledger().plus(Gaussian(each.noise_multiplier), work).certified(DELTA).value
        assert 0.99 * EPSILON < certified <= EPSILON
        assert PASSES - each.batch < each.batch * each.steps <= PASSES
        assert each.sample_rate == each.batch / EXAMPLES


def test_noise_and_signal_are_those_of_a_run(found):
    for each in found:
        # A step's noise has standard deviation s in each of d coordinates of a sum of B gradients of norm 1.
        squared = DIMENSION * (each.noise_multiplier / each.batch) ** 2
        assert each.noise == pytest.approx(math.sqrt(squared))
        assert each.signal == pytest.approx(each.steps / squared)


def test_larger_batches_have_less_noise_a_step(found):
    noises = [each.noise for each in found]
    assert noises == sorted(noises, reverse=True)
    assert found[-1].steps == 10


def test_what_is_proposed_has_the_most_signal_that_can_be_used(found):
    chosen = proposed(found)
    for each in found:
        assert each.useful() == pytest.approx(each.signal * each.steps / (each.steps + ENOUGH_STEPS))
        assert each.useful() <= chosen.useful()


def test_without_need_of_steps_the_best_signal_would_be_proposed_and_few_steps_are_not(found):
    strongest = max(found, key=lambda each: each.signal)
    assert max(found, key=lambda each: each.useful(0)) is strongest
    assert max(found, key=lambda each: each.useful(1e9)).steps >= proposed(found).steps > strongest.steps


def test_a_time_that_is_too_short_is_refused():
    with pytest.raises(InvalidArgument, match="passes=9"):
        batches(EXAMPLES, DIMENSION, EPSILON, DELTA, passes=9)
