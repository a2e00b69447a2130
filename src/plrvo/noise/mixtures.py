"""Laplace noise with a random inverse scale u, a fresh one for every value: PLRV noise of any seed, from random words.

u is the seed's quantile at the probability of whichever of its tails is nearer, e^-E/2 with an exponential E, so that
both tails reach as far as E does (`exponentials`): the lower one makes the far noise, the upper one the noise near 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from plrvo.noise.exponentials import LaplaceSize, SignedKernel
from plrvo.noise.seeds import Seed
from plrvo.noise.spans import Source

_DOUBLE = np.dtype(np.float64)
_SMALLEST = float(np.finfo(_DOUBLE).tiny)


class MixtureKernel:
    """Unit Laplace noise over u. Not made for speed: quantiles take most of the time."""

    def __init__(self, seed: Seed, most: int) -> None:
        self._seed = seed
        self._laplace = SignedKernel(LaplaceSize(1.0), most * seed.draws)

    def draw(self, count: int, dtype: np.dtype[Any], source: Source) -> NDArray[Any]:
        draws = self._seed.draws
        tails = self._laplace.draw(count * draws, _DOUBLE, source).reshape(count, draws)
        u = self._seed.draw_from_tails(tails)
        values, largest = self._laplace.draw(count, _DOUBLE, source), float(np.finfo(dtype).max)
        with np.errstate(over="ignore"):
            values /= np.maximum(u, _SMALLEST)
        np.clip(values, -largest, largest, out=values)
        return values.astype(dtype, copy=False)


def scale_for_all(seed: Seed, source: Source) -> float:
    """1/u of one u, for noise that shares it; u is 0 where its quantile is below any double."""
    tails = SignedKernel(LaplaceSize(1.0), seed.draws).draw(seed.draws, _DOUBLE, source)
    return 1 / max(float(seed.draw_from_tails(tails)), _SMALLEST)
