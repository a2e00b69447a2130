"""Features that a public network computes once and a private head is trained on: kept in files, checked when read."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from plrvo.files import write_bytes
from plrvo.validate import InvalidArgument

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Chunk:
    """Some rows of features: a key made of all that they depend on, and how to compute them."""

    key: str
    rows: int
    compute: Callable[[], Tensor]


def cached_features(
    chunks: Iterable[Chunk], total: int, cache_dir: Path | None, progress: Callable[[int], None] | None = None
) -> list[Tensor]:
    """The features of each chunk, from the cache or computed and put there; `progress` hears of the rows done.

    One file holds one chunk, so that work which was stopped goes on from the last whole one. `total` counts
    the rows of all chunks, for whoever waits.
    """
    parts, done = [], 0
    where = "" if cache_dir is None else f", and kept in {cache_dir}, as secret as the data"
    for chunk in chunks:
        path = None if cache_dir is None else cache_dir / f"{chunk.key}.safetensors"
        part = None if path is None else _read(path, chunk.rows)
        if part is None:
            part = chunk.compute()
            if path is not None:
                _write(path, part)
        parts.append(part)
        done += chunk.rows
        _LOG.debug("features of %d of %d examples made%s", done, total, where)
        if progress is not None:
            progress(done)
    return parts


def _digest(part: Tensor) -> Tensor:
    content = f"{part.dtype}{tuple(part.shape)}".encode() + part.numpy().tobytes()
    return torch.frombuffer(bytearray(hashlib.sha256(content).digest()), dtype=torch.uint8)


def _write(path: Path, part: Tensor) -> None:
    try:
        write_bytes(path, save({"features": part, "sha256": _digest(part)}))
    except OSError as error:
        raise InvalidArgument(
            "cache_dir", str(path.parent), f"a folder that can be written ({error.strerror})"
        ) from None


def _read(path: Path, rows: int) -> Tensor | None:
    """The features in `path`; None when there are none, or not as they were written: then they are computed again."""
    try:
        tensors = load(path.read_bytes())
        part, digest = tensors["features"], tensors["sha256"]
    except (OSError, SafetensorError, KeyError):
        return None
    return part if len(part) == rows and torch.equal(digest, _digest(part)) else None
