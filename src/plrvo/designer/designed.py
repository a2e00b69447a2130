"""The designer: from a task and a budget to a plan that explains itself."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from plrvo.accounting import Workload
from plrvo.accounting.plan import Plan
from plrvo.designer.comparison import Comparison, compare
from plrvo.designer.constraints import Constraint, check
from plrvo.designer.problem import Accountant, Limits, Point, Problem, read_accountant
from plrvo.designer.solver import Progress, solve
from plrvo.noise import GammaPLRV
from plrvo.validate import InvalidArgument, of_type, positive_integer


@dataclass(frozen=True)
class Design(Plan):
    """A plan with the reasons for it.

    A Plan in every respect: it trains, is saved and is read back as one. `epsilon` is None where the budget was met by
    the published formula but not by the certified epsilon: a plan claims no budget that is not certified.

    Attributes:
        problem: what was asked, the budget and the accountant included.
        constraints: c0 to c4, the domain of the moments and the bound on k, each with its value and whether it binds.
        evaluations: how many epsilons it took.
    """

    problem: Problem
    constraints: tuple[Constraint, ...]
    evaluations: int

    @property
    def point(self) -> Point:
        return _point(self)

    @property
    def snr(self) -> float:
        """J = C (k-1) theta = C/E|z|."""
        return self.point.snr

    @property
    def feasible(self) -> bool:
        """Whether every constraint holds that the accountant needs."""
        return all(constraint.satisfied for constraint in self.constraints if constraint.required)

    @cached_property
    def comparison(self) -> Comparison:
        """Gaussian, Laplace and Gamma-PLRV noise at the same certified budget; computed when first asked for.

        The Gamma-PLRV noise is the plan's own if the accountant is `certified`, else one of the same k fitted to it.
        """
        k, theta = self.point.k, self.point.theta
        meets = self.bracket.certified <= self.problem.epsilon
        own = GammaPLRV(k, theta) if self.problem.accountant is Accountant.certified and meets else None
        return compare(self.workload, self.problem.epsilon, self.delta, gamma=own, k=k)

    def alternative(self, name: str) -> Plan:
        """A plan with one of the compared noises, or with the one that is recommended ("recommended")."""
        comparison = self.comparison
        name = comparison.recommended if name == "recommended" else name
        if name not in comparison.alternatives:
            raise InvalidArgument("name", name, "recommended, " + ", ".join(comparison.alternatives))
        noise = comparison.alternatives[name].noise
        if noise == self.noise:
            return self
        return Plan.certify(noise, self.workload, self.delta, self.problem.epsilon)

    def explanation(self) -> dict[str, Any]:
        """Everything as plain data, the comparison included."""
        point = self.point
        return {
            "k": point.k,
            "theta": point.theta,
            "clip": point.clip,
            "snr": point.snr,
            "distortion": self.noise.distortion,
            "epsilon_certified": self.bracket.certified,
            "epsilon_lower": self.bracket.lower,
            "epsilon_published": self.bracket.published,
            "accountant": str(self.problem.accountant),
            "epsilon": self.problem.epsilon,
            "delta": self.delta,
            "constraints": [constraint.to_dict() for constraint in self.constraints],
            "alternatives": [row.to_dict() for row in self.comparison.alternatives.values()],
            "recommended": self.comparison.recommendation(),
            "evaluations": self.evaluations,
            "workload": self.workload.to_dict(),
        }


def design(
    work: Workload,
    epsilon: float,
    delta: float,
    *,
    clip_max: float | None = None,
    accountant: str = "certified",
    dataset_size: int | None = None,
    limits: Limits | None = None,
    start: Point | None = None,
    progress: Progress | None = None,
) -> Design:
    """The Gamma-PLRV noise and the clip with the largest J = C/E|z| within the budget (the paper's Algorithm 1).

    This is the paper's choice among Gamma noises. Its `alternative("recommended")` is the plan that `plrvo design`
    saves: with the noise of least error, which may be another one.

    Args:
        work: the task. Its clip is the smallest one, C_min of constraint c0.
        epsilon: the budget.
        delta: the failure probability of the guarantee; should be well below 1/dataset_size.
        clip_max: the largest clip, by default twice the smallest.
        accountant: which epsilon has to meet the budget, "certified" or "published".
        dataset_size: number of examples, only to warn of a delta that is too large.
        limits: the limits of c1 and c4, and the bound on k.
        start: one more point to search from, for example a predicted one.
        progress: called with the share of the work that is done.

    Raises:
        InvalidArgument: if no point satisfies all constraints; it says which ones conflict and what would do.

    >>> work = Workload(sample_rate=0.04, steps=1250, clip=0.1, dimension=26_010)
    >>> plan = design(work, epsilon=1.0, delta=1e-5)
    >>> plan.feasible and 0.98 < plan.bracket.certified <= 1
    True
    >>> [constraint.name for constraint in plan.constraints if constraint.binds]
    ['c0', 'c2', 'k_max']
    >>> plan.alternative("recommended").noise.kind
    'gaussian'
    """
    of_type(Workload, work=work)
    largest = 2 * work.clip if clip_max is None else clip_max
    problem = Problem(work, largest, epsilon, delta, read_accountant(accountant), limits or Limits())
    warn_of_delta(delta, dataset_size)
    solution = solve(problem, start, progress)
    return _explained(problem, solution.point, solution.evaluations)


def explain(plan: Plan, epsilon: float | None = None, accountant: str = "certified") -> Design:
    """The constraints and the comparison for a plan that exists already, for example one read from a file.

    The budget is the plan's own unless one is given. Nothing is searched; `feasible` says whether the plan passes.
    """
    point = _point(plan)
    budget = epsilon if epsilon is not None else plan.epsilon
    if budget is None:
        raise InvalidArgument("epsilon", None, "a budget: this plan was saved without one")
    work = plan.workload
    problem = Problem(work, work.clip, budget, plan.delta, read_accountant(accountant))
    return _explained(problem, point, 0)


def _explained(problem: Problem, point: Point, evaluations: int) -> Design:
    work = problem.work_at(point.clip)
    plan = Plan.certify(GammaPLRV(point.k, point.theta), work, problem.delta)
    budget = problem.epsilon if plan.bracket.certified <= problem.epsilon else None
    constraints = check(problem, point)
    return Design(plan.noise, work, budget, plan.delta, problem, constraints, evaluations)


def _point(plan: Plan) -> Point:
    described = plan.noise.to_dict()
    if plan.noise.kind != GammaPLRV.kind or plan.noise.shared:
        raise InvalidArgument("plan", described, "a plan with gamma noise that has a scale per coordinate")
    return Point(described["k"], described["theta"], plan.workload.clip)


def warn_of_delta(delta: float, dataset_size: int | None) -> None:
    """A delta of 1/N allows a mechanism that publishes one random example in full."""
    if dataset_size is None:
        return
    positive_integer(dataset_size=dataset_size)
    if delta >= 1 / dataset_size:
        warnings.warn(
            f"delta {delta:g} is not below 1/{dataset_size}, the size of the data: at that delta publishing a random "
            f"example in full would count as private; use less than {0.1 / dataset_size:.1g}",
            UserWarning,
            stacklevel=3,
        )
