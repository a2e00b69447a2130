"""Small data sets, in memory and as the files that the loaders read."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
from pathlib import Path

import numpy as np

from plrvo.audit.data import Dataset


def toy_data(n: int = 200, features: int = 12, classes: int = 2, seed: int = 0) -> Dataset:
    """Classes with different means; the last feature is always zero, so that a poison can hide there."""
    generator = np.random.default_rng(seed)
    y = np.arange(n) % classes
    x = generator.random((n, features)).astype(np.float32) * 0.5
    x[np.arange(n), y] += 0.5
    x[:, -1] = 0.0
    return Dataset("toy", x, y, classes)


def write_idx(path: Path, values: np.ndarray) -> None:
    header = b"\0\0\x08" + bytes([values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
    path.write_bytes(gzip.compress(header + values.astype(np.uint8).tobytes()))


def write_fashion(folder: Path, n: int = 120, side: int = 6) -> None:
    """Images of three classes, of which the audit uses two."""
    folder.mkdir(parents=True)
    generator = np.random.default_rng(1)
    labels = np.arange(n) % 3
    images = generator.integers(0, 128, (n, side, side))
    images[:, 0, :] += 100 * labels[:, None] // 2
    images[:, -1, -1] = 0
    write_idx(folder / "train-images-idx3-ubyte.gz", images)
    write_idx(folder / "train-labels-idx1-ubyte.gz", labels)


def csv_text(n: int, classes: int, features: int) -> str:
    generator = np.random.default_rng(2)
    rows = generator.integers(0, 2, (n, features))
    return "".join(f'"{1 + i % classes}",' + ",".join(map(str, row)) + "\n" for i, row in enumerate(rows))


def write_tgz(path: Path, members: dict[str, str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, text in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
