"""The comparison: every number by another road, and a recommendation that follows from them."""

import math
from dataclasses import replace

import dp_accounting
import numpy as np
import pytest
from scipy import integrate, sparse, special
from scipy.sparse import linalg

from plrvo import GammaPLRV, Gaussian, Laplace, Ledger, Workload, calibrate
from plrvo.designer.comparison import LEAST_SHAPE, compare, crossover_dimension, measure, winning_map
from plrvo.validate import InvalidArgument

DELTA = 1e-5
HIGH = Workload(sample_rate=0.01, steps=300, clip=0.5, dimension=26_010)
LOW = Workload(sample_rate=0.01, steps=300, clip=0.5, dimension=1)


def test_the_least_shape_comes_from_the_airy_function():
    """p = Ai(|z| - a)^2 up to a factor, a the first extremum: I = 4 int y'^2 / int y^2, E|z| by quadrature."""
    a = -float(special.ai_zeros(1)[1][0])
    mass, power, absolute = (
        integrate.quad(f, -a, 12)[0]
        for f in (
            lambda x: special.airy(x)[0] ** 2,
            lambda x: special.airy(x)[1] ** 2,
            lambda x: (x + a) * special.airy(x)[0] ** 2,
        )
    )
    assert 4 * power / mass * (absolute / mass) ** 2 == pytest.approx(LEAST_SHAPE, rel=1e-9)


def test_no_density_on_a_grid_has_a_smaller_shape():
    """The ground state of -4 y'' + s |z| y on a grid minimises I + s E|z|; its I E|z|^2 is the least one."""
    h = 0.01
    z = np.arange(-12, 12 + h / 2, h)
    matrix = sparse.diags([8 / h**2 + np.abs(z), *[np.full(len(z) - 1, -4 / h**2)] * 2], [0, 1, -1], format="csc")
    y = linalg.eigsh(matrix, k=1, sigma=0)[1][:, 0]
    p = y**2 / np.sum(y**2)
    information = 4 * np.sum(np.diff(np.abs(y)) ** 2) / h**2 / np.sum(y**2)
    shape = information * np.sum(p * np.abs(z)) ** 2
    assert shape == pytest.approx(LEAST_SHAPE, rel=1e-4)
    for noise in (Gaussian(0.7), Laplace(3.0), GammaPLRV(4.0, 0.1)):
        assert noise.fisher_information() * noise.distortion**2 > LEAST_SHAPE


@pytest.mark.parametrize("noise", [Gaussian(1.3), Laplace(0.8), GammaPLRV(5.0, 0.4), GammaPLRV(1.7, 0.4)])
def test_measured_numbers_agree_with_quadrature(noise):
    row = measure(noise, HIGH, DELTA)

    def moment(f):
        return 2 * sum(
            integrate.quad(lambda z: f(z) * math.exp(float(noise.log_density(z))), *ends, limit=400)[0]
            for ends in ((0, 1), (1, 100), (100, math.inf))
        )

    assert row.distortion == pytest.approx(moment(lambda z: z), rel=1e-5)
    assert row.fisher_information == pytest.approx(moment(lambda z: float(noise.score(z)) ** 2), rel=1e-6)
    assert row.snr == pytest.approx(0.5 / moment(lambda z: z), rel=1e-5)
    assert row.power_score == pytest.approx(0.25 * row.fisher_information)
    assert row.shape == pytest.approx(row.fisher_information * row.distortion**2)
    assert row.power_raw <= row.power_score * (1 + 1e-12)  # Cramer-Rao
    if isinstance(noise, GammaPLRV) and noise.k < 2:
        assert row.std == math.inf
        assert row.power_raw == 0
    else:
        assert row.std**2 == pytest.approx(moment(lambda z: z * z), rel=1e-4)
        assert row.power_raw == pytest.approx(0.25 / row.std**2)


@pytest.mark.parametrize("k", [2.5, 40.0, 1e6])
def test_the_shape_of_gamma_noise_is_the_closed_form_of_the_theory(k):
    row = measure(GammaPLRV(k, 0.3), HIGH, DELTA)
    assert row.shape == pytest.approx(k * (k + 1) ** 2 / ((k + 2) * (k - 1) ** 2), rel=1e-12)
    assert row.excess == pytest.approx(math.sqrt(row.shape / 0.62663) - 1, abs=1e-4)


