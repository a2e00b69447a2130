"""The noise for whoever names none: what `compare` recommends, found with one question in place of many.

Gaussian noise is fitted to the budget. Laplace noise of the same E|z| either costs more, and Gaussian noise has the
smaller error, or it costs no more, and Laplace noise has. Gamma-PLRV noise of the k that `compare` fits is Laplace
noise in all but its tails: where Laplace noise loses, it does (theory, 9 and 10).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from plrvo.accounting import Clipping, Ledger, Plan, Workload
from plrvo.accounting.correlated import Correlation
from plrvo.accounting.printed import rounded_up
from plrvo.noise import Gaussian, Laplace, Specification
from plrvo.validate import InvalidArgument, positive

LEAST_BUDGET = 1e-6  # noise for less takes minutes to compare
WITHOUT_LIMITS = "`plrvo calibrate --noise gaussian` fits Gaussian noise, which has no such limits"
_WORTH_IT = 1.001  # by how much Gaussian noise has to be beaten by a less usual one, as `compare` has it


@dataclass(frozen=True)
class Recommended:
    """The plan with the noise that suits a workload and a budget, and the reason for that noise in one sentence."""

    plan: Plan
    reason: str


def check_comparable(epsilon: float) -> None:
    """Refuse a budget for which it would take minutes to compare noises."""
    positive(epsilon=epsilon)
    if epsilon < LEAST_BUDGET:
        raise InvalidArgument("epsilon", epsilon, f"at least {LEAST_BUDGET:g} to compare noises; {WITHOUT_LIMITS}")


def recommend(
    work: Workload,
    epsilon: float,
    delta: float,
    correlation: Correlation | None = None,
    clipping: str = Clipping.flat,
) -> Recommended:
    """The noise with the least E|z| that certifies the budget.

    Args:
        work: the task.
        epsilon: the budget.
        delta: the failure probability of the guarantee.
        correlation: of noise over steps; its sensitivities are in l2, where Gaussian noise is what fits.
        clipping: which norm of a gradient is clipped; l1 is for Laplace noise only.

    >>> work = Workload(sample_rate=0.01, steps=300, clip=1.0, dimension=26_010)
    >>> recommend(work, epsilon=1.0, delta=1e-5).plan.noise.kind
    'gaussian'
    """
    check_comparable(epsilon)

    def fitted(kind: str, reason: str) -> Recommended:
        return Recommended(Plan.fitted(Specification(kind), work, delta, epsilon, correlation, clipping), reason)

    if Clipping.named(clipping) is Clipping.l1:
        return fitted(Laplace.kind, "l1 clipping has a proof for Laplace noise only")
    found = fitted(Gaussian.kind, "sensitivities of correlated noise are lengths, which is what Gaussian noise hides")
    if correlation is not None:
        return found
    plan, dimension = found.plan, found.plan.charged.dimension
    peaked = Laplace(plan.noise.distortion / _WORTH_IT)
    cost = Ledger().plus(peaked, plan.charged).certified(delta).value
    coordinates = f"in {dimension:,} dimensions" if dimension > 1 else "in one dimension"
    if cost <= epsilon:
        return fitted(Laplace.kind, f"{coordinates} it has a smaller error than Gaussian noise at the same epsilon")
    shown = "no epsilon at all" if cost == float("inf") else f"epsilon {rounded_up(cost, 3)}"
    return replace(found, reason=f"{coordinates} Laplace noise of the same error would certify only {shown}")
