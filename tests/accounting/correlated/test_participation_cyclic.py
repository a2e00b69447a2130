"""Sampling by turns: each visit is a step of DP-SGD, whatever the noise and however the others adapt."""

import math

import numpy as np
import pytest

import plrvo
from plrvo.accounting.correlated import (
    Banded,
    CorrelatedLedger,
    Correlation,
    CyclicPoisson,
    Participation,
    SquareRoot,
    Tree,
    fit_banded,
)
from plrvo.accounting.moments import StepMoments
from plrvo.accounting.workload import Workload
from plrvo.validate import InvalidArgument

DELTA = 1e-5


def ledger(noise, strategy, groups, rate, *, steps=60, dimension=1000, taken=None):
    correlation = Correlation(strategy, CyclicPoisson(groups, rate))
    return CorrelatedLedger(noise, Workload(1.0, steps, 1.0, dimension), correlation, steps if taken is None else taken)


@pytest.mark.parametrize("noise", [plrvo.Gaussian(2.0), plrvo.Laplace(2.0), plrvo.GammaPLRV(20.0, 0.03)], ids=str)
def test_one_band_and_one_group_are_dp_sgd(noise):
    ours = ledger(noise, Banded(), 1, 0.05).epsilon(DELTA)
    theirs = plrvo.epsilon(noise, Workload(0.05, 60, 1.0, 1000), DELTA)
    assert ours.certified == pytest.approx(theirs.certified, rel=1e-6)  # clips that differ in their last bit
    assert ours.lower == pytest.approx(theirs.lower, rel=1e-4)
    assert ours.certified >= ours.lower


def test_gaussian_bands_cost_what_choquette_choo_et_al_say():
    """ceil(T/groups) steps of DP-SGD with the rate of a group and the norm of a column."""
    strategy = fit_banded(6, 60)
    norm = math.sqrt(sum(v**2 for v in strategy.values))
    theirs = plrvo.epsilon(plrvo.Gaussian(8.0), Workload(0.3, 9, norm, 1), DELTA).certified
    assert ledger(plrvo.Gaussian(8.0), strategy, 7, 0.3).certified(DELTA).value == pytest.approx(theirs, rel=1e-6)


@pytest.mark.parametrize("noise", [plrvo.Gaussian(1.3), plrvo.Laplace(1.3), plrvo.GammaPLRV(8.0, 0.1)], ids=str)
def test_the_moment_of_a_visit_is_that_of_one_sampled_step_even_where_others_adapt(noise):
    """Two rows of one visit, integrated; what others add to the second row depends on the first one's output."""
    q, alpha, c = 0.3, 3, (1.0, 0.6)
    y = np.linspace(-60, 60, 6001)
    first = noise.log_density(y), noise.log_density(y - c[0])
    total = 0.0
    for i, value in enumerate(y):
        others = 2 * np.sin(3 * value) + 1 / (1 + value**2)
        second = noise.log_density(y - others), noise.log_density(y - others - c[1])
        without = first[0][i] + second[0]
        mixed = np.logaddexp(math.log(1 - q) + without, math.log(q) + first[1][i] + second[1])
        total += float(np.sum(np.exp(alpha * mixed - (alpha - 1) * without)))
    moment = math.log(total * (y[1] - y[0]) ** 2)
    h = [noise.log_moment(x, np.arange(4.0)) for x in c]
    weights = [math.comb(3, eta) * (1 - q) ** (3 - eta) * q**eta for eta in range(4)]
    exact = math.log(sum(w * math.exp(h[0][eta] + h[1][eta]) for eta, w in enumerate(weights)))
    assert moment == pytest.approx(exact, rel=1e-3)
    found = ledger(noise, Banded(c), 2, q, steps=2, dimension=1).release()
    assert exact <= StepMoments(noise, found.clip, found.dimension, q)(2) * (1 + 1e-9)


@pytest.mark.parametrize("noise", [plrvo.Gaussian(4.0), plrvo.Laplace(4.0), plrvo.GammaPLRV(20.0, 0.015)], ids=str)
def test_the_bracket_holds_and_sampling_amplifies(noise):
    strategy = fit_banded(5, 60)
    sampled = ledger(noise, strategy, 5, 0.1).epsilon(DELTA)
    assert 0.85 * sampled.certified < sampled.lower <= sampled.certified  # all rows of a block are attacked
    in_order = CorrelatedLedger(noise, Workload(1.0, 60, 1.0, 1000), Correlation(strategy, Participation(5, 12)), 60)
    assert sampled.certified < 0.5 * in_order.certified(DELTA).value
    # By moments; a visit by itself and all of them as one release may be dominated by different Gaussian steps.
    every = ledger(noise, strategy, 5, 1.0).quick(DELTA).value
    assert every == pytest.approx(in_order.quick(DELTA).value, rel=1e-3)
    so_far = [ledger(noise, strategy, 5, 0.1, taken=t).certified(DELTA).value for t in (1, 5, 6, 30, 60)]
    assert so_far == sorted(so_far)
    assert so_far[-1] == sampled.certified


@pytest.mark.parametrize(
    ("build", "named"),
    [
        (lambda: Correlation(fit_banded(5, 60), CyclicPoisson(4, 0.1)), "groups=4"),
        (lambda: Correlation(Tree(), CyclicPoisson(4, 0.1)), "banded"),
        (lambda: Correlation(SquareRoot(), CyclicPoisson(4, 0.1)), "banded"),
        (lambda: Correlation(Banded(), CyclicPoisson(4, 0.1), 10), "restarts"),
        (lambda: CyclicPoisson(0, 0.1), "groups=0"),
        (lambda: CyclicPoisson(3, 1.1), "sample_rate=1.1"),
        (lambda: ledger(plrvo.GammaPLRV(100.0, 0.01, shared=True), Banded(), 1, 0.1), "shared"),
    ],
)
def test_bad_input_is_named(build, named):
    with pytest.raises(InvalidArgument, match=named):
        build()


def test_a_description_comes_back():
    correlation = Correlation(fit_banded(3, 60), CyclicPoisson(4, 0.1))
    assert Correlation.from_dict(correlation.to_dict()) == correlation
    assert correlation.batch_share == 0.1 / 4