@pytest.fixture(scope="module")
def high():
    return compare(HIGH, 1.0, DELTA)


@pytest.fixture(scope="module")
def low():
    return compare(LOW, 8.0, DELTA, gamma=calibrate(GammaPLRV(4.8, 2.0), LOW, 8.0, DELTA))


def test_all_noises_are_on_the_budget(high, low):
    for comparison in (high, low):
        for row in comparison.alternatives.values():
            assert 0.9996 * comparison.epsilon < row.epsilon_certified <= comparison.epsilon
            again = Ledger().plus(row.noise, comparison.work).certified(DELTA)
            assert again.value == row.epsilon_certified


def test_the_recommendation_agrees_with_a_direct_computation(high, low):
    """Gaussian: sigma from dp-accounting's loss distribution alone. Laplace in one coordinate: b from the moments of
    one-hot Laplace noise; in high dimension from the Renyi cost of the Gaussian of multiplier b/C."""

    def gaussian_absolute(work, epsilon):
        def cost(sigma):
            pld = dp_accounting.pld.privacy_loss_distribution.from_gaussian_mechanism(
                sigma, sampling_prob=work.sample_rate, value_discretization_interval=1e-3
            )
            return pld.self_compose(work.steps).get_epsilon_for_delta(DELTA)

        return work.clip * bisect(cost, epsilon) * math.sqrt(2 / math.pi)

    def laplace_absolute(work, epsilon):
        order = np.arange(2, 130 if epsilon < 2 else 25)

        def cost(width):
            if work.dimension == 1:
                moments = [_laplace_step(work.sample_rate, 1 / width, int(alpha)) for alpha in order]
                rdp = work.steps * np.array(moments) / (order - 1)
                return float(dp_accounting.rdp.compute_epsilon(order, rdp, DELTA)[0])
            accountant = dp_accounting.rdp.RdpAccountant(orders=order.tolist())
            step = dp_accounting.PoissonSampledDpEvent(work.sample_rate, dp_accounting.GaussianDpEvent(width))
            accountant.compose(dp_accounting.SelfComposedDpEvent(step, work.steps))
            return accountant.get_epsilon(DELTA)

        return work.clip * bisect(cost, epsilon)

    def bisect(cost, epsilon):
        small, large = 0.1, 20.0
        for _ in range(14):
            middle = math.sqrt(small * large)
            small, large = (middle, large) if cost(middle) > epsilon else (small, middle)
        return large

    for comparison, epsilon, winner in ((high, 1.0, "gaussian"), (low, 8.0, "not gaussian")):
        gaussian, laplace = gaussian_absolute(comparison.work, epsilon), laplace_absolute(comparison.work, epsilon)
        assert comparison.alternatives["gaussian"].distortion == pytest.approx(gaussian, rel=5e-3)
        # No more than moments ask for, no less than the Gaussian of the same information in high dimension.
        assert comparison.alternatives["laplace"].distortion <= laplace * (1 + 5e-3)
        if comparison is high:
            assert comparison.alternatives["laplace"].distortion >= gaussian * math.sqrt(math.pi / 2) * (1 - 5e-3)
        assert (gaussian < laplace) == (winner == "gaussian")
        assert (comparison.recommended == "gaussian") == (winner == "gaussian")


def _laplace_step(q, t, order):
    """log of sum over eta of the binomial weights times F(t, eta): one coordinate, the coin once."""
    eta = np.arange(order + 1.0)
    moment = (eta * np.exp((eta - 1) * t) + (eta - 1) * np.exp(-eta * t)) / (2 * eta - 1)
    return math.log(np.sum(special.comb(order, eta) * (1 - q) ** (order - eta) * q**eta * moment))


def test_the_case_and_the_reason_fit_the_numbers(high, low):
    assert (high.recommended, high.case) == ("gaussian", "high dimension")
    assert "26010" in high.reason
    assert "Fisher information" in high.reason
    assert (low.recommended, low.case) == ("gamma", "low dimension")
    assert low.alternatives["gamma"].distortion < low.alternatives["laplace"].distortion
    assert "only 1 coordinate," in low.reason
    between = compare(replace(HIGH, dimension=8), 1.0, DELTA, k=1e4)
    assert (between.recommended, between.case) == ("gaussian", "between")
    assert 0.01 < between.dimension_saves < 0.3
    assert between.after_score == max(between.alternatives, key=lambda name: between.alternatives[name].power_score)


