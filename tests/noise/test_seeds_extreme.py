"""Seeds at the ends of their parameters: quantiles, tails and cumulants stay those of one law."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from mpmath import mp, mpf
from scipy import stats

from plrvo.accounting import Ledger, Workload
from plrvo.noise import (
    PLRV,
    ChiSquaredSeed,
    ExponentialSeed,
    GammaPLRV,
    GammaSeed,
    Keystream,
    Seed,
    SumSeed,
    TruncatedNormalSeed,
    UniformSeed,
    WeibullSeed,
)
from plrvo.noise.shared_scale import rounded_up
from plrvo.validate import InvalidArgument

TAILS = np.array([1e-250, 1e-40, 1e-12, 1e-5, 0.01, 0.3, 0.5])
# Seeds of scale s. Those that end with a remark are narrower than what doubles around them can tell apart.
FAMILIES = {
    "exponential": lambda s: ExponentialSeed(s),
    "gamma, k tiny": lambda s: GammaSeed(1e-5, s),
    "gamma, k large": lambda s: GammaSeed(1e4, s),
    "chi-squared": lambda s: ChiSquaredSeed(1e3, s),
    "uniform": lambda s: UniformSeed(0.0, s),
    "normal cut at its mean": lambda s: TruncatedNormalSeed(0.0, s),
    "normal cut far out": lambda s: TruncatedNormalSeed(-1e9 * s, s),
    "normal cut further out": lambda s: TruncatedNormalSeed(-s, 1e-20 * s),
    "normal cut far below": lambda s: TruncatedNormalSeed(40 * s, s),
    "Weibull, heavy": lambda s: WeibullSeed(0.5, s),
    "Weibull, narrow": lambda s: WeibullSeed(1e4, s),
    "gamma, a constant": lambda s: GammaSeed(1e30, s / 1e30),
    "uniform, a constant": lambda s: UniformSeed(s * (1 - 1e-15), s),
    "normal, a constant": lambda s: TruncatedNormalSeed(s, 1e-17 * s),
    "normal cut far above, a constant": lambda s: TruncatedNormalSeed(0.0, 1e-9 * s, s),
    "sum": lambda s: SumSeed((1.0, 1e-20), (ExponentialSeed(s), UniformSeed(0.0, s))),
}
SCALES = [1e-200, 1e-30, 1.0, 1e30, 1e200]


def log_tail_ratio(c: float, w: float) -> mpf:
    """log P(Z > c + w) - log P(Z > c), with digits for the squares that cancel; by its series far out."""
    with mp.workdps(60 + 2 * int(math.log10(1 + abs(c)))):

        def log_tail(x: mpf) -> mpf:
            if x > 1e4:
                series = 1 - 1 / x**2 + 3 / x**4 - 15 / x**6 + 105 / x**8
                return -(x**2) / 2 + mp.log(series / x) - mp.log(2 * mp.pi) / 2
            return mp.log(mp.erfc(x / mp.sqrt(2)) / 2)

        return log_tail(mpf(c) + mpf(w)) - log_tail(mpf(c))


@pytest.mark.parametrize("c", [-30.0, -5.0, -1.0, -1e-3, 0.0, 1e-9, 0.3, 2.9, 3.1, 30.0, 1e3, 1e6, 1e9, 1e60])
def test_tails_and_quantiles_of_a_cut_normal_to_many_digits(c: float) -> None:
    seed = TruncatedNormalSeed(-c, 1.0)
    for u, p in zip(seed.upper_quantile(TAILS), TAILS, strict=True):
        exact = mp.exp(log_tail_ratio(c, float(u)))
        assert float(exact) == pytest.approx(p, rel=3e-13, abs=0.0)
        assert float(seed.survival(u)) == pytest.approx(float(exact), rel=3e-13, abs=0.0)
    for u, p in zip(seed.lower_quantile(TAILS), TAILS, strict=True):
        with mp.workdps(320):
            exact = -mp.expm1(log_tail_ratio(c, float(u))) if p > 1e-50 else None
        # Deep down the law has the density of the edge.
        below = float(exact) if exact is not None else float(u) * float(mp.exp(-(mpf(c) ** 2) / 2 - log_half_tail(c)))
        if u > 1e-300:
            assert below == pytest.approx(p, rel=1e-10, abs=0.0)
            assert float(seed.cdf(u)) == pytest.approx(below, rel=1e-10, abs=0.0)


def log_half_tail(c: float) -> mpf:
    """log of sqrt(2 pi) P(Z > c)."""
    with mp.workdps(60):
        x = mpf(c)
        far = -(x**2) / 2 + mp.log((1 - 1 / x**2 + 3 / x**4) / x) if c > 1e4 else None
        return far if far is not None else mp.log(mp.erfc(x / mp.sqrt(2)) / 2 * mp.sqrt(2 * mp.pi))


@pytest.mark.parametrize("name", [name for name in FAMILIES if "constant" not in name and name != "sum"])
def test_quantiles_invert_tails_at_every_scale(name: str) -> None:
    for scale in SCALES:
        seed = FAMILIES[name](scale)
        above, below = seed.upper_quantile(TAILS), seed.lower_quantile(TAILS)
        normal = 1e-290 * max(1.0, scale)  # smaller values of u/scale are no longer normal doubles
        assert np.all(np.isfinite(above))
        edge = 2e-16 if name == "uniform" else 0.0  # what the doubles below its largest value can tell apart
        assert seed.survival(above)[above > normal] == pytest.approx(TAILS[above > normal], rel=1e-8, abs=edge)
        assert seed.cdf(below)[below > normal] == pytest.approx(TAILS[below > normal], rel=1e-8, abs=0.0)
        assert seed.upper_quantile(TAILS) == pytest.approx(
            scale * FAMILIES[name](1.0).upper_quantile(TAILS), rel=1e-9, abs=1e-300
        )


@pytest.mark.filterwarnings("ignore:overflow")  # the variance of a seed beyond 1e154 is no double
@pytest.mark.parametrize("name", FAMILIES)
def test_what_is_rounded_up_has_at_least_the_mean_and_all_mass(name: str) -> None:
    """The mean is K'(0), which no quantile enters. A thousandth of it for two thousand cells, a tenth for wide laws."""
    for scale in SCALES:
        seed, tail = FAMILIES[name](scale), 1e-9
        points, mass = rounded_up(seed, tail)
        assert mass.sum() == pytest.approx(1.0, rel=1e-8)
        assert seed.mean * (1 - 1e-4) <= points @ mass
        if "constant" in name:
            assert points @ mass <= seed.mean * (1 + 1e-6)


