"""The lower bound of correlated noise attacks with one gradient for all rows, which an example can really have."""

import math

import numpy as np
import pytest

from plrvo.accounting import lower
from plrvo.accounting.correlated import CorrelatedLedger, Correlation, Participation, SquareRoot, Tree
from plrvo.accounting.workload import Workload
from plrvo.noise import GammaPLRV, Laplace


@pytest.mark.parametrize("noise", [Laplace(2.0), GammaPLRV(0.4, 3.0), GammaPLRV(5.0, 0.1)], ids=repr)
def test_all_rows_are_moved_by_multiples_of_one_gradient(monkeypatch, noise):
    seen = []
    released = lower._released

    def spy(of, x, spread):
        seen.append((x, spread))
        return released(of, x, spread)

    monkeypatch.setattr(lower, "_released", spy)
    factors = [3.0, 0.01, 1.0]
    lower.one_gradient_loss(noise, 7.0, 500, [(f, 2) for f in factors], 1e-5)
    assert len({spread for _, spread in seen}) == 1
    gradient = {round(x / f, 12) for (x, _), f in zip(seen, factors, strict=True)}
    assert len(gradient) == 1
    assert gradient.pop() * math.sqrt(seen[0][1]) <= 7.0 * (1 + 1e-12)


def test_far_beyond_any_use_all_rows_are_shortened_alike(monkeypatch):
    seen = []
    released = lower._released
    monkeypatch.setattr(lower, "_released", lambda of, x, spread: (seen.append(x), released(of, x, spread))[1])
    lower.one_gradient_loss(Laplace(1.0), 1e6, 1, [(1.0, 1), (0.5, 1)], 1e-5)
    assert seen[0] == pytest.approx(2 * seen[1], rel=1e-12)


def test_two_rows_of_one_coordinate_against_their_integral():
    """n = 1, rows moved by 1 and 1/2: the hockey-stick divergence on a fine grid of the plane."""
    noise, clip, factors, epsilon = Laplace(1.0), 1.0, (1.0, 0.5), 0.7
    z = (np.arange(4000) + 0.5) / 100 - 20
    cell = 0.01
    p = [np.exp(noise.log_density(z - f * clip)) * cell for f in factors]
    q = [np.exp(noise.log_density(z)) * cell for _ in factors]
    exact = float(np.sum(np.maximum(np.outer(*p) - math.exp(epsilon) * np.outer(*q), 0.0)))
    loss = lower.one_gradient_loss(noise, clip, 1, [(f, 1) for f in factors], exact)
    assert 0.98 * exact < loss.delta(epsilon) <= exact * (1 + 1e-3)


@pytest.mark.parametrize("strategy", [Tree(), SquareRoot()])
@pytest.mark.parametrize("noise", [Laplace(3.0), GammaPLRV(0.4, 0.5), GammaPLRV(5.0, 0.1)], ids=repr)
@pytest.mark.parametrize("dimension", [1, 300])
def test_lower_never_exceeds_certified(strategy, noise, dimension):
    ledger = CorrelatedLedger(noise, Workload(1.0, 12, 1.0, dimension), Correlation(strategy, Participation(4, 3)), 12)
    bracket = ledger.epsilon(1e-5)
    assert 0 < bracket.lower <= bracket.certified
