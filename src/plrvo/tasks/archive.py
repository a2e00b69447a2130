"""Compressed files and archives, read in memory within known limits: nothing is extracted to disk or unpickled."""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import PurePosixPath

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
            unpacked = file.read(limit + 1)
    except (OSError, EOFError, zlib.error):
        raise BadArchive("is not a whole gzip file") from None
    if len(unpacked) > limit:
        raise BadArchive(f"unpacks to more than {limit:,} bytes")
    return unpacked


def untar(content: bytes, sizes: Mapping[str, int]) -> dict[str, bytes]:
    """The members named in `sizes`, each of exactly that many bytes, of an uncompressed tar archive.

    An archive in which any name leaves the folder it would be extracted to is refused as a whole, whether or not that
    member is asked for: somebody made it for a purpose that is not ours.
    """
    members: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            for count, member in enumerate(archive):
                name = PurePosixPath(member.name)
                if name.is_absolute() or ".." in name.parts or "\\" in member.name or ":" in member.name:
                    raise BadArchive(f"has a member outside its folder: {member.name!r}")
                if count >= MAX_MEMBERS:
                    raise BadArchive(f"has more than {MAX_MEMBERS:,} members")
                size = sizes.get(str(name))
                if size is None:
                    continue
                file = archive.extractfile(member) if member.isreg() and member.size == size else None
                if file is None:
                    raise BadArchive(f"has a member {member.name!r} that is not a file of {size:,} bytes")
                members[str(name)] = file.read()
    except tarfile.TarError:
        raise BadArchive("is not a whole tar archive") from None
    missing = sizes.keys() - members.keys()
    if missing:
        raise BadArchive(f"lacks {', '.join(sorted(missing))}")
    return members
