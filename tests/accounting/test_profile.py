"""The dominating profile of a step: above every attack, close to the Gaussian limit, valid in both directions."""

import math
from functools import lru_cache

import mpmath as mp
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as privacy_loss
from scipy import special

from plrvo import PLRV, GammaPLRV, Gaussian, Laplace, Ledger, Workload
from plrvo.accounting.contour import _orders, contours
from plrvo.accounting.gaussian_curve import gaussian_delta
from plrvo.accounting.loss_distribution import composed_epsilon
from plrvo.accounting.profile import ENERGIES, energy_bounds, lattice, one_coordinate, profile
from plrvo.accounting.sampled_gaussian import Steps
from plrvo.accounting.sampled_profile import ProfileSteps
from plrvo.accounting.step_profile import profile_steps
from plrvo.noise import GammaSeed, GridNoise, SumSeed, TruncatedNormalSeed, UniformSeed, WeibullSeed
from plrvo.noise.lomax import Lomax

STEP, SIZE = 1e-3, 1 << 16  # of the lattice of losses on which attacks are computed; steps are finer for small shifts


def shown(pair, y):
    """E (R - a)_+ of the pair at a = e^y, y of any sign."""
    places = np.concatenate([-pair.y[:0:-1], pair.y])
    in_q = np.concatenate([pair.high[:0:-1], pair.low])
    return np.array([np.sum(in_q * np.maximum(np.exp(places) - math.exp(at), 0.0)) for at in y]) + pair.infinite


@lru_cache(maxsize=256)
def spectrum(noise, s, step=STEP):
    """The transform of the loss of one coordinate under P, from masses of small cells of its outputs."""
    beyond = np.linspace(0.0, 30.0, 6000)
    fine = np.concatenate([-beyond[::-1], np.linspace(0.0, s, 4000)[1:], s + beyond[1:]])
    z = np.concatenate([-np.geomspace(1e12, 31, 2000), fine, np.geomspace(s + 31, 1e12, 2000)])
    p, q = np.diff(noise.cdf(z - s)), np.diff(noise.cdf(z))
    keep = (p > 1e-18) & (q > 1e-18)
    p, q = p[keep], q[keep]
    loss = np.log(p / q)
    cell = np.floor(loss / step).astype(int)
    upper = p * np.expm1(cell * step - loss) / np.expm1(-step)
    law = np.bincount(cell % SIZE, p - upper, SIZE) + np.bincount((cell + 1) % SIZE, upper, SIZE)
    return np.fft.rfft(law)


