"""Scattering features of images, normalised image by image: what the model `scattering` is trained on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from plrvo.tasks.vision.data import ImageData
from plrvo.tasks.vision.extracted import Extractor, bar, check_images, extracted, usual_cache, with_features
from plrvo.tasks.vision.recipes import CHOSEN_BY_CHANNELS
from plrvo.tasks.vision.scattering import normalised, normalised_by_order, scatter
from plrvo.tasks.vision.views import view_of
from plrvo.validate import InvalidArgument

# So many channels of images at once: what they take stays near the processor.
BATCH_CHANNELS = 96
VERSION = 1  # of the coefficients: another one where they change


def features_of(images: Tensor, cache_dir: Path | None = None, *, progress: bool = True) -> Tensor:
    """Scattering features of your own images, normalised as `plrvo train` does: what a linear layer is trained on.

    Images (N, C, H, W), C one or three, with pixels in [0, 1] (rounded to 255ths), become (N, C x 81, H / 4, W / 4).
    Grey ones are normalised in 27 groups of channels, those in colour by order. Each image passes alone, so this costs
    no privacy. With `cache_dir` features are kept there, by the thousand, under keys made of the pixels: as secret as
    the images. `progress` shows a bar.

    >>> features_of(torch.zeros(2, 1, 28, 28), progress=False).shape
    torch.Size([2, 81, 7, 7])
    """
    check_images(images)
    if not images.is_floating_point():
        raise InvalidArgument("images", images.dtype, "pixels in [0, 1]: images.float() / 255")
    images = images.float()
    groups = CHOSEN_BY_CHANNELS[images.shape[1]].groups
    shown = bar("scattering features", len(images)) if progress else nullcontext(lambda done, total: None)
    with shown as heard:
        return _features(images, heard, groups, cache_dir).float()


def scattering_data(data: ImageData, groups: int | None, views: int = 1, cache_dir: Path | None = None) -> ImageData:
    """`data` with normalised coefficients (C x 81, H / 4, W / 4), in half precision, in the place of its images.

    `groups` are those of channels that are normalised together, None for the orders. With several views the training
    images have (views, C x 81, H / 4, W / 4). The cache holds coefficients before the normalisation: another one takes
    seconds.
    """
    features = partial(_features, groups=groups, cache_dir=cache_dir or usual_cache())
    name = "scattering features, normalised " + ("by order" if groups is None else f"in {groups} groups")
    found = with_features(data, features, name)
    if views == 1:
        return found
    others = (view_of(data.train_x, k, data.name) for k in range(1, views))
    more = [with_features(replace(data, train_x=x, test_x=data.test_x[:0]), features, name).train_x for x in others]
    return replace(found, train_x=torch.stack([found.train_x, *more], dim=1))


def _features(
    images: Tensor, progress: Callable[[int, int], None], groups: int | None, cache_dir: Path | None
) -> Tensor:
    parts = extracted(images, Extractor(f"scattering {VERSION}", coefficients), cache_dir, progress)
    scaled = normalised_by_order if groups is None else partial(normalised, groups=groups)
    return torch.cat([scaled(part.float()).half() for part in parts])


@torch.inference_mode()
def coefficients(pixels: Tensor) -> Tensor:
    """Of pixels 0 to 255, shape (N, C, 81, H / 4, W / 4)."""
    at_once = max(1, BATCH_CHANNELS // pixels.shape[1])
    return torch.cat([scatter(part / 255).half() for part in torch.split(pixels, at_once)])
