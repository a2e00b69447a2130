"""Laplace steps under Gaussian steps: the constants are proved, and the profiles of gradients do not refute them."""

import math

import mpmath
import numpy as np
import pytest
from scipy import fft, special

from plrvo.accounting import Ledger, Workload
from plrvo.accounting.certified import rdp_certificate
from plrvo.accounting.correlated import Correlation, Participation, Tree
from plrvo.accounting.correlated.ledger import CorrelatedLedger
from plrvo.accounting.domination import _EXCESS, dominating_steps, excess, gaussian_signal
from plrvo.accounting.gaussian_curve import gaussian_delta, gaussian_epsilon
from plrvo.accounting.moments import StepMoments
from plrvo.noise import (
    PLRV,
    ExponentialSeed,
    GammaPLRV,
    GammaSeed,
    Gaussian,
    GeneralisedGaussian,
    GridNoise,
    Laplace,
    Noise,
    Seed,
    SumSeed,
    TruncatedNormalSeed,
    UniformSeed,
    WeibullSeed,
)

SLOPE = 1 - 2 / math.pi  # of what a swap adds, at most this share is excess
ROUNDING = 1e-10  # relative, above that of a dozen operations and scipy's normal law


def swapped(s: np.ndarray, w: float) -> np.ndarray:
    """T_s(w): the least Gaussian energy that a Laplace shift s and Gaussian energy w are under (theory, Lemma 14)."""
    if w == 0:
        return 4 * special.ndtri(np.exp(-s / 2) / 2) ** 2
    root = math.sqrt(w)
    inside = np.exp(-w / 8 - s / 2) * (2 * special.ndtr(s / root) - 1)
    return 4 * special.ndtri((inside + 2 * special.ndtr(-s / root - root / 2)) / 2) ** 2


def always_free(s: np.ndarray | float) -> np.ndarray | float:
    """A Gaussian energy from which a swap of a shift up to s costs no more than its energy (theory, Lemma 15)."""
    return 4 * s / (8 - s)


def proved_excess(longest: float, fineness: float, ratio: float) -> float:
    """An upper bound on e(t), by the induction over cells of the Gaussian energy (theory, Theorem 6)."""
    shortest, edges = 1e-3 * longest, [1e-3 * longest]
    while edges[-1] < longest:
        edges.append(min(longest, math.sqrt(edges[-1] ** 2 + min(fineness * edges[-1] ** 2, fineness / 20))))
    low, high = np.array(edges[:-1]), np.array(edges[1:])
    # The last energy, .17, is enough for every shift: `test_a_gift_is_enough`.
    top = min(0.17, always_free(longest))
    energies = [0.0, *np.exp(np.arange(math.log(1e-5 * longest**2), math.log(top), ratio)), top]
    value = np.zeros(len(energies))
    for j in range(len(energies) - 2, -1, -1):
        w = energies[j]
        cost = np.maximum(0.0, swapped(high, w) * (1 + ROUNDING) - w - low**2)
        cost[w >= always_free(high)] = 0.0
        landing = np.maximum(np.searchsorted(energies, w + low**2, "right") - 1, j + 1)
        leaving, share = float((cost + value[landing]).max()), float((cost / (cost + low**2)).max())
        if w < always_free(shortest):
            leaving, share = max(leaving, (math.pi / 2 - 1) * shortest**2 + value[j + 1]), SLOPE
        value[j] = max(value[j + 1], leaving + min(share, SLOPE) * (energies[j + 1] - w))
    return float(value[0])


@pytest.mark.parametrize("row", [0, 13, 32, 55])
def test_excess_of_some_shifts_is_proved(row: int) -> None:
    longest, bound = _EXCESS[row]
    assert proved_excess(longest * (1 + 1e-9), 2e-3, 0.01) <= bound


@pytest.mark.slow
@pytest.mark.parametrize("row", range(len(_EXCESS)))
def test_excess_of_every_shift_is_proved(row: int) -> None:
    longest, bound = _EXCESS[row]
    assert proved_excess(longest * (1 + 1e-9), 2e-3, 0.01) <= bound


