"""Every reported value is true: each is recomputed here in another way."""

import mpmath
import pytest
from scipy import stats

from plrvo import GammaPLRV, Workload, epsilon
from plrvo.accounting.published import published_epsilon
from plrvo.designer import Accountant, Limits, Point, Problem
from plrvo.designer.constraints import check, smallest_theta, tail_mass, theta_for_distortion, theta_for_tail

WORK = Workload(sample_rate=0.01, steps=300, clip=0.1, dimension=26_010)
POINTS = [Point(9.0, 0.4, 0.15), Point(400.0, 0.01, 0.1), Point(1e6, 5e-6, 0.2), Point(1.5, 3.0, 0.1)]


def values(accountant, point, limits=Limits()):  # noqa: B008
    problem = Problem(WORK, 0.2, 1.0, 1e-5, Accountant(accountant), limits)
    return {row.name: row for row in check(problem, point)}


@pytest.mark.parametrize("accountant", ["certified", "published"])
@pytest.mark.parametrize("point", POINTS)
def test_reported_values_are_true(accountant, point):
    rows = values(accountant, point)
    noise, work = GammaPLRV(point.k, point.theta), Workload(0.01, 300, point.clip, 26_010)
    assert list(rows) == ["c0", "c1", "c2", "c3", "c4", "mgf", "k_max"]
    assert rows["c0"].value == point.clip
    assert rows["c1"].value == pytest.approx(stats.gamma.cdf(0.1, point.k, scale=point.theta), rel=1e-9, abs=1e-300)
    bracket = epsilon(noise, work, 1e-5)
    assert rows["c2"].value == (bracket.certified if accountant == "certified" else bracket.published)
    assert rows["c3"].value == rows["k_max"].value == point.k
    assert rows["c4"].value == pytest.approx(1 / noise.distortion, rel=1e-12)
    order = bracket.order if accountant == "certified" else published_epsilon([(noise, work)], 1e-5)[1]
    assert rows["mgf"].value == pytest.approx((order or 1) * point.clip * point.theta, rel=1e-12)
    assert rows["mgf"].required == (accountant == "published")


@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    [
        ("c0", Point(400.0, 0.01, 0.2), Point(400.0, 0.01, 0.2001)),
        ("c0", Point(400.0, 0.01, 0.1), Point(400.0, 0.01, 0.0999)),
        (
            "c1",
            Point(400.0, theta_for_tail(400.0, Limits()), 0.1),
            Point(400.0, 0.99 * theta_for_tail(400.0, Limits()), 0.1),
        ),
        ("c3", Point(1.001, 9.0, 0.1), Point(1.0, 9.0, 0.1)),
        ("c4", Point(6.0, 0.02 * (1 + 1e-12), 0.1), Point(6.0, 0.0199, 0.1)),
        ("k_max", Point(1e6, 1e-5, 0.1), Point(1.01e6, 1e-5, 0.1)),
    ],
)
def test_a_constraint_holds_up_to_its_limit_and_binds_there(name, inside, outside):
    assert values("certified", inside)[name].satisfied
    assert values("certified", inside)[name].binds
    assert not values("certified", outside)[name].satisfied


def test_a_constraint_far_from_its_limit_does_not_bind():
    assert not any(row.binds for row in values("certified", Point(400.0, 0.01, 0.14)).values())


def test_tail_mass_agrees_with_high_precision():
    for k, theta in ((1.3, 0.2), (40.0, 0.004), (3000.0, 3.5e-5)):
        with mpmath.workdps(40):
            exact = mpmath.gammainc(k, 0, mpmath.mpf("0.1") / mpmath.mpf(theta), regularized=True)
        assert tail_mass(Point(k, theta, 1.0), Limits()) == pytest.approx(float(exact), rel=1e-10)


@pytest.mark.parametrize("tail", [1e-9, 1e-3, 0.3])
def test_smallest_theta_is_feasible_and_smallest(tail):
    for k in (1.001, 1.1, 2.0, 30.0, 1e4, 1e6):
        limits = Limits(tail=tail)
        theta = smallest_theta(k, limits)
        assert theta == max(theta_for_tail(k, limits), theta_for_distortion(k, limits))
        assert tail_mass(Point(k, theta, 1.0), limits) <= tail
        assert (k - 1) * theta >= 0.1
        less = theta * (1 - 1e-6)
        assert tail_mass(Point(k, less, 1.0), limits) > tail or (k - 1) * less < 0.1


def test_domain_binds_where_an_order_is_about_to_leave_it():
    """k = 2 at a loose budget: the published formula uses order 2, whose moment ends at C theta = 1/2."""
    problem = Problem(WORK, 0.2, 8.0, 1e-5, Accountant.published)
    row = {r.name: r for r in check(problem, Point(2.0, 4.9725, 0.1))}["mgf"]
    assert row.binds
    assert row.satisfied
    assert 0.99 < row.value < 1
