"""The lower bound: known values, and never above what is known exactly."""

import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from mpmath import mp, mpf

from plrvo.accounting import Ledger, Workload
from plrvo.accounting.gaussian_curve import gaussian_epsilon
from plrvo.accounting.lower import _mass, _released, lower_loss
from plrvo.noise import PLRV, ExponentialSeed, GammaPLRV, Gaussian, Laplace, Noise, TruncatedNormalSeed, UniformSeed


def lower(noise: Noise, work: Workload, delta: float = 1e-5) -> float:
    return lower_loss([(noise, work)], delta).epsilon(delta)


@pytest.mark.parametrize(
    ("b", "low", "high"),
    [
        (16.67, 0.0284, 0.0288),
        (2.0, 0.3307, 0.3315),
        (1.0, 1.061, 1.068),
        (0.8333, 1.772, 1.782),
        (0.8, 2.011, 2.021),
        (0.5, 8.621, 8.634),
    ],
)
def test_lower_bound_for_the_spread_gradient(b: float, low: float, high: float) -> None:
    """The brackets of the theory page, section 6: Laplace, n = 16384, q = .01, T = 300, delta = 1e-5."""
    value = lower(Laplace(b), Workload(0.01, 300, 1.0, 16_384))
    assert 0.99 * low <= value <= high


@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-9])
@pytest.mark.parametrize("b", [0.3, 1.0, 4.0])
def test_one_laplace_release_is_known_exactly(b: float, delta: float) -> None:
    """n = 1, q = 1, T = 1: delta(eps) = 1 - e^((eps - t)/2) with t = C/b, so eps = t + 2 log(1 - delta)."""
    exact = 1 / b + 2 * math.log1p(-delta)
    assert exact * (1 - 2e-3) <= lower(Laplace(b), Workload(1.0, 1, 1.0, 1), delta) <= exact + 1e-12


@pytest.mark.parametrize("q", [0.3, 0.01])
def test_one_subsampled_laplace_release_is_known_exactly(q: float) -> None:
    """With the example present with probability q: e^eps - 1 = q (e^eps' - 1) and delta = q delta'."""
    delta = 1e-5
    inner = 1.0 + 2 * math.log1p(-delta / q)
    exact = math.log1p(q * math.expm1(inner))
    assert exact * (1 - 3e-3) <= lower(Laplace(1.0), Workload(q, 1, 1.0, 1)) <= exact + 1e-12


@pytest.mark.parametrize(
    ("sigma", "q", "steps", "delta"),
    [(1.0, 1.0, 1, 1e-5), (2.0, 1.0, 50, 1e-6), (1.0, 0.01, 300, 1e-5), (0.6, 0.05, 100, 1e-5), (4.0, 0.2, 500, 1e-8)],
)
def test_gaussian_lower_bound_agrees_with_dp_accounting(sigma: float, q: float, steps: int, delta: float) -> None:
    reference = (
        pld.from_gaussian_mechanism(sigma, sampling_prob=q, value_discretization_interval=1e-3, use_connect_dots=True)
        .self_compose(steps)
        .get_epsilon_for_delta(delta)
    )
    value = lower(Gaussian(sigma), Workload(q, steps, 1.0, 50), delta)
    assert 0.999 * reference <= value <= reference


def test_gaussian_lower_bound_does_not_depend_on_the_dimension() -> None:
    values = [lower(Gaussian(1.0), Workload(0.05, 20, 1.0, n)) for n in (1, 100, 10**9)]
    assert values[0] == values[1] == values[2]


@pytest.mark.parametrize("noise", [Laplace(0.7), GammaPLRV(2.0, 0.8), PLRV(UniformSeed(0.5, 2.0))], ids=repr)
def test_spreading_the_gradient_makes_the_attack_stronger(noise: Noise) -> None:
    values = [lower(noise, Workload(0.1, 20, 1.0, n)) for n in (1, 4, 64, 4096)]
    assert values == sorted(values)
    assert values[-1] > 1.2 * values[0]


