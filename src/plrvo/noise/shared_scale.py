"""One random scale for all coordinates of a step: the expectation over u stands outside the product.

Given u the step is a Laplace step with b = 1/u, whose worst gradient is the equally spread one for every u and every
order (theory, Theorem 1). So the joint moment is at most E_u[F(u C/sqrt n, eta)^n], increasing in u. The expectation
is taken over u up to a cut that it exceeds with probability at most `tail`, on a grid to which u is rounded *up*: an
upper bound whatever the grid.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from scipy import special

from plrvo.noise.base import Array
from plrvo.noise.laplace import laplace_log_moment
from plrvo.noise.seeds import Seed

_CELLS = 2000
_LOWER_TAIL = 1e-14  # mass below the grid, moved up to its first point
_DROPPED = 1e-13  # mass beyond either end of a grid for lower bounds
_HAIR = 1e-13  # relative: above the rounding of a quantile and of the points of the grid
_AGREE = 1e-9  # how closely masses and means of two derivations must agree


def shared_log_joint_moment(seed: Seed, clip: float, dimension: int, eta: Array, tail: float) -> Array:
    """log E[F(u C/sqrt n, eta)^n; u <= cut]; `inf` for tail = 0 unless u is bounded."""
    u, log_mass = _points(seed, tail)
    if not math.isfinite(u[-1]):
        return np.full(eta.shape, np.inf)
    shift = u * clip / math.sqrt(dimension)
    out = np.empty(len(eta))
    for start in range(0, len(eta), 64):
        orders = eta[start : start + 64, None]
        log_moments = dimension * laplace_log_moment(shift[None, :], orders)
        out[start : start + 64] = special.logsumexp(log_moments + log_mass, axis=1)
    return np.maximum(out, 0.0)  # the cut mass is missing from the expectation, which may end just below one


def shared_log_stream_moment(seed: Seed, shift: float, eta: Array, tail: float) -> Array:
    """log E[exp(eta (eta-1) u^2 s^2 / 2); u <= cut], at least the moment of draws whose shifts have total norm s.

    One draw with shift d costs at most K(d^2), K(s) = log E[exp(eta (eta-1) u^2 s / 2); u <= cut] (Theorem 1's limit).
    K is convex and K(0) <= 0, so that draws with squares s_r cost at most K(sum s_r) together (theory, section 11).
    """
    u, log_mass = _points(seed, tail)
    if not math.isfinite(u[-1]):
        return np.full(eta.shape, np.inf)
    exponent = (u * shift) ** 2 / 2
    terms = log_mass[None, :] + (eta * (eta - 1))[:, None] * exponent[None, :]
    return np.maximum(special.logsumexp(terms, axis=1), 0.0)


def _points(seed: Seed, tail: float) -> tuple[Array, Array]:
    """The points of `rounded_up` that have a mass, and its logarithm; one that is infinite, where there is no bound."""
    u, mass = rounded_up(seed, tail)
    if not math.isfinite(u[-1]):
        return u[-1:], np.zeros(1)
    keep = mass > 0
    return u[keep], np.log(mass[keep])


@lru_cache(maxsize=64)
def rounded_up(seed: Seed, tail: float) -> tuple[Array, Array]:
    """Points and masses of a variable that is at least u, and leaves out probability at most `tail` at the top.

    Quantiles, tails and cumulants of a seed are three derivations of one law. Where they contradict each other there is
    no bound: the point is infinite.
    """
    unknown = np.array([np.inf]), np.array([1.0])
    terms = seed.terms
    tops = [_exceeded_at_most(term, tail / len(terms)) for term in terms]
    if not all(math.isfinite(top) for top in tops):
        return unknown
    bottoms = [float(term.upper_quantile(1 - _LOWER_TAIL)) for term in terms]
    step = sum(top - bottom for top, bottom in zip(tops, bottoms, strict=True)) / _CELLS
    if not step > _HAIR * sum(tops):  # a seed narrower than its own rounding is a constant
        points, mass = np.array([sum(tops) * (1 + _CELLS * _HAIR)]), np.ones(1)
    else:
        mass = np.ones(1)
        for term, bottom, top in zip(terms, bottoms, tops, strict=True):
            edges = bottom + step * np.arange(1 + math.ceil((top - bottom) / step))
            edges[-1] = top
            below = np.diff(term.cdf(edges), prepend=0.0)
            above = -np.diff(term.survival(edges), prepend=1.0)
            mass = np.convolve(mass, np.where(edges < term.mean, below, above))
        points = (sum(bottoms) + step * np.arange(len(mass), dtype=float)) * (1 + _HAIR)
        mass = np.maximum(mass, 0.0)
    # E[u; u > cut] is at most the root of E[u^2] P(u > cut), here of at least half of E[u^2]: squares may underflow.
    _, mean, variance = (float(value) for value in seed.cumulants(0.0))
    least = mean * (1 - _AGREE) - 2 * math.hypot(mean, math.sqrt(variance)) * math.sqrt(tail)
    return (points, mass) if mass.sum() + tail >= 1 - _AGREE and points @ mass >= least else unknown


@lru_cache(maxsize=64)
def rounded_down(seed: Seed) -> tuple[Array, Array]:
    """Points and masses of a variable that is at most u; the masses are from below, and so is their sum of nearly 1."""
    terms = seed.terms
    bottoms = [float(term.lower_quantile(_DROPPED)) for term in terms]
    tops = [float(term.upper_quantile(_DROPPED)) for term in terms]
    step = (sum(tops) - sum(bottoms)) / (_CELLS // 2)
    if not step > 1e-9 * sum(tops):
        return np.array([sum(bottoms) * (1 - 1e-9)]), np.array([1 - 1e-9])
    mass = np.ones(1)
    for term, bottom, top in zip(terms, bottoms, tops, strict=True):
        edges = bottom + step * np.arange(2 + math.ceil((top - bottom) / step))
        below, above = term.cdf(edges), term.survival(edges)
        lower_half = edges[1:] < term.mean
        one = np.where(lower_half, np.diff(below), -np.diff(above))
        # A tail is good to 1e-12 of itself.
        mass = np.convolve(mass, np.maximum(one - 1e-12 * np.where(lower_half, below[1:], above[:-1]), 0.0))
    points = (sum(bottoms) + step * np.arange(len(mass), dtype=float)) * (1 - _HAIR)
    return points, mass * (1 - 1e-12)


def _exceeded_at_most(term: Seed, tail: float) -> float:
    """The quantile, moved up by its rounding until the tail beyond it agrees; infinite where it does not."""
    top = float(term.upper_quantile(tail))
    candidates = [top] + [math.nextafter(top * (1 + hair), math.inf) for hair in (_HAIR, 1e-10, 1e-6)]
    return next((value for value in candidates if term.survival(value) <= tail), math.inf)
