"""Where no row holds two visits of an example, each visit is a release with fresh noise, and has its profile."""

import math

import numpy as np
import pytest

from plrvo import GammaPLRV, Gaussian, Laplace, Ledger, Workload
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

DELTA = 1e-5
STRATEGIES = [Tree(), Tree(True), SquareRoot(), fit_banded(4, 12), Banded()]


def ledger(noise, strategy, participation, steps, taken=None, restart=None):
    correlation = Correlation(strategy, participation, restart)
    taken = steps if taken is None else taken
    return CorrelatedLedger(noise, Workload(1.0, steps, 1.0, 5000), correlation, taken)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
def test_one_visit_is_one_release(strategy):
    """Of the longest column, which the matrix itself gives."""
    found = ledger(Laplace(20.0), strategy, Participation(12), 12)
    column = float(np.linalg.norm(strategy.matrix(12), axis=0).max())
    assert found.visits().clip == pytest.approx(column, rel=1e-9)
    assert (found.visits().steps, found.visits().sample_rate) == (1, 1.0)
    alone = Ledger().plus(Laplace(20.0), found.visits()).certified(DELTA)
    assert found.certified(DELTA).value == pytest.approx(alone.value, rel=1e-12)
    assert found.certified(DELTA).method == "profile"
    assert found.attacked(DELTA) <= found.certified(DELTA).value < found.quick(DELTA).value


@pytest.mark.parametrize("noise", [Laplace(1.3), GammaPLRV(8.0, 0.1)], ids=str)
@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_the_delta_of_a_visit_is_that_of_a_release_however_the_others_adapt(noise, rate):
    """Two rows of one visit, integrated; what others add to the second row depends on the first one's output."""
    c, epsilon = (1.0, 0.6), 0.3
    y = np.linspace(-40, 40, 2001)
    first = np.exp(noise.log_density(y)), np.exp(noise.log_density(y - c[0]))
    deltas = []
    for adapted in (0.0, 2.0):
        total = 0.0
        for i, value in enumerate(y):
            others = adapted * (np.sin(3 * value) + 1 / (1 + value**2))
            second = [np.exp(noise.log_density(y - others - shift)) for shift in (0.0, c[1])]
            without = first[0][i] * second[0]
            mixed = (1 - rate) * without + rate * first[1][i] * second[1]
            total += float(np.sum(np.maximum(mixed - math.exp(epsilon) * without, 0.0)))
        deltas.append(total * (y[1] - y[0]) ** 2)
    assert deltas[1] == pytest.approx(deltas[0], rel=3e-3)
    step = Workload(rate, 1, math.hypot(*c), 2)
    assert deltas[1] <= Ledger().plus(noise, step).certified_delta(epsilon).value * (1 + 3e-3)


def test_visits_that_share_rows_are_a_stream_and_others_are_not():
    three = Participation(steps_per_epoch=8, epochs=3)
    assert ledger(Laplace(20.0), Tree(), three, 24).visits() is None
    assert ledger(Laplace(20.0), SquareRoot(), three, 24).visits() is None
    assert ledger(Laplace(20.0), Banded((1.0,) * 9), three, 24).visits() is None
    assert ledger(Laplace(20.0), Banded((1.0,) * 8), three, 24).visits().steps == 3
    assert ledger(Laplace(20.0), Tree(), three, 24, taken=8).visits().steps == 1
    assert ledger(Laplace(20.0), Tree(), three, 24, taken=9).visits() is None
    near = Participation(steps_per_epoch=8, epochs=3, separation=3)
    assert ledger(Laplace(20.0), Banded((1.0,) * 4), near, 24).visits() is None
    assert ledger(Laplace(20.0), Banded((1.0,) * 3), near, 24).visits().steps == 3


@pytest.mark.parametrize("restart", [None, 8, 6])
def test_visits_together_have_the_energy_of_the_stream(restart):
    found = ledger(Laplace(20.0), fit_banded(5, 24), Participation(8, 3), 24, restart=restart)
    visits, whole = found.visits(), found.release()
    assert math.sqrt(visits.steps) * visits.clip >= whole.clip * (1 - 1e-12)
    if restart is None:  # but for the last columns, which end with the run
        assert math.sqrt(visits.steps) * visits.clip < 1.1 * whole.clip


@pytest.mark.parametrize("noise", [Laplace(20.0), GammaPLRV(10.0, 0.005)], ids=str)
@pytest.mark.parametrize(
    ("participation", "gain"), [(Participation(12), 0.95), (Participation(4, 3), 0.985), (CyclicPoisson(4, 0.4), 0.97)]
)
def test_visits_cost_less_than_by_moments_and_no_less_than_an_attack(noise, participation, gain):
    found = ledger(noise, fit_banded(4, 12), participation, 12)
    assert found.attacked(DELTA) <= found.certified(DELTA).value < gain * found.quick(DELTA).value


def test_gaussian_rows_are_as_they_were():
    found = ledger(Gaussian(20.0), fit_banded(4, 12), Participation(4, 3), 12)
    assert found.certified(DELTA).value == pytest.approx(found.quick(DELTA).value, rel=1e-9)
