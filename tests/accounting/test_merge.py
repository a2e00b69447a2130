"""Merging onto a lattice: masses are kept, losses are lattice points, and little is lost."""

import numpy as np
import pytest

from plrvo.accounting.merge import merge


def normals(shift: float, count: int) -> tuple[np.ndarray, np.ndarray]:
    z = np.linspace(-9.0, 9.0 + shift, count)
    p, q = np.exp(-((z - shift) ** 2) / 2), np.exp(-(z**2) / 2)
    return p / p.sum(), q / q.sum()


@pytest.mark.parametrize("downwards", [False, True])
@pytest.mark.parametrize("origin", [0.0, 0.37])
@pytest.mark.parametrize("step", [0.5, 0.01, 1e-4])
def test_groups_have_the_ratio_of_their_lattice_point(step: float, origin: float, downwards: bool) -> None:
    p, q = normals(0.5, 3001)
    merged = merge(p, q, step, origin, downwards)
    assert merged.mass.sum() == pytest.approx(p.sum(), rel=1e-12)
    assert merged.other.sum() == pytest.approx(q.sum(), rel=1e-12)
    assert np.all(np.diff(merged.places) > 0)
    surplus = np.log(merged.mass / merged.other) - merged.losses
    assert surplus.min() > -1e-9
    assert np.sum(merged.mass * surplus) < 1e-4 * step  # only the last group, which is rare, is rounded down


@pytest.mark.parametrize("count", [3001, 40_001])
def test_what_is_lost_is_the_variance_within_groups(count: int) -> None:
    """At most h^2/3 of the variance of the loss and half of that of its mean, whether atoms are dense or sparse."""
    p, q = normals(0.5, count)
    loss = np.log(p / q)
    for step in (0.1, 0.02, 0.003):
        merged = merge(p, q, step)
        lost = np.sum(p * loss) - np.sum(merged.mass * merged.losses)
        assert -1e-12 < lost < step**2 / 6 + 1e-8


def test_two_losses_on_the_lattice_stay() -> None:
    p, q = np.array([0.25, 0.75]), np.array([0.75, 0.25])
    merged = merge(p, q, 2 * np.log(3) / 32, -np.log(3))
    assert merged.places.tolist() == [0, 32]
    assert merged.mass == pytest.approx(p, rel=1e-12)
