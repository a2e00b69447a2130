"""Seeds that narrow to a constant: nothing may cancel, and the noise must become Laplace noise."""

import math
import warnings

import numpy as np
import pytest
from mpmath import mp, mpf

from plrvo.accounting import Ledger, Workload
from plrvo.noise import (
    PLRV,
    ChiSquaredSeed,
    GammaPLRV,
    GammaSeed,
    Laplace,
    SumSeed,
    TruncatedNormalSeed,
    UniformSeed,
    WeibullSeed,
)
from plrvo.noise.functions import normal_excess

# Seeds of mean one and about the given width; a Weibull seed's mean is not one, but 1 - .58 width.
FAMILIES = {
    "gamma": lambda w: GammaSeed(w**-2, w**2),
    "chi-squared": lambda w: ChiSquaredSeed(2 * w**-2, w**2 / 2),
    "uniform": lambda w: UniformSeed(1 - w, 1 + w),
    "truncated normal": lambda w: TruncatedNormalSeed(1.0, w),
    "truncated far out": lambda w: TruncatedNormalSeed(0.0, w, 1.0),
    "Weibull": lambda w: WeibullSeed(1 / w, 1.0),
    "sum": lambda w: SumSeed((0.5, 0.5), (UniformSeed(1 - w, 1 + w), TruncatedNormalSeed(1.0, w))),
}
WIDTHS = [1e-4, 1e-8, 1e-12, 1e-15]


def moved(name, width):
    """How far the mean may be from one."""
    return width if name in ("Weibull", "truncated far out") else 2 * width**2


@pytest.mark.parametrize("name", FAMILIES)
def test_cumulants_become_those_of_a_constant(name):
    for width in WIDTHS:
        seed = FAMILIES[name](width)
        t = -np.array([1e-12, 1e-6, 1e-3, 0.5, 1.0, 30.0])
        value, mean, variance = seed.cumulants(t)
        tolerance = 2 * moved(name, width) + 30 * width**2 + 1e-14
        assert value == pytest.approx(t, rel=tolerance, abs=0.0)
        assert mean == pytest.approx(1.0, rel=tolerance, abs=0.0)
        assert np.all((variance > 0) & (variance < 3 * width**2))


@pytest.mark.parametrize("name", FAMILIES)
def test_moments_pure_loss_and_information_become_those_of_laplace_noise(name):
    for width in WIDTHS:
        noise, laplace = PLRV(FAMILIES[name](width)), Laplace(1.0)
        # Second derivatives of a loss in u are bounded by a few squares of the shift.
        tolerance = 40 * moved(name, width) + 300 * width**2 + 2e-12
        assert noise.fisher_information() == pytest.approx(1.0, rel=tolerance, abs=0.0)
        eta = np.array([2.0, 9.0])
        for shift in (1e-9, 1e-4, 0.3, 4.0):
            assert noise.log_moment(shift, eta) == pytest.approx(laplace.log_moment(shift, eta), rel=tolerance, abs=0.0)
        for shift in (1e-150, 1e-9, 1e-4, 0.3, 4.0):
            assert noise.pure_loss(shift, 5) == pytest.approx(laplace.pure_loss(shift, 5), rel=tolerance, abs=0.0)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("width", [1e-8, 1e-15, 1e-18])
@pytest.mark.parametrize("name", FAMILIES)
def test_certified_by_moments_becomes_that_of_laplace_noise(name, width, shared):
    """Above it by what the hull (1 %) or a share of delta costs, and never below it by more than the seed moves."""
    if name == "uniform" and width < 1e-16:
        pytest.skip("its ends would be the same number")
    if name == "sum" and width < 1e-16:
        pytest.skip("its uniform part would have no width")
    work = Workload(0.01, 300, 1.0, 64)
    laplace = Ledger().plus(Laplace(1.0), work).quick(1e-5).value
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        value = Ledger().plus(PLRV(FAMILIES[name](width), shared), work).quick(1e-5).value
    assert laplace * (1 - 4 * width - 1e-9) <= value <= 1.01 * laplace


def test_a_narrow_truncated_normal_is_not_free():
    """It was certified at 0: issue 15, D."""
    narrow, laplace = (
        Ledger().plus(noise, Workload(0.01, 300, 1.0, 64)).epsilon(1e-5)
        for noise in (PLRV(TruncatedNormalSeed(1.0, 1e-8)), Laplace(1.0))
    )
    assert 0.99 < narrow.lower < narrow.certified
    assert narrow.certified == pytest.approx(laplace.certified, rel=1e-6, abs=0.0)


