"""Merging attacked: over random pairs the merged one is nowhere easier to tell apart, alone and composed."""

import numpy as np
import pytest

from plrvo.accounting.merge import merge


def shown(p: np.ndarray, q: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """sum (p - a q)_+ at every level a."""
    return np.maximum(p - levels[:, None] * q, 0.0).sum(axis=1)


def pair(generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Few or many atoms, of any sizes, some with equal losses, some on lattice points, some of one law only."""
    count = int(generator.choice([1, 2, 3, 7, 40, 300]))
    q = generator.exponential(size=count) ** generator.choice([1.0, 4.0])
    losses = generator.normal(size=count) * generator.choice([1e-3, 0.1, 1.0, 6.0])
    if generator.random() < 0.4:
        losses = np.round(losses, 1)
    p = q * np.exp(losses)
    p[generator.random(count) < 0.05] = 0.0
    q[generator.random(count) < 0.05] = 0.0
    p, q = p / max(p.sum(), 1e-9), q / max(q.sum(), 1e-9)
    return p, q


@pytest.mark.parametrize("downwards", [False, True])
def test_no_level_shows_more_after_merging(downwards: bool) -> None:
    """One step, and two of them: the losses that are taken are those of the lattice, not of the groups."""
    generator = np.random.default_rng(17)
    levels = np.exp(np.linspace(-9.0, 9.0, 73))
    for _ in range(400):
        p, q = pair(generator)
        step, origin = float(generator.choice([1e-3, 0.1, 0.5, 3.0])), float(generator.choice([0.0, 0.37, -1.2]))
        merged = merge(p, q, step, origin, downwards)
        taken = merged.mass * np.exp(-merged.losses)
        assert np.all(taken >= merged.other * (1 - 1e-11))
        assert merged.mass.sum() <= p.sum() * (1 + 1e-12)
        assert np.all(shown(merged.mass, taken, levels) <= shown(p, q, levels) + 1e-11)
        if len(p) <= 40:
            twice = [np.multiply.outer(law, law).ravel() for law in (p, q, merged.mass, taken)]
            assert np.all(shown(twice[2], twice[3], levels) <= shown(twice[0], twice[1], levels) + 1e-11)


def test_a_loss_that_is_rounded_up_is_caught() -> None:
    """The attack can fail: one step more of loss is above the pair at some level."""
    p, q = np.array([0.2, 0.3, 0.5]), np.array([0.5, 0.3, 0.2])
    merged = merge(p, q, 0.1)
    higher = merged.mass * np.exp(-merged.losses - 0.1)
    levels = np.exp(np.linspace(-2.0, 2.0, 41))
    assert np.any(shown(merged.mass, higher, levels) > shown(p, q, levels) + 1e-3)
