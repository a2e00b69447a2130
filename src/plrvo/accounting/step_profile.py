"""The dominating pair of a workload's steps: `profile` for independent coordinates, a mixture for a shared scale.

A single coordinate has a pair that is exact (`one_coordinate`): one query, or a clip in l1.

With a shared scale E_u H(u C) needs the profile of Laplace steps of many shifts. One table of `profile` has a bound for
every energy up to that of twice the mean shift; each shift is rounded up to an energy of the table. Larger shifts have
the Gaussian step of `domination`, which is hardly more than they are, and smaller ones the smaller of the two.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from plrvo.accounting.domination import gaussian_signal
from plrvo.accounting.profile import (
    ENERGIES,
    FEW,
    Profile,
    energy_bounds,
    hull_pair,
    lattice,
    one_coordinate,
    profile,
    worth_while,
)
from plrvo.accounting.revealed import gaussian_curves, levels, mixed_gaussian_pair, revealed_shifts
from plrvo.accounting.sampled_profile import ProfileSteps
from plrvo.accounting.workload import Workload
from plrvo.noise.base import Array, Noise
from plrvo.noise.lomax import Lomax
from plrvo.noise.seeds import Seed

_LAPLACE = Lomax(math.inf)
_WHOLE = 2.0  # mean shifts: up to here by the table


def profile_steps(noise: Noise, work: Workload) -> ProfileSteps | None:
    """The steps of a workload; None where the noise has no profile, or none that is worth while."""
    continuous = noise.before_rounding
    clip, few = noise.sensitivity(work.clip, work.dimension), work.steps <= FEW
    if continuous.shared and continuous.seed is not None:
        pair = _shared_pair(continuous.seed, clip, few)
    elif continuous.lomax is not None:
        law, unit = continuous.lomax
        shift = math.nextafter(clip / unit * (1 + 2.0**-50), math.inf)
        if work.dimension == 1:
            pair = one_coordinate(law, shift)
        else:
            pair = profile(law, shift) if worth_while(law, shift, few) else None
    else:
        return None
    return None if pair is None else ProfileSteps(pair, work.sample_rate, work.steps)


@lru_cache(maxsize=64)
def _shared_pair(seed: Seed, clip: float, few: bool) -> Profile | None:
    shifts = revealed_shifts(seed, clip)
    if shifts is None:
        return None
    signals = np.array([gaussian_signal(float(s), float(s)) for s in shifts.sizes])
    end = min(shifts.largest, _WHOLE * shifts.mean)
    if not worth_while(_LAPLACE, end, few):
        return mixed_gaussian_pair(signals, shifts)
    step, near, last = lattice(end)
    y = levels(step, step * last, 8 * shifts.largest + shifts.largest**2 / 2)
    bounds = gaussian_curves(signals, y)
    tabled = shifts.sizes <= end
    bounds[tabled] = np.minimum(bounds[tabled], _from_table(shifts.sizes[tabled], end, y, near))
    return hull_pair(y, shifts.masses @ bounds + shifts.beyond)


def _from_table(shifts: Array, end: float, y: Array, near: int) -> Array:
    """A row for each shift up to `end`: that of the next energy of the table."""
    index = np.ceil((shifts / end) ** 2 * ENERGIES * (1 + 1e-14)).astype(int)
    return energy_bounds(_LAPLACE, end * (1 + 2.0**-50), y, near)[np.minimum(index, ENERGIES)]
