"""Checking it: attacks that measure epsilon from below, and say when a claim is refuted."""

from plrvo.audit.canary import Canary
from plrvo.audit.mechanism import audit_mechanism
from plrvo.audit.statistics import Counts, epsilon_bound, epsilon_opt, gaussian_dp_bound, one_run_bound
from plrvo.audit.verdict import Audit

__all__ = [
    "Audit",
    "Canary",
    "Counts",
    "audit_mechanism",
    "epsilon_bound",
    "epsilon_opt",
    "gaussian_dp_bound",
    "one_run_bound",
]
