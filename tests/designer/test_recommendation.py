"""The short question has the answer of the long comparison, and a plan that keeps the budget."""

import pytest

from plrvo import Workload
from plrvo.accounting.correlated.named import named_correlation
from plrvo.designer import compare, recommend

DELTA = 1e-5


@pytest.mark.parametrize(("dimension", "steps", "epsilon"), [(4, 1, 1.0), (1000, 1, 1.0), (650, 20, 3.0)])
def test_it_recommends_what_the_comparison_recommends(dimension, steps, epsilon):
    work = Workload(sample_rate=1.0 if steps == 1 else 0.2, steps=steps, clip=0.5, dimension=dimension)
    found = recommend(work, epsilon, DELTA)
    assert found.plan.noise.kind == compare(work, epsilon, DELTA).recommended
    assert 0.99 * epsilon < found.plan.bracket.certified <= epsilon
    assert found.plan.epsilon == epsilon


def test_the_reason_tells_what_the_other_noise_would_cost():
    wide = recommend(Workload(sample_rate=0.2, steps=20, clip=0.5, dimension=650), 3.0, DELTA)
    assert "in 650 dimensions Laplace noise of the same error would certify only epsilon" in wide.reason
    narrow = recommend(Workload(sample_rate=1.0, steps=1, clip=0.5, dimension=1), 1.0, DELTA)
    assert narrow.reason.startswith("in one dimension it has a smaller error than Gaussian noise")


def test_l1_clipping_and_correlated_noise_have_one_noise_that_fits():
    work = Workload(sample_rate=0.5, steps=2, clip=1.0, dimension=100)
    assert recommend(work, 2.0, DELTA, clipping="l1").plan.noise.kind == "laplace"
    correlation, steps = named_correlation("tree", 1000, 2, 500, None, None, 0.0, decays=False)
    in_order = Workload(sample_rate=1.0, steps=steps, clip=1.0, dimension=100)
    assert recommend(in_order, 2.0, DELTA, correlation).plan.noise.kind == "gaussian"