def test_shared_scale_is_attacked_in_one_coordinate_at_least() -> None:
    apart, together = PLRV(ExponentialSeed(1.0)), PLRV(ExponentialSeed(1.0), shared=True)
    one = lower(apart, Workload(0.1, 20, 1.0, 1))
    assert lower(together, Workload(0.1, 20, 1.0, 1)) == pytest.approx(one, rel=1e-12, abs=0.0)
    assert lower(together, Workload(0.1, 20, 1.0, 500)) > 10 * one


@pytest.mark.parametrize("noise", [Laplace(0.8), GammaPLRV(2.0, 0.6)], ids=repr)
def test_lower_bound_agrees_with_a_simulated_attack(noise: Noise) -> None:
    """16 coordinates, q = .2, ten steps, 200,000 runs of the exact loss: below it, and within four percent."""
    n, q, steps, draws, epsilon = 16, 0.2, 10, 200_000, 1.0
    rng = np.random.default_rng(51)
    x = 1 / math.sqrt(n)
    loss = np.zeros(draws)
    for _ in range(steps):
        y = noise.sample((draws, n), rng) + x * (rng.random((draws, 1)) < q)
        ratio = np.sum(noise.log_density(y - x) - noise.log_density(y), axis=1)
        loss += np.log1p(q * np.expm1(ratio))
    gain = np.maximum(-np.expm1(epsilon - loss), 0.0)
    error = 6 * gain.std() / math.sqrt(draws)
    value = lower_loss([(noise, Workload(q, steps, 1.0, n))], 1e-3).delta(epsilon)
    assert 0.96 * gain.mean() - error <= value <= gain.mean() + error


@pytest.mark.parametrize(
    "work",
    [
        Workload(0.01, 3, 1.0, 1),
        Workload(0.01, 10, 1.0, 1),
        Workload(0.01, 100_000, 1.0, 1),
        Workload(0.01, 1_000_000, 1.0, 1),
    ],
    ids=str,
)
def test_two_valued_losses_do_not_wrap_around(work: Workload) -> None:
    """One Laplace coordinate has almost all its mass on two losses, which no lattice holds exactly.

    The pure epsilon T log1p(q (e^t - 1)) is a cap for few steps; for many, the moments give one.
    """
    cap = min(work.steps * math.log1p(0.01 * math.expm1(1.0)), Ledger().plus(Laplace(1.0), work).certified(1e-5).value)
    assert 0 <= lower(Laplace(1.0), work) <= cap


def test_lower_bound_is_zero_where_delta_allows_everything() -> None:
    assert lower(Laplace(1.0), Workload(0.001, 1, 1.0, 1), 0.5) == 0.0


@pytest.mark.parametrize("noise", [Laplace(1e-4), Gaussian(1e-3), GammaPLRV(3.0, 1e4)], ids=repr)
def test_hardly_any_noise_shows_a_large_epsilon_without_overflow(noise: Noise) -> None:
    value = lower(noise, Workload(0.5, 5, 1.0, 10))
    assert 10 < value < math.inf


TAILS = {
    Gaussian(1.0): lambda z: mp.erfc(z / mp.sqrt(2)) / 2,
    Laplace(1.0): lambda z: mp.exp(-z) / 2,
    GammaPLRV(20.0, 0.05): lambda z: (1 + mpf(0.05) * z) ** -20 / 2,
    GammaPLRV(1e9, 1e-9): lambda z: (1 + mpf(1e-9) * z) ** -1_000_000_000 / 2,
    PLRV(UniformSeed(0.5, 1.5)): lambda z: (mp.exp(-z / 2) - mp.exp(-3 * z / 2)) / z / 2,
    PLRV(TruncatedNormalSeed(1.0, 0.25)): lambda z: (
        mp.exp(-z + z**2 / 32) * mp.erfc((z / 4 - 4) / mp.sqrt(2)) / mp.erfc(-4 / mp.sqrt(2)) / 2
    ),
}


