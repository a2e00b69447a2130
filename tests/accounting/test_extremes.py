"""Settings that once crashed: nested sums under a shared scale, and hardly any Gaussian noise."""

import math

import pytest

import plrvo
from plrvo.validate import InvalidArgument

WORK = plrvo.Workload(sample_rate=0.1, steps=10, clip=1.0, dimension=4)


def test_a_sum_of_sums_is_the_sum_of_all_terms():
    inner = plrvo.SumSeed((1.0, 2.0), (plrvo.UniformSeed(0.5, 1.0), plrvo.UniformSeed(0.1, 0.2)))
    nested = plrvo.SumSeed((0.5, 1.0), (inner, plrvo.UniformSeed(0.0, 1.0)))
    flat = plrvo.SumSeed(
        (0.5, 1.0, 1.0), (plrvo.UniformSeed(0.5, 1.0), plrvo.UniformSeed(0.1, 0.2), plrvo.UniformSeed(0.0, 1.0))
    )
    ours, theirs = (plrvo.epsilon(plrvo.PLRV(seed, shared=True), WORK, 1e-5) for seed in (nested, flat))
    assert ours.certified == pytest.approx(theirs.certified, rel=1e-9)
    assert 0 < ours.lower < ours.certified


def test_hardly_any_gaussian_noise_gives_a_useless_epsilon_not_a_crash():
    bracket = plrvo.epsilon(plrvo.Gaussian(1e-4), WORK, 1e-5)
    assert 1e6 < bracket.certified < math.inf
    fitted = plrvo.calibrate(plrvo.Gaussian(1e-6), WORK, 1.0, 1e-5)
    assert plrvo.epsilon(fitted, WORK, 1e-5).certified == pytest.approx(1.0, rel=1e-4)


@pytest.mark.parametrize("shared", ["no", 1, None])
def test_shared_is_true_or_false(shared):
    with pytest.raises(InvalidArgument, match="shared"):
        plrvo.GammaPLRV(2.0, 1.0, shared)
