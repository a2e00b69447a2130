"""Every noise and every seed by its kind: what can be read from a file, and described by the options of a command.

A new one is a line here.
"""

from __future__ import annotations

from plrvo.noise.base import Noise
from plrvo.noise.gaussian import Gaussian
from plrvo.noise.generalised_gaussian import GeneralisedGaussian
from plrvo.noise.grid import GridNoise
from plrvo.noise.laplace import Laplace
from plrvo.noise.plrv import PLRV, GammaPLRV
from plrvo.noise.seed_families import TruncatedNormalSeed, UniformSeed
from plrvo.noise.seeds import ChiSquaredSeed, ExponentialSeed, GammaSeed, Seed, SumSeed
from plrvo.noise.weibull import WeibullSeed

_NOISES: tuple[type[Noise], ...] = (
    Gaussian,
    Laplace,
    GammaPLRV,
    GeneralisedGaussian,
    PLRV,
    GridNoise,
)
_SEEDS: tuple[type[Seed], ...] = (
    GammaSeed,
    ExponentialSeed,
    ChiSquaredSeed,
    UniformSeed,
    TruncatedNormalSeed,
    WeibullSeed,
    SumSeed,
)

NOISES = {noise.kind: noise for noise in _NOISES}
SEEDS = {seed.kind: seed for seed in _SEEDS}
