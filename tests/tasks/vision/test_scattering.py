"""Coefficients against the definition, computed pixel by pixel without a Fourier transform."""

import cmath
import math

import numpy as np
import pytest
import torch

from plrvo.tasks.vision.scattering import DIRECTIONS, PATHS, normalised, normalised_by_order, scatter

SIDE = 8
PADDED = 16  # four pixels of reflection on each side


def wavelet(scale: int, turn: int) -> np.ndarray:
    """Values on the padded square, which is a torus: Morlet, mean zero."""
    sigma, xi, slant = 0.8 * 2**scale, 3 * math.pi / 4 / 2**scale, 0.5
    angle = (3 - turn) * math.pi / DIRECTIONS
    wave, window = np.zeros((PADDED, PADDED), complex), np.zeros((PADDED, PADDED))
    for row in range(-2 * PADDED, 3 * PADDED):
        for column in range(-2 * PADDED, 3 * PADDED):
            along = row * math.cos(angle) + column * math.sin(angle)
            aside = slant * (column * math.cos(angle) - row * math.sin(angle))
            height = math.exp(-(along**2 + aside**2) / (2 * sigma**2)) * slant / (2 * math.pi * sigma**2)
            window[row % PADDED, column % PADDED] += height
            wave[row % PADDED, column % PADDED] += height * cmath.exp(1j * xi * along)
    return wave - wave.sum() / window.sum() * window


def convolved(x: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    shifted = [kernel[a, b] * np.roll(x, (a, b), (0, 1)) for a in range(PADDED) for b in range(PADDED)]
    return np.sum(shifted, axis=0)


def smoothed(x: np.ndarray) -> np.ndarray:
    """phi at every fourth pixel, from the pixels that x has."""
    spacing = PADDED // len(x)
    out = np.zeros((PADDED // 4, PADDED // 4))
    turns = np.arange(-2, 3) * PADDED

    def bell(distance: float) -> float:
        return float(np.sum(np.exp(-((distance + turns) ** 2) / (2 * 1.6**2)) / (math.sqrt(2 * math.pi) * 1.6)))

    for i, j in np.ndindex(out.shape):
        for a, b in np.ndindex(x.shape):
            out[i, j] += spacing**2 * x[a, b] * bell(4 * i - spacing * a) * bell(4 * j - spacing * b)
    return out[1:-1, 1:-1]


def test_coefficients_are_those_of_the_definition():
    image = np.random.default_rng(0).random((SIDE, SIDE))
    x = np.pad(image, 4, mode="reflect")
    fine, coarse = [wavelet(0, 1), wavelet(0, 6)], [wavelet(1, 2), wavelet(1, 7)]
    found = scatter(torch.from_numpy(image).float()[None, None])[0, 0].numpy()
    assert found.shape == (PATHS, 2, 2)
    first = [np.abs(convolved(x, psi)) for psi in fine]
    expected = {
        0: smoothed(x),
        1 + 1: smoothed(first[0]),
        1 + 6: smoothed(first[1]),
        1 + DIRECTIONS + 2: smoothed(np.abs(convolved(x, coarse[0]))[::2, ::2]),
        1 + 2 * DIRECTIONS + 1 * DIRECTIONS + 7: smoothed(np.abs(convolved(first[0], coarse[1]))[::2, ::2]),
        1 + 2 * DIRECTIONS + 6 * DIRECTIONS + 2: smoothed(np.abs(convolved(first[1], coarse[0]))[::2, ::2]),
    }
    for path, values in expected.items():
        assert found[path] == pytest.approx(values, abs=2e-6), path


@pytest.mark.parametrize(("shape", "out"), [((1, 28, 28), (1, 81, 7, 7)), ((3, 32, 32), (3, 81, 8, 8))])
def test_shapes(shape, out):
    assert scatter(torch.zeros(2, *shape)).shape == (2, *out)


def test_each_image_has_its_own_coefficients():
    images = torch.rand(3, 1, 28, 28, generator=torch.Generator().manual_seed(1))
    changed = images.clone()
    changed[1] = 1 - changed[1]
    assert torch.equal(scatter(images)[[0, 2]], scatter(changed)[[0, 2]])
    assert torch.allclose(scatter(images)[1:2], scatter(images[1:2]), atol=1e-6)


def test_a_plain_image_has_no_waves():
    found = scatter(torch.full((1, 1, 28, 28), 0.7))
    assert torch.allclose(found[:, :, 0], torch.tensor(0.7), atol=1e-3)
    assert found[:, :, 1:].abs().max() < 1e-5


def test_normalisation_is_by_image_and_group():
    raw = torch.rand(4, 3, 81, 2, 2, generator=torch.Generator().manual_seed(2)) * 5 + 1
    found = normalised(raw, 27)
    assert found.shape == (4, 243, 2, 2)
    groups = found.view(4, 27, -1)
    assert torch.allclose(groups.mean(dim=2), torch.zeros(4, 27), atol=1e-5)
    assert torch.allclose(groups.var(dim=2, unbiased=False), torch.ones(4, 27), atol=1e-3)
    assert torch.allclose(normalised(raw[2:3], 27), found[2:3], atol=1e-6)


def test_normalisation_by_order_is_that_of_each_order_of_one_image():
    sizes = torch.cat([torch.full((n,), s) for n, s in ((1, 0.6), (8, 0.04), (8, 0.05), (64, 0.005))])[:, None, None]
    raw = torch.rand(4, 3, 81, 2, 2, generator=torch.Generator().manual_seed(2)) * sizes
    found = normalised_by_order(raw)
    assert found.shape == (4, 243, 2, 2)
    one, image = found[2].view(3, 81, 2, 2).double().numpy(), raw[2].double().numpy()
    for paths in (slice(0, 1), slice(1, 9), slice(9, 17), slice(17, 81)):
        part = image[:, paths]
        assert one[:, paths] == pytest.approx((part - part.mean()) / np.sqrt(part.var() + 1e-5), abs=1e-4)
    changed = raw.clone()
    changed[1] = 1 - changed[1]
    assert torch.equal(normalised_by_order(changed)[[0, 2, 3]], found[[0, 2, 3]])  # an image has its own constants
