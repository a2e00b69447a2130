"""Noises by name: the one that parameters describe, and the narrowest one of its kind that certifies a budget."""

from __future__ import annotations

from plrvo import validate
from plrvo.accounting.calibration import calibrate
from plrvo.accounting.correlated import Correlation
from plrvo.accounting.plan import Plan
from plrvo.accounting.workload import Workload
from plrvo.noise import GammaPLRV, Gaussian, Laplace, Noise

KINDS = ("gamma", "laplace", "gaussian")
DEFAULT_K = 1000.0  # within 0.3 % of the Laplace limit, which is the best that Gamma noise can do on raw error


def named_noise(
    kind: str,
    clip: float,
    noise_multiplier: float | None = None,
    scale: float | None = None,
    k: float | None = None,
    theta: float | None = None,
    shared: bool = False,
) -> Noise:
    """The noise that its parameters describe; those of other kinds are not looked at.

    >>> named_noise("gaussian", clip=0.5, noise_multiplier=3.0)
    Gaussian(sigma=1.5)
    """
    if kind not in KINDS:
        raise validate.InvalidArgument("noise", kind, "one of " + ", ".join(KINDS))
    if kind == "gaussian":
        validate.required(noise_multiplier=noise_multiplier)
        validate.positive(noise_multiplier=noise_multiplier, clip=clip)
        return Gaussian(noise_multiplier * clip)  # type: ignore[operator]
    if kind == "laplace":
        validate.required(scale=scale)
        return Laplace(scale)  # type: ignore[arg-type]
    validate.required(k=k, theta=theta)
    return GammaPLRV(k, theta, shared)  # type: ignore[arg-type]


def narrowest(
    kind: str | Noise,
    work: Workload,
    epsilon: float,
    delta: float,
    correlation: Correlation | None = None,
    *,
    k: float | None = None,
    shared: bool = False,
) -> Plan:
    """The plan of the narrowest noise of a kind, or of the shape of a noise, that certifies the budget.

    `k` and `shared` are those of Gamma noise.
    """
    if isinstance(kind, str):
        k, clip = DEFAULT_K if k is None else k, work.clip
        kind = named_noise(kind, clip, noise_multiplier=1.0, scale=clip, k=k, theta=1 / clip, shared=shared)
    return Plan.certify(calibrate(kind, work, epsilon, delta, correlation), work, delta, epsilon, correlation)
