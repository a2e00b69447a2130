"""Files that are either whole or absent, and JSON that is read with one clear line when it is not what it should be."""

from __future__ import annotations

import errno
import gzip
import hashlib
import io
import json
import os
import secrets
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

from plrvo.validate import InvalidArgument, a_path

FIGURES = (".png", ".svg", ".pdf")
_CHUNK = 1 << 16
_HELD = (errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK)  # what different systems say of a lock that another one has
_LARGEST_JSON = 1 << 26  # bytes: plans and receipts have a few thousand


def write_bytes(path: Path, content: bytes, *, secret: bool = False) -> None:
    """Write to a temporary file beside `path`, flush it to disk, and rename it into place.

    Others may read it as they may read any new file of the user, or not at all if it is `secret`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        # Not Path.open, which takes no opener.
        with open(beside, "xb", opener=_for_the_owner if secret else None) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
        _sync_folder(path.parent)
    except BaseException as error:
        beside.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise OSError(error.errno, error.strerror, str(path)) from None  # a full disk names no file
        raise


def write_json(path: Path | str, value: Any) -> None:
    """One JSON document, indented for people; infinities are refused, not written as non-standard words."""
    write_bytes(a_path(path=path), (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())


def read_json(path: Path | str, argument: str, expected: str) -> Any:
    """The document in `path`; a missing or broken file is bad input of `argument`.

    So are a document with a word that JSON does not have (NaN), a key that comes twice, of which readers differ which
    one counts, and a size or a depth that no file of ours has.
    """
    path = a_path(**{argument: path})
    try:
        with path.open("rb") as file:
            content = read_at_most(file, _LARGEST_JSON)
    except OSError as error:
        raise InvalidArgument(argument, str(path), f"{expected} ({error.strerror})") from None
    try:
        return parse_json(content)
    except ValueError:
        raise InvalidArgument(argument, str(path), f"{expected} (the file is not JSON)") from None


def open_regular(path: Path) -> BufferedReader:
    """Open a file of a run to be read, or OSError: a pipe would wait for ever, and a device has no end."""
    file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115 - the caller closes it
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return file


def check_writable(path: Path, argument: str, *, folder: bool = False) -> None:
    """Refuse a file or folder to be made where none can be, before anything is computed for it; it leaves no trace."""
    if path.is_dir() and not folder:
        raise InvalidArgument(argument, str(path), "the name of a file; this is a folder")
    try:
        there = next(place for place in (path, *path.absolute().parents) if place.exists())
        within = there if there.is_dir() else there.parent
        if there not in (path, within):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        with tempfile.TemporaryFile(dir=within):
            pass
    except OSError as error:
        why = f"{error.strerror or error}"
        raise InvalidArgument(argument, str(path), f"a place where you can write ({why})") from None


def check_figure(path: Path) -> None:
    """Refuse a file whose name says no format that can be drawn, before anything is computed for it."""
    if path.suffix.lower() not in FIGURES:
        raise InvalidArgument("plot", str(path), f"a file name that ends in {', '.join(FIGURES)}")


def write_figure(figure: Any, path: Path, dpi: int = 150) -> None:
    """Write a figure of matplotlib in the format that the file's name says, whole or not at all."""
    check_figure(path)
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix[1:].lower(), dpi=dpi)
    write_bytes(path, content.getvalue())


def json_digest(value: Any) -> str:
    """SHA-256 of a document, whatever the order of its keys.

    >>> json_digest({"a": 1, "b": [2]}) == json_digest({"b": [2], "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def read_at_most(file: IO[bytes] | gzip.GzipFile, largest: int) -> bytes:
    """All of a file of at most so many bytes, or OSError. Memory is taken as bytes come, not for the most of them."""
    content = bytearray()
    while chunk := file.read(_CHUNK):
        content += chunk
        if len(content) > largest:
            raise OSError(errno.EFBIG, f"more than {largest:,} bytes")
    return bytes(content)


def parse_json(content: bytes | str) -> Any:
    """The document, or ValueError.

    >>> parse_json('{"delta": 1e-5, "delta": 1e-9}')
    Traceback (most recent call last):
        ...
    ValueError: a key comes twice
    """
    try:
        return json.loads(content, parse_constant=_no_constant, object_pairs_hook=_each_key_once)
    except RecursionError:
        raise ValueError("too deep") from None


class LockHeld(InvalidArgument):
    """A place that another process works on."""


@contextmanager
def locked(path: Path, argument: str, patience: float = 0.0) -> Iterator[None]:
    """Hold the lock file `path`; where another process holds it for longer than so many seconds: `LockHeld`.

    The operating system gives the lock back when its holder ends, however it ends: what a killed process leaves behind
    is a file that blocks nobody.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    waited_since = time.monotonic()
    while True:
        with path.open("ab+") as file:
            try:
                _lock(file.fileno())
            except OSError as error:
                if error.errno not in _HELD:
                    raise OSError(error.errno, f"no lock can be had here ({error.strerror})", str(path)) from None
                if time.monotonic() - waited_since < patience:
                    time.sleep(0.002)
                    continue
                place = "a place that no other process works on; wait for it, or take another place"
                raise LockHeld(argument, str(path.parent), place) from None
            if not _is_at(path, file.fileno()):
                continue  # the holder before us took its file away between our opening and locking it
            try:
                yield
            finally:
                if sys.platform != "win32":  # where an open file cannot be removed
                    path.unlink(missing_ok=True)
            return


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _sync_folder(folder: Path) -> None:
    """Make the new name last through a loss of power, where folders can be flushed."""
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _for_the_owner(path: str, flags: int) -> int:
    return os.open(path, flags, mode=0o600)


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key comes twice")
    return found
