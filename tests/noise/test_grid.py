"""Noise on a grid: its law, its moments against sums over the integers, and what is refused."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy import stats

from plrvo import Workload, epsilon
from plrvo.accounting.certified import certified_epsilon
from plrvo.noise import (
    PLRV,
    GammaPLRV,
    Gaussian,
    GridNoise,
    Keystream,
    Laplace,
    Noise,
    UniformSeed,
    noise_from_dict,
)
from plrvo.noise.integers import add_integers
from plrvo.noise.rounding import Reals
from plrvo.validate import InvalidArgument

BASES: list[Noise] = [Laplace(1.0), GammaPLRV(3.0, 0.5), GammaPLRV(1000.0, 1e-3), Gaussian(1.0)]


def fixed(number: int = 0) -> Keystream:
    return Keystream(number.to_bytes(32, "big"))


def masses(noise: GridNoise, reach: int) -> np.ndarray:
    """P(z = m) for |m| <= reach, from the continuous tails."""
    m = np.arange(-reach, reach + 1)
    inner, outer = noise.cell * (np.abs(m) - 0.5), noise.cell * (np.abs(m) + 0.5)
    tails = noise.base.cdf(-inner) - noise.base.cdf(-outer)
    return np.where(m == 0, 1 - 2 * noise.base.cdf(-noise.cell / 2), tails)


@pytest.mark.parametrize("base", BASES, ids=repr)
@pytest.mark.parametrize("cell", [0.7, 2.0])
def test_integers_have_the_probabilities_of_the_rounded_noise(base: Noise, cell: float) -> None:
    """Chi-square over the cells of 400,000 draws; 8 tests at a false alarm of 1e-6 each."""
    noise = GridNoise(base, cell)
    drawn = noise.integers(400_000, fixed(3))
    reach = 6
    probability = masses(noise, reach)
    counts = np.array([np.sum(drawn == m) for m in range(-reach, reach + 1)])
    outside = len(drawn) - counts.sum()
    keep = probability * len(drawn) > 20
    expected = probability[keep] * len(drawn)
    seen = counts[keep]
    rest = len(drawn) - expected.sum()
    statistic = np.sum((seen - expected) ** 2 / expected)
    freedom = len(seen) - 1
    if rest > 20:
        statistic += (outside + counts[~keep].sum() - rest) ** 2 / rest
        freedom += 1
    assert stats.chi2.sf(statistic, freedom) > 1e-6


@pytest.mark.parametrize("base", BASES, ids=repr)
def test_fine_grids_follow_the_continuous_law(base: Noise) -> None:
    """Kolmogorov and Smirnov on 100,000 draws and on their signs' neighbours; false alarm 1e-6 each."""
    drawn = GridNoise(base, 2.0**-20).sample(100_001, fixed(5))
    assert stats.kstest(drawn, base.cdf).pvalue > 1e-6
    # A Gaussian block holds cosines, then sines of the same angles: they must be independent.
    block = drawn[: 1 << 14]
    half = len(block) // 2
    for a, b in ((block[:half], block[half:]), (drawn[:-1], drawn[1:]), (np.abs(block[:half]), np.abs(block[half:]))):
        assert stats.spearmanr(a, b).pvalue > 1e-6


@pytest.mark.parametrize("base", BASES, ids=repr)
def test_threads_do_not_change_the_draw(base: Noise) -> None:
    noise, before, drawn = GridNoise(base, 2.0**-20), torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            drawn.append(noise.integers(300_001, fixed(1)))
    finally:
        torch.set_num_threads(before)
    assert np.array_equal(*drawn)


def test_a_finer_grid_takes_more_refinement_and_gives_the_same_draw() -> None:
    """The same words on grids 2^10 apart: the coarse integer is the rounded fine one, refined draws included."""
    coarse, fine = (np.zeros(200_000, np.int64) for _ in range(2))
    add_integers([coarse], GridNoise(Laplace(1.0), 2.0**-20).reals, fixed(2))
    refined = add_integers([fine], GridNoise(Laplace(1.0), 2.0**-32).reals, fixed(2))
    assert refined > 50
    assert np.all(np.abs(coarse * 2**12 - fine) <= 2**11)


