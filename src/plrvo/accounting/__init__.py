"""What it costs: certified, lower and published epsilons, ledgers and calibration."""

from plrvo.accounting.bracket import Epsilon
from plrvo.accounting.calibration import calibrate, narrowest
from plrvo.accounting.certified import Certificate
from plrvo.accounting.clipping import Clipping
from plrvo.accounting.ledger import Ledger, delta, epsilon, sigma_effective
from plrvo.accounting.plan import Plan
from plrvo.accounting.workload import Workload

__all__ = [
    "Certificate",
    "Clipping",
    "Epsilon",
    "Ledger",
    "Plan",
    "Workload",
    "calibrate",
    "delta",
    "epsilon",
    "narrowest",
    "sigma_effective",
]
