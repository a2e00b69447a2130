"""A pure epsilon is rounded up by more than its largest loss errs, also where that is no closed form."""

import math

from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

import plrvo
from plrvo.accounting import Workload
from plrvo.accounting.certified import pure_epsilon
from plrvo.noise import PLRV, GammaPLRV, GammaSeed, Laplace, TruncatedNormalSeed, UniformSeed


def exact_pure(r, rate, steps):
    return steps * mp.log1p(mpf(rate) * mp.expm1(r))


def gamma_loss(k, theta, clip):
    return (mpf(k) + 1) * mp.log1p(mpf(theta) * mpf(clip))


def normal_loss(mean, deviation, lowest, clip):
    """log E[u] / E[u e^(-uC)] for a normal u above `lowest`, by integration."""
    m, s, c = mpf(mean), mpf(deviation), mpf(clip)
    ends = [mpf(lowest) + s * x for x in (0, 1, 2, 4, 8, 20)]

    def average(f):
        return mp.quad(lambda u: f(u) * mp.exp(-(((u - m) / s) ** 2) / 2), ends)

    return mp.log(average(lambda u: u) / average(lambda u: u * mp.exp(-u * c)))


def uniform_loss(low, high, clip):
    a, b, c = mpf(low), mpf(high), mpf(clip)

    def integral(u):
        return -mp.exp(-u * c) * (u * c + 1) / c**2

    return mp.log((b**2 - a**2) / 2 / (integral(b) - integral(a)))


def test_a_gamma_seed_without_its_closed_form():
    k, theta, clip = 69.73097597604524, 4.790414996504102, 3.1261720165219827e-06
    with mp.workdps(40):
        assert plrvo.epsilon(PLRV(GammaSeed(k, theta)), Workload(1.0, 1, clip, 1), 1e-12).certified >= gamma_loss(
            k, theta, clip
        )


def test_a_narrow_truncated_normal_seed():
    with mp.workdps(40):
        loss = normal_loss(1.0, 0.001, 1.0, 0.0011)
        for rate in (1.0, 0.01):
            work = Workload(rate, 1, 0.0011, 1)
            found = pure_epsilon([(PLRV(TruncatedNormalSeed(1.0, 0.001, 1.0)), work)])
            assert exact_pure(loss, rate, 1) <= found <= exact_pure(loss, rate, 1) * (1 + 3e-11)


@settings(max_examples=300, deadline=None)
@given(
    k=st.floats(-1.0, 4.0).map(lambda x: 10.0**x),
    scale=st.floats(-100.0, 100.0).map(lambda x: 10.0**x),
    ratio=st.floats(-4.0, 3.0).map(lambda x: 10.0**x),
    rate=st.sampled_from([1.0, 0.1, 1e-9]),
)
def test_every_pure_epsilon_is_above_the_truth_and_close(k, scale, ratio, rate):
    """`ratio` is the clip times the largest score; the unit of the noise is anything."""
    with mp.workdps(60):
        theta, clip = 1 / (k + 1) / scale, ratio * scale
        work = Workload(rate, 3, clip, 1)
        by_gamma, by_laplace = gamma_loss(k, theta, clip), mpf(clip) / mpf(scale)
        by_uniform = uniform_loss(0.5 / scale, 1.5 / scale, clip)
        for noise, r in (
            (PLRV(GammaSeed(k, theta)), by_gamma),
            (GammaPLRV(k, theta), by_gamma),
            (Laplace(scale), by_laplace),
            (PLRV(UniformSeed(0.5 / scale, 1.5 / scale)), by_uniform),
        ):
            exact = exact_pure(r, rate, 3)
            found = pure_epsilon([(noise, work)])
            assert found >= exact, noise
            slack = 1e-14 if isinstance(noise, GammaPLRV | Laplace) else 3e-11
            assert found <= exact * (1 + slack * (1 + r)), noise


def test_a_shared_scale_in_a_stream_has_the_margin_too():
    from plrvo.accounting.correlated import CorrelatedLedger, Correlation, Participation, Tree

    noise = PLRV(UniformSeed(0.0, 0.9), shared=True)
    work = Workload(1.0, 4, 1e-9, 1)
    ledger = CorrelatedLedger(noise, work, Correlation(Tree(), Participation(4)), 4)
    release = ledger.release()
    rows = release.dimension
    certificate = ledger.certified(1e-300)
    assert certificate.method == "pure"
    assert certificate.value >= 0.9 * math.sqrt(rows) * release.clip * (1 + 2.0**-45)
