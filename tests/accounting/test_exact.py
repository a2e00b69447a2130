"""A plan on a grid: how fine it is, and that a budget or a given width is kept."""

from pathlib import Path

import numpy as np
import pytest

import plrvo
from plrvo.accounting.exact import default_cell, on_grid
from plrvo.noise import GridNoise
from plrvo.validate import InvalidArgument

WORK = plrvo.Workload(sample_rate=0.1, steps=6, clip=1.0, dimension=628)


def plan() -> plrvo.Plan:
    return plrvo.Plan.certify(plrvo.Laplace(2.0), WORK, 1e-4)


def test_a_fitted_plan_keeps_its_budget_and_a_given_noise_keeps_its_width() -> None:
    fitted = plrvo.calibrate(plrvo.Laplace(1.0), WORK, 2.0, 1e-4)
    on = on_grid(plrvo.Plan.certify(fitted, WORK, 1e-4, 2.0))
    assert 1.999 < on.bracket.certified <= 2.0
    assert 1 < on.noise.before_rounding.distortion / fitted.distortion < 1.0002
    given, free = plan(), on_grid(plan())
    assert free.noise.before_rounding == given.noise
    assert given.bracket.certified < free.bracket.certified < given.bracket.certified * 1.001


@pytest.mark.parametrize("dimension", [1, 26_010, 774_000_000])
@pytest.mark.parametrize("multiplier", [0.5, 20.0])
def test_the_default_grid_is_fine_and_hardly_lengthens_gradients(dimension: int, multiplier: float) -> None:
    work = plrvo.Workload(0.01, 300, 0.3, dimension)
    noise = plrvo.Gaussian(multiplier * 0.3)
    cell = default_cell(noise, work)
    assert np.log2(cell) % 1 == 0
    assert cell <= noise.sigma * 2.0**-20
    assert GridNoise(noise, cell).sensitivity(0.3, dimension) <= 0.3 * (1 + 2.0**-13)


def test_a_plan_on_a_grid_is_read_back_and_keeps_its_grid(tmp_path: Path) -> None:
    saved = on_grid(plan(), 2.0**-12)
    saved.save(tmp_path / "plan.json")
    again = plrvo.Plan.load(tmp_path / "plan.json")
    assert again.noise == saved.noise
    assert on_grid(again) is again
    with pytest.raises(InvalidArgument, match="certified with"):
        on_grid(again, 2.0**-13)


@pytest.mark.parametrize("cell", [0.5, 1e-10, -1.0, 0.0], ids=repr)
def test_a_grid_that_is_too_coarse_or_too_fine_is_refused(cell: float) -> None:
    with pytest.raises(InvalidArgument, match=r"^grid="):
        on_grid(plan(), cell)
