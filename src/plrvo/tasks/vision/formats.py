"""The three ways in which image data sets are stored, read as bytes: images (N, C, H, W) and labels (N,)."""

from __future__ import annotations

import io
import math

import numpy as np
from numpy.typing import NDArray

from plrvo.tasks.archive import gunzip, untar
from plrvo.validate import InvalidArgument, installing

Bytes = NDArray[np.uint8]

SIDE = 32
PIXELS = 3 * SIDE * SIDE
BATCH = 10_000
# A tar archive pads every member to 512 bytes and ends in zeros; the two small text files fit in this as well.
TAR_OVERHEAD = 1 << 20


def idx(content: bytes) -> Bytes:
    """The format of MNIST: two zero bytes, 8 for unsigned bytes, the number of dimensions, each of them, the values.

    >>> idx(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9])).tolist()
    [7, 9]
    """
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise ValueError("not an idx file of bytes")
    dimensions = content[3]
    header = 4 + 4 * dimensions
    shape = tuple(int.from_bytes(content[start : start + 4], "big") for start in range(4, header, 4))
    if len(content) != header + math.prod(shape):
        raise ValueError("an idx file whose length does not fit its header")
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)


def cifar_binary(archive: bytes, folder: str, train: tuple[str, ...], test: str, label_bytes: int) -> tuple[Bytes, ...]:
    """Train images and labels, test images and labels of the binary version of CIFAR, a tar.gz.

    A record is `label_bytes` labels, of which the last is the one to predict, and the red, green and blue planes.
    """
    record = label_bytes + PIXELS
    rows = {f"{folder}/{name}": 5 * BATCH // len(train) for name in train} | {f"{folder}/{test}": BATCH}
    sizes = {name: record * count for name, count in rows.items()}
    members = untar(gunzip(archive, sum(sizes.values()) + TAR_OVERHEAD), sizes)
    records = {name: np.frombuffer(content, np.uint8).reshape(-1, record) for name, content in members.items()}
    parts = [records[f"{folder}/{name}"] for name in train]
    arrays: list[Bytes] = []
    for rows_of in (np.concatenate(parts), records[f"{folder}/{test}"]):
        arrays += [rows_of[:, label_bytes:].reshape(-1, 3, SIDE, SIDE), rows_of[:, label_bytes - 1]]
    return tuple(arrays)


def mosaic(content: bytes) -> Bytes:
    """The images of one lossless WebP file of 100 x 100 tiles, row by row."""
    try:
        from PIL import Image
    except ImportError:
        raise InvalidArgument(
            "data_dir", "cifar-10/*.webp", f"Pillow, which reads these files: {installing('vision')}"
        ) from None
    with Image.open(io.BytesIO(content), formats=["WEBP"]) as image:
        tiles = np.asarray(image.convert("RGB")).reshape(100, SIDE, 100, SIDE, 3)
    return tiles.transpose(0, 2, 4, 1, 3).reshape(-1, 3, SIDE, SIDE)
