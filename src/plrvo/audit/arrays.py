"""Files of NumPy from anyone: plain numbers within a known size, never a pickle, and one line for all that is wrong."""

from __future__ import annotations

import io
import math
import zipfile
from pathlib import Path

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from plrvo.validate import InvalidArgument

LARGEST = 1 << 31  # bytes
_ARRAY = "array"  # the name of the one array of a .npy file


def read_arrays(path: Path, argument: str, expected: str) -> dict[str, NDArray[np.generic]]:
    """The arrays of a .npz file by name, or that of a .npy file under the name "array"."""
    try:
        size = path.stat().st_size
        if size > LARGEST:
            raise InvalidArgument(argument, str(path), f"{expected} (of at most {LARGEST:,} bytes)")
        content = path.read_bytes()
    except OSError as error:
        raise InvalidArgument(argument, str(path), f"{expected} ({error.strerror})") from None
    try:
        return _arrays(content)
    except Exception:  # zipfile, struct, zlib and NumPy each have errors of their own for a damaged file
        raise InvalidArgument(argument, str(path), expected) from None


def _arrays(content: bytes) -> dict[str, NDArray[np.generic]]:
    if not content.startswith(b"PK"):
        return {_ARRAY: _array(content)}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = archive.infolist()
        if sum(member.file_size for member in members) > LARGEST:
            raise ValueError("too large once unpacked")
        return {member.filename.removesuffix(".npy"): _array(_member(archive, member)) for member in members}


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """No more than the archive says, whatever is packed."""
    with archive.open(member) as file:
        content = file.read(member.file_size + 1)
    if len(content) != member.file_size:
        raise ValueError("another size than announced")
    return content


def _array(content: bytes) -> NDArray[np.generic]:
    """Checked before it is made: NumPy would take the memory that a header asks for."""
    file = io.BytesIO(content)
    version = npy.read_magic(file)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read(file)
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(content) - file.tell():
        raise ValueError("not as long as its header says")
    array: NDArray[np.generic] = np.load(io.BytesIO(content), allow_pickle=False)
    return array
