"""Counting signs under a shared scale: known in closed form, taken from below, and better than one coordinate."""

import math

import numpy as np
import pytest
from mpmath import mp, mpf

from plrvo.accounting import Ledger, Workload
from plrvo.accounting.lower import lower_loss
from plrvo.accounting.signs import sign_count
from plrvo.noise import PLRV, ExponentialSeed, GammaPLRV, GammaSeed, Laplace, Noise, SumSeed, UniformSeed


@pytest.mark.parametrize(("k", "theta"), [(20.0, 0.05), (2.0, 0.5)])
def test_the_count_has_its_mixture_of_binomial_laws(k: float, theta: float) -> None:
    """E[(1 - e^(-ux)/2)^j (e^(-ux)/2)^(m-j)] by the binomial theorem, with E[e^(-us)] = (1 + theta s)^-k."""
    m, clip, q = 24, 1.5, 0.3
    atoms = sign_count(GammaSeed(k, theta), clip, m, q)
    assert len(atoms.p) == m + 1
    with mp.workdps(50):
        x, half = mpf(clip) / mp.sqrt(m), mpf(1) / 2
        exact = []
        for j in range(m + 1):
            terms = [
                mp.binomial(j, i) * (-half) ** i * half ** (m - j) * (1 + mpf(theta) * x * (m - j + i)) ** -mpf(k)
                for i in range(j + 1)
            ]
            exact.append(mp.binomial(m, j) * ((1 - mpf(q)) * half**m + mpf(q) * mp.fsum(terms)))
        exact_q = [mp.binomial(m, j) * half**m for j in range(m + 1)]
        for c in range(m + 1):
            above, above_q = float(mp.fsum(exact[c:])), float(mp.fsum(exact_q[c:]))
            assert 0.96 * above < atoms.p[c:].sum() <= above
            assert atoms.q[c:].sum() == pytest.approx(above_q, rel=1e-8)
            assert atoms.p[c:].sum() / atoms.q[c:].sum() <= above / above_q * (1 + 1e-13)


def test_the_likelihood_ratio_increases_in_the_count() -> None:
    atoms = sign_count(ExponentialSeed(1.0), 2.0, 5000, 0.1)
    assert np.diff(atoms.losses).min() > -1e-12


def test_a_scale_that_hardly_varies_is_attacked_like_laplace_noise() -> None:
    work = Workload(0.01, 300, 1.0, 10_000)
    fixed = lower_loss([(Laplace(1.0), work)], 1e-5).epsilon(1e-5)
    shared = lower_loss([(GammaPLRV(4e4, 1 / 4e4, shared=True), work)], 1e-5).epsilon(1e-5)
    assert 0.98 * fixed < shared < 1.01 * fixed


@pytest.mark.parametrize("q", [1.0, 0.01])
@pytest.mark.parametrize(
    "noise",
    [
        GammaPLRV(20.0, 0.05, shared=True),
        PLRV(UniformSeed(0.5, 1.5), shared=True),
        PLRV(SumSeed((0.5, 0.5), (UniformSeed(0.0, 2.0), GammaSeed(2.0, 0.5))), shared=True),
    ],
    ids=repr,
)
def test_signs_show_more_than_one_coordinate_and_less_than_is_certified(noise: Noise, q: float) -> None:
    work = Workload(q, 10, 0.5, 4000)
    shown = lower_loss([(noise, work)], 1e-5).epsilon(1e-5)
    alone = lower_loss([(noise, Workload(q, 10, 0.5, 1))], 1e-5).epsilon(1e-5)
    assert 1.2 * alone < shown <= Ledger().plus(noise, work).certified(1e-5).value


def test_the_dimension_costs_no_time_and_changes_little() -> None:
    values = [
        lower_loss([(GammaPLRV(20.0, 0.05, shared=True), Workload(0.01, 300, 1.0, n))], 1e-5).epsilon(1e-5)
        for n in (10**4, 10**9)
    ]
    assert values[0] <= values[1] < 1.02 * values[0]
    assert math.isfinite(values[1])
