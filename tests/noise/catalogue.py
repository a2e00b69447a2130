"""One noise and one seed of every kind, with hard cases, for tests that must hold for all of them."""

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
)

SEEDS: dict[str, Seed] = {
    "gamma": GammaSeed(k=3.0, theta=0.5),
    "exponential": ExponentialSeed(scale=1.3),
    "chi-squared": ChiSquaredSeed(degrees=6.0, scale=0.2),
    "uniform": UniformSeed(low=0.5, high=2.0),
    "uniform from 0": UniformSeed(low=0.0, high=2.0),
    "truncated normal": TruncatedNormalSeed(mean_before=1.0, std=0.3),
    "truncated normal from 0.1": TruncatedNormalSeed(mean_before=1.0, std=0.3, low=0.1),
    "Weibull 2": WeibullSeed(shape=2.0, scale=1.5),
    "Weibull 0.7": WeibullSeed(shape=0.7, scale=1.0),
}
SUM = SumSeed(weights=(1.0, 0.5), seeds=(GammaSeed(k=3.0, theta=0.5), UniformSeed(low=0.0, high=1.0)))

NOISES: dict[str, Noise] = {
    "Gaussian": Gaussian(sigma=1.7),
    "Laplace": Laplace(b=0.6),
    "generalised Gaussian": GeneralisedGaussian(shape=1.5, width=0.8),
    "Gamma k=0.3": GammaPLRV(k=0.3, theta=2.0),
    "Gamma k=1.2": GammaPLRV(k=1.2, theta=1.0),
    "Gamma k=3": GammaPLRV(k=3.0, theta=0.5),
    "Gamma k=40000": GammaPLRV(k=40_000.0, theta=1e-5),
    **{f"PLRV {name}": PLRV(seed) for name, seed in SEEDS.items()},
    "PLRV sum": PLRV(SUM),
}
