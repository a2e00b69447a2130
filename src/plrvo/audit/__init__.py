"""Checking it: attacks that measure epsilon from below, and say when a claim is refuted."""

from plrvo.audit.canary import Canary
from plrvo.audit.mechanism import audit_mechanism
from plrvo.audit.one_run import OneRun, Rule, judge_one_run
from plrvo.audit.statistics import Counts, epsilon_bound, epsilon_opt, gaussian_dp_bound, one_run_bound
from plrvo.audit.verdict import Audit, TwoWorlds

__all__ = [
    "Audit",
    "Canary",
    "Counts",
    "OneRun",
    "Rule",
    "TwoWorlds",
    "audit_mechanism",
    "epsilon_bound",
    "epsilon_opt",
    "gaussian_dp_bound",
    "judge_one_run",
    "one_run_bound",
]
