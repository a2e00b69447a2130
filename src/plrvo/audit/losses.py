"""The law of one step's loss, Lambda = log p(y - g)/p(y), drawn with the canary g in the sum or without it.

All of these are exact: what is drawn has the law of a likelihood ratio that an attacker can compute from the output of
the real mechanism, so that a test on it shows nothing that the mechanism does not leak.

| noise | canary | drawn |
|---|---|---|
| Gaussian | any | Lambda is normal; only the norm of g counts |
| independent coordinates | up to 4 coordinates | the coordinates themselves |
| independent coordinates | more | the sum of quantised coordinates (`quantised`) |
| shared scale | one coordinate | the coordinate, by its marginal density |
| shared scale | m equal coordinates | how many outputs lie beyond half the shift, with u drawn per step |
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import replace
from typing import Any, cast

import numpy as np
from scipy import special

from plrvo.audit.canary import Canary
from plrvo.audit.laws import Array, LossLaw, Transform
from plrvo.audit.quantised import QuantisedLoss
from plrvo.noise import Noise, Seed
from plrvo.validate import InvalidArgument

_TABLE = 8193  # values of N at which the loss of a shared scale is computed
_FEW = 4  # coordinates that are drawn one by one
_PLAIN_TO_SEE = 30.0  # shift over the size of the noise from which one coordinate gives everything away


class NormalLoss(LossLaw):
    """Gaussian noise: Lambda ~ N(mu^2/2, mu^2) with the canary, N(-mu^2/2, mu^2) without; mu = norm/sigma."""

    def __init__(self, mu: float) -> None:
        self._mu = mu

    def draw(self, present: bool, count: int, generator: np.random.Generator) -> Array:
        values = generator.standard_normal(count)
        values *= self._mu
        values += self._mu**2 / (2 if present else -2)
        return values


class CoordinateLoss(LossLaw):
    """A few coordinates, each drawn from the noise and weighed by its density."""

    def __init__(self, noise: Noise, shifts: Array) -> None:
        # The marginal of one coordinate does not depend on how the scale is shared.
        self._noise = replace(cast(Any, noise), shared=False) if noise.shared else noise
        self._shifts = shifts

    def draw(self, present: bool, count: int, generator: np.random.Generator) -> Array:
        total = np.zeros(count)
        for shift in self._shifts:
            y = self._noise.sample(count, generator)
            if present:
                y += shift
            total += self._noise.log_density(y - shift) - self._noise.log_density(y)
        return total


class SignLoss(LossLaw):
    """A shared scale, m equal shifts x: the number N of outputs beyond x/2.

    Given u, N is Binomial(m, 1 - s) with the canary and Binomial(m, s) without, s = e^(-u x/2)/2. Lambda is the log
    ratio of the two mixtures over u, tabulated by quadrature over u and, for large m, interpolated in N. u and N
    themselves are drawn from their own laws, so that an error of the table could make the attack weaker, never untrue.
    """

    def __init__(self, seed: Seed, shift: float, coordinates: int) -> None:
        self._seed, self._shift, self._m = seed, shift, coordinates
        log_s = -_nodes(seed) * shift / 2 - math.log(2)
        log_not_s = np.log1p(-np.exp(log_s))
        n = np.unique(np.linspace(0, coordinates, _TABLE).round())
        losses = []
        for part in np.array_split(n[:, None], 1 + len(n) // 1024):
            # The binomial coefficients cancel in the ratio; N and m - N change places between the worlds.
            with_it = special.logsumexp(part * log_not_s + (coordinates - part) * log_s, axis=1)
            without = special.logsumexp(part * log_s + (coordinates - part) * log_not_s, axis=1)
            losses.append(with_it - without)
        self._table = np.interp(np.arange(coordinates + 1), n, np.concatenate(losses))

    def mapped(self, transform: Transform) -> LossLaw:
        law = copy(self)
        law._table = transform(self._table)
        return law

    def draw(self, present: bool, count: int, generator: np.random.Generator) -> Array:
        s = np.exp(-self._seed.draw_many(count, generator) * self._shift / 2) / 2
        return self._table[generator.binomial(self._m, 1 - s if present else s)]


def _nodes(seed: Seed) -> Array:
    """Equally weighted values of u, at evenly spread uniforms."""
    i = np.arange(512)[:, None] + 0.5
    steps = np.array([1 / 512, *np.sqrt([2.0, 3.0, 5.0, 7.0, 11.0, 13.0])])[: seed.draws]
    return seed.draw(np.mod(i * np.resize(steps, seed.draws), 1.0))


def loss_law(noise: Noise, canary: Canary) -> LossLaw:
    """The law for this noise and canary, by the table above."""
    if noise.gaussian_sigma is not None:
        return NormalLoss(canary.norm / noise.gaussian_sigma)
    largest = max(canary.magnitudes)
    if noise.shared and canary.coordinates > 1:
        if len(canary.magnitudes) > 1:
            raise InvalidArgument("canary", f"{len(canary.magnitudes)} magnitudes", "one, where the scale is shared")
        if noise.seed is None:
            raise InvalidArgument("noise", noise.kind, "a PLRV noise, where the scale is shared")
        return SignLoss(noise.seed, largest, canary.coordinates)
    if canary.coordinates <= _FEW:
        return CoordinateLoss(noise, np.repeat(canary.magnitudes, canary.counts))
    if largest * math.sqrt(noise.fisher_information()) > _PLAIN_TO_SEE:
        return CoordinateLoss(noise, np.array([largest]))
    return QuantisedLoss(noise, canary)
