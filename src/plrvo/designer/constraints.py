"""The constraints of Algorithm 1 at a point: each with its name, its value, its limit and whether it binds.

    c0   C_min <= C <= C_max
    c1   P(u < 1/widest) <= tail, u ~ Gamma(k, theta): a coordinate's Laplace scale 1/u is rarely above `widest`
    c2   epsilon(delta) <= budget
    c3   k > 1, without which E|z| diverges
    c4   (k-1) theta >= 1/widest: E|z| <= widest
    mgf  lambda C theta < 1 at the order lambda that gives epsilon: what the published moments need in order to exist

and `k_max`, which is ours: J grows with k without end where Laplace noise is the better limit.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from scipy import special

from plrvo.designer.privacy import epsilon_and_order
from plrvo.designer.problem import K_MIN, Accountant, Limits, Point, Problem

_BINDS = 1e-3  # relative distance from its limit at which a constraint counts as binding


@dataclass(frozen=True)
class Constraint:
    """One constraint at one point: `value relation limit`.

    Attributes:
        satisfied: whether it holds there.
        binds: whether it holds with next to nothing to spare, so that it is one of those that decide the answer.
        required: False for a condition that is reported although the chosen accountant does not need it.
        note: what the reader should know about it, or empty.
    """

    name: str
    meaning: str
    value: float
    relation: str
    limit: float
    satisfied: bool
    binds: bool
    required: bool = True
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def _constraint(name: str, meaning: str, value: float, relation: str, limit: float, note: str = "") -> Constraint:
    satisfied = {"<=": value <= limit, ">=": value >= limit, "<": value < limit, ">": value > limit}[relation]
    return Constraint(name, meaning, value, relation, limit, satisfied, abs(value - limit) <= _BINDS * limit, note=note)


def check(problem: Problem, point: Point) -> tuple[Constraint, ...]:
    """Every constraint, evaluated at the point."""
    epsilon, order = epsilon_and_order(problem, point)
    limits, k, theta = problem.limits, point.k, point.theta
    return (
        _clip_constraint(problem, point),
        _tail_constraint(point, limits),
        _constraint(
            "c2",
            f"{problem.accountant} epsilon",
            epsilon,
            "<=",
            problem.epsilon,
            _C2[problem.accountant],
        ),
        _constraint("c3", "k, so that E|z| is finite", k, ">", 1.0),
        _constraint("c4", "(k-1) theta = 1/E|z|", (k - 1) * theta, ">=", 1 / limits.widest),
        _domain_constraint(problem, point, order),
        _constraint(
            "k_max",
            "k, bounded so that there is an optimum",
            k,
            "<=",
            limits.k_max,
            "J still grows with k here, towards that of Laplace noise" if k >= limits.k_max else "",
        ),
    )


_C2 = {
    Accountant.certified: "",
    Accountant.published: "the paper's formula is not an upper bound; rely on the certified epsilon",
}


def _clip_constraint(problem: Problem, point: Point) -> Constraint:
    low, high, clip = problem.clip_min, problem.clip_max, point.clip
    limit = low if clip <= (low * high) ** 0.5 else high
    near = abs(clip - limit) <= _BINDS * limit
    note = (
        "J and epsilon depend on C theta only: every clip of the range gives this J, the smallest with the least noise"
    )
    return Constraint(
        "c0",
        f"the clip, in [{low:g}, {high:g}]",
        clip,
        ">=" if limit == low else "<=",
        limit,
        low <= clip <= high,
        near,
        note=note if near and limit == low else "",
    )


def _tail_constraint(point: Point, limits: Limits) -> Constraint:
    """Binding is judged by theta: for large k the probability leaps over its limit within a fraction of a percent."""
    value = tail_mass(point, limits)
    return Constraint(
        "c1",
        f"P(u < {1 / limits.widest:g}), the chance of a Laplace scale above {limits.widest:g}",
        value,
        "<=",
        limits.tail,
        value <= limits.tail,
        abs(point.theta / theta_for_tail(point.k, limits) - 1) <= _BINDS,
    )


def _domain_constraint(problem: Problem, point: Point, order: int | None) -> Constraint:
    needed = problem.accountant is Accountant.published
    value = (order or 1) * point.clip * point.theta  # no order: the certificate is pure, and uses no moment
    return Constraint(
        "mgf",
        f"lambda C theta, lambda = {order or 1}, in the domain of the moment generating function",
        value,
        "<",
        1.0,
        value < 1,
        needed and value > 1 - 10 * _BINDS,
        needed,
        "" if needed else "not needed: the exact moments are finite at every order",
    )


def tail_mass(point: Point, limits: Limits) -> float:
    """P(u < 1/widest) for u ~ Gamma(k, theta)."""
    return float(special.gammainc(point.k, 1 / (limits.widest * point.theta)))


def theta_for_tail(k: float, limits: Limits) -> float:
    """The smallest theta that meets c1: 1/widest is then the `tail` quantile of Gamma(k, theta).

    Taken up by a rounding error, since `tail_mass` computes the way back.
    """
    return float(1 / (limits.widest * special.gammaincinv(k, limits.tail)) * (1 + 1e-9))


def theta_for_distortion(k: float, limits: Limits) -> float:
    """The smallest theta that meets c4."""
    return (1 + 1e-12) / (limits.widest * (k - 1))


def smallest_theta(k: float, limits: Limits) -> float:
    """The smallest theta that meets c1 and c4 at a given k >= K_MIN."""
    return max(theta_for_tail(max(k, K_MIN), limits), theta_for_distortion(max(k, K_MIN), limits))
