"""What correlated noise costs, against dp-accounting, brute force, simulation and its own limits."""

import itertools
import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_mechanism
from dp_accounting.rdp import RdpAccountant
from scipy import optimize
from tests.grids import one_in

import plrvo
from plrvo.accounting.convert import epsilon_from_moments
from plrvo.accounting.correlated import (
    Banded,
    CorrelatedLedger,
    Correlation,
    Explicit,
    Participation,
    SquareRoot,
    Tree,
    fit_banded,
    fit_blt,
    read_ledger,
)
from plrvo.accounting.gaussian_curve import gaussian_delta, gaussian_epsilon
from plrvo.accounting.workload import Workload
from plrvo.validate import InvalidArgument

DELTA = 1e-5
NOISES = {
    "gaussian": plrvo.Gaussian(12.0),
    "laplace": plrvo.Laplace(12.0),
    "gamma": plrvo.GammaPLRV(20.0, 1 / 240),
    "gamma, k < 1": plrvo.GammaPLRV(0.8, 0.1),
    "plrv": plrvo.PLRV(plrvo.WeibullSeed(2.0, 1.0)),
    "shared": plrvo.GammaPLRV(1000.0, 1 / 12000, shared=True),
    "shared, bounded": plrvo.PLRV(plrvo.UniformSeed(0.05, 0.09), shared=True),
}
CORRELATIONS = {
    "identity": Correlation(Banded(), Participation(8, 3)),
    "tree": Correlation(Tree(), Participation(8, 3)),
    "completed tree, restarted": Correlation(Tree(True), Participation(8, 3), 12),
    "sqrt": Correlation(SquareRoot(), Participation(8, 3)),
    "banded": Correlation(fit_banded(4, 24), Participation(8, 3)),
    "banded, separated": Correlation(fit_banded(4, 24), Participation(8, 3, 5)),
    "blt": Correlation(fit_blt(2, 24, Participation(8, 3)), Participation(8, 3)),
}


def ledger(noise, correlation, *, steps=24, dimension=1000, clip=1.0, taken=None) -> CorrelatedLedger:
    return CorrelatedLedger(
        noise, Workload(1.0, steps, clip, dimension), correlation, steps if taken is None else taken
    )


# A seed without closed forms takes seconds: one strategy is enough for it.
PAIRS = [(n, c) for n in NOISES for c in CORRELATIONS if n != "plrv" or c == "tree"]


@pytest.mark.parametrize(("noise", "correlation"), one_in(2, PAIRS))
def test_certified_is_never_below_lower_and_published_never_below_either(noise, correlation):
    bracket = ledger(NOISES[noise], CORRELATIONS[correlation]).epsilon(DELTA)
    assert 0 < bracket.lower <= bracket.certified < math.inf
    if noise not in ("gaussian", "shared", "shared, bounded"):
        assert bracket.published >= bracket.lower


@pytest.mark.parametrize("correlation", [c for c in CORRELATIONS if c != "banded, separated"])
def test_a_gaussian_bracket_is_closed(correlation):
    bracket = ledger(NOISES["gaussian"], CORRELATIONS[correlation]).epsilon(DELTA)
    assert bracket.method == "exact"
    assert bracket.certified == pytest.approx(bracket.lower, rel=1e-6)


@pytest.mark.parametrize("signal", [0.01, 0.3, 1.0, 4.0])
def test_the_gaussian_curve_is_that_of_dp_accounting(signal):
    theirs = privacy_loss_mechanism.GaussianPrivacyLoss(1 / signal)
    for epsilon in (0.01, 0.5, 3.0):
        assert gaussian_delta(signal, epsilon) == pytest.approx(
            theirs.get_delta_for_epsilon(epsilon), rel=1e-6, abs=1e-15
        )
    epsilon = gaussian_epsilon(signal, DELTA)
    assert theirs.get_delta_for_epsilon(epsilon) <= DELTA * (1 + 1e-6)
    assert epsilon == 0 or theirs.get_delta_for_epsilon(epsilon * (1 - 1e-6)) > DELTA * (1 - 1e-4)


def test_hardly_any_noise_costs_a_large_epsilon_and_no_overflow():
    values = [gaussian_epsilon(signal, DELTA) for signal in (99.0, 99.999, 100.001, 1e4, 1e10, 1e150)]
    assert values == sorted(values)
    assert values[2] < 1.02 * values[1]  # the tail bound costs sqrt(2 log 1/delta) - isf(delta), 0.53, of the signal
    bracket = ledger(plrvo.Gaussian(1e-9), CORRELATIONS["tree"]).epsilon(DELTA)
    assert 4000 < bracket.lower < bracket.certified < math.inf


