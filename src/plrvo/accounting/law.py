"""A discrete distribution of losses, with what is asked of it tilted; exactly, or in few points."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from plrvo.noise.base import Array

_WIDTH = 0.015  # of a bin, relative to its distance from the mean
_UNIT = 1e-7  # of the whole range: bins nearer to the mean than this are as wide as that


@dataclass(frozen=True, eq=False)
class Law:
    """Masses at losses."""

    losses: Array
    mass: Array

    @cached_property
    def log_mass(self) -> Array:
        with np.errstate(divide="ignore"):
            return np.log(self.mass)

    def moments(self, theta: float) -> tuple[float, float, float]:
        """log of the moment generating function, mean and variance, tilted by e^(theta l)."""
        exponent = self.log_mass + theta * self.losses
        top = float(exponent.max())
        weight = np.exp(exponent - top)
        total = float(weight.sum())
        mean = float(weight @ self.losses) / total
        return math.log(total) + top, mean, float(weight @ (self.losses - mean) ** 2) / total

    @cached_property
    def binned(self) -> Law:
        """About the same in few points: bins grow geometrically away from the mean, as most of the mass is near it."""
        mean = float(np.sum(self.mass * self.losses) / np.sum(self.mass))
        unit = _UNIT * float(self.losses.max() - self.losses.min()) or 1.0
        bins = np.floor(np.arcsinh((self.losses - mean) / unit) / _WIDTH).astype(np.int64)
        bins -= int(bins.min())
        mass = np.bincount(bins, self.mass).astype(float)
        moment = np.bincount(bins, self.mass * (self.losses - mean)).astype(float)
        filled = np.flatnonzero(mass > 0)
        return Law(mean + moment[filled] / mass[filled], mass[filled])
