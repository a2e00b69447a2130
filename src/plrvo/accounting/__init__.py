"""What it costs: certified, lower and published epsilons, ledgers and calibration."""

from typing import TYPE_CHECKING

from plrvo.lazily import by_name, finder

if TYPE_CHECKING:
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

_MODULE_OF = by_name(
    {
        "plrvo.accounting.bracket": ("Epsilon",),
        "plrvo.accounting.calibration": ("calibrate", "narrowest"),
        "plrvo.accounting.certified": ("Certificate",),
        "plrvo.accounting.clipping": ("Clipping",),
        "plrvo.accounting.ledger": ("Ledger", "delta", "epsilon", "sigma_effective"),
        "plrvo.accounting.plan": ("Plan",),
        "plrvo.accounting.workload": ("Workload",),
    }
)
if not TYPE_CHECKING:  # for whom any name would be right
    __getattr__ = finder(__name__, _MODULE_OF)


def __dir__() -> list[str]:
    return sorted(__all__)
