"""What is added: noise objects that sample, and know their density, moments and score."""

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