def attack(noise, shifts, y, step=STEP):
    """H of the gradient `shifts`: pairs (shift, how many)."""
    total = np.ones(SIZE // 2 + 1, complex)
    for s, count in shifts:
        total = total * spectrum(noise, s, step) ** count
    law = np.roll(np.fft.irfft(total, SIZE), SIZE // 2)
    losses = step * (np.arange(SIZE) - SIZE // 2)
    return np.array([np.sum(law[losses > at] * -np.expm1(at - losses[losses > at])) for at in y])


def gradients(t):
    """Sparse, equal, two-level, geometric and random gradients of norm t."""
    yield from ([(t / math.sqrt(n), n)] for n in (1, 2, 3, 5, 9, 20, 64, 200))
    for share in (0.3, 0.6, 0.9):
        for n in (1, 4, 60):
            yield [(t * math.sqrt(share), 1), (t * math.sqrt((1 - share) / n), n)]
            yield [(t * math.sqrt(share / 3), 3), (t * math.sqrt((1 - share) / n), n)]
    for ratio in (0.5, 0.8):
        sizes = ratio ** np.arange(12.0)
        yield [(float(s), 1) for s in t * sizes / np.linalg.norm(sizes)]
    generator = np.random.default_rng(1)
    for n in (3, 12):
        sizes = generator.exponential(size=n)
        yield [(float(s), 1) for s in t * sizes / np.linalg.norm(sizes)]


@pytest.mark.parametrize("k", [math.inf, 10.0, 0.5])
@pytest.mark.parametrize("clip", [0.015, 0.4, 2.0, 9.0])
def test_contours_are_above_every_shift_and_close(k, clip):
    """At the ends of cells in u, on shifts that are no ends of cells in s."""
    law, generator = Lomax(k), np.random.default_rng(7)
    for share, contour in zip((0.2, 1.0), contours(law, clip, (0.2, 1.0)), strict=True):
        shifts = clip * share * np.concatenate([generator.random(60), 10 ** -generator.uniform(0, 5, 120), [1.0]])
        signal = clip * math.sqrt(law.information)
        u = _orders(signal, clip)
        found = np.max(
            [np.log(np.abs(law.moments(float(s), contour.lines, u))) / s**2 for s in shifts if s > 1e-4 * min(1, clip)],
            axis=0,
        )
        rounding = 1e-6 * max(1.0, 1 / signal**2)
        assert np.all(found[:, :-1] <= contour.left + rounding)
        assert np.all(found[:, 1:] <= contour.right + rounding)
        near = (u[:-1] * signal < 2) & (contour.lines[:, None] < 1 + 6 / signal)
        assert np.median((contour.left - found[:, :-1])[near]) < 0.01 / law.information + 0.01 * np.abs(found).max()


def test_the_whole_energy_alone_has_the_bound_that_it_has_among_all():
    """Rows that the last one does not depend on are left as they were."""
    step, near, last = lattice(1.1)
    y = step * np.arange(last + 1.0)
    alone, among = (energy_bounds(Lomax(10.0), 1.2, y, near, first) for first in (ENERGIES, 0))
    assert len(alone) == 1
    assert alone[0] == pytest.approx(among[-1], rel=2e-3)
    assert alone[0, : near // 2] == pytest.approx(among[-1, : near // 2], rel=1e-12)


@pytest.mark.parametrize("k", [math.inf, 10.0, 1.0])
@pytest.mark.parametrize("signal", [0.012, 0.1, 0.5, 3.0])
def test_no_gradient_shows_more_than_the_profile(k, signal):
    """The lattice of an attack adds a sixth of its squared step to the variance of a coordinate: at most 2e-4."""
    step = STEP * min(1.0, 2 * signal)
    noise = Laplace(1.0) if k == math.inf else GammaPLRV(k, 1 / (k + 1))
    t = signal / math.sqrt(Lomax(k).information)
    pair = profile(Lomax(k), t)
    y = signal * np.array([-1.0, -0.3, 0.0, 0.1, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0])
    bound = shown(pair, y)
    for gradient in gradients(t):
        found = attack(noise, gradient, y, step)
        assert np.all(found <= bound * (1 + 3e-4) + 1e-8)
    gaussian = np.array([gaussian_delta(signal, at) for at in y[2:]])
    assert np.all(shown(pair, y[2:]) >= gaussian)  # the limit of spread gradients


@pytest.mark.parametrize(
    "noise",
    [
        PLRV(TruncatedNormalSeed(1.0, 0.2)),
        PLRV(UniformSeed(0.5, 1.5)),
        PLRV(SumSeed((0.5, 0.5), (GammaSeed(10.0, 0.1), UniformSeed(0.5, 1.5)))),
        PLRV(WeibullSeed(2.0, 1.0)),
    ],
    ids=repr,
)
def test_no_gradient_shows_more_than_the_profile_of_any_seed(noise):
    t = 1.2
    steps = profile_steps(noise, Workload(1.0, 1, t, 100))
    y = t * np.array([-1.0, 0.0, 0.2, 0.7, 1.5, 3.0])
    bound = shown(steps.pair, y)
    for gradient in list(gradients(t))[::4]:
        assert np.all(attack(noise, gradient, y) <= bound * (1 + 3e-4) + 1e-8)


@pytest.mark.parametrize("k", [math.inf, 4e4, 1.0, 0.3])
def test_the_profile_is_a_pair_close_to_the_limit(k):
    """Both hypotheses sum to one, up to what is rounded up; at t = 1.2 the bound is a few percent from the limit."""
    law = Lomax(k)
    t = 1.2 / math.sqrt(law.information)
    pair = profile(law, t)
    total = float(np.sum(pair.low[1:] + pair.high[1:]) + pair.low[0] + pair.infinite)
    assert 1 <= total < 1 + 1e-9
    assert pair.infinite < 1e-20
    assert np.all(pair.low >= 0)
    y = np.array([0.0, 1.2, 3.6, 6.0])
    ratio = shown(pair, y) / np.array([gaussian_delta(1.2, at) for at in y])
    assert np.all(ratio >= 1)
    assert np.all(ratio < 1.35)


def test_a_large_k_has_the_profile_of_laplace_noise():
    """But for the majorant that only Laplace noise has, which helps near a = 1."""
    y = 1.2 * np.array([1.0, 2.0, 4.0, 6.0])
    assert shown(profile(Lomax(1e12), 1.2), y) == pytest.approx(shown(profile(Lomax(math.inf), 1.2), y), rel=0.02)


def test_a_gaussian_majorant_of_one_laplace_coordinate():
    """2 Phi(-c s/2) <= e^(-s/2) with c = sqrt(pi/2), for every s: the proof needs a = 1 only."""
    s = np.geomspace(1e-6, 100, 400)
    assert np.all(np.log(2) + special.log_ndtr(-math.sqrt(math.pi / 2) * s / 2) <= -s / 2 + 1e-15)


@pytest.mark.parametrize(
    "noise", [Laplace(0.8333), GammaPLRV(10.0, 0.1), GammaPLRV(0.5, 1.0), GridNoise(Laplace(0.6), 2.0**-12)]
)
@pytest.mark.parametrize("rate", [0.02, 1.0])
def test_certified_is_between_lower_and_rdp(noise, rate):
    ledger = Ledger().plus(noise, Workload(sample_rate=rate, steps=20, clip=1.0, dimension=5000))
    certified, quick, lower = ledger.certified(1e-5), ledger.quick(1e-5), ledger.lower(1e-5)
    assert lower <= certified.value <= quick.value
    assert certified.method in ("profile", "gift", "gdp")
    assert ledger.certified_delta(certified.value).value <= 1e-5 * (1 + 1e-6)


def test_sampled_laplace_noise_is_within_five_percent_of_an_attack():
    work = Workload(sample_rate=0.01, steps=300, clip=1.0, dimension=26_010)
    bracket = Ledger().plus(Laplace(0.8333), work).epsilon(1e-5)
    assert bracket.method == "profile"
    assert bracket.certified < 1.87
    assert bracket.certified < 1.05 * bracket.lower


def test_both_directions_count():
    """At a rate of 1 both directions are the same; with sampling removing an example shows more."""
    pair = profile(Lomax(math.inf), 2.0)
    whole, part = ProfileSteps(pair, 1.0, 1), ProfileSteps(pair, 0.1, 1)
    for step, added in ((whole, False), (whole, True), (part, False), (part, True)):
        loss = step.loss(1e-3, -600.0, added)
        assert float(loss.mass.sum()) == pytest.approx(1, abs=1e-9)
    forward, backward = (part.loss(1e-3, -600.0, added) for added in (False, True))
    assert forward.losses[-1] > backward.losses[-1]
    assert backward.losses[-1] <= -math.log(0.9) + 2e-3


def test_mixtures_compose_and_different_noises_add_up():
    work = Workload(sample_rate=0.05, steps=30, clip=1.0, dimension=1000)
    alone = [Ledger().plus(noise, work).certified(1e-6).value for noise in (Laplace(1.0), Gaussian(1.0))]
    both = Ledger().plus(Laplace(1.0), work).plus(Gaussian(1.0), work).certified(1e-6)
    assert both.method == "profile"
    assert max(alone) < both.value < sum(alone)


def test_few_coordinates_keep_their_own_bounds():
    one = Workload(sample_rate=1.0, steps=1, clip=1.0, dimension=1)
    assert Ledger().plus(Laplace(1.0), one).certified(1e-9).value <= 1.0 + 1e-9
    assert profile_steps(Laplace(200.0), one) is None
    assert profile_steps(Laplace(200.0), Workload(sample_rate=1.0, steps=1, clip=1.0, dimension=9)) is None


def test_a_gaussian_step_costs_less_than_the_profile_of_the_same_information():
    pair = profile(Lomax(math.inf), 1.2)
    limit = composed_epsilon([Steps(1.2, 0.01, 300)], 1e-5, 5.0)
    assert limit < composed_epsilon([ProfileSteps(pair, 0.01, 300)], 1e-5, 5.0) < 1.05 * limit


@pytest.mark.parametrize("noise", [Laplace(1.0), GammaPLRV(10.0, 0.1)], ids=str)
@pytest.mark.parametrize(("rate", "steps", "gain"), [(1.0, 1, 0.95), (1.0, 2, 0.97), (0.1, 4, 0.97)])
def test_few_steps_of_small_shifts_cost_less_than_by_moments(noise, rate, steps, gain):
    ledger = Ledger().plus(noise, Workload(sample_rate=rate, steps=steps, clip=0.1, dimension=100_000))
    certified = ledger.certified(1e-5)
    assert certified.method == "profile"
    assert ledger.lower(1e-5) <= certified.value < gain * ledger.quick(1e-5).value


def test_profiles_that_cannot_be_smaller_are_not_computed():
    """Few coordinates have a largest loss that is below what gradients in many small shifts would show."""
    profile.cache_clear()
    few = Workload(sample_rate=1.0, steps=1, clip=0.123, dimension=2)
    assert Ledger().plus(Laplace(1.0), few).certified(1e-5).value <= 0.123 * math.sqrt(2)
    assert profile.cache_info().currsize == 0


@pytest.mark.parametrize("k", [math.inf, 10.0, 0.5])
@pytest.mark.parametrize("shift", [0.05, 1.0, 8.0])
def test_the_pair_of_one_coordinate_is_what_integration_gives(k, shift):
    """E (p(z - s) - a p(z))_+ by quadrature: no less, and no more than a thousandth of its largest value above."""
    noise = Laplace(1.0) if k == math.inf else GammaPLRV(k, 1 / (k + 1))
    pair = one_coordinate(Lomax(k), shift)
    z = np.concatenate(
        [-np.geomspace(1e9, 31, 4000), np.linspace(-30, shift + 30, 400_001), np.geomspace(1e9, 40, 4000)[::-1]]
    )
    z = np.unique(np.concatenate([z, [0.0, shift]]))
    p, q = (np.diff(noise.cdf(z - s)) for s in (shift, 0.0))
    for y in shift * np.array([-0.6, 0.0, 0.11, 0.5, 0.93]):
        exact = float(np.sum(np.maximum(p - math.exp(y) * q, 0.0)))
        (found,) = shown(pair, [y])
        assert exact - 1e-8 <= found <= exact + 1e-3 * exact + 1e-6


def test_one_coordinate_costs_what_the_loss_distribution_of_others_says():
    """dp-accounting's sampled Laplace mechanism, on its own grid; and Gaussian steps beside it."""
    theirs = privacy_loss.from_laplace_mechanism(2.0, value_discretization_interval=1e-4, sampling_prob=0.01)
    ours = Ledger().plus(Laplace(2.0), Workload(0.01, 100, 1.0, 1)).certified(1e-5)
    assert ours.value == pytest.approx(theirs.self_compose(100).get_epsilon_for_delta(1e-5), rel=1e-3)
    one = privacy_loss.from_laplace_mechanism(4.0, value_discretization_interval=1e-4)
    both = one.compose(privacy_loss.from_gaussian_mechanism(4.0, value_discretization_interval=1e-4))
    mixed = Ledger().plus(Gaussian(4.0), Workload(1.0, 1, 1.0, 100)).plus(Laplace(4.0), Workload(1.0, 1, 1.0, 1))
    assert mixed.certified(1e-5).value == pytest.approx(both.get_epsilon_for_delta(1e-5), rel=1e-3)


@pytest.mark.parametrize("noise", [Laplace(2.0), GammaPLRV(10.0, 0.05), GammaPLRV(0.5, 1.0)], ids=str)
@pytest.mark.parametrize(
    ("rate", "steps", "delta"),
    [(1.0, 1, 1e-6), (0.01, 1000, 1e-6), (0.3, 20, 1e-6), (0.01, 1000, 1e-13), (0.3, 20, 1e-13)],
)
def test_certified_and_lower_of_one_coordinate_meet(noise, rate, steps, delta):
    """Also at a delta that any mass of infinite loss in every step would use up."""
    ledger = Ledger().plus(noise, Workload(rate, steps, 1.0, 1))
    certified = ledger.certified(delta)
    assert ledger.lower(delta) <= certified.value < 1.002 * ledger.lower(delta)


@pytest.mark.parametrize("k", [0.3, 6.5, 1e3, 1e8, 1e14])
@pytest.mark.parametrize("shift", [0.01, 1.0, 20.0])
def test_the_pair_of_one_coordinate_is_above_what_high_precision_gives(k, shift):
    """P(A) - a Q(A) with 50 digits, A the outputs whose ratio is above a: between two places where it is a."""
    pair, generator = one_coordinate(Lomax(k), shift), np.random.default_rng(5)
    with mp.workdps(50):
        m, s = mp.mpf(k) + 1, mp.mpf(shift)
        tail = lambda z: (1 + z / m) ** -(m - 1) / 2  # noqa: E731
        for y in pair.y[-1] * generator.random(12):
            r = mp.exp(mp.mpf(float(y)) / m)  # (m + z)/(m + |z - s|) there
            left, right = (r * (m + s) - m) / (1 + r), s * r / (r - 1) - m
            exact = 1 - tail(s - left) - tail(right - s) - r**m * (tail(left) - tail(right))
            above = [i for i, at in enumerate(pair.y) if at > y]
            found = sum(mp.mpf(pair.high[i]) * -mp.expm1(mp.mpf(float(y)) - mp.mpf(pair.y[i])) for i in above)
            assert 0 < found + pair.infinite - exact < pair.y[1] / 8  # a chord over a cell of mass 1/2 or less
