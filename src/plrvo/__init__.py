"""plrvo: choose, certify, train with and audit the noise of differentially private deep learning."""

from plrvo.accounting import Epsilon, Ledger, Workload, calibrate, delta, epsilon
from plrvo.design import Design, Plan
from plrvo.design.designed import (
    design,
)  # the function, over the name of its folder; the folder's names are imported from it
from plrvo.noise import (
    PLRV,
    ChiSquaredSeed,
    ExponentialSeed,
    GammaPLRV,
    GammaSeed,
    Gaussian,
    Laplace,
    Noise,
    Seed,
    SumSeed,
    TruncatedNormalSeed,
    UniformSeed,
    WeibullSeed,
    noise_from_dict,
)

__version__ = "0.1.0"

__all__ = [
    "PLRV",
    "ChiSquaredSeed",
    "Design",
    "Epsilon",
    "ExponentialSeed",
    "GammaPLRV",
    "GammaSeed",
    "Gaussian",
    "Laplace",
    "Ledger",
    "Noise",
    "Plan",
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
]