@pytest.mark.parametrize("steps", [1, 5, 100, 128, 1000])
def test_moments_of_a_tree_are_those_of_dp_accounting(steps):
    orders = np.arange(2, 200)
    accountant = RdpAccountant(orders, dp_accounting.NeighboringRelation.REPLACE_SPECIAL)
    accountant.compose(dp_accounting.SingleEpochTreeAggregationDpEvent(noise_multiplier=9.0, step_counts=steps))
    ours = ledger(plrvo.Gaussian(9.0), Correlation(Tree(), Participation(steps)), steps=steps)
    moment = lambda lambda_: float(plrvo.Gaussian(9.0).log_moment(ours.release().clip, lambda_ + 1.0))  # noqa: E731
    value, _ = epsilon_from_moments(moment, DELTA)
    assert value == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-9)
    assert ours.certified(DELTA).value < value


def test_one_step_is_one_gaussian_release():
    accountant = dp_accounting.pld.PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_SPECIAL)
    accountant.compose(dp_accounting.GaussianDpEvent(3.0))
    ours = ledger(plrvo.Gaussian(3.0), Correlation(Tree(), Participation(1)), steps=1).certified(DELTA).value
    assert ours == pytest.approx(accountant.get_epsilon(DELTA), rel=1e-3)
    assert ours <= accountant.get_epsilon(DELTA) * (1 + 1e-9)


def test_once_through_the_data_with_fresh_noise_costs_one_release():
    for noise in (plrvo.Laplace(3.0), plrvo.GammaPLRV(30.0, 0.01)):
        ours = ledger(noise, Correlation(Banded(), Participation(24))).certified(DELTA).value
        assert ours == pytest.approx(plrvo.Ledger().plus(noise, Workload(1.0, 1, 1.0, 1000)).certified(DELTA).value)
        thrice = ledger(noise, Correlation(Banded(), Participation(8, 3))).certified(DELTA).value
        steps = plrvo.Ledger().plus(noise, Workload(1.0, 3, 1.0, 1000))
        assert steps.certified(DELTA).value <= thrice * (1 + 1e-9) <= steps.quick(DELTA).value * (1 + 2e-9)


@pytest.mark.parametrize("noise", ["laplace", "gamma"])
@pytest.mark.parametrize("correlation", CORRELATIONS)
def test_in_high_dimension_only_information_and_sensitivity_count(noise, correlation):
    found = ledger(NOISES[noise], CORRELATIONS[correlation], dimension=10**7)
    sensitivity = CORRELATIONS[correlation].sensitivity(24).value
    sigma = 1 / (sensitivity * math.sqrt(NOISES[noise].fisher_information()))
    gaussian, _ = epsilon_from_moments(lambda lambda_: lambda_ * (lambda_ + 1) / (2 * sigma**2), DELTA)
    assert found.certified(DELTA).value <= gaussian * (1 + 1e-9)
    assert found.quick(DELTA).value == pytest.approx(gaussian, rel=1e-3)  # by moments


@pytest.mark.parametrize(
    ("noise", "strategy", "dimension"),
    one_in(
        5,
        itertools.product(["laplace", "gamma", "gamma, k < 1"], [Tree(), SquareRoot(), Banded((1.0, -0.7))], [1, 2]),
    ),
)
def test_no_gradients_cost_more_moment_than_is_charged(noise, strategy, dimension):
    """The supremum of sum h(Delta_ri^2) over gradients of two visits, by search; the shifts are large on purpose."""
    correlation = Correlation(strategy, Participation(3, 2))
    release = ledger(NOISES[noise], correlation, steps=6, dimension=dimension, clip=20.0).release()
    matrix = strategy.matrix(6)
    for eta in (2.0, 9.0):
        charged = float(NOISES[noise].log_joint_moment(release.clip, release.dimension, np.array([eta]))[0])

        def cost(flat, start, eta=eta):
            g = flat.reshape(2, dimension)
            g = 20.0 * g / np.maximum(1.0, np.linalg.norm(g, axis=1, keepdims=True))
            delta = matrix[:, start, None] * g[0] + matrix[:, start + 3, None] * g[1]
            return -float(np.sum(NOISES[noise].log_moment(np.abs(delta), eta)))

        rng = np.random.default_rng(0)
        found = max(
            -optimize.minimize(cost, rng.standard_normal(2 * dimension), args=(start,), method="Nelder-Mead").fun
            for start in range(3)
            for _ in range(3)
        )
        assert found <= charged * (1 + 1e-9)


