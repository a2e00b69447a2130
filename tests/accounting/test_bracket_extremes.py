"""Settings that once crashed: nested sums under a shared scale, and hardly any Gaussian noise."""

import math

import pytest
from mpmath import mp, mpf

import plrvo
from plrvo.accounting.correlated import CorrelatedLedger, Correlation, Participation, Tree
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


@pytest.mark.parametrize(
    ("noise", "clip"),
    [
        (plrvo.Gaussian(1e16), 1.0),
        (plrvo.Gaussian(1e200), 1e-100),
        (plrvo.Laplace(1.0), 1e-30),
        (plrvo.Laplace(1e300), 1e-140),
        (plrvo.GammaPLRV(100.0, 0.01), 1e-20),
        (plrvo.GammaPLRV(1e-300, 1.0), 1.0),
        (plrvo.GammaPLRV(1e300, 1e-300), 1e-30),
        (plrvo.GammaPLRV(100.0, 0.01, shared=True), 1e-20),
        (plrvo.PLRV(plrvo.UniformSeed(0.5, 1.0)), 1e-25),
    ],
    ids=repr,
)
def test_signals_below_the_rounding_of_the_noise_have_a_bracket(noise, clip):
    """An attack that shows nothing is a lower bound of 0; it was an error."""
    for rate in (0.01, 1.0):
        found = plrvo.epsilon(noise, plrvo.Workload(rate, 100, clip, 100), 1e-5)
        assert found.lower == 0.0
        assert 0 <= found.certified < 0.01


def test_a_correlated_row_may_be_as_faint():
    work = plrvo.Workload(1.0, 4, 1.0, 10)
    tree = Correlation(Tree(), Participation(steps_per_epoch=4))
    for b in (1e-170, 1e20, 1e200):
        found = CorrelatedLedger(plrvo.Laplace(b), work, tree, 4).epsilon(1e-5)
        assert found.lower <= found.certified
        assert (found.lower == 0) == (b > 1)


@pytest.mark.parametrize("kind", [plrvo.Gaussian, plrvo.Laplace])
def test_information_of_any_width_is_a_number(kind):
    assert kind(1e-170).fisher_information() == math.inf
    assert kind(1e200).fisher_information() == 0.0
    assert plrvo.accounting.sigma_effective(kind(1e200), WORK) == math.inf


@pytest.mark.parametrize(("k", "theta"), [(1e300, 1e-300), (1e290, 1e-295)])
@pytest.mark.parametrize("clip", [1e-17, 1e-12, 1.0])
def test_the_pure_loss_of_gamma_noise_with_any_k_is_not_lost(k, theta, clip):
    """theta * clip has few digits, or none: (k + 1) log1p(theta clip) has them all."""
    with mp.workdps(40):
        exact = (mpf(k) + 1) * mp.log1p(mpf(theta) * mpf(clip))
        for shared in (False, True):
            found = plrvo.GammaPLRV(k, theta, shared).pure_loss(clip, 1)
            assert found == pytest.approx(float(exact), rel=1e-13, abs=0.0)
