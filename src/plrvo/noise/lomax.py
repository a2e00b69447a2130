"""One coordinate of two-sided Lomax noise, with Laplace noise as its limit, as theorem A (theory, section 14) asks.

In the unit in which the score is bounded by 1 the density is p(z) = (k/2m) (1 + |z|/m)^-(k+1), m = k+1, and e^-|z|/2
for k = inf. A shift s > 0 gives the loss L = log p(z-s)/p(z), which lies in [-a, a], a = m log(1 + s/m) <= s, and

    M_s(w) = E_Q e^(wL) = integral of cosh((w - 1/2) tau) over a measure nu = nu1 + nu2 on [0, a]

(theory, Theorem 2', part a). nu1 comes from |z| beyond the shift: tau = m log(1 + s S/m), S with density k S^(k-1) on
(0, 1), times e^(-tau/2); for Laplace noise one point, tau = s. nu2 has the density

    (k/(m (2 + s/m))) (cosh(tau/2m)/(1 + s/2m))^(k-1),   which is e^(-s/2)/2 for Laplace noise.

Gauss's rules for the two weights, with 48 nodes each, give M_s within 1e-12 of M_s(Re w) while |w| a < 60
(tests compare with mpmath).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from plrvo.noise.functions import Array
from plrvo.noise.quadrature import legendre

MOMENT_ERROR = 1e-12  # of a complex moment, relative to the moment at the real part of its order
LARGEST_PHASE = 60.0  # |w| a up to which that holds
_NODES = 48


@dataclass(frozen=True)
class Lomax:
    """The shape: k > 0, or `inf` for Laplace noise."""

    k: float

    @property
    def information(self) -> float:
        return self.k / (self.k + 2) if self.k < math.inf else 1.0

    @property
    def bend(self) -> float:
        """A bound on the derivative of the score away from 0: 1/m."""
        return 1 / (self.k + 1)

    def largest_loss(self, s: Array) -> Array:
        """a = m log(1 + s/m)."""
        return (self.k + 1) * np.log1p(s / (self.k + 1)) if self.k < math.inf else s

    def spectrum(self, s: float) -> tuple[Array, Array, Array]:
        """Nodes tau, weights of nu1 (zero on the last 48 nodes), weights of nu2 (zero on the others)."""
        nodes, weights = legendre(_NODES)
        if self.k == math.inf:
            far, far_mass, flat = np.array([s]), np.ones(1), np.full(_NODES, math.exp(-s / 2) / 2)
            a = s
        else:
            m = self.k + 1
            places, far_mass = power_rule(self.k)
            far, a = m * np.log1p(s / m * places), m * math.log1p(s / m)
            bulge = log_cosh(a * nodes / (2 * m)) - math.log1p(s / (2 * m))
            flat = self.k / (m * (2 + s / m)) * np.exp((self.k - 1) * bulge)
        near = a * nodes
        tau = np.concatenate([far, near])
        outer = np.concatenate([far_mass * np.exp(-far / 2), np.zeros(len(near))])
        inner = np.concatenate([np.zeros(len(far)), a * weights * flat])
        return tau, outer, inner

    def inner_ends(self, s: Array) -> tuple[Array, Array]:
        """The least and the largest value of the density of nu2 on [0, a]. Both fall as s grows.

        nu2 is monotone: it ends with (k/m) (1+x)^((1-k)/2)/(2+x) and starts with (k/2m) (1+x/2)^-k, x = s/m.
        """
        if self.k == math.inf:
            return np.exp(-s / 2) / 2, np.exp(-s / 2) / 2
        m = self.k + 1
        x = s / m
        start = self.k / (2 * m) * np.exp(-self.k * np.log1p(x / 2))
        end = self.k / m * np.exp((1 - self.k) / 2 * np.log1p(x)) / (2 + x)
        return np.minimum(start, end), np.maximum(start, end)

    def moments(self, s: float, real: Array, imaginary: Array) -> NDArray[np.complex128]:
        """M_s(c + iu): one row for each c, one column for each u."""
        tau, outer, inner = self.spectrum(s)
        up = np.exp(np.multiply.outer(real - 0.5, tau))
        even, odd = (up + 1 / up) / 2 * (outer + inner), (up - 1 / up) / 2 * (outer + inner)
        phase = np.multiply.outer(tau, imaginary)
        return np.asarray(even @ np.cos(phase) + 1j * (odd @ np.sin(phase)))

    def cells(self, s: float, losses: Array) -> tuple[Array, Array]:
        """P- and Q-masses of the outputs whose loss lies between neighbours of `losses` (from 0 up to at least a).

        The loss rises from 0 at z = s/2 to a at z = s, and falls from there on (Laplace noise: stays), so each cell is
        two intervals. The largest loss belongs to the cell below it.
        """
        a = float(self.largest_loss(np.asarray(s)))
        edges = np.minimum(losses, a)
        if self.k == math.inf:
            z = (s + edges) / 2
            p, q = np.exp(z - s) / 2, -np.exp(-z) / 2  # P(z' < z) under either, up to a constant
            p, q = np.diff(p), np.diff(q)
            top = min(int(np.searchsorted(losses, a)), len(p)) - 1  # the cell that ends at a, or contains it
            p[top], q[top] = p[top] + 0.5, q[top] + math.exp(-s) / 2
            return p, q
        m, k = self.k + 1, self.k
        # Inside: (1 + z/m)/(1 + (s-z)/m) = e^(l/m), so z = ((m + s) e^(l/m) - m)/(1 + e^(l/m)).
        growth = np.expm1(edges / m)
        z = (m * growth + s * (1 + growth)) / (2 + growth)
        inside_p = np.exp(-k * np.log1p((s - z) / m)) / 2
        inside_q = -np.exp(-k * np.log1p(z / m)) / 2
        # Beyond: 1 + s S/m = e^(l/m), where S = 1/(1 + (z-s)/m). P(z' > z) = S^k/2, and 1 + z/m = 1/S + s/m.
        # S - 1 as a multiple of e^((l-a)/m) - 1: a power k of S - 1 = -1e-16 would not forgive a difference.
        with np.errstate(divide="ignore"):
            log_share = np.log1p(np.maximum((m + s) / s * np.expm1((edges - a) / m), -1.0))
        beyond_p = np.exp(k * log_share) / 2
        beyond_q = np.exp(k * (log_share - np.log1p(s / m * np.exp(log_share)))) / 2
        return np.diff(inside_p) + np.diff(beyond_p), np.diff(inside_q) + np.diff(beyond_q)


def log_cosh(x: Array) -> Array:
    """log cosh x, to full relative precision for small x."""
    half = np.sinh(np.minimum(np.abs(x), 1.0) / 2) ** 2
    return np.where(np.abs(x) < 1, np.log1p(2 * half), np.abs(x) + np.log1p(np.exp(-2 * np.abs(x))) - math.log(2))


@lru_cache(maxsize=32)
def power_rule(k: float) -> tuple[Array, Array]:
    """Gauss's rule for the density k S^(k-1) on (0, 1): Jacobi polynomials, by Golub and Welsch."""
    from scipy import linalg  # here, so that importing plrvo does not wait for it

    n = np.arange(float(_NODES))
    b = k - 1  # the weight is (1 + X)^b, S = (1 + X)/2
    with np.errstate(invalid="ignore", divide="ignore"):
        diagonal = np.where(n == 0, b / (b + 2), b * b / ((2 * n + b) * (2 * n + b + 2)))
    j = n[1:]
    squares = 4 * j * j * (j + b) ** 2 / ((2 * j + b) ** 2 * (2 * j + b + 1) * (2 * j + b - 1))
    squares[0] = 4 * (1 + b) / ((2 + b) ** 2 * (3 + b))  # the factor 1 + b cancelled: it may be small
    values, vectors = linalg.eigh_tridiagonal(diagonal, np.sqrt(squares))
    return np.clip((1 + values) / 2, 0.0, 1.0), vectors[0] ** 2
