"""Image data sets as tensors, ready for the models.

`digits` comes with scikit-learn and needs no file; the others are found as `plrvo.tasks.sources` says.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from plrvo.tasks.sources import Found, find
from plrvo.tasks.vision import catalog
from plrvo.tasks.vision.catalog import IMAGE_SETS, Scaling
from plrvo.tasks.vision.formats import Bytes, cifar_binary, idx, mosaic
from plrvo.validate import InvalidArgument

NAMES = ("digits", *IMAGE_SETS)


@dataclass(frozen=True, eq=False)
class ImageData:
    """Scaled images (N, C, H, W) as float32, labels as int64, and what a receipt says of them.

    `source` tells a person where the data came from and holds no path. `fingerprint` is the SHA-256 of the pixels and
    labels before scaling: the same data in another file format has the same one.
    """

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    classes: int
    name: str
    source: str
    fingerprint: str
    scaling: Scaling

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of one image: the `data_shape` of `build_model`."""
        channels, height, width = self.train_x.shape[1:]
        return channels, height, width


def load_images(name: str, data_dir: Path | None = None) -> ImageData:
    """The data set called `name`, one of `NAMES`."""
    if name == "digits":
        return _digits()
    if name not in IMAGE_SETS:
        raise InvalidArgument("name", name, f"one of {', '.join(NAMES)}")
    image_set = IMAGE_SETS[name]
    found = find(image_set.files, data_dir)
    return _image_data(_arrays(name, found), 255, image_set.classes, name, found.source, image_set.scaling)


def _arrays(name: str, found: Found) -> tuple[Bytes, ...]:
    """Train images, train labels, test images, test labels."""
    contents = found.contents
    if found.layout == "idx":
        train_x, train_y = idx(contents[catalog.TRAIN_IMAGES]), idx(contents[catalog.TRAIN_LABELS])
        test_x, test_y = idx(contents[catalog.TEST_IMAGES]), idx(contents[catalog.TEST_LABELS])
        return train_x[:, None], train_y, test_x[:, None], test_y
    if found.layout == "mosaics":
        batches = [mosaic(contents[f"data_batch_{i}.webp"]) for i in range(1, 6)]
        with np.load(io.BytesIO(contents[catalog.MOSAIC_LABELS]), allow_pickle=False) as labels:
            return np.concatenate(batches), labels["train"], mosaic(contents["test_batch.webp"]), labels["test"]
    if name == "cifar-10":
        batches_bin = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
        return cifar_binary(
            contents[catalog.CIFAR_10_ARCHIVE], "cifar-10-batches-bin", batches_bin, "test_batch.bin", 1
        )
    return cifar_binary(contents[catalog.CIFAR_100_ARCHIVE], "cifar-100-binary", ("train.bin",), "test.bin", 2)


def _digits() -> ImageData:
    """1,797 images of 8 x 8 pixels with values 0 to 16. Of each class every fifth, in their order, is for testing."""
    import sklearn
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    pixels = images.astype(np.uint8).reshape(-1, 1, 8, 8)
    labels = labels.astype(np.uint8)
    test = np.zeros(len(labels), dtype=bool)
    for label in range(10):
        test[np.flatnonzero(labels == label)[4::5]] = True
    arrays = pixels[~test], labels[~test], pixels[test], labels[test]
    return _image_data(arrays, 16, 10, "digits", f"scikit-learn {sklearn.__version__}", catalog.DIGITS)


def _image_data(
    arrays: tuple[Bytes, ...], top: int, classes: int, name: str, source: str, scaling: Scaling
) -> ImageData:
    train_x, train_y, test_x, test_y = arrays
    return ImageData(
        train_x=_scaled(train_x, top, scaling),
        train_y=torch.from_numpy(train_y.astype(np.int64)),
        test_x=_scaled(test_x, top, scaling),
        test_y=torch.from_numpy(test_y.astype(np.int64)),
        classes=classes,
        name=name,
        source=source,
        fingerprint=fingerprint(arrays),
        scaling=scaling,
    )


def _scaled(pixels: Bytes, top: int, scaling: Scaling) -> Tensor:
    mean = torch.tensor(scaling.mean)[:, None, None]
    std = torch.tensor(scaling.std)[:, None, None]
    return torch.from_numpy(pixels.astype(np.float32)).div_(top).sub_(mean).div_(std)


def fingerprint(arrays: Iterable[Bytes]) -> str:
    """SHA-256 over the shape and the bytes of each array in turn.

    >>> fingerprint([np.array([[1, 2]], dtype=np.uint8)]) == fingerprint([np.array([[1], [2]], dtype=np.uint8)])
    False
    """
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.shape};".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
