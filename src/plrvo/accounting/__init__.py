"""What it costs: certified, lower and published epsilons, ledgers and calibration."""

from plrvo.accounting.calibrate import calibrate
from plrvo.accounting.certified import Certificate
from plrvo.accounting.ledger import Epsilon, Ledger, delta, epsilon, sigma_effective
from plrvo.accounting.workload import Workload

__all__ = ["Certificate", "Epsilon", "Ledger", "Workload", "calibrate", "delta", "epsilon", "sigma_effective"]