@pytest.mark.parametrize("k", [1e10, 1e100, 1e300])
@pytest.mark.parametrize("shared", [False, True])
def test_gamma_noise_of_any_k(k, shared):
    noise = GammaPLRV(k, 1 / k, shared)
    assert noise.fisher_information(7) == pytest.approx(1.0, rel=1e-9)
    ours, laplace = (Ledger().plus(one, Workload(0.01, 300, 1.0, 64)) for one in (noise, Laplace(1.0)))
    assert laplace.quick(1e-5).value * (1 - 1e-9) <= ours.quick(1e-5).value <= 1.01 * laplace.quick(1e-5).value
    close = 2e-3 if shared else 1e-5  # a shared scale is rounded up on a grid
    assert ours.certified(1e-5).value == pytest.approx(laplace.certified(1e-5).value, rel=close, abs=0.0)


@pytest.mark.parametrize("c", [-30.0, -3.0, 0.0, 2.9, 3.1, 8.0, 40.0, 1e5])
def test_the_excess_of_a_normal_variable(c):
    with mp.workdps(60):
        x = mpf(c)
        hazard = mp.npdf(x) / mp.ncdf(-x) if c < 100 else None
        if hazard is None:  # asymptotic series, far beyond where it is good to sixty digits
            expected = [1 / x - 2 / x**3 + 10 / x**5, 1 / x**2 - 6 / x**4]
        else:
            expected = [hazard - x, 1 - hazard * (hazard - x)]
        assert [float(v) for v in normal_excess(c)] == pytest.approx([float(e) for e in expected], rel=1e-13, abs=0.0)


@pytest.mark.parametrize(
    ("mean", "std", "low"), [(1.0, 1e-8, 0.0), (1.0, 0.7, 0.2), (-5.0, 1.0, 0.1), (-1e8, 1.0, 0.5)]
)
def test_the_truncated_normal_to_many_digits(mean, std, low):
    for t in (-1e9, -40.0, -1.0, -1e-7, -1e-14, 1e-10, 0.5):
        seed = TruncatedNormalSeed(mean, std, low)
        with mp.workdps(60):
            cut = (mpf(low) - mpf(mean)) / mpf(std)
            c = cut - mpf(std) * t

            def scaled(x):  # log of e^(x^2/2) P(Z > x), by its series far out
                if x > 1e4:
                    return mp.log((1 - 1 / x**2 + 3 / x**4 - 15 / x**6 + 105 / x**8) / x) - mp.log(2 * mp.pi) / 2
                return mp.log(mp.erfc(x / mp.sqrt(2)) / 2) + x**2 / 2

            expected = float(mpf(low) * t + scaled(c) - scaled(cut))
        assert float(seed.cumulants(t)[0]) == pytest.approx(expected, rel=2e-13, abs=0.0)


@pytest.mark.parametrize("shape", [0.3, 0.7, 1.0, 1.3, 4.0, 50.0])
@pytest.mark.parametrize("t", [-1e6, -30.0, -1e-3, -1e-13, 1e-13, 0.5, 40.0])
def test_the_weibull_function_to_many_digits(shape, t):
    """Large t > 0 moves the peak out, and tiny t leaves it to the rounding: both were wrong."""
    value = float(WeibullSeed(shape, 1.0).cumulants(t)[0])
    if t > 0 and (shape < 1 or (shape == 1 and t >= 1)):
        assert value == math.inf
        return
    with mp.workdps(30):

        def g(v):
            return v - mp.exp(v) + mpf(t) * mp.exp(v / shape)

        # The peak by a search, then an integral in pieces around it.
        wide = max(1, shape)
        peak = max((mpf(i) / 8 * wide for i in range(-400, 400)), key=g)
        if t > 0 or abs(t) > 1e-2:
            marks = (-90, -40, -20, -10, -5, -2, -1, -0.5, 0, 0.5, 1, 2, 4, 6)
            pieces = sorted({peak + p for p in marks} | {peak + p * wide for p in marks})
            top = g(peak)
            total = mp.quad(lambda v: mp.exp(g(v) - top), pieces)
            expected = float(mp.log(total) + top) if abs(t) > 1e-2 else None
        else:
            expected = None
        if expected is None:  # K(t) = t E[u] + t^2 Var/2 + ...
            first = mp.gamma(1 + mpf(1) / shape)
            second = mp.gamma(1 + mpf(2) / shape) - first**2
            third = mp.gamma(1 + mpf(3) / shape) - 3 * first * mp.gamma(1 + mpf(2) / shape) + 2 * first**3
            expected = float(t * first + mpf(t) ** 2 * second / 2 + mpf(t) ** 3 * third / 6)
            if abs(t) > 1e-5 and shape < 1:
                return  # the series is not good enough there
    assert value == pytest.approx(expected, rel=1e-6 if abs(t) == 1e-3 else 1e-11, abs=0.0)
