"""What a safetensors file says of itself, read without the library that writes it: `plrvo verify` needs nothing heavy.

The file begins with the length of its header in 8 bytes, and the header, a JSON object: for each tensor its type, its
shape, and where its numbers lie behind the header. Nothing else lies there.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

from plrvo.files import open_regular, parse_json

_BITS = {"BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "U16": 16, "I16": 16, "F16": 16, "BF16": 16}
_BITS |= {"U32": 32, "I32": 32, "F32": 32, "U64": 64, "I64": 64, "F64": 64, "C64": 64}
_LONGEST = 100_000_000  # bytes of a header, the format's own limit


def elements(path: Path) -> int | None:
    """How many numbers the file has by its header, which fits its length; None if it is no such file."""
    try:
        with open_regular(path) as file:
            length = int.from_bytes(file.read(8), "little")
            if not 0 < length <= _LONGEST:
                return None
            header = parse_json(file.read(length))
            behind = os.fstat(file.fileno()).st_size - 8 - length
        tensors = [value for name, value in header.items() if name != "__metadata__"]
        counts = [math.prod(_shape(tensor)) for tensor in tensors]
        places = sorted(tuple(tensor["data_offsets"]) for tensor in tensors)
        sizes = [end - start for start, end in (tensor["data_offsets"] for tensor in tensors)]
        if any(8 * size != count * _BITS[t["dtype"]] for size, count, t in zip(sizes, counts, tensors, strict=True)):
            return None
        ends = [0, *(end for _, end in places)]
        gapless = all(start == end for (start, _), end in zip(places, ends, strict=False))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError):
        return None
    return sum(counts) if gapless and ends[-1] == behind else None


def _shape(tensor: dict[str, list[int]]) -> list[int]:
    shape = tensor["shape"]
    if not all(type(size) is int and size >= 0 for size in shape):
        raise ValueError(shape)
    return shape