def test_a_gift_is_enough() -> None:
    """From .17 of Gaussian energy on, every swap is free: both terms of E(s, .17) fall in s, so cells prove it."""
    edges = np.linspace(0.3, 1.2, 20_001)
    root = math.sqrt(0.17)
    inside = np.exp(-0.17 / 8 - edges / 2) * (2 * special.ndtr(edges / root) - 1)
    have = inside + 2 * special.ndtr(-edges / root - root / 2)
    need = 2 * special.ndtr(-np.sqrt(edges**2 + 0.17) / 2)
    assert np.all(have[1:] > need[:-1] + 1e-12)
    assert always_free(0.3) < 0.17  # shorter shifts: Lemma 15
    assert math.exp(-0.6) > 2 * special.ndtr(-0.6)  # longer ones need none
    less = 0.16  # a gift of .16 does not do
    at = np.exp(-less / 8 - 0.6655 / 2) * (2 * special.ndtr(0.6655 / 0.4) - 1) + 2 * special.ndtr(-0.6655 / 0.4 - 0.2)
    assert at < 2 * special.ndtr(-math.sqrt(0.6655**2 + less) / 2)


def test_swaps_agree_with_forty_digits() -> None:
    rng = np.random.default_rng(1)
    with mpmath.workdps(40):
        for _ in range(20):
            s, w = mpmath.mpf(rng.uniform(1e-3, 1.2)), mpmath.mpf(10 ** rng.uniform(-8, -0.7))
            root = mpmath.sqrt(w)
            # Of the law N(0, w) times e^(-w/8), the mean of min(e^(-s/2), e^(-|z|/2)).
            inner = mpmath.exp(-s / 2 - w / 8) * mpmath.erf(s / root / mpmath.sqrt(2))
            outer = mpmath.erfc((s / root + root / 2) / mpmath.sqrt(2))
            energy = 8 * mpmath.erfinv(1 - (inner + outer)) ** 2
            assert float(swapped(np.array(float(s)), float(w))) == pytest.approx(float(energy), rel=ROUNDING / 4)


