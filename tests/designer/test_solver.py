"""Phase II: the solver against grids, closed forms and infeasible problems."""

import math

import dp_accounting
import numpy as np
import pytest
from scipy import optimize, stats
from tests.designer.tasks import best_on_grid, random_work
from tests.grids import one_in

from plrvo import GammaPLRV, Laplace, Workload, calibrate
from plrvo.designer import Accountant, Limits, Point, Problem
from plrvo.designer.constraints import check, smallest_theta
from plrvo.designer.privacy import epsilon_of
from plrvo.designer.solver import solve
from plrvo.validate import InvalidArgument

DELTA = 1e-5
SHAPES = [1.2, 2.0, 5.0, 30.0, 1e3, 5e4, 1e6]


def posed(work, epsilon, accountant="certified", **limits):
    return Problem(work, 2 * work.clip, epsilon, DELTA, Accountant(accountant), Limits(**limits))


SLOW = [pytest.param("certified", seed, marks=pytest.mark.slow) for seed in range(6)]  # a certificate a point


@pytest.mark.parametrize(("accountant", "seed"), [*(("published", seed) for seed in range(6)), *SLOW])
def test_at_least_the_best_of_a_grid(accountant, seed):
    rng = np.random.default_rng(seed)
    work = random_work(rng, int(rng.choice([12_000, 26_010, 124_439_808])))
    epsilon = float(np.exp(rng.uniform(np.log(0.5), np.log(10))))
    solution = solve(posed(work, epsilon, accountant)).point
    assert all(row.satisfied for row in check(posed(work, epsilon, accountant), solution) if row.required)
    clips = [work.clip, 1.5 * work.clip] if accountant == "certified" else [work.clip]
    best = best_on_grid(accountant, work, clips, epsilon, SHAPES)
    assert best > 0
    assert solution.snr >= 0.99 * best


@pytest.mark.parametrize(("dimension", "rate", "steps", "epsilon"), one_in(2, [(4, 1.0, 2, 3.0), (1, 0.01, 300, 8.0)]))
def test_at_least_the_best_of_a_grid_in_low_dimension(dimension, rate, steps, epsilon):
    work = Workload(rate, steps, 0.1, dimension)
    solution = solve(posed(work, epsilon)).point
    assert all(row.satisfied for row in check(posed(work, epsilon), solution) if row.required)
    assert solution.snr >= 0.99 * best_on_grid("certified", work, [0.1], epsilon, [2.0, 4.5, 1e6])


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 6.0])
def test_agrees_with_dp_accounting_in_high_dimension(epsilon):
    """There noise costs at least what Gaussian noise of multiplier sigma = 1/(C sqrt I) does, which is
    (k-1)/(k+1) sqrt((k+2)/k) / J, and at most its Renyi cost: dp-accounting has both around the budget."""
    work = Workload(0.02, 500, 0.05, 10**7)
    point = solve(posed(work, epsilon)).point
    assert point.k == 1e6
    sigma = (point.k - 1) / (point.k + 1) * math.sqrt((point.k + 2) / point.k) / point.snr
    accountants = dp_accounting.pld.PLDAccountant(), dp_accounting.rdp.RdpAccountant(orders=list(range(2, 130)))
    step = dp_accounting.PoissonSampledDpEvent(work.sample_rate, dp_accounting.GaussianDpEvent(sigma))
    for accountant in accountants:
        accountant.compose(dp_accounting.SelfComposedDpEvent(step, work.steps))
    least, most = (accountant.get_epsilon(DELTA) for accountant in accountants)
    assert 0.9 * epsilon < least < epsilon * (1 + 1e-4) < most * (1 + 1e-3)


@pytest.mark.parametrize("epsilon", [5.0, 8.0])
def test_beats_the_best_pure_private_noise_of_one_coordinate(epsilon):
    """One release of one coordinate: (k+1) log(1 + r) <= epsilon is pure privacy, and J = (k-1) r has an inner
    maximum, above the Laplace mechanism's J = epsilon. Moments with a delta can only allow more."""
    inner = optimize.minimize_scalar(
        lambda k: -(k - 1) * math.expm1(epsilon / (k + 1)), bounds=(1, 100), method="bounded"
    )
    point = solve(posed(Workload(1.0, 1, 0.1, 1), epsilon)).point
    assert -inner.fun > epsilon
    assert -0.999 * inner.fun <= point.snr <= -1.2 * inner.fun
    assert point.k < 100


@pytest.mark.parametrize("accountant", ["certified", "published"])
def test_approaches_laplace_noise_as_k_may_grow(accountant):
    work = Workload(0.01, 300, 0.1, 26_010)
    snr = [solve(posed(work, 1.0, accountant, k_max=k)).point.snr for k in (10, 1e3, 1e6)]
    assert snr[0] < snr[1] < snr[2]
    assert 1 - snr[1] / snr[2] < 3e-3
    if accountant == "certified":
        laplace = calibrate(Laplace(0.1), work, 1.0, DELTA)
        assert snr[2] == pytest.approx(0.1 / laplace.distortion, rel=2e-3)