def test_in_low_dimension_the_exact_form_is_far_below_the_gaussian_one():
    one = Correlation(Tree(), Participation(7))
    found = ledger(plrvo.Laplace(0.5), one, steps=7, dimension=1).certified(DELTA).value
    assert found <= 3 / 0.5 * (1 + 1e-9)  # three nodes, each with the loss of one Laplace coordinate
    gaussian, _ = epsilon_from_moments(lambda lambda_: lambda_ * (lambda_ + 1) * 3 / (2 * 0.5**2), DELTA)
    assert gaussian > 3.5 * found


def test_a_shared_scale_costs_little_more_than_laplace_and_never_less_than_an_attack_on_it():
    one = Correlation(Tree(), Participation(24))
    laplace = ledger(plrvo.Laplace(12.0), one, dimension=10**6).quick(DELTA).value  # by moments, as a shared scale
    for k, room in ((1e3, 1.2), (1e6, 1.03)):
        shared = ledger(plrvo.GammaPLRV(k, 1 / (12 * k), shared=True), one, dimension=10**6).certified(DELTA).value
        assert laplace * 0.999 < shared < room * laplace


def test_a_shared_scale_is_bounded_by_the_moments_of_its_rows_one_by_one():
    """One visit in three nodes: three rows with the whole clip each, whose exact moments are known."""
    noise = plrvo.GammaPLRV(200.0, 1 / 2400, shared=True)
    tail, eta = 1e-9, np.arange(2.0, 30.0)
    together = noise.log_stream_moment(math.sqrt(3), 1000, eta, tail)
    rows = 3 * noise.log_joint_moment(1.0, 1000, eta, tail)
    assert np.all(together >= rows)


def test_noise_that_is_not_gaussian_is_refused_where_rows_hold_later_sums():
    rotation = Explicit(((math.sqrt(0.5), math.sqrt(0.5)), (-math.sqrt(0.5), math.sqrt(0.5))))
    assert not rotation.causal
    once = Correlation(rotation, Participation(2))
    for name, noise in NOISES.items():
        if name == "gaussian":
            assert ledger(noise, once, steps=2).certified(DELTA).value > 0
            continue
        with pytest.raises(InvalidArgument, match="row-causal"):
            ledger(noise, once, steps=2)
    causal = Explicit(((1.0, 0.0), (1.0, 1.0), (0.3, 1.0)), (0, 1, 1))
    assert causal.causal
    assert not Explicit(((1.0, 0.0), (1.0, 1.0), (0.3, 1.0)), (0, 0, 1)).causal


def test_an_adaptive_adversary_gains_nothing_over_the_curve_with_gaussian_noise():
    """Gradients chosen by what was released: the loss is normal with the variance of the full signal, path by path.

    False alarm: the fourth moment of 200,000 losses is within 5 standard errors; below 1e-6.
    """
    rng, draws, sigma = np.random.default_rng(3), 200_000, 2.0
    s = Banded((1.0, 0.5)).matrix(2)
    first = sigma * rng.standard_normal(draws)
    # The second gradient is orthogonal to the first where the first output was large, and opposes it elsewhere.
    angle = np.where(np.abs(first) > sigma, np.pi / 2, np.pi)
    shift = [np.stack([np.ones(draws), np.zeros(draws)]), np.stack([0.5 + np.cos(angle), np.sin(angle)])]
    used = sum(np.sum(part**2, axis=0) for part in shift)
    square = Correlation(Banded((1.0, 0.5)), Participation(1, 2)).sensitivity(2).value ** 2
    assert np.all(used <= square + 1e-9)
    second = sigma * rng.standard_normal((2, draws))
    rest = np.sqrt(square - used)  # an honest third row makes the signal the same on every path
    loss = (
        shift[0][0] * first + np.sum(shift[1] * second, axis=0) + rest * sigma * rng.standard_normal(draws)
    ) / sigma**2
    variance = square / sigma**2
    fourth = np.mean(loss**4)
    assert abs(fourth - 3 * variance**2) < 5 * math.sqrt(96 / draws) * variance**2
    assert s[1, 0] == 0.5