def affinity(shifts: list[float], levels: np.ndarray, cells: int = 1 << 14, width: float = 80.0) -> np.ndarray:
    """N(y) = E min(R, e^y) e^(-y/2) of independent unit Laplace coordinates, by transforms of their exact laws."""
    frequency = 2 * np.pi * fft.rfftfreq(cells, width / cells)
    product = 1 / (frequency**2 + 0.25)
    for s, count in zip(*np.unique(shifts, return_counts=True), strict=True):
        one = np.exp(-s / 2) * (np.cos(s * frequency) + np.sinc(s * frequency / np.pi) * s / 2)
        product = product * one ** int(count)
    values = fft.irfft(product, cells) * cells / width
    return np.interp(levels, np.arange(cells // 2) * width / cells, values[: cells // 2])


def gaussian_affinity(energy: float, levels: np.ndarray) -> np.ndarray:
    m = math.sqrt(energy)
    low, high = special.ndtr(-levels / m - m / 2), special.ndtr(levels / m - m / 2)
    return np.exp(levels / 2) * low + np.exp(-levels / 2) * high


GRADIENTS = {
    "one": lambda t: [t],
    "two": lambda t: [t / math.sqrt(2)] * 2,
    "ten": lambda t: [t / math.sqrt(10)] * 10,
    "many": lambda t: [t / 30] * 900,
    "two levels": lambda t: [t * 0.9, *[t * math.sqrt(0.19) / 20] * 400],
    "half": lambda t: [t * 0.5, *[t * math.sqrt(0.75) / 20] * 400],
    "geometric": lambda t: list(t * math.sqrt(0.36) * 0.8 ** np.arange(40)),
    "worst shift": lambda t: [min(t, 0.7555), *[math.sqrt(max(0.0, t**2 - 0.7555**2)) / 20] * 400],
}


@pytest.mark.parametrize("t", [0.03, 0.1, 0.3, 0.5, 0.75, 1.0, 1.5, 3.0])
@pytest.mark.parametrize("gradient", GRADIENTS)
def test_no_gradient_shows_more_than_the_gaussian(gradient: str, t: float) -> None:
    """At every level; the transform of a law with atoms rings by less than 1e-4 of a cell."""
    shifts, levels = GRADIENTS[gradient](t), np.linspace(0.0, 8.0, 400)
    energy = gaussian_signal(math.sqrt(sum(s * s for s in shifts)), max(shifts)) ** 2
    assert np.all(affinity(shifts, levels) >= gaussian_affinity(energy, levels) - 3e-7)


def test_random_gradients_do_not_show_more_than_the_gaussian() -> None:
    rng, levels = np.random.default_rng(5), np.linspace(0.0, 6.0, 200)
    for _ in range(60):
        shifts = rng.standard_normal(rng.integers(1, 30)) * rng.exponential(1.0, 1)
        shifts = np.abs(shifts) * rng.uniform(0.05, 2.0) / np.linalg.norm(shifts)
        energy = gaussian_signal(float(np.linalg.norm(shifts)), float(shifts.max())) ** 2
        assert np.all(affinity(list(shifts), levels) >= gaussian_affinity(energy, levels) - 3e-7)


def test_the_excess_is_needed() -> None:
    """Without it one coordinate refutes the Gaussian at level 1, where a Laplace shift of .7555 needs all of it."""
    one = affinity([0.7555], np.zeros(1))[0]
    assert one < gaussian_affinity(0.7555**2, np.zeros(1))[0] - 1e-2
    assert one < gaussian_affinity(0.7555**2 + 0.0850, np.zeros(1))[0]


def test_an_adversary_who_chooses_the_second_step_does_not_refute_the_bound() -> None:
    """Two steps; after the first the rest of the energy is spent on one coordinate or on many, whichever is worse."""
    levels = np.linspace(0.0, 4.0, 81)
    for t in (0.05, 0.1, 0.2, 0.4, 0.7, 1.0):
        choices = [affinity(shifts, np.linspace(0.0, 12.0, 1201)) for shifts in ([t], [t / 30] * 900)]
        # The first step is one coordinate: log R is t, -t, or uniform-like between, with these tilted masses.
        inside = np.linspace(-t, t, 2001)
        masses = np.full(2001, math.exp(-t / 2) / 4 * (2 * t / 2000))
        masses[[0, -1]] = masses[[0, -1]] / 2 + math.exp(-t / 2) / 2
        for y in levels:
            future = [np.interp(np.abs(y - inside), np.linspace(0.0, 12.0, 1201), choice) for choice in choices]
            adaptive = float(np.sum(masses * np.min(future, axis=0)))
            bound = gaussian_affinity(gaussian_signal(math.sqrt(2) * t, t) ** 2, np.array([y]))[0]
            assert adaptive >= bound - 2e-6


def test_excess_grows_with_the_longest_shift() -> None:
    at = np.concatenate([np.geomspace(1e-200, 0.01, 50), np.linspace(0.011, 2.0, 500)])
    assert np.all(np.diff([excess(float(t)) for t in at]) >= 0)
    signals = [gaussian_signal(float(t), float(t)) for t in at]
    assert np.all(np.diff(signals) > 0)
    assert np.all(np.array(signals) > at)


def lomax_affinity(k: float, shift: float, levels: np.ndarray) -> np.ndarray:
    """N(y) of one Lomax coordinate with theta = 1: where the ratio exceeds e^y is an interval around the shift."""

    def above(z: float) -> float:
        return 0.5 * (1 + z) ** -k if z >= 0 else 1 - 0.5 * (1 - z) ** -k

    out = []
    for y in levels:
        ratio = math.exp(y / (k + 1))
        if ratio >= 1 + shift:
            out.append(math.exp(-y / 2))
            continue
        # (1 + z)/(1 + |z - x|) = ratio: once below the shift, and once above it unless the ratio is 1.
        low = (ratio * (1 + shift) - 1) / (1 + ratio)
        high_with, high_without = 0.0, 0.0
        if ratio > 1:
            high = (1 + ratio * (shift - 1)) / (ratio - 1)
            high_with, high_without = above(high - shift), above(high)
        p_with, p_without = above(low - shift) - high_with, above(low) - high_without
        out.append(math.exp(-y / 2) * (1 - p_with) + math.exp(y / 2) * p_without)
    return np.array(out)


@pytest.mark.parametrize("k", [1.0, 1.5, 3.0, 10.0, 1e3, 1e6])
@pytest.mark.parametrize("t", [1e-3, 0.1, 1.0, 4.0, 8.0, 30.0])
def test_gamma_noise_shows_no_more_than_laplace_noise(k: float, t: float) -> None:
    levels = np.linspace(0.0, 1.3 * (k + 1) * t / k, 400)
    laplace = np.minimum(math.exp(-(k + 1) * t / k / 2), np.exp(-levels / 2))
    assert np.all(lomax_affinity(k, t / k, levels) >= laplace * (1 - 1e-8))


SEEDS = [
    GammaSeed(0.4, 2.0),
    ExponentialSeed(1.0),
    UniformSeed(0.0, 2.0),
    UniformSeed(0.9, 1.1),
    TruncatedNormalSeed(1.0, 0.3),
    WeibullSeed(0.5, 1.0),
    WeibullSeed(3.0, 1.0),
    SumSeed((0.5, 2.0), (GammaSeed(0.7, 1.0), UniformSeed(0.5, 1.5))),
]


def one_coordinate(noise: Noise, shift: float, levels: np.ndarray) -> np.ndarray:
    """H at e^levels, from masses of many small cells of the output: from below, and close."""
    far = np.geomspace(1e-6, 1e9, 4000)
    z = np.concatenate([-far[::-1], np.linspace(0.0, shift, 8001), shift + far])
    p, q = np.diff(noise.cdf(z - shift)), np.diff(noise.cdf(z))
    return np.array([np.maximum(p - math.exp(y) * q, 0.0).sum() for y in levels])


@pytest.mark.parametrize("seed", SEEDS, ids=repr)
@pytest.mark.parametrize("t", [0.05, 1.0, 6.0])
def test_any_seed_shows_no_more_than_laplace_noise_of_its_largest_score(seed: Seed, t: float) -> None:
    """H of a Laplace shift s is 1 - e^((y-s)/2) at levels y from 0 to s."""
    noise = PLRV(seed)
    assert noise.laplace_scale is not None
    levels = t * np.linspace(0.0, 0.999, 60)
    laplace = -np.expm1((levels - t) / 2)
    assert np.all(one_coordinate(noise, t * noise.laplace_scale, levels) <= laplace + 1e-12)


def test_a_narrow_seed_shows_more_than_laplace_noise_of_a_smaller_score() -> None:
    """The lemma cannot be improved by a factor, and the comparison can fail."""
    noise = PLRV(UniformSeed(0.9, 1.1))
    levels = np.linspace(0.0, 0.9, 60)
    assert np.any(one_coordinate(noise, 1.02, levels) > -np.expm1((levels - 1) / 2) + 1e-3)


@pytest.mark.parametrize("k", [1e14, 1e15, 1e77, 1e155, 1e300])
def test_gamma_noise_of_any_shape_has_a_tight_epsilon(k: float) -> None:
    work = Workload(0.01, 300, 1.2, 10**6)
    found = Ledger().plus(GammaPLRV(k, 1 / k), work).certified(1e-5).value
    assert found == pytest.approx(Ledger().plus(Laplace(1.0), work).certified(1e-5).value, rel=1e-6, abs=0.0)


def test_gamma_noise_becomes_laplace_noise() -> None:
    work = Workload(0.01, 300, 1.2, 10**6)
    limit = Ledger().plus(Laplace(1.0), work).certified(1e-5)
    close = Ledger().plus(GammaPLRV(1e12, 1e-12), work).certified(1e-5)
    assert limit.method == close.method == "profile"
    assert close.value == pytest.approx(limit.value, rel=1e-6, abs=0.0)
    steps = [dominating_steps([(noise, work)])[0].signal for noise in (Laplace(1.0), GammaPLRV(1e12, 1e-12))]
    assert steps[0] == pytest.approx(steps[1], rel=1e-9, abs=0.0)
    assert GammaPLRV(2.0, 1.0, shared=True).laplace_scale is None


@pytest.mark.parametrize(
    ("t", "q", "steps"), [(1.2, 0.01, 300), (2.0, 0.001, 1000), (3.0, 0.003, 40), (0.1, 1.0, 50), (0.5, 0.01, 300)]
)
@pytest.mark.parametrize("noise", [Laplace(1.0), GammaPLRV(4e4, 1 / 4e4), GammaPLRV(10.0, 0.1)], ids=repr)
def test_certified_lies_between_an_attack_and_the_moments(noise: Noise, t: float, q: float, steps: int) -> None:
    work = Workload(q, steps, t, 10**6)
    bracket = Ledger().plus(noise, work).epsilon(1e-5)
    moments = StepMoments(noise, t, 10**6, q)
    assert bracket.lower <= bracket.certified
    assert bracket.certified <= rdp_certificate(lambda order: steps * moments(order), 1e-5, 1 << 17).value


def test_runs_without_sampling_are_nearly_those_of_the_gaussian() -> None:
    """Fifty steps at t = .1: 1 % above the Gaussian limit, where moments are 9 % above."""
    certificate = Ledger().plus(Laplace(10.0), Workload(1.0, 50, 1.0, 10**6)).certified(1e-5)
    assert certificate.method == "gdp"
    assert certificate.value < 1.01 * gaussian_epsilon(math.sqrt(0.5), 1e-5)
    delta = Ledger().plus(Laplace(10.0), Workload(1.0, 50, 1.0, 10**6)).certified_delta(certificate.value)
    assert delta.method == "gdp"
    assert delta.value == pytest.approx(1e-5, rel=1e-6, abs=0.0)
    assert delta.value >= gaussian_delta(math.sqrt(0.5), certificate.value)


def test_different_noises_pay_their_excess_once() -> None:
    works = [Workload(1.0, 3, 0.3, 9), Workload(1.0, 4, 0.2, 9)]
    steps = dominating_steps([(Laplace(1.0), works[0]), (Gaussian(1.0), works[1]), (Laplace(2.0), works[0])])
    assert steps is not None
    gaussian, joined = steps
    assert gaussian.signal == pytest.approx(0.2)
    assert joined.signal**2 == pytest.approx(3 * 0.09 + 3 * 0.0225 + excess(0.3))
    assert dominating_steps([(Laplace(1.0), works[0]), (GeneralisedGaussian(1.5, 1.0), works[0])]) is None


def test_noise_on_a_grid_is_certified_at_the_longer_gradient() -> None:
    noise = GridNoise(Laplace(1.0), 1e-3)
    (one,) = dominating_steps([(noise, Workload(0.1, 3, 1.0, 10_000))]) or []
    assert one.signal == pytest.approx(gaussian_signal(1.05, 1.05))


def test_trees_of_laplace_noise_are_certified_as_one_gaussian_release() -> None:
    work = Workload(1.0, 100, 1.0, 26_010)
    tree = Correlation(Tree(), Participation(steps_per_epoch=50, epochs=2))  # two visits, which share rows
    bracket = CorrelatedLedger(Laplace(3.0), work, tree, taken=100).epsilon(1e-5)
    assert bracket.method == "gdp"
    shift = tree.sensitivity(100).value / 3
    assert bracket.certified == pytest.approx(gaussian_epsilon(math.hypot(shift, math.sqrt(excess(shift))), 1e-5))
    assert bracket.lower <= bracket.certified
