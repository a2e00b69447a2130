"""A new noise is one file and one line: everything else asks the object what it can do."""

import ast
import inspect
from pathlib import Path

import numpy as np
import pytest
from tests.noise.catalogue import NOISES, SEEDS, SUM

import plrvo.noise
from plrvo.noise import GridNoise, Noise, Seed, registry

PACKAGE = Path(plrvo.noise.__file__).parents[1]
CONCRETE = {cls.__name__ for cls in (*registry.NOISES.values(), *registry.SEEDS.values())}
each_noise = pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)


def test_every_public_noise_and_seed_is_registered_under_its_kind() -> None:
    for base, known in ((Noise, registry.NOISES), (Seed, registry.SEEDS)):
        public = [cls for cls in vars(plrvo.noise).values() if inspect.isclass(cls) and issubclass(cls, base)]
        assert {cls.kind: cls for cls in public if cls is not base} == known


def test_the_catalogue_of_tests_has_every_noise_and_seed() -> None:
    assert {type(noise) for noise in NOISES.values()} == set(registry.NOISES.values()) - {GridNoise}
    assert {seed.kind for seed in SEEDS.values()} == registry.SEEDS.keys() - {"sum"}  # SUM is one


def test_no_folder_but_noise_looks_at_the_class_of_a_noise() -> None:
    for path in PACKAGE.rglob("*.py"):
        if path.parent.name == "noise":
            continue
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") in ("isinstance", "issubclass"):
                named = {node.id for node in ast.walk(call) if isinstance(node, ast.Name)}
                named |= {node.attr for node in ast.walk(call) if isinstance(node, ast.Attribute)}
                assert not named & CONCRETE, f"{path}:{call.lineno}"


@each_noise
def test_a_shift_is_to_a_noise_what_it_is_to_the_unit_in_units_of_its_width(noise: Noise) -> None:
    unit, width = noise.in_units()
    x, eta = np.array([1e-3, 0.4, 2.0]), 3.0
    assert noise.log_moment(x, eta) == pytest.approx(unit.log_moment(x / width, eta), rel=1e-12)
    assert noise.log_density(x) == pytest.approx(unit.log_density(x / width) - np.log(width), rel=1e-12)


@each_noise
def test_a_standard_deviation_is_told_by_normal_noise_only(noise: Noise) -> None:
    assert (noise.gaussian_sigma is not None) == (noise.kind == "gaussian")
    assert noise.gaussian_sigma in (None, noise.variance**0.5)


@each_noise
def test_a_seed_is_told_by_mixtures_only_and_is_that_of_their_size(noise: Noise) -> None:
    assert (noise.seed is not None) == (noise.kind in ("gamma", "plrv"))
    if noise.seed is not None and np.isfinite(noise.distortion):
        assert noise.seed.inverse_moment(1) == pytest.approx(noise.distortion, rel=1e-12)


@pytest.mark.parametrize("seed", [*SEEDS.values(), SUM], ids=[*SEEDS, "sum"])
def test_draws_of_many_scales_follow_the_seed(seed: Seed) -> None:
    """Mean of 4,000 draws within five standard errors: false alarm 6e-7 each."""
    u = seed.draw_many(4_000, np.random.default_rng(5))
    spread = (seed.second_moment - seed.mean**2) ** 0.5
    assert abs(u.mean() - seed.mean) < 5 * spread / 4_000**0.5