@pytest.mark.parametrize(("clip", "tail", "decides"), [(50.0, 0.01, True), (45.0, 0.01, True), (0.5, 1e-3, False)])
def test_c1_can_decide_the_shape(clip, tail, decides):
    """Absolute limits bite at large clips. On the boundary of c1 theta is 0.1 over the Gamma quantile."""
    problem = posed(Workload(1.0, 1, clip, 1), 8.0, tail=tail)
    point = solve(problem).point
    rows = {row.name: row for row in check(problem, point)}
    assert rows["c1"].satisfied
    assert rows["c2"].satisfied
    assert rows["c1"].binds == decides
    if decides:
        assert point.theta == pytest.approx(0.1 / stats.gamma.ppf(tail, point.k), rel=1e-3)
    # A smaller k would have a larger J but violate c1: that is what binding means.
    smaller = point.k - 0.05 * (point.k - 1)
    budget = calibrate(GammaPLRV(smaller, point.theta), Workload(1.0, 1, clip, 1), 8.0, DELTA)
    assert (clip / budget.distortion > point.snr * 1.001) == decides
    if decides:
        assert stats.gamma.cdf(0.1, smaller, scale=budget.theta) > tail


@pytest.mark.parametrize(
    ("accountant", "epsilon", "clip", "dimension"),
    [
        ("certified", 0.02, 0.1, 26_010),
        ("certified", 0.3, 4.0, 26_010),
        ("published", 0.3, 4.0, 26_010),
        ("published", 0.8, 12.0, 10**8),
    ],
)
def test_an_infeasible_problem_says_what_would_do(accountant, epsilon, clip, dimension):
    work = Workload(0.04, 1250, clip, dimension)
    with pytest.raises(InvalidArgument) as raised:
        solve(posed(work, epsilon, accountant))
    words = str(raised.value)
    assert "the budget (c2) conflicts with c1" in words
    enough = float(words.split("at least ")[1].split(",")[0])
    smaller = float(words.split("`clip_min` at most ")[1].split(":")[0])
    assert enough > epsilon
    assert smaller < clip
    solve(posed(work, enough, accountant))
    solve(posed(Workload(0.04, 1250, smaller, dimension), epsilon, accountant))
    # Nothing much below would do: the advice is the boundary of what the search runs on, not a safe distance.
    less, more = (0.97, 1.1) if accountant == "published" else (0.8, 1.3)
    with pytest.raises(InvalidArgument):
        solve(posed(work, less * enough, accountant))
    with pytest.raises(InvalidArgument):
        solve(posed(Workload(0.04, 1250, more * smaller, dimension), epsilon, accountant))


def test_a_budget_out_of_reach_of_every_clip_suggests_no_clip():
    with pytest.raises(InvalidArgument) as raised:
        solve(posed(Workload(0.04, 1250, 0.1, 1), 1e-5, "published"))
    assert "`clip_min` at most" not in str(raised.value)
    assert "at least" in str(raised.value)


def test_only_just_feasible_problems_are_solved():
    """A millionth above the least that c1 and c4 leave possible at this clip."""
    work, limits = Workload(0.04, 1250, 0.1, 26_010), Limits()
    least = epsilon_of(posed(work, 1.0), Point(limits.k_max, smallest_theta(limits.k_max, limits), 0.1))
    problem = posed(work, least * (1 + 1e-6))
    rows = check(problem, solve(problem).point)
    assert all(row.satisfied for row in rows if row.required)
    assert {"c1", "c2"} <= {row.name for row in rows if row.binds}


@pytest.mark.parametrize("start", [Point(7.0, 5.0, 0.2), Point(300.0, 1e-9, 0.1), Point(1.0, 1.0, 0.1)])
def test_another_start_changes_nothing_for_the_worse(start):
    problem = posed(Workload(0.01, 300, 0.1, 26_010), 1.0)
    assert solve(problem, start).point.snr >= solve(problem).point.snr * (1 - 1e-6)


def test_progress_ends_at_one_and_never_falls():
    shares = []
    solve(posed(Workload(0.01, 300, 0.1, 26_010), 1.0), progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1


@pytest.mark.parametrize("epsilon", [1e-3, 1e5])
def test_extreme_budgets_are_met(epsilon):
    problem = posed(Workload(1e-4, 3, 1e-4, 26_010), epsilon)
    rows = {row.name: row for row in check(problem, solve(problem).point)}
    assert rows["c2"].satisfied
    assert rows["c2"].value > 0.99 * epsilon
