"""Batches that pass over the data once per epoch, to which a claim made for Poisson batches does not apply.

The worst case that is known (Chua et al. 2024; Annamalai et al. 2024): every other example's gradient is -g. A batch
then sums to -g times its size, except that the one which holds the canary sums to 2g more, or to g more where the
canary's own gradient is taken out. Which batch that is, is uniform. So an epoch of L steps has the likelihood ratio

    mean over t of p(y_t - 2g)/p(y_t)   over   mean over t of p(y_t - g)/p(y_t):

the place is marked in both worlds, and the secrecy of the sample, which Poisson's claim rests on, hides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from plrvo.accounting import Workload
from plrvo.audit.canary import Canary
from plrvo.noise import Noise
from plrvo.validate import InvalidArgument

Array = NDArray[np.float64]
Simulate = Callable[[bool, int, np.random.Generator], Array]

_CHUNK = 1 << 15  # values drawn at a time, which stay in cache


def shuffled(noise: Noise, canary: Canary, work: Workload) -> Simulate:
    """Runs of whole epochs, scored by the exact log likelihood ratio. One coordinate, or Gaussian noise."""
    length = round(1 / work.sample_rate)
    epochs, rest = divmod(work.steps, length)
    if rest or abs(length * work.sample_rate - 1) > 1e-9:
        raise InvalidArgument("steps", work.steps, f"whole epochs of 1/sample_rate = {1 / work.sample_rate:g} steps")
    if canary.coordinates > 1 and noise.gaussian_sigma is None:
        raise InvalidArgument("canary", f"{canary.coordinates} coordinates", "one, with shuffled batches")
    shift = canary.norm  # Gaussian noise looks the same in every direction
    if noise.shared:
        noise = replace(cast(Any, noise), shared=False)  # the marginal of one coordinate is the same

    def simulate(present: bool, runs: int, generator: np.random.Generator) -> Array:
        scores = np.zeros(runs)
        rows = max(1, _CHUNK // length)
        for start in range(0, runs, rows):
            part = scores[start : start + rows]
            for _ in range(epochs):
                y = noise.sample((len(part), length), generator)
                y[np.arange(len(part)), generator.integers(length, size=len(part))] += shift * (2 if present else 1)
                base = noise.log_density(y)
                part += _log_mean(noise.log_density(y - 2 * shift) - base)
                part -= _log_mean(noise.log_density(y - shift) - base)
        return scores

    return simulate


def _log_mean(values: Array) -> Array:
    """log of the mean of e^values by rows."""
    top = values.max(axis=1)
    return top + np.log(np.mean(np.exp(values - top[:, None]), axis=1))
