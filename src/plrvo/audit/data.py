"""The data sets of the black-box audit, read from files that are already there. Nothing is downloaded or unpickled.

| name | file, in a folder of that name | what is used |
|---|---|---|
| `fashion-mnist` | `train-images-idx3-ubyte.gz`, `train-labels-idx1-ubyte.gz` | classes 0, 1: the first 3,000 of each |
| `location30` | `dataset_location.tgz` | all 5,010 records: 446 binary features, 30 classes |
| `purchase100` | `dataset_purchase.tgz`, or `dataset_purchase` unpacked | the first 6,000 records and 100 features |
"""

from __future__ import annotations

import gzip
import math
import os
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from plrvo.files import read_at_most
from plrvo.validate import InvalidArgument

_LARGEST = 1 << 30  # bytes of a file once unpacked: more is not one of these data sets


@dataclass(frozen=True)
class Dataset:
    """Features, one row per example (in [0, 1] for the files here), and labels 0 .. classes - 1."""

    name: str
    x: NDArray[np.float32]
    y: NDArray[np.int64]
    classes: int

    def __len__(self) -> int:
        return len(self.x)


def load(name: str, data_dir: Path | None = None) -> Dataset:
    """The named data set, from `data_dir` or the folder that PLRVO_DATA names."""
    if name not in _LOADERS:
        raise InvalidArgument("data", name, "one of " + ", ".join(_LOADERS))
    if data_dir is None:
        named = os.environ.get("PLRVO_DATA")
        if not named:
            raise InvalidArgument("data_dir", None, "the folder of the data sets (or set PLRVO_DATA)")
        data_dir = Path(named)
    folder = data_dir / name
    if not folder.is_dir():
        raise InvalidArgument("data_dir", str(data_dir), f"a folder that holds {name}/")
    return _LOADERS[name](folder)


def fashion_mnist(folder: Path, classes: tuple[int, ...] = (0, 1), per_class: int = 3000) -> Dataset:
    """The first `per_class` training images of each class."""
    images = read_idx(folder / "train-images-idx3-ubyte.gz")
    labels = read_idx(folder / "train-labels-idx1-ubyte.gz")
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise InvalidArgument("data_dir", str(folder), "images and labels of the same number")
    rows = [np.flatnonzero(labels == label)[:per_class] for label in classes]
    x = images[np.concatenate(rows)].reshape(sum(map(len, rows)), -1).astype(np.float32) / np.float32(255)
    y = np.repeat(np.arange(len(classes)), [len(row) for row in rows])
    return Dataset("fashion-mnist", x, y, len(classes))


def location30(folder: Path) -> Dataset:
    """All records of Location-30."""
    return _labelled("location30", _member(folder / "dataset_location.tgz"), classes=30)


def purchase100(folder: Path, records: int = 6000, features: int = 100) -> Dataset:
    """The first records and features of Purchase-100, for whoever has the file: label 1..100, 600 binary features."""
    plain, packed = folder / "dataset_purchase", folder / "dataset_purchase.tgz"
    if plain.is_file():
        if plain.stat().st_size > _LARGEST:
            raise InvalidArgument("data_dir", str(plain), f"a file of at most {_LARGEST} bytes")
        text = plain.read_bytes()
    else:
        text = _member(packed)
    return _labelled("purchase100", text, classes=100, records=records, features=features)


_LOADERS: dict[str, Callable[[Path], Dataset]] = {
    "fashion-mnist": fashion_mnist,
    "location30": location30,
    "purchase100": purchase100,
}
NAMES = tuple(_LOADERS)


def read_idx(path: Path) -> NDArray[np.uint8]:
    """A gzipped idx file of bytes: two zeros, the type 8, the number of axes, their lengths, the values."""
    expected = "a gzipped idx file of bytes"
    try:
        with gzip.open(path, "rb") as file:
            content = read_at_most(file, _LARGEST)
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidArgument("data_dir", str(path), f"{expected} ({error})") from None
    if len(content) < 4 or content[:3] != b"\0\0\x08":
        raise InvalidArgument("data_dir", str(path), expected)
    axes = content[3]
    shape = tuple(np.frombuffer(content[4 : 4 + 4 * axes], dtype=">u4").tolist())
    values = np.frombuffer(content[4 + 4 * axes :], dtype=np.uint8)
    if axes > 4 or len(shape) != axes or values.size != math.prod(shape):
        raise InvalidArgument("data_dir", str(path), f"{expected}, as long as its header says")
    return values.reshape(shape)


def _member(path: Path) -> bytes:
    """The one regular file of a tgz, read in memory: nothing is written, so no name in it can lead anywhere."""
    expected = "a tgz with one csv file"
    try:
        with tarfile.open(path, "r:gz") as archive:
            members = [member for member in archive if member.isfile()]
            if len(members) != 1 or members[0].size > _LARGEST or Path(members[0].name).name != members[0].name:
                raise InvalidArgument("data_dir", str(path), f"{expected}, at its top level")
            file = archive.extractfile(members[0])
            return file.read() if file is not None else b""
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise InvalidArgument("data_dir", str(path), f"{expected} ({error})") from None


def _labelled(name: str, text: bytes, classes: int, records: int | None = None, features: int | None = None) -> Dataset:
    """Lines of a label, 1 to `classes`, and binary features."""
    expected = "lines of a label and features"
    try:
        lines = text.decode("ascii").replace('"', "").split("\n")[:records]
        if not "".join(lines).strip():
            raise InvalidArgument("data_dir", name, expected)  # which NumPy only warns of
        table = np.loadtxt(lines, delimiter=",", dtype=np.int64, ndmin=2, comments=None)
    except InvalidArgument:
        raise
    except ValueError as error:
        raise InvalidArgument("data_dir", name, f"lines of whole numbers ({error})") from None
    y, x = table[:, 0] - 1, table[:, 1:][:, :features]
    if not x.size:
        raise InvalidArgument("data_dir", name, expected)
    if y.min() < 0 or y.max() >= classes or x.min() < 0 or x.max() > 1:
        raise InvalidArgument("data_dir", name, f"a label from 1 to {classes} and features 0 or 1 in every line")
    return Dataset(name, x.astype(np.float32), y, classes)
