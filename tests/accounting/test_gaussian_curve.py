"""Signals whose square is 0, deltas that are 0 in a double, and the smallest delta there is."""

import math

import numpy as np
import pytest
from mpmath import mp, mpf

import plrvo
from plrvo.accounting import Workload
from plrvo.accounting.by_loss import _together
from plrvo.accounting.gaussian_curve import gaussian_delta
from plrvo.accounting.lattice import Atoms, compose
from plrvo.accounting.sampled_gaussian import Steps
from plrvo.noise import PLRV, GammaPLRV, Gaussian, Laplace, UniformSeed

SMALLEST = 5e-324


@pytest.mark.parametrize("signal", [1e-300, 1e-200, 1.2345678901234567e-158, 1.0, 1e200])
def test_signals_add_up_whatever_their_size(signal):
    with mp.workdps(40):
        exact = mp.sqrt(3 * mpf(signal) ** 2 + (mpf(2.5) * mpf(signal)) ** 2)
        found = _together([Steps(signal, 1.0, 3), Steps(2.5 * signal, 1.0, 1), Steps(7.0, 0.5, 9)])
        assert exact <= found <= exact * (1 + 1e-14)


@pytest.mark.parametrize("rate", [1.0, 0.3])
@pytest.mark.parametrize(("sigma", "clip"), [(1e158, 1.0), (1e200, 1.0), (1e308, 1e-30)])
def test_noise_beyond_all_measure_costs_nothing_to_speak_of(sigma, clip, rate):
    work = Workload(rate, 1, clip, 1)
    assert plrvo.epsilon(Gaussian(sigma), work, 1e-5).certified == 0.0
    assert 0 < plrvo.delta(Gaussian(sigma), work, 1.3) < 1e-320


@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_no_noise_to_speak_of_promises_nothing(rate):
    work = Workload(rate, 1, 1.0, 1)
    assert plrvo.epsilon(Gaussian(1e-200), work, 1e-5).certified == math.inf
    assert plrvo.delta(Gaussian(1e-200), work, 1.3) == 1.0


@pytest.mark.parametrize("noise", [Gaussian(600.0), GammaPLRV(5e6, 1e-9)], ids=repr)
def test_only_a_bounded_loss_has_a_delta_of_zero(noise):
    work = Workload(0.3, 1, 1.0, 1)
    bounded = noise.pure_loss(1.0, 1) < math.inf
    assert (plrvo.delta(noise, work, 1.3) == 0) == bounded


@pytest.mark.parametrize("signal", [0.01, 0.3, 2.0])
def test_a_gaussian_delta_below_all_normal_numbers_is_rounded_up(signal):
    with mp.workdps(400):
        m = mpf(signal)
        for a in np.linspace(37.3, 39.5, 40):
            epsilon = signal * (float(a) + signal / 2)
            b = mpf(epsilon) / m - m / 2
            exact = mp.erfc(b / mp.sqrt(2)) / 2 - mp.exp(mpf(epsilon)) * mp.erfc((b + m) / mp.sqrt(2)) / 2
            found = gaussian_delta(signal, epsilon)
            if found < 2.0**-1030:  # a hair below the normal numbers its 12 digits are fewer than the double's
                assert found * (1 + 1e-10) >= exact
            assert plrvo.delta(Gaussian(1.0), Workload(1.0, 1, signal, 1), epsilon) >= exact


@pytest.mark.parametrize("rate", [1.0, 0.3])
@pytest.mark.parametrize(
    "noise",
    [
        Gaussian(3.0),
        Laplace(3.0),
        GammaPLRV(3.0, 0.1),
        PLRV(UniformSeed(0.1, 0.2)),
        PLRV(UniformSeed(0.1, 0.2), shared=True),
        GammaPLRV(3.0, 0.1, shared=True),
    ],
    ids=repr,
)
def test_the_smallest_delta_has_a_bracket(noise, rate):
    bracket = plrvo.epsilon(noise, Workload(rate, 3, 1.0, 4), SMALLEST)
    assert 0 < bracket.lower <= bracket.certified < math.inf


def test_a_window_for_the_smallest_delta():
    atoms = Atoms(np.array([0.4, 0.6]), np.array([0.6, 0.4]))
    assert 0 < compose([(atoms, 3)], SMALLEST).epsilon(SMALLEST) <= 3 * math.log(1.5) * (1 + 1e-12)