def test_the_limit_is_respected_in_high_dimension(high):
    """Section 10: at n -> infinity no noise costs less than the Gaussian of the same information."""
    orders = list(range(2, 200))
    for name in ("laplace", "gamma"):
        row = high.alternatives[name]
        accountant = dp_accounting.rdp.RdpAccountant(orders=orders)
        sigma = 1 / (HIGH.clip * math.sqrt(row.fisher_information))
        step = dp_accounting.PoissonSampledDpEvent(HIGH.sample_rate, dp_accounting.GaussianDpEvent(sigma))
        accountant.compose(dp_accounting.SelfComposedDpEvent(step, HIGH.steps))
        limit = Ledger().plus(Gaussian(sigma), replace(HIGH, clip=1.0)).certified(DELTA).value
        assert limit <= row.epsilon_spread <= accountant.get_epsilon(DELTA) * (1 + 1e-6)
        assert row.epsilon_certified <= row.epsilon_spread * (1 + 1e-12)


@pytest.mark.parametrize(
    ("epsilon", "rate", "steps"), [(1.0, 0.01, 300), (8.0, 0.01, 300), (1.0, 1.0, 1), (1.0, 0.04, 1250)]
)
def test_the_crossover_is_the_last_dimension_at_which_laplace_wins(epsilon, rate, steps):
    work = Workload(rate, steps, 0.5, 1)
    target = calibrate(Gaussian(0.5), work, epsilon, DELTA).distortion
    last = crossover_dimension(work, epsilon, DELTA, target)
    assert 0 <= last < 100

    def absolute(dimension):
        return calibrate(Laplace(0.5), replace(work, dimension=dimension), epsilon, DELTA).distortion

    assert last == 0 or absolute(last) <= target * (1 + 4e-4)
    assert absolute(last + 1) > target


def test_the_map_shows_where_a_shape_wins():
    found = winning_map(Workload(0.01, 300, 0.5, 1), DELTA, epsilons=(0.5, 4.0), dimensions=(1, 3, 1000))
    assert found.gain.shape == (2, 3)
    assert np.all(np.diff(found.gain, axis=1) < 0)  # the more coordinates, the better for Gaussian noise
    assert 1 < found.gain[0, 0] < found.gain[1, 0]
    assert np.all(found.gain[:, -1] < 0.8)
    laplace = calibrate(Laplace(1.0), Workload(0.01, 300, 0.5, 3), 4.0, DELTA)
    assert found.laplace[1, 1] == pytest.approx(laplace.distortion / 0.5, rel=4e-4)
    with pytest.raises(InvalidArgument, match="at least one epsilon"):
        winning_map(HIGH, DELTA, (), (1,))


def test_tight_certificates_help_one_coordinate_and_many_and_leave_the_map_between():
    """One coordinate has its own loss distribution; a few are certified by moments, as the map is."""
    work, dimensions = Workload(0.01, 300, 0.5, 1), (1, 2, 3, 4, 6, 8)
    fast, slow = (winning_map(work, DELTA, (1.0, 4.0), dimensions, quick=quick) for quick in (True, False))
    assert fast.laplace[:, 1:] == pytest.approx(slow.laplace[:, 1:], rel=1e-5)
    assert np.all(slow.laplace[:, 0] < 0.96 * fast.laplace[:, 0])
    fast, slow = (winning_map(work, DELTA, (1.0,), (10_000,), quick=quick) for quick in (True, False))
    assert fast.gain[0, 0] < 0.95 * slow.gain[0, 0] < 0.95 * math.sqrt(2 / math.pi)


def test_gamma_noise_widens_the_map():
    work = Workload(0.01, 300, 0.5, 1)
    plain = winning_map(work, DELTA, (8.0,), (1,))
    more = winning_map(work, DELTA, (8.0,), (1,), shapes=(4.8,))
    assert more.gamma is not None
    assert more.gain[0, 0] > 1.05 * plain.gain[0, 0]
