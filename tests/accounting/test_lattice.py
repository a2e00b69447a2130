"""Composition on a lattice: whatever is approximated errs on the lower side."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from plrvo.accounting.lattice import Atoms, compose
from plrvo.accounting.merge import merge

EPSILONS = np.array([0.0, 0.01, 0.1, 0.3, 0.7, 1.0, 1.5, 2.5, 4.0, 8.0])


def hockey_stick(p: np.ndarray, q: np.ndarray, epsilon: float) -> float:
    return float(np.sum(np.maximum(p - math.exp(epsilon) * q, 0.0)))


def repeated(p: np.ndarray, q: np.ndarray, times: int) -> tuple[np.ndarray, np.ndarray]:
    """The product measures themselves."""
    joint_p, joint_q = np.ones(1), np.ones(1)
    for _ in range(times):
        joint_p, joint_q = np.outer(joint_p, p).ravel(), np.outer(joint_q, q).ravel()
    return joint_p, joint_q


@st.composite
def pairs(draw: st.DrawFn, largest: int = 12) -> Atoms:
    """Two positive probability vectors; sometimes far apart, sometimes nearly equal."""
    size = draw(st.integers(2, largest))
    q = np.array(draw(st.lists(st.floats(0.01, 1.0), min_size=size, max_size=size)))
    width = draw(st.sampled_from([1e-3, 0.1, 1.0, 5.0]))
    tilt = np.array(draw(st.lists(st.floats(-1.0, 1.0), min_size=size, max_size=size)))
    p = q * np.exp(width * tilt)
    return Atoms(p / p.sum(), q / q.sum())


@given(atoms=pairs(), step=st.floats(1e-3, 2.0), downwards=st.booleans())
def test_lattice_never_increases_the_divergence(atoms: Atoms, step: float, downwards: bool) -> None:
    merged = merge(atoms.p, atoms.q, step, downwards=downwards)
    p, losses = merged.mass, merged.losses
    assert p.sum() <= 1 + 1e-12
    for epsilon in EPSILONS:
        on_lattice = float(np.sum(p * np.maximum(1 - np.exp(epsilon - losses), 0.0)))
        assert on_lattice <= hockey_stick(atoms.p, atoms.q, epsilon) + 1e-12


def test_lattice_loses_little_on_a_smooth_pair() -> None:
    """Two normals a shift apart, in fine bins: the error is of second order in the step."""
    z = np.linspace(-8.0, 9.0, 40_001)
    p, q = np.exp(-((z - 1) ** 2) / 2), np.exp(-(z**2) / 2)
    atoms = Atoms(p / p.sum(), q / q.sum())
    errors = []
    for step in (0.2, 0.05):
        merged = merge(atoms.p, atoms.q, step)
        mass, losses = merged.mass, merged.losses
        lost = [
            hockey_stick(atoms.p, atoms.q, e) - np.sum(mass * np.maximum(1 - np.exp(e - losses), 0)) for e in EPSILONS
        ]
        assert min(lost) > -1e-12
        errors.append(max(lost))
    assert errors[1] < min(errors[0] / 8, 5e-4)


@given(atoms=pairs(largest=4), times=st.integers(1, 5), log_delta=st.floats(-14.0, -1.0))
@example(atoms=Atoms(np.array([0.4, 0.6]), np.array([0.6, 0.4])), times=3, log_delta=-11.5)
@example(atoms=Atoms(np.array([0.4, 0.6]), np.array([0.6, 0.4])), times=2, log_delta=-11.5)
def test_composition_never_exceeds_brute_force(atoms: Atoms, times: int, log_delta: float) -> None:
    delta = math.exp(log_delta)
    composed = compose([(atoms, times)], delta)
    p, q = repeated(atoms.p, atoms.q, times)
    for epsilon in EPSILONS:
        assert composed.delta(epsilon) <= hockey_stick(p, q, epsilon) + 1e-10
    shown = composed.epsilon(delta)
    if shown > 0:  # then the true divergence at that epsilon is at least delta
        assert hockey_stick(p, q, shown) >= delta - 1e-10


@given(one=pairs(largest=4), other=pairs(largest=3), times=st.integers(1, 3))
def test_composition_of_different_pairs_never_exceeds_brute_force(one: Atoms, other: Atoms, times: int) -> None:
    composed = compose([(one, times), (other, 2)], 1e-4)
    p, q = repeated(one.p, one.q, times)
    p2, q2 = repeated(other.p, other.q, 2)
    p, q = np.outer(p, p2).ravel(), np.outer(q, q2).ravel()
    for epsilon in EPSILONS:
        assert composed.delta(epsilon) <= hockey_stick(p, q, epsilon) + 1e-10


@pytest.mark.parametrize("times", [1, 7, 100, 3000, 100_000])
def test_composition_of_coin_tosses_agrees_with_the_binomial_distribution(times: int) -> None:
    """Randomised response has two losses, so that T of them have a binomial one: below it, and close for few."""
    gap = 1.5 / math.sqrt(times)
    high, low = math.exp(gap) / (1 + math.exp(gap)), 1 / (1 + math.exp(gap))
    composed = compose([(Atoms(np.array([high, low]), np.array([low, high])), times)], 1e-5)
    k = np.arange(times + 1)
    log_p, log_q = stats.binom.logpmf(k, times, high), stats.binom.logpmf(k, times, low)
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        exact = float(np.sum(np.exp(log_p) * np.maximum(-np.expm1(np.minimum(epsilon + log_q - log_p, 0.0)), 0.0)))
        assert composed.delta(epsilon) <= exact + 1e-9
        if times <= 100:
            assert composed.delta(epsilon) >= 0.98 * exact - 1e-4


def test_identical_pairs_show_nothing() -> None:
    atoms = Atoms(np.array([0.2, 0.5, 0.3]), np.array([0.2, 0.5, 0.3]))
    composed = compose([(atoms, 50)], 1e-5)
    assert composed.epsilon(1e-5) == 0.0
    assert composed.delta(0.0) == pytest.approx(0.0, abs=1e-9)


def test_epsilon_and_delta_of_a_composition_are_inverse() -> None:
    atoms = Atoms(np.array([0.3, 0.3, 0.4]), np.array([0.4, 0.3, 0.3]))
    composed = compose([(atoms, 40)], 1e-4)
    for delta in (1e-4, 1e-2):
        epsilon = composed.epsilon(delta)
        assert epsilon > 0
        assert composed.delta(epsilon) == pytest.approx(delta, rel=1e-3, abs=0.0)
