import gzip
import io
import tarfile

import numpy as np
import pytest

from plrvo.tasks.archive import BadArchive
from plrvo.tasks.vision import formats
from plrvo.tasks.vision.formats import cifar_binary, idx


def tar_gz(members: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


def test_idx_reads_shape_and_values():
    values = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    header = bytes([0, 0, 8, 3]) + np.array(values.shape, dtype=">u4").tobytes()
    assert np.array_equal(idx(header + values.tobytes()), values)


@pytest.mark.parametrize(
    "content",
    [b"", b"\0\0\x0d\x01\0\0\0\1\0\0\0\0", b"\0\0\x08\x01\0\0\0\3ab", b"\0\0\x08\x01\0\0\0\1ab", b"\0\0\x08\x03\0\0"],
    ids=["empty", "floats", "short", "long", "no header"],
)
def test_idx_refuses_what_does_not_fit(content):
    with pytest.raises(ValueError, match="idx"):
        idx(content)


def test_a_cifar_100_record_is_coarse_label_fine_label_and_three_planes(monkeypatch):
    monkeypatch.setattr(formats, "BATCH", 2)
    rng = np.random.default_rng(0)
    train, test = rng.integers(0, 256, (10, 3074), np.uint8), rng.integers(0, 256, (2, 3074), np.uint8)
    archive = tar_gz({"c/train.bin": train.tobytes(), "c/test.bin": test.tobytes(), "c/fine_label_names.txt": b"apple"})
    train_x, train_y, test_x, test_y = cifar_binary(archive, "c", ("train.bin",), "test.bin", label_bytes=2)
    assert train_x.shape == (10, 3, 32, 32)
    assert np.array_equal(train_y, train[:, 1])
    assert np.array_equal(test_y, test[:, 1])
    assert test_x[1, 2, 31, 30] == test[1, 2 + 2 * 1024 + 31 * 32 + 30]


def test_a_cifar_archive_with_a_batch_too_short_or_too_much_in_it_is_refused(monkeypatch):
    monkeypatch.setattr(formats, "BATCH", 2)
    monkeypatch.setattr(formats, "TAR_OVERHEAD", 20_000)
    whole = {"c/train.bin": bytes(10 * 3073), "c/test.bin": bytes(2 * 3073)}
    with pytest.raises(BadArchive, match="not a file of"):
        cifar_binary(tar_gz(whole | {"c/test.bin": b""}), "c", ("train.bin",), "test.bin", label_bytes=1)
    with pytest.raises(BadArchive, match="unpacks to more"):
        cifar_binary(tar_gz(whole | {"c/more": bytes(50_000)}), "c", ("train.bin",), "test.bin", label_bytes=1)
    with pytest.raises(BadArchive, match="gzip"):
        cifar_binary(gzip.compress(b"x")[:-1], "c", ("train.bin",), "test.bin", label_bytes=1)
