"""Sensitivities the long way: every pattern, and vectors instead of formulas."""

from __future__ import annotations

import itertools

import numpy as np


def patterns(length: int, participation) -> list[tuple[int, ...]]:
    """Every set of steps that an example may take part in."""
    if participation.fixed:
        return [
            tuple(range(s, length, participation.steps_per_epoch))
            for s in range(min(length, participation.steps_per_epoch))
        ]
    found = []
    for count in range(1, participation.epochs + 1):
        for steps in itertools.combinations(range(length), count):
            if all(b - a >= participation.separation for a, b in itertools.pairwise(steps)):
                found.append(steps)
    return found


def pair_sum(s: np.ndarray, steps) -> float:
    gram = s[:, list(steps)].T @ s[:, list(steps)]
    return float(np.abs(gram).sum())


def worst_square(s: np.ndarray, participation) -> float:
    """The largest sum of |(S'S)_st| over all patterns."""
    return max(pair_sum(s, steps) for steps in patterns(s.shape[1], participation))


def reached_by_vectors(s: np.ndarray, steps, seed: int = 0) -> float:
    """A lower bound on sup ||sum_s S_s g_s||^2 over vectors in the unit ball, by alternating maximisation."""
    rng = np.random.default_rng(seed)
    gram = s[:, list(steps)].T @ s[:, list(steps)]
    best = 0.0
    for _ in range(5):
        g = rng.standard_normal((len(gram), len(gram)))
        g /= np.linalg.norm(g, axis=1, keepdims=True)
        for _ in range(200):
            for i in range(len(gram)):
                push = gram[i] @ g - gram[i, i] * g[i]
                norm = np.linalg.norm(push)
                g[i] = push / norm if norm > 1e-12 else g[i]
        best = max(best, float(np.sum(gram * (g @ g.T))))
    return best


def block_diagonal(correlation, steps: int) -> np.ndarray:
    """S of a whole run with its restarts."""
    parts = [(start, strategy.matrix(length)) for start, length, strategy in correlation.parts(steps, steps)]
    out = np.zeros((sum(len(m) for _, m in parts), steps))
    row = 0
    for start, m in parts:
        out[row : row + len(m), start : start + m.shape[1]] = m
        row += len(m)
    return out