@pytest.mark.parametrize("base", BASES, ids=repr)
@pytest.mark.parametrize("count", [1, 150_001])
def test_intervals_alone_give_the_draw_that_long_doubles_give(
    base: Noise, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The draw is decided by its words: where all that doubles leave open goes to intervals, it is the same."""
    noise = GridNoise(base, 2.0**-30)
    quick = noise.integers(count, fixed(6))
    sharper = type(noise.reals).sharper

    def undecided(self: Reals, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        integers, unsure = sharper(self, words)
        return np.zeros_like(integers), np.ones_like(unsure)

    monkeypatch.setattr(type(noise.reals), "sharper", undecided)
    slow = np.zeros(count, np.int64)
    refined = add_integers([slow], noise.reals, fixed(6))
    assert np.array_equal(quick, slow)
    assert refined > (10 if count > 1 else -1)


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([Laplace(1.0), GammaPLRV(1.0, 0.7), GammaPLRV(4.0, 0.3), Gaussian(1.0)]),
    st.floats(0.2, 3.0),
    st.integers(1, 4),
    st.integers(2, 9),
)
def test_discrete_moments_are_at_most_the_continuous_ones(base: Noise, cell: float, shift: int, eta: int) -> None:
    """sum_z P(z-x)^eta P(z)^(1-eta) over integers, to 40 digits, against log F at the shift: post-processing."""
    mp.dps = 40
    noise, reach = GridNoise(base, cell), 40
    survival = _survival(base)
    tails = {m: survival((mpf(m) - mpf("0.5")) * mpf(cell)) for m in range(1, reach + shift + 2)}

    def mass(m: int) -> mpf:
        m = abs(m)
        return 1 - 2 * tails[1] if m == 0 else tails[m] - tails[m + 1]

    terms = [mass(z - shift) ** eta * mass(z) ** (1 - eta) for z in range(-reach, reach + 1)]
    bound = noise.log_moment(shift * cell, eta)
    # All terms are positive, so a part of the sum is below the whole, which is below the continuous integral.
    assert mp.log(sum(terms)) <= float(bound) * (1 + 1e-12)


def _survival(base: Noise):
    """P(X > t)."""
    if isinstance(base, Gaussian):
        return lambda t: mp.erfc(t / base.sigma / mp.sqrt(2)) / 2
    if isinstance(base, Laplace):
        return lambda t: mp.exp(-t / base.b) / 2
    assert isinstance(base, GammaPLRV)
    return lambda t: (1 + mpf(base.theta) * t) ** -mpf(base.k) / 2


def test_on_a_fine_grid_the_discrete_moment_is_the_continuous_one() -> None:
    noise, reach = GridNoise(Laplace(1.0), 2.0**-7), 40 * 2**7
    p = masses(noise, reach)
    shift, eta = 64, 3
    total = np.sum(p[: len(p) - shift] ** eta * p[shift:] ** (1 - eta))
    assert np.log(total) == pytest.approx(float(noise.log_moment(0.5, eta)), rel=1e-3)
    assert np.log(total) < float(noise.log_moment(0.5, eta))


@pytest.mark.parametrize("base", BASES, ids=repr)
@pytest.mark.parametrize(
    "work", [Workload(0.1, 20, 1.0, 500), Workload(1.0, 3, 0.5, 1), Workload(0.01, 300, 0.7, 26_010)]
)
def test_certified_is_that_of_the_continuous_noise_at_the_longer_clip(base: Noise, work: Workload) -> None:
    noise = GridNoise(base, 2.0**-9)
    longest = noise.sensitivity(work.clip, work.dimension)
    assert (2 * (Fraction(longest) - Fraction(work.clip)) / Fraction(noise.cell)) ** 2 >= work.dimension  # rounded up
    assert longest == pytest.approx(work.clip + 2.0**-10 * work.dimension**0.5, rel=1e-14)
    longer = Workload(work.sample_rate, work.steps, longest, work.dimension)
    exact, continuous = (certified_epsilon([(n, w)], 1e-5) for n, w in ((noise, work), (base, longer)))
    assert exact == continuous


@pytest.mark.parametrize("base", BASES, ids=repr)
@pytest.mark.parametrize("cell", [2.0**-20, 2.0**-6, 0.11, 0.5, 3.0])
def test_lower_bound_attacks_the_grid_and_stays_below(base: Noise, cell: float) -> None:
    """A fine grid loses nothing against the continuous noise; one coarser than the clip lets nothing through."""
    work = Workload(0.2, 10, 1.0, 64)
    exact, continuous = epsilon(GridNoise(base, cell), work, 1e-5), epsilon(base, work, 1e-5)
    assert exact.lower <= exact.certified
    assert exact.lower <= continuous.certified
    if cell == 2.0**-20:
        assert exact.lower == pytest.approx(continuous.lower, rel=1e-3)
    if cell == 3.0:
        assert exact.lower == 0


def test_lower_bound_of_one_step_is_the_best_test_on_integers() -> None:
    """One coordinate, one step: delta(eps) of two shifted discrete laws, summed directly, is what the bound reaches."""
    noise, work = GridNoise(Laplace(1.0), 0.5), Workload(1.0, 1, 1.0, 1)
    p = masses(noise, 200)
    moved, still = p[:-2], p[2:]
    delta = 0.05
    reached = epsilon(noise, work, delta).lower
    best = max(e for e in np.linspace(0, 2, 20_001) if np.sum(np.maximum(moved - np.exp(e) * still, 0)) >= delta)
    assert best - 0.02 < reached <= best + 1e-3


def test_integers_are_added_to_arrays_and_tensors_alike() -> None:
    noise = GridNoise(GammaPLRV(3.0, 0.5), 2.0**-12)
    arrays = [np.arange(50_000), np.full((7, 11), 5)]
    tensors = [torch.arange(50_000), torch.full((11, 7), 5).t()]
    noise.add_to(arrays, fixed(4))
    noise.add_to(tensors, fixed(4))
    for a, t in zip(arrays, tensors, strict=True):
        assert np.array_equal(a, t.numpy())
    drawn = arrays[0] - np.arange(50_000)
    assert stats.kstest(drawn * noise.cell, noise.base.cdf).pvalue > 1e-6


def test_sums_wrap_around_without_a_warning() -> None:
    near = np.full(1000, np.iinfo(np.int64).max)
    GridNoise(Laplace(1.0), 2.0**-20).add_to([near], fixed())
    assert (near < 0).any()
    assert (near > 0).any()


@pytest.mark.parametrize("base", BASES, ids=repr)
def test_a_description_gives_an_equal_noise_back(base: Noise) -> None:
    noise = GridNoise(base, 2.0**-20)
    assert noise_from_dict(noise.to_dict()) == noise
    assert noise.scaled(4.0) == GridNoise(base.scaled(4.0), 2.0**-18)


@pytest.mark.parametrize(
    ("base", "cell", "argument"),
    [
        (GammaPLRV(3.0, 0.5, shared=True), 0.1, "noise"),
        (PLRV(UniformSeed(1.0, 2.0)), 0.1, "noise"),
        (GridNoise(Laplace(1.0), 0.1), 0.1, "noise"),
        (GammaPLRV(0.5, 0.5), 0.1, "k"),
        (Laplace(1.0), 0.0, "cell"),
        (Laplace(1.0), float("nan"), "cell"),
        (Laplace(1.0), 2.0**-33, "grid"),
    ],
)
def test_what_has_no_exact_form_is_refused(base: Noise, cell: float, argument: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        GridNoise(base, cell)
    assert caught.value.argument == argument


def test_other_generators_and_buffers_are_refused() -> None:
    noise = GridNoise(Laplace(1.0), 0.1)
    with pytest.raises(InvalidArgument, match="Keystream"):
        noise.sample(3, np.random.default_rng(0))
    with pytest.raises(InvalidArgument, match="int64"):
        noise.add_to([torch.zeros(3)], fixed())
    with pytest.raises(InvalidArgument, match="64-bit"):
        noise.add_to([np.zeros(3)], fixed())


def test_correlated_noise_on_a_grid_is_refused() -> None:
    from plrvo import Plan
    from plrvo.accounting.correlated import Correlation, Participation, Tree

    tree = Correlation(Tree(), Participation(steps_per_epoch=10))
    with pytest.raises(InvalidArgument, match="continuous"):
        Plan.certify(GridNoise(Laplace(10.0), 0.1), Workload(1.0, 10, 1.0, 5), 1e-5, correlation=tree)