def test_epsilon_so_far_grows_to_that_of_the_plan():
    for correlation in CORRELATIONS.values():
        values = [
            ledger(NOISES["laplace"], correlation, taken=t).certified(DELTA).value for t in (0, 1, 2, 7, 8, 9, 17, 24)
        ]
        assert values[0] == 0
        assert all(a <= b * (1 + 1e-9) for a, b in itertools.pairwise(values))


def test_taking_less_clip_more_noise_or_fewer_epochs_never_costs_more():
    tree = Correlation(Tree(), Participation(8, 3))
    base = ledger(NOISES["gamma"], tree).certified(DELTA).value
    assert ledger(NOISES["gamma"], tree, clip=0.5).certified(DELTA).value < base
    assert ledger(NOISES["gamma"].scaled(2.0), tree).certified(DELTA).value < base
    assert ledger(NOISES["gamma"], Correlation(Tree(), Participation(8, 2)), steps=16).certified(DELTA).value < base
    assert ledger(NOISES["gamma"], tree, dimension=2).certified(DELTA).value < base


@pytest.mark.parametrize("noise", ["gaussian", "laplace", "gamma", "shared"])
def test_calibration_meets_the_budget_and_wastes_nothing(noise):
    work = Workload(1.0, 24, 1.0, 26_010)
    for correlation in (CORRELATIONS["tree"], CORRELATIONS["banded"]):
        fitted = plrvo.calibrate(NOISES[noise], work, 0.9, DELTA, correlation)
        value = CorrelatedLedger(fitted, work, correlation, 24).certified(DELTA).value
        assert 0.9 * (1 - 1e-4) < value <= 0.9


def test_a_ledger_comes_back_from_its_description():
    for noise in NOISES.values():
        for correlation in CORRELATIONS.values():
            one = ledger(noise, correlation, taken=7)
            assert read_ledger(one.to_list()) == one
    plain = plrvo.Ledger().plus(NOISES["laplace"], Workload(0.1, 5, 1.0, 10))
    assert read_ledger(plain.to_list()) == plain
    assert read_ledger([]) == plrvo.Ledger()


@pytest.mark.parametrize(
    ("build", "named"),
    [
        (
            lambda: CorrelatedLedger(NOISES["laplace"], Workload(0.1, 24, 1.0, 10), CORRELATIONS["tree"], 0),
            "sample_rate=0.1",
        ),
        (lambda: ledger(NOISES["laplace"], CORRELATIONS["tree"], taken=25), "steps=25"),
        (lambda: ledger(NOISES["laplace"], CORRELATIONS["tree"], steps=25), "steps=25"),
        (
            lambda: ledger(NOISES["laplace"], CORRELATIONS["tree"]).plus(NOISES["gamma"], Workload(1.0, 1, 1.0, 9)),
            "gamma",
        ),
        (
            lambda: ledger(NOISES["laplace"], CORRELATIONS["tree"], taken=3).plus(
                NOISES["laplace"], Workload(1.0, 1, 2.0, 9)
            ),
            "noise",
        ),
        (lambda: ledger(NOISES["laplace"], CORRELATIONS["tree"]).certified(2.0), "delta=2"),
        (lambda: ledger(plrvo.noise.GridNoise(NOISES["laplace"], 2.0**-10), CORRELATIONS["tree"]), "grid"),
    ],
)
def test_bad_input_is_named(build, named):
    with pytest.raises(InvalidArgument, match=named):
        build()


def test_a_plan_with_a_correlation_is_certified_again_when_it_is_read():
    work = Workload(1.0, 24, 1.0, 26_010)
    tree = CORRELATIONS["tree"]
    noise = plrvo.calibrate(plrvo.Laplace(1.0), work, 0.9, DELTA, tree)
    plan = plrvo.Plan.certify(noise, work, DELTA, 0.9, tree)
    assert plrvo.Plan.from_dict(plan.to_dict()) == plan
    changed = plan.to_dict()
    changed["correlation"]["participation"]["epochs"] = 2
    with pytest.raises(InvalidArgument, match="steps=24"):
        plrvo.Plan.from_dict(changed)
    cheaper = plan.to_dict()
    cheaper["correlation"]["strategy"] = {"strategy": "tree", "completed": True}
    with pytest.raises(InvalidArgument, match="epsilon"):
        plrvo.Plan.from_dict(cheaper)
    with pytest.raises(InvalidArgument, match="sample_rate"):
        plrvo.Plan.certify(noise, Workload(0.1, 24, 1.0, 26_010), DELTA, None, tree)
