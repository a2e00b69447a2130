"""What is added: noise objects that sample, and know their density, moments and score."""

from typing import TYPE_CHECKING

from plrvo.lazily import by_name, finder

if TYPE_CHECKING:
    from plrvo.noise.base import Noise
    from plrvo.noise.gaussian import Gaussian
    from plrvo.noise.generalised_gaussian import GeneralisedGaussian
    from plrvo.noise.grid import GridNoise
    from plrvo.noise.keystream import Keystream
    from plrvo.noise.laplace import Laplace
    from plrvo.noise.plrv import PLRV, GammaPLRV
    from plrvo.noise.seed_families import TruncatedNormalSeed, UniformSeed
    from plrvo.noise.seeds import ChiSquaredSeed, ExponentialSeed, GammaSeed, Seed, SumSeed
    from plrvo.noise.serial import noise_from_dict, seed_from_dict
    from plrvo.noise.specification import Specification
    from plrvo.noise.weibull import WeibullSeed

__all__ = [
    "PLRV",
    "ChiSquaredSeed",
    "ExponentialSeed",
    "GammaPLRV",
    "GammaSeed",
    "Gaussian",
    "GeneralisedGaussian",
    "GridNoise",
    "Keystream",
    "Laplace",
    "Noise",
    "Seed",
    "Specification",
    "SumSeed",
    "TruncatedNormalSeed",
    "UniformSeed",
    "WeibullSeed",
    "noise_from_dict",
    "seed_from_dict",
]

_MODULE_OF = by_name(
    {
        "plrvo.noise.base": ("Noise",),
        "plrvo.noise.gaussian": ("Gaussian",),
        "plrvo.noise.generalised_gaussian": ("GeneralisedGaussian",),
        "plrvo.noise.grid": ("GridNoise",),
        "plrvo.noise.keystream": ("Keystream",),
        "plrvo.noise.laplace": ("Laplace",),
        "plrvo.noise.plrv": ("PLRV", "GammaPLRV"),
        "plrvo.noise.seed_families": ("TruncatedNormalSeed", "UniformSeed"),
        "plrvo.noise.seeds": ("ChiSquaredSeed", "ExponentialSeed", "GammaSeed", "Seed", "SumSeed"),
        "plrvo.noise.serial": ("noise_from_dict", "seed_from_dict"),
        "plrvo.noise.specification": ("Specification",),
        "plrvo.noise.weibull": ("WeibullSeed",),
    }
)
if not TYPE_CHECKING:  # for whom any name would be right
    __getattr__ = finder(__name__, _MODULE_OF)


def __dir__() -> list[str]:
    return sorted(__all__)
