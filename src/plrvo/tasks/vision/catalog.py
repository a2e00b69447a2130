"""The image data sets: their files, checksums, homes, and the constants that scale their pixels.

Checksums of the idx files are those of the uncompressed content, which every mirror shares. The mosaics of CIFAR-10
hold the pixels of the binary version, losslessly: tests rebuild its published checksums from them.
"""

from __future__ import annotations

from dataclasses import dataclass

from plrvo.tasks.sources import DataFile, DataSet, Layout


@dataclass(frozen=True)
class Scaling:
    """Pixels p in [0, 1] enter the models as (p - mean) / std, by channel. Constants, never computed from the data."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


# The paper's code scales by these; it gives none for Fashion-MNIST, which therefore shares MNIST's.
GREY = Scaling((0.1307,), (0.3081,))
COLOUR = Scaling((0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.261))
DIGITS = Scaling((0.5,), (0.5,))


@dataclass(frozen=True)
class ImageSet:
    """A data set of images, its classes and its scaling."""

    files: DataSet
    classes: int
    scaling: Scaling


TRAIN_IMAGES, TRAIN_LABELS = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"
TEST_IMAGES, TEST_LABELS = "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"
CIFAR_10_ARCHIVE, CIFAR_100_ARCHIVE = "cifar-10-binary.tar.gz", "cifar-100-binary.tar.gz"
MOSAIC_LABELS = "labels.npz"


def _idx(checksums: tuple[str, str, str, str], homes: tuple[str, ...]) -> tuple[Layout, ...]:
    sizes = {TRAIN_IMAGES: 47_040_016, TRAIN_LABELS: 60_008, TEST_IMAGES: 7_840_016, TEST_LABELS: 10_008}
    files = (
        DataFile(name, size, sha256, gzip=True) for (name, size), sha256 in zip(sizes.items(), checksums, strict=True)
    )
    return (Layout("idx", tuple(files), homes),)


def _binary(archive: DataFile) -> Layout:
    return Layout("binary", (archive,), ("https://www.cs.toronto.edu/~kriz/",))


MNIST = DataSet(
    "mnist",
    _idx(
        (
            "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
            "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
            "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
            "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
        ),
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
    ),
)
FASHION_MNIST = DataSet(
    "fashion-mnist",
    _idx(
        (
            "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
            "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
            "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
            "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        ),
        ("https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",),
    ),
)
CIFAR_10 = DataSet(
    "cifar-10",
    (
        Layout(
            "mosaics",
            (
                DataFile(
                    "data_batch_1.webp", 17_112_262, "7d659541ed95237ea4e04e2d33389e1104c1953861748ff53d660d6c8d6654f9"
                ),
                DataFile(
                    "data_batch_2.webp", 17_153_410, "51af9519a93c50876c6e10004965e1e5959387da1f8d7b96f16f7ca26219af79"
                ),
                DataFile(
                    "data_batch_3.webp", 17_163_420, "3c724790d972e645054d7cc995e1535ee05064097410e5a14c537c7145a70db8"
                ),
                DataFile(
                    "data_batch_4.webp", 17_134_122, "7e1e0d309a2ac32bb67831184e997f88a9e74324a01f95cc481819c6955db2b3"
                ),
                DataFile(
                    "data_batch_5.webp", 17_114_608, "1d3f867bf1d6f975111042b2a5f839fd80c93de1c03f75c667d7840bd55da85c"
                ),
                DataFile(
                    "test_batch.webp", 17_144_124, "df199aec7516a004a23ad02816a63a368d2208347ff1c4011eaa91a2503201fc"
                ),
                DataFile(MOSAIC_LABELS, 30_265, "100457827cb30b2869dbdce3761c5279714820de9a8c6fa4d0dcc7cbc3037527"),
            ),
        ),
        _binary(
            DataFile(CIFAR_10_ARCHIVE, 170_052_171, "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd")
        ),
    ),
)
CIFAR_100 = DataSet(
    "cifar-100",
    (
        _binary(
            DataFile(CIFAR_100_ARCHIVE, 168_513_733, "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec")
        ),
    ),
)

IMAGE_SETS = {
    image_set.files.name: image_set
    for image_set in (
        ImageSet(MNIST, 10, GREY),
        ImageSet(FASHION_MNIST, 10, GREY),
        ImageSet(CIFAR_10, 10, COLOUR),
        ImageSet(CIFAR_100, 100, COLOUR),
    )
}


def scaling_of(shape: tuple[int, int, int]) -> Scaling:
    """How images of this shape are scaled: the data sets above that share a shape share a scaling."""
    scalings = {(1, 8, 8): DIGITS, (1, 28, 28): GREY, (3, 32, 32): COLOUR}
    return scalings.get(shape, Scaling((0.0,) * shape[0], (1.0,) * shape[0]))
