"""Archives that were made to do harm: bombs, links, names that lead elsewhere, sizes that are not true."""

import gzip
import io
import tarfile
import tracemalloc
import zipfile

import numpy as np
import pytest
from checks.fuzz.readers import READERS, tar

from plrvo.audit.arrays import read_arrays
from plrvo.tasks.archive import BadArchive, gunzip, untar
from plrvo.tasks.attacked import read_idx
from plrvo.validate import InvalidArgument

MEGABYTE = 1 << 20


def peak_of(action) -> int:
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "content",
    [
        tar("../evil", b"plrvo"),
        tar("/etc/evil", b"plrvo"),
        tar("a/../../evil", b"plrvo"),
        tar("a\\..\\evil", b"plrvo"),
        tar("C:evil", b"plrvo"),
        tar("a/b", b"", tarfile.SYMTYPE, "/etc/passwd"),
        tar("a/b", b"", tarfile.LNKTYPE, "/etc/passwd"),
        tar("a/b", b"", tarfile.CHRTYPE),
        tar("a/b", b"", tarfile.FIFOTYPE),
        tar("a/b", b"plrvo", size=8**11 - 1),
        tar("a/b", b"longer than five"),
    ],
    ids=["up", "absolute", "up again", "backslash", "drive", "symlink", "link", "device", "fifo", "huge", "longer"],
)
def test_a_hostile_tar_is_refused_as_a_whole(content):
    with pytest.raises(BadArchive):
        untar(content, {"a/b": 5})


def test_a_link_to_a_good_member_is_no_member():
    linked = tar("a/c", b"plrvo")[:-1024] + tar("a/b", b"", tarfile.SYMTYPE, "c")
    with pytest.raises(BadArchive):
        untar(linked, {"a/b": 5})


def test_bombs_are_not_unpacked(tmp_path):
    bomb = gzip.compress(bytes(64 * MEGABYTE))

    def unpack() -> None:
        with pytest.raises(BadArchive):
            gunzip(bomb, MEGABYTE)

    assert peak_of(unpack) < 8 * MEGABYTE
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("scores.npy", bytes(64 * MEGABYTE))
    content = bytearray(path.read_bytes())
    true, false = (64 * MEGABYTE).to_bytes(4, "little"), (100).to_bytes(4, "little")
    path.write_bytes(content.replace(true, false))  # says that it holds a hundred bytes

    def load() -> None:
        with pytest.raises(InvalidArgument):
            read_arrays(path, "state", "a state")

    assert peak_of(load) < 8 * MEGABYTE


@pytest.mark.parametrize("shape", [(1 << 40,), (1 << 20, 1 << 20), (-1,), (1 << 62, 4)])
def test_a_header_that_asks_for_more_than_there_is_takes_no_memory(tmp_path, shape):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": shape})
    path = tmp_path / "canary.npy"
    path.write_bytes(file.getvalue() + bytes(8))

    def load() -> None:
        with pytest.raises(InvalidArgument):
            read_arrays(path, "canary", "a canary")

    assert peak_of(load) < 8 * MEGABYTE


def test_an_idx_header_that_lies_takes_no_memory(tmp_path):
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(b"\0\0\x08\x03" + b"\xff" * 12 + b"few"))

    def load() -> None:
        with pytest.raises(InvalidArgument):
            read_idx(path)

    assert peak_of(load) < 8 * MEGABYTE


@pytest.mark.parametrize("header", [b"\xc8" + b"\0\0\0\x01" * 200 + b"x", b"\x04" + b"\0\1\0\0" * 4])
def test_an_idx_file_of_too_many_axes_or_a_product_beyond_64_bits_is_refused(tmp_path, header):
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(b"\0\0\x08" + header))
    with pytest.raises(InvalidArgument):
        read_idx(path)


@pytest.mark.parametrize("lines", [b"", b"\n", b"1\n2\n", b"#\n", b'""\n'])
def test_lines_without_features_are_no_data(tmp_path, lines):
    """Found by the fuzzer."""
    assert not READERS["location30"].accepts(gzip.compress(tar("bangkok", lines)), tmp_path)


@pytest.mark.parametrize("dtype", ["O", "V8", "M8[s]", "c16", "U3"])
def test_arrays_of_anything_but_numbers_are_no_canary(tmp_path, dtype):
    file = io.BytesIO()
    np.save(file, np.zeros(2, dtype=dtype), allow_pickle=True)
    assert not READERS["canary"].accepts(file.getvalue(), tmp_path)
