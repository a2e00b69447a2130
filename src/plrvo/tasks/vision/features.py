"""Features of images from EfficientNet-Lite0, trained on ImageNet: computed once, kept in a cache.

The network is public and each image passes through it alone, so this costs no privacy; only the head that is trained on
the features does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from plrvo.tasks.features import Chunk, cached_features
from plrvo.tasks.sources import data_folder
from plrvo.tasks.vision.data import ImageData
from plrvo.tasks.vision.efficientnet import FEATURES, WEIGHTS_SHA256, Lite0Features, load_lite0
from plrvo.validate import InvalidArgument

# On CIFAR-10 (5,000 images, logistic regression) 96, 128, 160 and 224 pixels give 80, 85, 88 and 89 % accuracy, and
# 224 takes twice the time of 160.
DEFAULT_SIZE = 160
# One file of the cache holds this many images: work that was stopped goes on from the last whole file.
CHUNK = 1000
# The activations of this many pixels, eight images of 128 x 128, stay in the processor's cache; more are slower.
BATCH_PIXELS = 1 << 17


def feature_data(
    data: ImageData,
    cache_dir: Path | None = None,
    *,
    size: int = DEFAULT_SIZE,
    progress: Callable[[int, int], None] | None = None,
) -> ImageData:
    """`data` with features of shape (1280, 1, 1) in place of its images, for the model `efficientnet-lite0-head`.

    The cache is `cache_dir`, by default the folder `features` in this computer's data folder. The fingerprint stays
    that of the images, which are what is private.
    """
    mean, std = (torch.tensor(values)[:, None, None] for values in (data.scaling.mean, data.scaling.std))
    images = torch.cat([data.train_x, data.test_x]).mul_(std).add_(mean)
    found = features(images, cache_dir or data_folder() / "features", size=size, progress=progress)
    found = found[:, :, None, None]
    size_of_train = len(data.train_x)
    return replace(
        data,
        train_x=found[:size_of_train],
        test_x=found[size_of_train:],
        source=f"{data.source}, as EfficientNet-Lite0 features at {size} pixels",
    )


def features(
    images: Tensor,
    cache_dir: Path | None = None,
    *,
    size: int = DEFAULT_SIZE,
    progress: Callable[[int, int], None] | None = None,
) -> Tensor:
    """Features (N, 1280) of images (N, C, H, W), C one or three, whose pixels lie in [0, 1].

    Images are resized to `size` pixels, a multiple of 32. With `cache_dir`, features are kept there under a key made of
    the pixels, the size and the weights. They are rounded to half precision, cached or not, so that both are the same
    numbers. `progress` is called with the number of images done and of all images.
    """
    if images.ndim != 4 or images.shape[1] not in (1, 3):
        raise InvalidArgument("images", tuple(images.shape), "the shape (N, 1 or 3, H, W)")
    if isinstance(size, bool) or size < 32 or size % 32:
        raise InvalidArgument("size", size, "a multiple of 32")
    network = cache(load_lite0)  # loaded when the first chunk needs it

    def chunks() -> Iterator[Chunk]:
        for start in range(0, len(images), CHUNK):
            chunk = images[start : start + CHUNK]
            # Pixels were bytes once: rounding takes away what scaling back and forth has added.
            pixels = chunk.mul(255).round_()
            if not bool(((pixels >= 0) & (pixels <= 255)).all()):
                raise InvalidArgument("images", f"values from {chunk.amin():g} to {chunk.amax():g}", "pixels in [0, 1]")
            yield Chunk(_key(pixels, size), len(pixels), partial(_compute, network, pixels, size))

    heard = None if progress is None else partial(_report, progress, len(images))
    parts = cached_features(chunks(), cache_dir, heard)
    return torch.cat([torch.empty(0, FEATURES, dtype=torch.float16), *parts]).float()


def _report(progress: Callable[[int, int], None], total: int, done: int) -> None:
    progress(done, total)


@torch.inference_mode()
def _compute(network: Callable[[], Lite0Features], pixels: Tensor, size: int) -> Tensor:
    part = torch.empty(len(pixels), FEATURES, dtype=torch.float16)
    step = max(2, BATCH_PIXELS // size**2)
    for start in range(0, len(pixels), step):
        batch = pixels[start : start + step].expand(-1, 3, -1, -1)
        batch = functional.interpolate(batch, size=(size, size), mode="bicubic", align_corners=False).clamp(0, 255)
        part[start : start + step] = network()(batch.contiguous(memory_format=torch.channels_last))
    return part


def _key(pixels: Tensor, size: int) -> str:
    digest = hashlib.sha256(f"lite0 {WEIGHTS_SHA256} bicubic {size} {tuple(pixels.shape)};".encode())
    digest.update(pixels.to(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
