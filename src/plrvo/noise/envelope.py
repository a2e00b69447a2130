"""The worst gradient in the l2 ball, for noises whose h(s) = log F(sqrt s, eta) is not proved to be concave.

A gradient with squares s_i, sum s_i <= C^2, pays sum_i h(s_i) <= n hhat(C^2/n), hhat any concave function above h on
[0, C^2]. Here hhat is the upper hull of a polygon that lies above h, built from h at grid points only:

- below the first grid point x_0: log F <= eta (eta-1) I e^((eta-1) c x_0) x^2 / 2, c the bound on the score
  (or without the exponential where Theorem 2' holds);
- between grid points, F increases, so its value at the right end bounds it. Better, where u has a log-concave density:
  F is convex in x. *Proof.* F = integral p(z)^eta p(z+x)^(1-eta) dz, and p^(1-eta) is convex: with a = eta - 1 >= 1,
  (phi^-a)'' has the sign of (a+1) phi'^2 - phi phi'', that is of eta E[u]^2 - E[u^2] under the law of u tilted to
  density ~ u e^(-ut) seed(u). That law is log-concave too, hence its E[u^2] <= 2 E[u]^2 (a log-concave law on the half
  line has coefficient of variation at most 1), and eta >= 2. QED  So a chord of F lies above F, and log of a
  chord, seen as a function of s = x^2, is concave: its two end tangents lie above it.
- Better still, where p is log-concave: then p^(1-eta) is log-convex, and so is F, a mixture of its translates. A chord
  of log F in x lies above log F, and it is concave in s = x^2 too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from plrvo.noise.base import Array, Noise

_FIRST = 1e-5  # the first grid point, in units of the noise


def spread_bound(
    noise: Noise,
    clip: float,
    dimension: int,
    eta: Array,
    initial_slope: Callable[[float, Array], Array],
    convex: bool,
    log_convex: bool = False,
) -> Array:
    """n hhat(C^2/n) for each integer eta >= 2.

    `noise` and `clip` are in units in which the score is bounded by 1. `initial_slope(x_0, eta)` bounds log F/x^2 on
    (0, x_0]. The grid is absolute (it does not move with the clip), so that the bound is monotone in the clip and in
    the dimension, and noises of one shape share their values on it.
    """
    ratio = 1.1 if convex or log_convex else 1.02
    if clip <= 2 * _FIRST:
        x = np.array([clip / 2, clip])
        h = noise.log_moment(x[None, :], eta[:, None])
    else:
        count = int(np.floor(np.log(clip / _FIRST) / np.log(ratio) - 1e-9)) + 1
        x = np.append(_grid(ratio, count), clip)
        inner = _values(noise, ratio, -(-count // 16) * 16, tuple(eta))[:, :count]
        h = np.concatenate([inner, noise.log_moment(clip, eta)[:, None]], axis=1)
    first = float(x[0])
    s = np.broadcast_to(x**2, h.shape)
    start = initial_slope(first, eta)[:, None] * s[:, :1]
    vertices_s = [np.zeros_like(start), s[:, :1], s]
    vertices_h = [np.zeros_like(start), np.maximum(start, h[:, :1]), h]
    rise = np.diff(h, axis=1)
    if convex or log_convex:
        width = np.diff(x)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            left = (rise if log_convex else np.expm1(rise)) / width / (2 * x[:-1])
            right = (rise if log_convex else -np.expm1(-rise)) / width / (2 * x[1:])
            meet = (rise + left * s[:, :-1] - right * s[:, 1:]) / (left - right)
        # Where the tangents coincide to rounding, or the left one is vertical, the staircase corner is above both.
        meet = np.where(np.isfinite(meet), np.clip(meet, s[:, :-1], s[:, 1:]), s[:, :-1])
        with np.errstate(over="ignore", invalid="ignore"):
            height = h[:, 1:] - right * (s[:, 1:] - meet)
        vertices_s.append(meet)
        vertices_h.append(np.minimum(height, h[:, 1:]))
    else:
        vertices_s.append(s[:, :-1])
        vertices_h.append(h[:, 1:])
    points, heights = np.concatenate(vertices_s, axis=1), np.concatenate(vertices_h, axis=1)
    target = float((x**2)[-1]) / dimension  # the last grid point itself in one dimension, to the last bit
    return np.array([dimension * _hull_at(target, p, v) for p, v in zip(points, heights, strict=True)])


def _grid(ratio: float, count: int) -> Array:
    return _FIRST * ratio ** np.arange(float(count))


@lru_cache(maxsize=64)
def _values(noise: Noise, ratio: float, count: int, eta: tuple[float, ...]) -> Array:
    """h on the grid: one row for each order, one column for each point."""
    return noise.log_moment(_grid(ratio, count)[None, :], np.asarray(eta)[:, None])


def _hull_at(target: float, points: Array, heights: Array) -> float:
    """The upper hull of a set of points, at `target`: the highest chord across it."""
    left, right = points <= target, points >= target
    p, v = points[left][:, None], heights[left][:, None]
    r, w = points[right][None, :], heights[right][None, :]
    gap = r - p
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(gap > 0, (target - p) / gap, 0.0)
        chord = np.where(share > 0, v + share * (w - v), np.maximum(v, np.where(gap > 0, -np.inf, w)))
    return float(chord.max())