@pytest.mark.parametrize(("clip", "dimension"), [(1e8, 1), (3e6, 10_000)])
def test_a_normal_seed_cut_far_out_is_certified_as_an_exponential_one(clip: float, dimension: int) -> None:
    """It was certified at 0.0014 whatever the clip. The twin's law is the same to 1e-18."""
    work = Workload(1.0, 1, clip, dimension)
    cut = PLRV(TruncatedNormalSeed(-1e9, 1.0), shared=True)
    twin = PLRV(ExponentialSeed(1e-9), shared=True)
    found = Ledger().plus(cut, work).epsilon(1e-5)
    assert found.certified == pytest.approx(Ledger().plus(twin, work).certified(1e-5).value, rel=1e-8)
    assert found.certified >= Ledger().plus(GammaPLRV(1.0, 1e-9, shared=True), work).epsilon(1e-5).lower > 0


@pytest.mark.parametrize("cut", [10.0, 1e5, 1e9, 1e100])
def test_draws_of_a_normal_seed_cut_far_out_have_its_law(cut: float) -> None:
    """20,000 values of noise; false alarm 1e-6."""
    noise = PLRV(TruncatedNormalSeed(-cut, 1.0))
    z = noise.sample(20_000, Keystream(bytes(32)))
    assert stats.kstest(z, noise.cdf).pvalue > 1e-6


@pytest.mark.parametrize("scale", [1e-149, 1e-30, 1.0, 1e145])
@pytest.mark.parametrize("make", [lambda s: PLRV(ExponentialSeed(s)), lambda s: GammaPLRV(3.0, s)])
def test_the_unit_of_a_clip_does_not_matter(make: Any, scale: float) -> None:
    unit, other = (Ledger().plus(make(s), Workload(1.0, 1, 1e-4 / s, 4)).certified(1e-5).value for s in (1.0, scale))
    assert other == pytest.approx(unit, rel=1e-9, abs=0.0)


@pytest.mark.parametrize(
    "make", [lambda s: PLRV(ExponentialSeed(s)), lambda s: PLRV(UniformSeed(0.0, s)), lambda s: GammaPLRV(3.0, s)]
)
def test_noise_whose_squares_are_no_doubles_is_refused(make: Any) -> None:
    """A variance that underflowed halved the loss, and with it the certified epsilon."""
    for scale in (1e-300, 1e-170, 1e170, 1e269, 1e300):
        with pytest.raises(InvalidArgument, match="other units"):
            make(scale)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("k", "theta"),
    [(20.0, 1e-35), (20.0, 1e30), (1e19, 1e-19), (1e36, 1e-36), (1e42, 1e-42), (1e44, 3e-39), (1e300, 1e-300)],
)
def test_gamma_noise_of_any_k_has_its_law_in_every_type(k: float, theta: float, dtype: Any) -> None:
    """20,000 values, false alarm 1e-6. At k = 1e42 singles took two values, at 1e50 none."""
    noise = GammaPLRV(k, theta)
    z = noise.sample(20_000, Keystream(bytes(32)), dtype).astype(np.float64)
    assert len(np.unique(z)) > 19_900
    assert stats.kstest(z, noise.cdf).pvalue > 1e-6


def test_a_cut_beyond_all_numbers_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="std"):
        TruncatedNormalSeed(-1e300, 1e-300)


@dataclass(frozen=True)
class _Contradictory(ExponentialSeed):
    """An exponential seed of which one derivation is wrong."""

    wrong: str = ""

    def upper_quantile(self, p: Any) -> Any:
        return super().upper_quantile(p) * (0.9 if self.wrong == "quantile" else 1.0)

    def survival(self, u: Any) -> Any:
        return super().survival(u) * (0.5 if self.wrong == "survival" else 1.0)

    def cumulants(self, t: Any) -> Any:
        value, mean, variance = super().cumulants(t)
        return value, mean * (1.2 if self.wrong == "mean" else 1.0), variance

    def cdf(self, u: Any) -> Any:
        return super().cdf(u) * (0.5 if self.wrong == "cdf" else 1.0)


@pytest.mark.parametrize("wrong", ["", "quantile", "survival", "mean", "cdf"])
def test_seeds_that_contradict_themselves_have_no_bound(wrong: str) -> None:
    seed: Seed = _Contradictory(1.0, wrong)
    assert math.isinf(rounded_up(seed, 1e-9)[0][-1]) == bool(wrong)
    value = Ledger().plus(PLRV(seed, shared=True), Workload(1.0, 1, 1.0, 1)).certified(1e-5).value
    assert math.isinf(value) == bool(wrong)
