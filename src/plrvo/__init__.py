"""plrvo: choose, certify, train with and audit the noise of differentially private deep learning."""

from typing import TYPE_CHECKING, Any

from plrvo.accounting import Clipping, Epsilon, Ledger, Plan, Workload, calibrate, delta, epsilon
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
from plrvo.validate import InvalidArgument
from plrvo.version import __version__ as __version__

if TYPE_CHECKING:
    from plrvo.audit.receipt import verify
    from plrvo.training import PrivacyEngine

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


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


def __getattr__(name: str) -> Any:
    """What takes long to import, when it is first asked for: the engine brings torch with it."""
    if name == "PrivacyEngine":
        from plrvo.training import PrivacyEngine

        return PrivacyEngine
    if name == "verify":
        from plrvo.audit.receipt import verify

        return verify
    raise AttributeError(f"module 'plrvo' has no attribute {name!r}")
