"""What a safetensors file says, read without the library that writes it: `plrvo verify` needs nothing heavy.

The file begins with the length of its header in 8 bytes, and the header, a JSON object: for each tensor its type, its
shape, and where its numbers lie behind the header, and a text or two in `__metadata__`. Nothing else lies there.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plrvo.files import open_regular, parse_json

_BITS = {"BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "U16": 16, "I16": 16, "F16": 16, "BF16": 16}
_BITS |= {"U32": 32, "I32": 32, "F32": 32, "U64": 64, "I64": 64, "F64": 64, "C64": 64}
_LONGEST = 100_000_000  # bytes of a header, the format's own limit
_AT_ONCE = 1 << 24  # bytes


@dataclass(frozen=True)
class Tensors:
    """The header of a file that fits its length: places (start, end) by name, and the texts beside them."""

    path: Path
    places: dict[str, tuple[int, int]]
    counts: dict[str, int]
    metadata: dict[str, Any]

    @staticmethod
    def read(path: Path) -> Tensors | None:
        """None if it is no such file."""
        try:
            with open_regular(path) as file:
                length = int.from_bytes(file.read(8), "little")
                if not 0 < length <= _LONGEST:
                    return None
                header = parse_json(file.read(length))
                end = os.fstat(file.fileno()).st_size
            metadata = header.pop("__metadata__", {})
            start, places, counts = 8 + length, {}, {}
            for name, tensor in sorted(header.items(), key=lambda item: tuple(item[1]["data_offsets"])):
                count, (first, last) = math.prod(_shape(tensor)), tensor["data_offsets"]
                if 8 + length + first != start or 8 * (last - first) != count * _BITS[tensor["dtype"]]:
                    return None
                places[name], counts[name] = (start, start := 8 + length + last), count
        except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError):
            return None
        return Tensors(path, places, counts, metadata) if start == end and isinstance(metadata, dict) else None

    @property
    def elements(self) -> int:
        """How many numbers the file has."""
        return sum(self.counts.values())

    def count(self, names: Sequence[str]) -> int:
        """How many numbers these tensors have; one that is not here has none."""
        return sum(self.counts.get(name, 0) for name in names)

    def digest(self, names: Sequence[str]) -> str | None:
        """SHA-256 over the numbers of these tensors, one after the other; None if one of them is not here."""
        digest = hashlib.sha256()
        with open_regular(self.path) as file:
            for name in names:
                if name not in self.places:
                    return None
                start, end = self.places[name]
                file.seek(start)
                while start < end:
                    part = file.read(min(_AT_ONCE, end - start))
                    if not part:
                        return None  # cut short since the header was read
                    digest.update(part)
                    start += len(part)
        return digest.hexdigest()


def _shape(tensor: dict[str, list[int]]) -> list[int]:
    shape = tensor["shape"]
    if not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(shape)
    return shape
