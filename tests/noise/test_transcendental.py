"""Both libraries keep the relative precision that noise needs, near the ends of its uniform variables as well."""

from __future__ import annotations

import numpy as np
import pytest
import torch  # noqa: F401  (where it is loaded there is a choice)

from plrvo.noise import transcendental

WORST = 4.0  # units in the last place, which vendors promise

UNIFORMS = np.concatenate(
    [np.random.default_rng(1).random(50_000), 2.0 ** -np.arange(1.0, 64), 1 - 2.0 ** -np.arange(1.0, 53)]
)
ANGLES = np.concatenate([np.pi / 2 * UNIFORMS, -np.pi / 2 * UNIFORMS])


@pytest.fixture(params=[False, True], ids=["torch", "numpy"])
def library(request, monkeypatch):
    monkeypatch.setattr(transcendental, "_has_wide_vectors", lambda: request.param)


def units_off(name: str, x: np.ndarray) -> float:
    """The largest error of the function in units of the last place, against 64 bits of precision."""
    exact = getattr(np, name)(x.astype(np.longdouble))
    found = x.copy()
    getattr(transcendental, name)(found)
    return float(np.max(np.abs(found.astype(np.longdouble) - exact) / np.spacing(np.abs(exact).astype(x.dtype))))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("name", "x"), [("log", UNIFORMS), ("sin", ANGLES), ("expm1", 40 * UNIFORMS**2)])
def test_functions_are_right_to_the_last_places(library, name, x, dtype):
    assert units_off(name, np.unique(x.astype(dtype))) < WORST
