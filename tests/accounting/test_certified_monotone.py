"""More sampling, steps, clip or dimension costs more; more noise or a larger delta costs less. Always."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.grids import one_in

from plrvo.accounting import Ledger, Workload
from plrvo.accounting.certified import moments_epsilon, pure_epsilon
from plrvo.noise import PLRV, GammaPLRV, Gaussian, Laplace, Noise, TruncatedNormalSeed, UniformSeed

NOISES: list[Noise] = [
    Gaussian(1.0),
    Laplace(1.0),
    GammaPLRV(0.3, 3.0),
    GammaPLRV(1.5, 0.6),
    GammaPLRV(40_000.0, 2.5e-5),
    PLRV(UniformSeed(0.1, 2.0)),
    PLRV(TruncatedNormalSeed(1.0, 0.3)),
    GammaPLRV(50.0, 0.02, shared=True),
    PLRV(UniformSeed(0.1, 2.0), shared=True),
]
BASE = Workload(sample_rate=0.05, steps=40, clip=1.0, dimension=30)
# The discretised loss distribution of Gaussian steps is computed afresh for each setting.
SLACK = 1e-4

each_noise = pytest.mark.parametrize("noise", NOISES, ids=repr)
some_noises = pytest.mark.parametrize("noise", one_in(3, NOISES), ids=repr)
every_other = pytest.mark.parametrize("noise", one_in(2, NOISES), ids=repr)
the_others = pytest.mark.parametrize("noise", one_in(2, [*NOISES[1:], NOISES[0]]), ids=repr)


def certified(noise: Noise, work: Workload = BASE, delta: float = 1e-5) -> float:
    return Ledger().plus(noise, work).certified(delta).value


def assert_increasing(values: list[float]) -> None:
    for smaller, larger in pairwise(values):
        assert smaller <= larger * (1 + SLACK)
    assert values[0] < values[-1]


@every_other
def test_epsilon_increases_with_the_sampling_rate(noise: Noise) -> None:
    assert_increasing(
        [certified(noise, replace(BASE, sample_rate=q)) for q in (1e-3, 0.01, 0.0101, 0.1, 0.5, 0.99, 1.0)]
    )


@the_others
def test_epsilon_increases_with_the_steps(noise: Noise) -> None:
    assert_increasing([certified(noise, replace(BASE, steps=steps)) for steps in (1, 2, 3, 10, 100, 101, 3000)])


@some_noises
def test_epsilon_increases_with_the_clip(noise: Noise) -> None:
    assert_increasing([certified(noise, replace(BASE, clip=clip)) for clip in (0.01, 0.5, 0.505, 1.0, 4.0)])


@every_other
def test_epsilon_does_not_decrease_with_the_dimension(noise: Noise) -> None:
    values = [certified(noise, replace(BASE, dimension=n)) for n in (1, 2, 30, 31, 9_999, 10_000, 10**9)]
    for smaller, larger in pairwise(values):
        assert smaller <= larger * (1 + SLACK)


@some_noises
def test_epsilon_decreases_with_the_width_of_the_noise(noise: Noise) -> None:
    assert_increasing([certified(noise.scaled(width)) for width in (30.0, 5.0, 2.0, 1.02, 1.01, 1.0, 0.5)])


@the_others
def test_epsilon_decreases_with_delta(noise: Noise) -> None:
    assert_increasing([certified(noise, delta=delta) for delta in (0.1, 1e-3, 1e-5, 1e-6, 1e-9, 1e-12)])


@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(
    noise=st.sampled_from(NOISES[1:]),
    log_clip=st.floats(-4.0, 2.0),
    stretch=st.floats(1.0, 1.1),
    dimension=st.sampled_from([1, 5, 400, 20_000]),
    q=st.sampled_from([1.0, 0.2, 0.01]),
)
def test_a_slightly_larger_clip_never_costs_less(
    noise: Noise, log_clip: float, stretch: float, dimension: int, q: float
) -> None:
    work = Workload(q, 20, math.exp(log_clip), dimension)
    wider = replace(work, clip=work.clip * stretch)
    assert certified(noise, work) <= certified(noise, wider) * (1 + SLACK)
    for bound in (pure_epsilon, lambda entries: moments_epsilon(entries, 1e-5).value):
        assert bound([(noise, work)]) <= bound([(noise, wider)]) * (1 + 1e-9)


@each_noise
def test_only_the_ratio_of_clip_to_width_matters(noise: Noise) -> None:
    wide = certified(noise.scaled(7.0), replace(BASE, clip=7.0))
    assert wide == pytest.approx(certified(noise), rel=1e-6, abs=0.0)
