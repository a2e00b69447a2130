"""Integrals over (0, inf), graded geometrically so that every scale gets its share of nodes."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_NODES_PER_PANEL = 16
_PANEL_RATIO = 4.0


@lru_cache(maxsize=8)
def legendre(count: int) -> tuple[Array, Array]:
    """Gauss's nodes and weights on (0, 1)."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    return (nodes + 1) / 2, weights / 2


def _composite(edges: Array) -> tuple[Array, Array]:
    nodes, weights = legendre(_NODES_PER_PANEL)
    widths = np.diff(edges)
    return (edges[:-1, None] + widths[:, None] * nodes).ravel(), (widths[:, None] * weights).ravel()


def half_line(smallest: float, largest: float) -> tuple[Array, Array]:
    """Nodes and weights for the integral from 0 to `largest` of a function with features between the two scales."""
    panels = max(1, int(np.ceil(np.log(largest / smallest) / np.log(_PANEL_RATIO))))
    edges = largest * _PANEL_RATIO ** -np.arange(panels, -1.0, -1.0)
    return _composite(np.concatenate([[0.0], edges]))
