"""The scattering transform (Mallat 2012; Oyallon and Mallat 2015): fixed wavelets and moduli, nothing learned.

With Morlet wavelets psi of two scales and eight directions, and a Gaussian window phi of width 4 pixels, a channel x
becomes 81 smaller ones, sampled at every fourth pixel:

    x * phi,    |x * psi_j,l| * phi for j = 0, 1,    ||x * psi_0,l| * psi_1,m| * phi.

They are stable under small deformations, so that a linear model on them does what on pixels takes a deep one, with far
fewer parameters for the noise to hit (Tramer and Boneh 2021). The filters are constants and each image passes alone,
so this costs no privacy. The same holds of `normalised` and `normalised_by_order`.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional

DIRECTIONS = 8
STRIDE = 4  # 2^J for the J = 2 scales
ORDERS = (1, DIRECTIONS, DIRECTIONS, DIRECTIONS**2)  # x * phi; fine waves, coarse waves; waves of waves
PATHS = sum(ORDERS)
# Bandwidth and frequency of the wavelet at the finest scale, in pixels, and how much longer it is across its waves.
WIDTH, FREQUENCY, SLANT = 0.8, 3 * math.pi / 4, 4 / DIRECTIONS
WRAPS = 2  # how often a filter's tails go around the padded image


def scatter(images: Tensor) -> Tensor:
    """Scattering coefficients (N, C, 81, H / 4, W / 4) of images (N, C, H, W), sides rounded down to whole fours."""
    height, width = images.shape[-2:]
    sides = _padded(height), _padded(width)
    wide, high = sides[1] - width, sides[0] - height
    padding = (wide // 2, wide - wide // 2, high // 2, high - high // 2)
    x = functional.pad(images, padding, mode="reflect")
    fine, coarse = _wavelets(*sides)
    spectrum = torch.fft.fft2(x)
    first_fine = torch.stack([_modulus(spectrum, wavelet, 1) for wavelet in fine], dim=2)
    first_coarse = torch.stack([_modulus(spectrum, wavelet, 2) for wavelet in coarse], dim=2)
    again = torch.fft.fft2(first_fine)
    # One direction at a time, which stays in the processor's cache.
    second = torch.stack([_modulus(again, wavelet, 2) for wavelet in coarse], dim=3).flatten(2, 3)
    smooth, halved = _windows(*sides, 1), _windows(*sides, 2)
    parts = [_smoothed(x[:, :, None], smooth), _smoothed(first_fine, smooth)]
    parts += [_smoothed(first_coarse, halved), _smoothed(second, halved)]
    # The outermost samples are those of the padding.
    return torch.cat(parts, dim=2)[..., 1:-1, 1:-1]


def normalised(coefficients: Tensor, groups: int) -> Tensor:
    """Group normalisation (Wu and He 2018) without parameters: mean 0, variance 1 in groups of an image's channels.

    Its constants come from the one image that it scales, so it is data-independent: no privacy is spent on it.
    """
    flat = coefficients.flatten(1, 2)
    return functional.group_norm(flat, groups)


def normalised_by_order(coefficients: Tensor) -> Tensor:
    """(x - mean) / sqrt(variance + 1e-5) over all coefficients of one order and scale of an image, colours together.

    Orders differ in size by more than ten times. Groups of equally many channels put x * phi beside the first waves,
    which it drowns; here no order does that to another. The second order of photographs has a variance below 1e-5, and
    comes out smaller than the others. Constants are the image's own, as those of `normalised`.
    """
    parts = torch.split(coefficients, list(ORDERS), dim=2)
    return torch.cat([functional.layer_norm(part, part.shape[1:]) for part in parts], dim=2).flatten(1, 2)


def _padded(side: int) -> int:
    return ((side + STRIDE) // STRIDE + 1) * STRIDE


def _modulus(spectrum: Tensor, wavelet: Tensor, spacing: int) -> Tensor:
    """|x * psi| at every `spacing`-th pixel, by spectra: where pixels are left out, aliases fall on each other."""
    filtered = torch.view_as_real(spectrum) * wavelet
    if spacing == 2:
        high, wide = (side // 2 for side in spectrum.shape[-2:])
        rows = filtered[..., :high, :, :] + filtered[..., high:, :, :]
        filtered = (rows[..., :wide, :] + rows[..., wide:, :]) / 4
    return torch.fft.ifft2(torch.view_as_complex(filtered)).abs()


def _smoothed(x: Tensor, windows: tuple[Tensor, Tensor]) -> Tensor:
    """The convolution with phi at every fourth pixel: down the columns, then along the rows, as phi is a product."""
    down, across = windows
    return down @ x @ across.T


@lru_cache
def _windows(height: int, width: int, spacing: int) -> tuple[Tensor, Tensor]:
    return _window(height, spacing), _window(width, spacing)


def _window(side: int, spacing: int) -> Tensor:
    """Rows are phi around every fourth pixel, on the grid of every `spacing`-th pixel, round and round."""
    sigma = WIDTH * STRIDE / 2
    centres, pixels = torch.arange(0, side, STRIDE), torch.arange(0, side, spacing)
    turns = torch.arange(-WRAPS, WRAPS + 1) * side
    distance = (centres[:, None, None] - pixels[:, None] + turns).double()
    density = torch.exp(-(distance**2) / (2 * sigma**2)) / (math.sqrt(2 * math.pi) * sigma)
    return (spacing * density.sum(dim=-1)).float()


@lru_cache
def _wavelets(height: int, width: int) -> tuple[Tensor, Tensor]:
    """The spectra, which are real, of the wavelets of both scales: (8, height, width, 2) each.

    Each number stands there twice, for the real and the imaginary part that it multiplies.
    """
    fine, coarse = (
        torch.stack([_morlet(height, width, scale, turn) for turn in range(DIRECTIONS)]) for scale in (0, 1)
    )
    return fine, coarse


def _morlet(height: int, width: int, scale: int, turn: int) -> Tensor:
    """A wave under a Gaussian window, less so much of the window that the mean is zero."""
    sigma, frequency = WIDTH * 2**scale, FREQUENCY / 2**scale
    angle = (DIRECTIONS - DIRECTIONS // 2 - 1 - turn) * math.pi / DIRECTIONS
    wave, window = (_wave(height, width, sigma, xi, angle) for xi in (frequency, 0.0))
    spectrum = torch.fft.fft2(wave - wave.sum() / window.sum() * window).real.float()
    return torch.stack((spectrum, spectrum), dim=-1)


def _wave(height: int, width: int, sigma: float, frequency: float, angle: float) -> Tensor:
    """exp(-|D R u|^2 / 2 sigma^2 + i frequency (R u)_1) over pixels u, R a rotation, D = diag(1, SLANT)."""
    turns = range(-WRAPS, WRAPS + 1)
    total = torch.zeros(height, width, dtype=torch.complex128)
    for down in turns:
        for across in turns:
            rows = torch.arange(height, dtype=torch.float64)[:, None] + down * height
            columns = torch.arange(width, dtype=torch.float64) + across * width
            along = math.cos(angle) * rows + math.sin(angle) * columns
            aside = SLANT * (math.cos(angle) * columns - math.sin(angle) * rows)
            total += torch.exp(torch.complex(-(along**2 + aside**2) / (2 * sigma**2), frequency * along))
    return total * SLANT / (2 * math.pi * sigma**2)
