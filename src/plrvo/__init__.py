"""plrvo: choose, certify, train with and audit the noise of differentially private deep learning."""

from typing import TYPE_CHECKING

from plrvo.lazily import by_name, finder
from plrvo.version import __version__ as __version__

if TYPE_CHECKING:
    from plrvo.accounting import Clipping, Epsilon, Ledger, Plan, Workload, calibrate, delta, epsilon
    from plrvo.audit.receipt import verify
    from plrvo.designer import Design, design
    from plrvo.noise import (
        PLRV,
        ChiSquaredSeed,
        ExponentialSeed,
        GammaPLRV,
        GammaSeed,
        Gaussian,
        GeneralisedGaussian,
        Laplace,
        Noise,
        Seed,
        SumSeed,
        TruncatedNormalSeed,
        UniformSeed,
        WeibullSeed,
        noise_from_dict,
    )
    from plrvo.training import PrivacyEngine
    from plrvo.validate import InvalidArgument

__all__ = [
    "PLRV",
    "ChiSquaredSeed",
    "Clipping",
    "Design",
    "Epsilon",
    "ExponentialSeed",
    "GammaPLRV",
    "GammaSeed",
    "Gaussian",
    "GeneralisedGaussian",
    "InvalidArgument",
    "Laplace",
    "Ledger",
    "Noise",
    "Plan",
    "PrivacyEngine",
    "Seed",
    "SumSeed",
    "TruncatedNormalSeed",
    "UniformSeed",
    "WeibullSeed",
    "Workload",
    "calibrate",
    "delta",
    "design",
    "epsilon",
    "noise_from_dict",
    "verify",
]


# Where each of them is. They are imported when they are first asked for: SciPy takes a second, torch takes five, and
# `plrvo --help` needs neither.
_PLACES = {
    "plrvo.accounting": ("Clipping", "Epsilon", "Ledger", "Plan", "Workload", "calibrate", "delta", "epsilon"),
    "plrvo.audit.receipt": ("verify",),
    "plrvo.designer": ("Design", "design"),
    "plrvo.noise": (
        *("PLRV", "GammaPLRV", "Gaussian", "GeneralisedGaussian", "Laplace", "Noise", "noise_from_dict"),
        *("Seed", "ChiSquaredSeed", "ExponentialSeed", "GammaSeed", "SumSeed", "TruncatedNormalSeed", "UniformSeed"),
        "WeibullSeed",
    ),
    "plrvo.training": ("PrivacyEngine",),
    "plrvo.validate": ("InvalidArgument",),
}
_MODULE_OF = by_name(_PLACES)
# Modules are attributes after `import plrvo` alone, too: those that are light.
__getattr__ = finder(__name__, _MODULE_OF, ("accounting", "designer", "files", "noise", "validate"))


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
