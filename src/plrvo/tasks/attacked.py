"""The data sets of the black-box audit, read from files that are already there. Nothing is downloaded or unpickled.

| name | file, in a folder of that name | what is used |
|---|---|---|
| `fashion-mnist` | `train-images-idx3-ubyte.gz`, `train-labels-idx1-ubyte.gz` | classes 0, 1: the first 3,000 of each |
| `location30` | `dataset_location.tgz` | all 5,010 records: 446 binary features, 30 classes |
| `purchase100` | `dataset_purchase.tgz`, or `dataset_purchase` unpacked | the first 6,000 records and 100 features |
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from plrvo.audit.data import Dataset
from plrvo.files import open_regular, read_at_most
from plrvo.tasks.archive import BadArchive, gunzip, untar_ending
from plrvo.tasks.vision.formats import Bytes, idx
from plrvo.validate import InvalidArgument

_LARGEST = 1 << 30  # bytes of a file, packed and unpacked: more is not one of these data sets


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
    text = _content(plain) if plain.is_file() else _member(packed)
    return _labelled("purchase100", text, classes=100, records=records, features=features)


_LOADERS: dict[str, Callable[[Path], Dataset]] = {
    "fashion-mnist": fashion_mnist,
    "location30": location30,
    "purchase100": purchase100,
}
NAMES = tuple(_LOADERS)


def read_idx(path: Path) -> Bytes:
    """A gzipped idx file of bytes."""
    content = _content(path)
    try:
        return idx(gunzip(content, _LARGEST))
    except ValueError as error:
        raise InvalidArgument("data_dir", str(path), f"a gzipped idx file of bytes ({error})") from None


def _member(path: Path) -> bytes:
    """The one file of a tgz, at its top level."""
    expected = "a tgz with one csv file, at its top level"
    try:
        members = untar_ending(gunzip(_content(path), _LARGEST), "")
    except BadArchive as error:
        raise InvalidArgument("data_dir", str(path), f"{expected} ({error})") from None
    if len(members) != 1 or "/" in next(iter(members)):
        raise InvalidArgument("data_dir", str(path), expected)
    return next(iter(members.values()))


def _content(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            return read_at_most(file, _LARGEST)
    except OSError as error:
        raise InvalidArgument("data_dir", str(path), f"a file that can be read ({error})") from None


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
