"""Gaussian steps that show at least as much as Laplace steps: `gdp` (theory, section 13).

Shifts are in units of the Laplace scale, and the energy of a step is the sum of the squares of its shifts. A Gaussian
step has the energy m^2 of its signal m. One pair of laws is *under* another if (P - a Q)_+ has no larger mass at any
a > 0, which covers both directions of adjacency and every epsilon, and survives composition and Poisson sampling.

**Theorem 6.** Laplace steps whose shifts are chosen adaptively, none longer than t, with a total energy of at most w on
every path, are under one Gaussian step of energy w + min((pi/2 - 1) w, e(t)), where e(t) is at most `excess(t)`.

So T steps without sampling, or all rows of correlated noise, are one Gaussian step. A step with sampling is under the
sampled Gaussian step whose energy the theorem gives for w = t^2.

A noise says with `Noise.laplace_scale` that Laplace noise of that scale shows at least as much as it does.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from plrvo.accounting.losses import Step
from plrvo.accounting.revealed import gaussian_pair
from plrvo.accounting.sampled_gaussian import Steps
from plrvo.accounting.sampled_profile import ProfileSteps
from plrvo.accounting.workload import Workload
from plrvo.noise.base import Noise

_MARGIN = 2.0**-50  # relative, for the rounding of a dozen operations

# (t, a bound on e(t (1 + 1e-9))), each proved in `tests/accounting/test_domination.py`. Shifts above 1.1948 have none.
# fmt: off
_EXCESS = (
    (0.01, 0.000147), (0.0125, 0.000206), (0.016, 0.000303), (0.02, 0.000435), (0.025, 0.000632),
    (0.03, 0.000865), (0.035, 0.001128), (0.04, 0.001419), (0.05, 0.00208), (0.06, 0.002838),
    (0.07, 0.003685), (0.08, 0.00461), (0.09, 0.005608), (0.1, 0.006668), (0.11, 0.0078),
    (0.12, 0.00897), (0.13, 0.010214), (0.14, 0.011495), (0.15, 0.012797), (0.16, 0.014148),
    (0.17, 0.015567), (0.18, 0.017002), (0.19, 0.018446), (0.2, 0.019892), (0.21, 0.021334),
    (0.22, 0.02281), (0.23, 0.024372), (0.24, 0.025973), (0.25, 0.02756), (0.26, 0.029114),
    (0.27, 0.030679), (0.28, 0.032253), (0.3, 0.035288), (0.32, 0.038231), (0.34, 0.041045),
    (0.36, 0.043694), (0.38, 0.046897), (0.4, 0.050247), (0.42, 0.053532), (0.44, 0.056754),
    (0.46, 0.059865), (0.48, 0.062886), (0.5, 0.065772), (0.52, 0.068512), (0.54, 0.071118),
    (0.56, 0.073542), (0.58, 0.075794), (0.6, 0.077851), (0.62, 0.079701), (0.64, 0.081339),
    (0.66, 0.08274), (0.68, 0.0839), (0.7, 0.084808), (0.72, 0.085453), (0.74, 0.085821),
    (1.2, 0.086022),
)
# fmt: on
_LONGEST, _BOUND = zip(*_EXCESS, strict=True)


def excess(longest: float) -> float:
    """An upper bound on e(t): what Laplace steps cost beyond their energy, all together, if no shift is longer than t.

    >>> excess(0.1), excess(5.0)
    (0.006668, 0.086022)
    """
    if longest < _LONGEST[0]:
        # A swap costs more than its energy only while the Gaussian part is below 4 t/(8 - t).
        small = (1 - 2 / math.pi) * 4 * longest / (8 - longest) + (math.pi / 2 - 1) * longest * longest
        return min(_BOUND[0], small * (1 + _MARGIN))
    return _BOUND[min(bisect_left(_LONGEST, longest * (1 - 1e-12)), len(_BOUND) - 1)]


def gaussian_signal(norm: float, longest: float) -> float:
    """The signal of a Gaussian step that shows at least as much as Laplace steps of energy norm^2, rounded up."""
    # Roots, because the square of 1e-170 is 0.
    dominating = min(math.sqrt(math.pi / 2) * norm, math.hypot(norm, math.sqrt(excess(longest))))
    return math.nextafter(dominating * (1 + _MARGIN), math.inf)


def laplace_shift(noise: Noise, work: Workload) -> float | None:
    """The norm of a step in units of Laplace noise that shows at least as much, rounded up; None where none does."""
    scale = noise.before_rounding.laplace_scale
    if scale is None:
        return None
    return math.nextafter(noise.sensitivity(work.clip, work.dimension) / scale * (1 + _MARGIN), math.inf)


@dataclass(frozen=True)
class SharedSteps(ProfileSteps):
    """Gaussian steps of the energy of Laplace steps that share a scale, which is shown; no shift is above `longest`."""

    longest: float


def shared_steps(noise: Noise, work: Workload, most: float = math.inf, spare: float = 0.0) -> SharedSteps | None:
    """Those of a workload; None without a shared scale.

    Scales with a shift above `most` show everything, and so do the largest ones of a probability of at most `spare`.
    """
    if not noise.shared or noise.seed is None:
        return None
    found = gaussian_pair(noise.seed, noise.sensitivity(work.clip, work.dimension), most, spare)
    return None if found is None else SharedSteps(found[0], work.sample_rate, work.steps, found[1])


def dominating_steps(entries: Sequence[tuple[Noise, Workload]]) -> list[Step] | None:
    """Gaussian steps that show at least as much as all entries; None where a noise has no proof of that.

    Laplace steps without sampling are joined to one, and pay their excess once. Where they share a scale, it is paid
    for all of them after all scales have been shown; sampled ones have a profile, which is better.
    """
    steps: list[Step] = []
    norm, longest, by_scale = 0.0, 0.0, False
    for noise, work in entries:
        sigma, shift = noise.before_rounding.gaussian_sigma, laplace_shift(noise, work)
        if sigma is not None:
            signal = noise.sensitivity(work.clip, work.dimension) / sigma * (1 + _MARGIN)
        elif work.sample_rate == 1 and (shared := shared_steps(noise, work)) is not None:
            steps.append(shared)
            longest, by_scale = max(longest, shared.longest), True
            continue
        elif shift is None:
            return None
        else:
            if work.sample_rate == 1:
                norm = math.hypot(norm, math.sqrt(work.steps) * shift) * (1 + _MARGIN)
                longest = max(longest, shift)
                continue
            signal = gaussian_signal(shift, shift)
        if not signal < math.inf:
            return None
        steps.append(Steps(math.nextafter(signal, math.inf), work.sample_rate, work.steps))
    if longest:
        joined = gaussian_signal(norm, longest)
        if by_scale:  # whose energy is not in the norm
            joined = math.hypot(norm, math.sqrt(excess(longest))) * (1 + 2 * _MARGIN)
        if not joined < math.inf:
            return None
        steps.append(Steps(joined, 1.0, 1))
    return steps
