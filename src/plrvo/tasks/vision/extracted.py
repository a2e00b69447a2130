"""Features in the place of images: computed once by a fixed function of each image, kept in a cache.

The function is public and sees one image at a time, so this costs no privacy; only training on the features does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import Progress
from torch import Tensor

from plrvo.tasks.features import Chunk, cached_features
from plrvo.tasks.sources import data_folder
from plrvo.tasks.vision.data import ImageData
from plrvo.validate import InvalidArgument

# One file of the cache holds this many images: work that was stopped goes on from the last whole file.
CHUNK = 1000


@dataclass(frozen=True)
class Extractor:
    """What makes features of images.

    `key` names all that features depend on beside the pixels. `compute` takes pixels 0 to 255 of shape (N, C, H, W) and
    gives half precision, which is what is kept: cached or not, features are the same numbers.
    """

    key: str
    compute: Callable[[Tensor], Tensor]


def extracted(
    images: Tensor,
    extractor: Extractor,
    cache_dir: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Tensor]:
    """Features of images (N, C, H, W), C one or three, whose pixels lie in [0, 1], a chunk at a time.

    With `cache_dir`, they are kept there under a key made of the pixels and the extractor. `progress` is called with
    the number of images done and of all images.
    """
    check_images(images)

    def chunks() -> Iterator[Chunk]:
        for start in range(0, len(images), CHUNK):
            chunk = images[start : start + CHUNK]
            # Pixels were bytes once: rounding takes away what scaling back and forth has added.
            pixels = chunk.mul(255).round_()
            if not bool(((pixels >= 0) & (pixels <= 255)).all()):
                raise InvalidArgument("images", f"values from {chunk.amin():g} to {chunk.amax():g}", "pixels in [0, 1]")
            yield Chunk(_key(pixels, extractor.key), len(pixels), partial(extractor.compute, pixels))

    heard = None if progress is None else partial(_report, progress, len(images))
    return cached_features(chunks(), len(images), cache_dir, heard)


def check_images(images: Tensor) -> None:
    """Images stand in a tensor (N, 1 or 3, H, W)."""
    if images.ndim != 4 or images.shape[1] not in (1, 3):
        raise InvalidArgument("images", tuple(images.shape), "the shape (N, 1 or 3, H, W)")


def with_features(
    data: ImageData, features: Callable[[Tensor, Callable[[int, int], None]], Tensor], name: str
) -> ImageData:
    """`data` with what `features(images, progress)` makes of its images, and a bar that shows the progress.

    The fingerprint stays that of the images, which are what is private.
    """
    mean, std = (torch.tensor(values)[:, None, None] for values in (data.scaling.mean, data.scaling.std))
    images = torch.cat([data.train_x, data.test_x]).mul_(std).add_(mean)
    with bar(name, len(images)) as progress:
        found = features(images, progress)
    train = len(data.train_x)
    return replace(data, train_x=found[:train], test_x=found[train:], source=f"{data.source}, as {name}")


@contextmanager
def bar(name: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """A bar on the terminal, and the `progress` that moves it."""
    with Progress(console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(name, total=total)
        yield lambda done, _: shown.update(task, completed=done)


def usual_cache() -> Path:
    """The folder `features` in this computer's data folder."""
    return data_folder() / "features"


def _report(progress: Callable[[int, int], None], total: int, done: int) -> None:
    progress(done, total)


def _key(pixels: Tensor, depends_on: str) -> str:
    digest = hashlib.sha256(f"{depends_on} {tuple(pixels.shape)};".encode())
    digest.update(pixels.to(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
