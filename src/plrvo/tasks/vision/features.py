"""Features of images from EfficientNet-Lite0, trained on ImageNet: computed once, kept in a cache.

The network is public and each image passes through it alone, so this costs no privacy; only the head that is trained on
the features does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from plrvo.tasks.vision.data import ImageData
from plrvo.tasks.vision.efficientnet import FEATURES, WEIGHTS_SHA256, Lite0Features, load_lite0
from plrvo.tasks.vision.extracted import Extractor, extracted, usual_cache, with_features
from plrvo.validate import InvalidArgument

# On CIFAR-10 (5,000 images, logistic regression) 96, 128, 160 and 224 pixels give 80, 85, 88 and 89 % accuracy, and
# 224 takes twice the time of 160.
DEFAULT_SIZE = 160
# The activations of this many pixels, eight images of 128 x 128, stay in the processor's cache; more are slower.
BATCH_PIXELS = 1 << 17


def feature_data(data: ImageData, cache_dir: Path | None = None, *, size: int = DEFAULT_SIZE) -> ImageData:
    """`data` with features of shape (1280, 1, 1) in place of its images, for the model `efficientnet-lite0-head`.

    The cache is `cache_dir`, by default the folder `features` in this computer's data folder.
    """

    def found(images: Tensor, progress: Callable[[int, int], None]) -> Tensor:
        return features(images, cache_dir or usual_cache(), size=size, progress=progress)[:, :, None, None]

    return with_features(data, found, f"EfficientNet-Lite0 features at {size} pixels")


def features(
    images: Tensor,
    cache_dir: Path | None = None,
    *,
    size: int = DEFAULT_SIZE,
    progress: Callable[[int, int], None] | None = None,
) -> Tensor:
    """Features (N, 1280) of images (N, C, H, W), C one or three, whose pixels lie in [0, 1].

    Images are resized to `size` pixels, a multiple of 32. `cache_dir` and `progress` are those of `extracted`.
    """
    if isinstance(size, bool) or size < 32 or size % 32:
        raise InvalidArgument("size", size, "a multiple of 32")
    network = cache(load_lite0)  # loaded when the first chunk needs it
    extractor = Extractor(f"lite0 {WEIGHTS_SHA256} bicubic {size}", partial(_compute, network, size))
    parts = extracted(images, extractor, cache_dir, progress)
    return torch.cat([torch.empty(0, FEATURES, dtype=torch.float16), *parts]).float()


@torch.inference_mode()
def _compute(network: Callable[[], Lite0Features], size: int, pixels: Tensor) -> Tensor:
    part = torch.empty(len(pixels), FEATURES, dtype=torch.float16)
    step = max(2, BATCH_PIXELS // size**2)
    for start in range(0, len(pixels), step):
        batch = pixels[start : start + step].expand(-1, 3, -1, -1)
        batch = functional.interpolate(batch, size=(size, size), mode="bicubic", align_corners=False).clamp(0, 255)
        part[start : start + step] = network()(batch.contiguous(memory_format=torch.channels_last))
    return part
