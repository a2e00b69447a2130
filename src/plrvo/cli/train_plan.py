"""The plan of a training run, from the options of the command."""

from __future__ import annotations

from plrvo.accounting import Plan, Workload
from plrvo.accounting.correlated import Correlation
from plrvo.noise import Specification
from plrvo.validate import InvalidArgument


def make_plan(
    noise: Specification, work: Workload, epsilon: float | None, delta: float, correlation: Correlation | None
) -> Plan:
    """The noise of the options, or the narrowest one of that kind that certifies the budget."""
    if epsilon is not None:
        return Plan.fitted(noise, work, delta, epsilon, correlation)
    if not noise.has_width:
        raise InvalidArgument("epsilon", None, "a budget, or the parameters of the noise")
    return Plan.certify(noise.noise(work.clip), work, delta, None, correlation)