@pytest.mark.parametrize("noise", TAILS, ids=repr)
@pytest.mark.parametrize("x", [9.87654321, 0.01234567])
def test_masses_of_intervals_err_by_less_than_they_say(noise: Noise, x: float) -> None:
    """Differences of tails in 60 digits, at edges that doubles round."""
    t = np.concatenate([np.linspace(0.0, x / 2, 20), x / 2 + np.geomspace(1e-3, 35.0, 60)])
    with mp.workdps(60):
        for sign in (-0.5, 0.5):
            found, error = _mass(noise, t + sign * x)
            edges = [mpf(float(at)) + sign * mpf(x) for at in t]
            tails = [TAILS[noise](abs(e)) if e else mpf(1) / 2 for e in edges]
            above = [1 - tail if e < 0 else tail for e, tail in zip(edges, tails, strict=True)]
            exact = [above[i] - above[i + 1] for i in range(len(t) - 1)]
            wrong = [abs(mpf(float(f)) - e) / b for f, e, b in zip(found, exact, error, strict=True) if b > 1e-290]
            assert 1e-3 < max(wrong) < 0.7


@pytest.mark.parametrize("q", [1.0, 0.01])
def test_the_attack_on_one_coordinate_takes_p_from_below_and_q_from_above(q: float) -> None:
    """Gaussian noise a tenth of the gradient: masses of the other side are tiny, and keep their own digits."""
    atoms = _released(Gaussian(1.0), 10.0, 1, q)
    assert 1 - 1e-10 < atoms.p.sum() < 1 < atoms.q.sum() < 1 + 1e-10
    likely = atoms.p > 1e-3 * q
    assert np.log(atoms.p / atoms.q)[likely].max() > 60 + math.log(q)


@pytest.mark.parametrize("delta", [1e-9, 1e-12])
@pytest.mark.parametrize(("sigma", "q", "steps"), [(1.0, 0.01, 10**4), (5.0, 0.02, 10**5)])
def test_many_steps_show_something_and_no_more_than_is_certified(
    sigma: float, q: float, steps: int, delta: float
) -> None:
    """Deltas near the rounding of a transform, which is charged in proportion to the steps."""
    work = Workload(q, steps, 1.0, 1)
    certified = Ledger().plus(Gaussian(sigma), work).certified(delta).value
    assert 0.7 * certified < lower(Gaussian(sigma), work, delta) <= certified


@pytest.mark.parametrize(
    ("sigma", "q", "steps"), [(4.0, 0.2, 2000), (4.0, 0.2, 10**5), (50.0, 0.01, 10**5), (0.8, 1e-4, 10**6)]
)
def test_long_runs_keep_the_bracket_of_gaussian_noise_within_one_percent(sigma: float, q: float, steps: int) -> None:
    """One step is merged once, and T of them are exact: what is lost does not grow with T."""
    work = Workload(q, steps, 1.0, 1)
    certified = Ledger().plus(Gaussian(sigma), work).certified(1e-5).value
    assert 0.99 * certified < lower(Gaussian(sigma), work) <= certified


@pytest.mark.parametrize("steps", [10, 10**4, 10**6])
@pytest.mark.parametrize("delta", [1e-5, 1e-12])
def test_gaussian_noise_without_sampling_is_known_exactly(steps: int, delta: float) -> None:
    exact = gaussian_epsilon(1.0, delta)
    value = lower(Gaussian(math.sqrt(steps)), Workload(1.0, steps, 1.0, 1), delta)
    assert 0.99 * exact < value <= exact


@pytest.mark.parametrize(("sigma", "q", "steps", "delta"), [(0.45, 1e-3, 10, 1e-12), (0.5, 1e-4, 1000, 1e-8)])
def test_rare_large_losses_are_seen_at_a_small_delta(sigma: float, q: float, steps: int, delta: float) -> None:
    """A tilt would make many of them likely at once, and lifting the bulk by a step would take them all in."""
    work = Workload(q, steps, 1.0, 1)
    certified = Ledger().plus(Gaussian(sigma), work).certified(delta).value
    assert 0.98 * certified < lower(Gaussian(sigma), work, delta) <= certified
