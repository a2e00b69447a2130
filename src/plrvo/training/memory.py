"""Memory that is free again, given back to the system.

A try makes and drops tensors of many sizes, with small ones in between that stay. What is dropped then lies in pieces
that nothing else fits into, and a process would keep them as long as it runs, beside all that its steps ask for.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any


def give_back() -> None:
    """What the allocator can: that of the GNU C library can, which PyTorch uses on Linux unless told otherwise."""
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Any:
    try:
        return getattr(ctypes.CDLL(None), "malloc_trim", None)
    except (OSError, TypeError):  # a system without a C library of its process
        return None
