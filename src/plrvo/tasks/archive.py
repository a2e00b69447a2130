"""Compressed files and archives, read in memory within known limits: nothing is extracted to disk or unpickled."""

from __future__ import annotations

import errno
import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath

from plrvo.files import read_at_most

# No archive of a data set here has more than a handful of members.
MAX_MEMBERS = 10_000


class BadArchive(ValueError):
    """What is wrong with the file, in words that fit after its name."""


def gunzip(content: bytes, limit: int) -> bytes:
    """What is inside a gzip file; refused when that is more than `limit` bytes, before they are all unpacked.

    >>> gunzip(gzip.compress(b"plrvo"), limit=5)
    b'plrvo'
    >>> gunzip(gzip.compress(bytes(1000)), limit=5)
    Traceback (most recent call last):
        ...
    plrvo.tasks.archive.BadArchive: unpacks to more than 5 bytes
    """
    if not content:  # which Python takes for a whole file of nothing
        raise BadArchive("is empty")
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            return read_at_most(file, limit)
    except (OSError, EOFError, zlib.error) as error:
        too_long = isinstance(error, OSError) and error.errno == errno.EFBIG
        raise BadArchive(f"unpacks to more than {limit:,} bytes" if too_long else "is not a whole gzip file") from None


def unxz(content: bytes, limit: int) -> bytes:
    """What is inside an xz file; refused when that is more than `limit` bytes, before they are all unpacked.

    >>> unxz(lzma.compress(b"plrvo"), limit=5)
    b'plrvo'
    """
    decompressor = lzma.LZMADecompressor(lzma.FORMAT_XZ)
    try:
        unpacked = decompressor.decompress(content, max_length=limit + 1)
    except lzma.LZMAError:
        raise BadArchive("is not a whole xz file") from None
    if len(unpacked) > limit:
        raise BadArchive(f"unpacks to more than {limit:,} bytes")
    if not decompressor.eof:
        raise BadArchive("is not a whole xz file")
    return unpacked


def unzip(content: bytes, sizes: Mapping[str, int]) -> dict[str, bytes]:
    """The members named in `sizes`, each of exactly that many bytes, of a zip archive; refused as `untar` refuses."""
    members: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            for count, member in enumerate(archive.infolist()):
                name = _safe(member.filename, count)
                size = sizes.get(name)
                if size is None:
                    continue
                with archive.open(member) as file:
                    members[name] = file.read(size + 1)
                if len(members[name]) != size:
                    raise BadArchive(f"has a member {name!r} that is not a file of {size:,} bytes")
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError):
        raise BadArchive("is not a whole zip archive without a password") from None
    return _all_of(members, sizes)


def untar(content: bytes, sizes: Mapping[str, int]) -> dict[str, bytes]:
    """The members named in `sizes`, each of exactly that many bytes, of an uncompressed tar archive.

    An archive in which any name leaves the folder it would be extracted to is refused as a whole, whether or not that
    member is asked for: somebody made it for a purpose that is not ours.
    """
    members: dict[str, bytes] = {}
    for name, size, inside in _tar_files(content, lambda name: name in sizes):
        if inside is None or size != sizes[name]:
            raise BadArchive(f"has a member {name!r} that is not a file of {sizes[name]:,} bytes")
        members[name] = inside
    return _all_of(members, sizes)


def untar_ending(content: bytes, ending: str) -> dict[str, bytes]:
    """All files whose name ends so, in the order of their names; links and other kinds of members are left alone."""
    found = _tar_files(content, lambda name: name.endswith(ending))
    return dict(sorted((name, inside) for name, _, inside in found if inside is not None))


def _tar_files(content: bytes, wanted: Callable[[str], bool]) -> Iterator[tuple[str, int, bytes | None]]:
    """Name, size and content of each wanted member; None for what is no file, or claims more bytes than there are."""
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            for count, member in enumerate(archive):
                name = _safe(member.name, count)
                if wanted(name):
                    file = archive.extractfile(member) if member.isreg() and member.size <= len(content) else None
                    yield name, member.size, None if file is None else file.read()
    except tarfile.TarError:
        raise BadArchive("is not a whole tar archive") from None


def _safe(name: str, count: int) -> str:
    """The name of member number `count`, if it stays inside the archive's folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name:
        raise BadArchive(f"has a member outside its folder: {name!r}")
    if count >= MAX_MEMBERS:
        raise BadArchive(f"has more than {MAX_MEMBERS:,} members")
    return str(path)


def _all_of(members: dict[str, bytes], sizes: Mapping[str, int]) -> dict[str, bytes]:
    missing = sizes.keys() - members.keys()
    if missing:
        raise BadArchive(f"lacks {', '.join(sorted(missing))}")
    return members
